package dormouse;

import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsServer;

import io.undertow.Undertow;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;

import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;

import org.glassfish.grizzly.http.server.HttpHandler;
import org.glassfish.grizzly.http.server.HttpServer;
import org.glassfish.grizzly.http.server.NetworkListener;
import org.glassfish.grizzly.http.server.Request;
import org.glassfish.grizzly.http.server.Response;
import org.glassfish.grizzly.ssl.SSLEngineConfigurator;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

// library: Grizzly 4, Undertow 2 | works | `SSLContext`
/** Clients that say goodbye and keep their TCP connection: they must not keep a server busy. */
class GoodbyeTest {
    private static final byte[] HELLO = "hello".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] REQUEST = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".getBytes(StandardCharsets.US_ASCII);
    /** Servers that run in a circle make some million calls a second. */
    private static final long CALLS_MAX = 1_000;
    private static final int QUIET_MS = 300;

    private interface Running extends AutoCloseable {
        int port();

        @Override
        void close() throws IOException;
    }

    private record Server(int port, Runnable stop) implements Running {
        @Override
        public void close() {
            stop.run();
        }
    }

    enum Kind {
        JDK {
            @Override
            Running start(SSLContext context) throws IOException {
                HttpsServer server = HttpsServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
                server.setHttpsConfigurator(new HttpsConfigurator(context));
                server.createContext("/", exchange -> {
                    exchange.sendResponseHeaders(200, HELLO.length);
                    exchange.getResponseBody().write(HELLO);
                    exchange.close();
                });
                ExecutorService threads = Executors.newCachedThreadPool();
                server.setExecutor(threads);
                server.start();
                return new Server(server.getAddress().getPort(), () -> {
                    server.stop(0);
                    threads.shutdownNow();
                });
            }
        },
        GRIZZLY {
            @Override
            Running start(SSLContext context) throws IOException {
                HttpServer server = new HttpServer();
                NetworkListener listener = new NetworkListener("tls", "127.0.0.1", 0);
                listener.setSecure(true);
                listener.setSSLEngineConfig(new SSLEngineConfigurator(context, false, false, false));
                server.addListener(listener);
                server.getServerConfiguration().addHttpHandler(new HttpHandler() {
                    @Override
                    public void service(Request request, Response response) throws IOException {
                        response.getOutputStream().write(HELLO);
                    }
                });
                server.start();
                return new Server(listener.getPort(), server::shutdownNow);
            }
        },
        UNDERTOW {
            @Override
            Running start(SSLContext context) {
                Undertow server = Undertow.builder()
                        .addHttpsListener(0, "127.0.0.1", context)
                        .setHandler(exchange -> exchange.getResponseSender().send("hello"))
                        .build();
                server.start();
                InetSocketAddress address = (InetSocketAddress) server.getListenerInfo().get(0).getAddress();
                return new Server(address.getPort(), server::stop);
            }
        };

        abstract Running start(SSLContext context) throws IOException;
    }

    @ParameterizedTest
    @EnumSource(Kind.class)
    void costsNothing(Kind kind) throws Exception {
        AtomicLong calls = new AtomicLong();
        SSLContext counted = CountedEngine.context(TestKeys.context(true, TestKeys.EC), calls);
        List<Socket> clients = new ArrayList<>();
        try (Running server = kind.start(counted)) {
            for (String protocol : List.of("TLSv1.2", "TLSv1.3")) {
                for (boolean asks : new boolean[] {false, true}) {
                    Socket below = new Socket("127.0.0.1", server.port());
                    clients.add(below);
                    SSLSocket client = (SSLSocket) TestKeys.context(false).getSocketFactory()
                            .createSocket(below, "localhost", server.port(), false);
                    client.setEnabledProtocols(new String[] {protocol});
                    client.startHandshake();
                    if (asks) {
                        client.getOutputStream().write(REQUEST);
                        assertTrue(client.getInputStream().read(new byte[1_000]) > 0);
                    }
                    // Sends close_notify, and no FIN.
                    client.shutdownOutput();
                    Thread.sleep(QUIET_MS);
                    long before = calls.get();
                    Thread.sleep(QUIET_MS);
                    long during = calls.get() - before;
                    assertTrue(during < CALLS_MAX, during + " calls for a client that is gone: " + protocol);
                }
            }
        } finally {
            for (Socket client : clients) {
                client.close();
            }
        }
    }
}
