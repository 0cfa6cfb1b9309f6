package dormouse.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dormouse.Programs;
import dormouse.TestKeys;

import io.netty.channel.epoll.Epoll;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

import javax.net.ssl.SSLSocket;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** {@code examples/RestartServer.java} under load. */
class RestartTest {
    private static final int CLIENTS = 8;
    private static final int RESTARTS = 2;
    private static final int TIMEOUT_S = 180;

    /** The server's processes, by what they print. */
    private static final class Server implements AutoCloseable {
        /** Not a pipe: the JDK closes a pipe when the first process ends. */
        private final Path printed;
        private final List<Long> pids = new ArrayList<>();
        int port;

        Server(Path folder) throws Exception {
            Path[] files = TestKeys.pemFiles(TestKeys.EC);
            printed = folder.resolve("printed");
            String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
            String classes = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
            // Under nohup the JVM would ignore SIGHUP.
            new ProcessBuilder("env", "--default-signal=HUP", java, "-Xmx128m", "-cp", classes,
                            "examples/RestartServer.java", "0", files[0].toString(), files[1].toString())
                    .redirectErrorStream(true)
                    .redirectOutput(printed.toFile())
                    .start();
            awaitStart();
        }

        /** Waits for the next process to listen. */
        void awaitStart() throws Exception {
            for (int i = 0; i < TIMEOUT_S * 10; i++) {
                List<String> lines = Files.readAllLines(printed).stream().filter(line -> line.startsWith("process ")).toList();
                if (lines.size() > pids.size()) {
                    String line = lines.get(pids.size());
                    pids.add(Long.parseLong(line.split(" ")[1]));
                    port = Integer.parseInt(line.substring(line.lastIndexOf(':') + 1));
                    return;
                }
                Thread.sleep(100);
            }
            throw new IOException("no process has begun to listen: " + Files.readString(printed));
        }

        void restart() throws Exception {
            Programs.run("kill", "-HUP", Long.toString(pids.get(pids.size() - 1)));
            awaitStart();
        }

        @Override
        public void close() {
            for (long pid : pids) {
                ProcessHandle.of(pid).ifPresent(ProcessHandle::destroyForcibly);
            }
        }
    }

    /** Sends lines until the server's last process has answered. Returns the processes that did. */
    private static Callable<Set<Long>> client(Server server) throws Exception {
        SSLSocket socket = (SSLSocket) TestKeys.context(false).getSocketFactory().createSocket("127.0.0.1", server.port);
        socket.setSoTimeout(60_000);
        socket.startHandshake();
        return () -> {
            Set<Long> pids = new HashSet<>();
            try (socket) {
                BufferedReader in = new BufferedReader(new InputStreamReader(socket.getInputStream()));
                for (int count = 1; pids.size() <= RESTARTS; count++) {
                    // In two parts, so that some lines are unfinished when the process changes.
                    socket.getOutputStream().write("one".getBytes(StandardCharsets.US_ASCII));
                    Thread.sleep(1);
                    socket.getOutputStream().write(" line\n".getBytes(StandardCharsets.US_ASCII));
                    String[] answer = in.readLine().split(" ", 3);
                    assertEquals(count, Integer.parseInt(answer[1]));
                    assertEquals("one line", answer[2]);
                    pids.add(Long.parseLong(answer[0]));
                }
            }
            return pids;
        };
    }

    @Test
    void noConnectionIsLost(@TempDir Path folder) throws Exception {
        assumeTrue(Epoll.isAvailable(), "descriptors are passed by Netty's epoll transport");
        ExecutorService threads = Executors.newFixedThreadPool(CLIENTS);
        try (Server server = new Server(folder)) {
            List<Future<Set<Long>>> clients = new ArrayList<>();
            for (int i = 0; i < CLIENTS; i++) {
                clients.add(threads.submit(client(server)));
            }
            for (int i = 0; i < RESTARTS; i++) {
                server.restart();
            }
            for (Future<Set<Long>> client : clients) {
                assertTrue(client.get(TIMEOUT_S, TimeUnit.SECONDS).containsAll(server.pids));
            }
        } finally {
            threads.shutdownNow();
        }
    }
}
