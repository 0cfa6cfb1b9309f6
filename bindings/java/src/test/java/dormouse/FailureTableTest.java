package dormouse;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

import javax.net.ssl.SNIHostName;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * What a program is told when a connection fails, beside the JDK's sockets, and which alert the peer gets. {@code
 * bindings/java/failures.tsv} has the answers; {@code -Ddormouse.write=true} writes it anew, for FAILURES.md.
 */
class FailureTableTest {
    private static final Path TABLE = Path.of("failures.tsv");
    private static final int TIMEOUT_MS = 20_000;
    private static final Pattern ALERT = Pattern.compile("Received fatal alert: (\\w+)");
    /** How often an attempt is made whose peer may close before it has read the alert, or we may. */
    private static final int ATTEMPTS_MAX = 5;
    private static final Consumer<SSLSocket> NOTHING = socket -> { };

    /** A connection that fails, of our sockets or of the JDK's. */
    private interface Attempt {
        void perform(boolean ours) throws Exception;
    }

    private final List<String> lines = new ArrayList<>();
    /** An authority, and certificates of it that are not valid now. */
    private final KeyStore authority;
    private final KeyStore expired;
    private final KeyStore future;

    FailureTableTest(@TempDir Path folder) throws Exception {
        String store = folder.resolve("keys.p12").toString();
        keytool(store, "authority", "-ext", "bc:c");
        keytool(store, "expired", "-signer", "authority", "-startdate", "-10d", "-validity", "5");
        keytool(store, "future", "-signer", "authority", "-startdate", "+5d", "-validity", "5");
        KeyStore all = KeyStore.getInstance(Path.of(store).toFile(), TestKeys.PASSWORD);
        authority = only("authority", all);
        expired = only("expired", all);
        future = only("future", all);
    }

    private static void keytool(String store, String name, String... options) throws Exception {
        List<String> command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "keytool").toString(), "-genkeypair", "-alias", name,
                "-dname", "CN=localhost", "-keyalg", "EC", "-storetype", "PKCS12", "-keystore", store, "-storepass",
                new String(TestKeys.PASSWORD)));
        command.addAll(List.of(options));
        Programs.run(command.toArray(String[]::new));
    }

    private static KeyStore only(String name, KeyStore all) throws Exception {
        KeyStore one = KeyStore.getInstance("PKCS12");
        one.load(null, null);
        one.setKeyEntry(name, all.getKey(name, TestKeys.PASSWORD), TestKeys.PASSWORD, all.getCertificateChain(name));
        return one;
    }

    private static SSLContext context(boolean ours, KeyStore keys, KeyStore... trusted) throws Exception {
        SSLContext context =
                ours ? SSLContext.getInstance("TLS", TestKeys.DORMOUSE) : SSLContext.getInstance("TLS", "SunJSSE");
        context.init(keys == null ? null : TestKeys.keyManagers(keys), TestKeys.trustManagers(trusted), null);
        return context;
    }

    private void compare(String situation, Attempt attempt) {
        lines.add(situation + "\t" + withAlert(attempt, false) + "\t" + withAlert(attempt, true));
    }

    /** The outcome; one with an alert, if there is one in some attempts. */
    private String withAlert(Attempt attempt, boolean ours) {
        String outcome = null;
        for (int i = 0; i < ATTEMPTS_MAX; i++) {
            outcome = outcome(attempt, ours);
            if (outcome.contains("Received fatal alert") || outcome.contains("the peer gets")) {
                return outcome;
            }
        }
        return outcome;
    }

    private String outcome(Attempt attempt, boolean ours) {
        alertOfPeer = null;
        String said;
        try {
            attempt.perform(ours);
            said = "no error";
        } catch (UncheckedIOException problem) {
            said = text(problem.getCause());
        } catch (Exception problem) {
            said = text(problem);
        }
        return said.replaceAll("\\s+", " ") + (alertOfPeer == null ? "" : "; the peer gets " + alertOfPeer);
    }

    private static String text(Exception problem) {
        return problem.getClass().getSimpleName() + ": " + problem.getMessage();
    }

    /** The alert that the peer of the last attempt has got. */
    private String alertOfPeer;

    /** A handshake with a peer of the JDK, and one byte from it. */
    private void shakeHands(
            boolean isClient, SSLContext context, Consumer<SSLSocket> settings, SSLContext ofPeer,
            Consumer<SSLSocket> settingsOfPeer)
            throws Exception {
        withPeer(peer -> {
            SSLSocket tls = over(ofPeer, peer, !isClient);
            settingsOfPeer.accept(tls);
            tls.startHandshake();
            tls.getOutputStream().write(1);
            tls.getInputStream().read();
        }, below -> {
            SSLSocket socket = over(context, below, isClient);
            settings.accept(socket);
            socket.startHandshake();
            socket.getInputStream().read();
        });
    }

    private interface Part {
        void perform(Socket socket) throws Exception;
    }

    private void withPeer(Part ofPeer, Part ours) throws Exception {
        ExecutorService thread = Executors.newSingleThreadExecutor();
        try (ServerSocket listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                Socket below = new Socket(listener.getInetAddress(), listener.getLocalPort());
                Socket peer = listener.accept()) {
            below.setSoTimeout(TIMEOUT_MS);
            peer.setSoTimeout(TIMEOUT_MS);
            Future<String> alert = thread.submit(() -> {
                try {
                    ofPeer.perform(peer);
                } catch (IOException problem) {
                    Matcher found = ALERT.matcher(String.valueOf(problem.getMessage()));
                    return found.find() ? found.group(1) : null;
                }
                return null;
            });
            try {
                ours.perform(below);
            } finally {
                below.close();
                alertOfPeer = alert.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
            }
        } finally {
            thread.shutdownNow();
        }
    }

    private static SSLSocket over(SSLContext context, Socket below, boolean isClient) throws IOException {
        SSLSocket socket =
                (SSLSocket) context.getSocketFactory().createSocket(below, "localhost", below.getPort(), true);
        socket.setUseClientMode(isClient);
        return socket;
    }

    private static Consumer<SSLSocket> protocol(String name) {
        return socket -> socket.setEnabledProtocols(new String[] {name});
    }

    private static Consumer<SSLSocket> suite(String name) {
        return protocol("TLSv1.2").andThen(socket -> socket.setEnabledCipherSuites(new String[] {name}));
    }

    private static Consumer<SSLSocket> parameters(Consumer<SSLParameters> change) {
        return socket -> {
            SSLParameters parameters = socket.getSSLParameters();
            change.accept(parameters);
            socket.setSSLParameters(parameters);
        };
    }

    private static Consumer<SSLSocket> alpn(String name) {
        return parameters(one -> one.setApplicationProtocols(new String[] {name}));
    }

    private static final Consumer<SSLSocket> REQUIRES = socket -> socket.setNeedClientAuth(true);
    private static final String AES128 = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
    private static final String AES256 = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384";

    private void client(boolean ours, KeyStore ofServer, Consumer<SSLSocket> settings) throws Exception {
        shakeHands(true, context(ours, null, authority, TestKeys.OTHER), settings,
                context(false, ofServer, TestKeys.EC), NOTHING);
    }

    /** Client and server know each other. */
    private void both(
            boolean isClient, boolean ours, Consumer<SSLSocket> settings, Consumer<SSLSocket> settingsOfPeer)
            throws Exception {
        shakeHands(isClient, context(ours, isClient ? null : TestKeys.EC, TestKeys.EC), settings,
                context(false, isClient ? TestKeys.EC : null, TestKeys.EC), settingsOfPeer);
    }

    @Test
    void failures() throws Exception {
        ofCertificates();
        ofNegotiations();
        ofTransports();
        ofEstablishedConnections();
        String table = lines.stream().map(line -> line + "\n").collect(Collectors.joining());
        if (Boolean.getBoolean("dormouse.write")) {
            Files.writeString(TABLE, table);
        }
        assertEquals(certain(Files.readString(TABLE)), certain(table));
    }

    /** Without the JDK's words, which change with its version, and without what a peer may be too late to read. */
    private static String certain(String table) {
        return table.replaceAll("\t.*\t", "\t").replaceAll("; the peer gets \\w+", "");
    }

    private void ofCertificates() {
        compare("client: the certificate is of an unknown authority",
                ours -> shakeHands(true, context(ours, null, TestKeys.OTHER), NOTHING,
                        context(false, TestKeys.EC, TestKeys.EC), NOTHING));
        compare("client: the certificate has expired", ours -> client(ours, expired, NOTHING));
        compare("client: the certificate is not valid yet", ours -> client(ours, future, NOTHING));
        compare("client: the certificate is for another name", ours -> client(ours, TestKeys.OTHER,
                parameters(one -> one.setEndpointIdentificationAlgorithm("HTTPS"))));
        for (String version : List.of("TLSv1.2", "TLSv1.3")) {
            compare("client without the certificate that the server requires, " + version,
                    ours -> both(true, ours, protocol(version), REQUIRES));
            compare("server: the client has no certificate, " + version,
                    ours -> both(false, ours, REQUIRES, protocol(version)));
            compare("client whose certificate the server does not trust, " + version,
                    ours -> shakeHands(true, context(ours, TestKeys.CLIENT, TestKeys.EC), protocol(version),
                            context(false, TestKeys.EC, TestKeys.OTHER), REQUIRES));
            compare("server whose certificate the client does not trust, " + version,
                    ours -> shakeHands(false, context(ours, TestKeys.EC, TestKeys.EC), NOTHING,
                            context(false, null, TestKeys.OTHER), protocol(version)));
        }
        compare("server without a certificate",
                ours -> shakeHands(false, context(ours, null, TestKeys.EC), NOTHING,
                        context(false, null, TestKeys.EC), NOTHING));
    }

    private void ofNegotiations() {
        for (boolean isClient : new boolean[] {true, false}) {
            String side = isClient ? "client: " : "server: ";
            compare(side + "no common protocol version",
                    ours -> both(isClient, ours, protocol("TLSv1.2"), protocol("TLSv1.3")));
            compare(side + "no common cipher suite", ours -> both(isClient, ours, suite(AES128), suite(AES256)));
            compare(side + "no common application protocol", ours -> both(isClient, ours, alpn("h2"), alpn("other")));
        }
        compare("server: an SNIMatcher refuses the name",
                ours -> both(false, ours,
                        parameters(one -> one.setSNIMatchers(List.of(SNIHostName.createSNIMatcher("known\\.test")))),
                        parameters(one -> one.setServerNames(List.of(new SNIHostName("other.test"))))));
    }

    private void ofTransports() {
        Part handshake = socket -> { };
        compare("client: the server answers in plaintext", ours -> ofClient(ours, peer -> {
            peer.getOutputStream().write("220 mail.test ESMTP\r\n".getBytes(StandardCharsets.US_ASCII));
            peer.getInputStream().read();
        }, handshake));
        compare("server: the client sends plain HTTP", ours -> withPeer(peer -> {
            peer.getOutputStream().write("GET / HTTP/1.1\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
            peer.getInputStream().read();
        }, below -> over(context(ours, TestKeys.EC, TestKeys.EC), below, false).startHandshake()));
        compare("client: the server closes during the handshake", ours -> ofClient(ours, peer -> {
            peer.getInputStream().read(new byte[10_000]);
            peer.shutdownOutput();
        }, handshake));
        compare("client: the server resets the connection during the handshake", ours -> ofClient(ours, peer -> {
            peer.getInputStream().read();
            peer.setSoLinger(true, 0);
            peer.close();
        }, handshake));
        compare("client: the server does not answer (SO_TIMEOUT)",
                ours -> ofClient(ours, peer -> peer.getInputStream().readAllBytes(), socket -> socket.setSoTimeout(50)));
        compare("client: nobody listens", ours -> {
            int port;
            try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
                port = free.getLocalPort();
            }
            context(ours, null, TestKeys.EC).getSocketFactory().createSocket(InetAddress.getLoopbackAddress(), port);
        });
    }

    private void ofClient(boolean ours, Part peer, Part before) throws Exception {
        withPeer(peer, below -> {
            before.perform(below);
            over(context(ours, null, TestKeys.EC), below, true).startHandshake();
        });
    }

    private void ofEstablishedConnections() {
        byte[] forged = new byte[55];
        System.arraycopy(new byte[] {23, 3, 3, 0, 50}, 0, forged, 0, 5);
        compare("a forged record arrives", ours -> established(ours, below -> below.getOutputStream().write(forged),
                socket -> socket.getInputStream().read()));
        compare("a read after a failure", ours -> established(ours, below -> below.getOutputStream().write(forged), socket -> {
            try {
                socket.getInputStream().read();
            } catch (IOException expected) {
                // The read after it matters.
            }
            socket.getInputStream().read();
        }));
        compare("the connection ends within a record", ours -> established(ours, below -> {
            below.getOutputStream().write(forged, 0, 20);
            below.shutdownOutput();
        }, socket -> socket.getInputStream().read()));
        compare("the connection ends without close_notify",
                ours -> established(ours, Socket::shutdownOutput, socket -> socket.getInputStream().read()));
        compare("a read from a closed socket", ours -> established(ours, below -> { }, socket -> {
            socket.close();
            socket.getInputStream().read();
        }));
        compare("a write after shutdownOutput()", ours -> established(ours, below -> { }, socket -> {
            var out = socket.getOutputStream();
            socket.shutdownOutput();
            out.write(1);
        }));
        compare("renegotiation, TLSv1.2", ours -> shakeHands(true, context(ours, null, TestKeys.EC),
                protocol("TLSv1.2").andThen(socket -> {
                    try {
                        socket.startHandshake();
                        socket.startHandshake();
                    } catch (IOException problem) {
                        throw new UncheckedIOException(problem);
                    }
                }), context(false, TestKeys.EC, TestKeys.EC), NOTHING));
    }

    /** After the handshake, the peer does something to its TCP connection. */
    private void established(boolean ours, Part ofPeer, Part ofSocket) throws Exception {
        withPeer(peer -> {
            SSLSocket tls = over(context(false, TestKeys.EC, TestKeys.EC), peer, false);
            tls.setEnabledProtocols(new String[] {"TLSv1.2"});
            tls.startHandshake();
            ofPeer.perform(peer);
            tls.getInputStream().read();
        }, below -> {
            SSLSocket socket = over(context(ours, null, TestKeys.EC), below, true);
            socket.startHandshake();
            ofSocket.perform(socket);
        });
    }
}
