package dormouse;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

import javax.net.ssl.HandshakeCompletedEvent;
import javax.net.ssl.SNIHostName;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLHandshakeException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLPeerUnverifiedException;
import javax.net.ssl.SSLServerSocket;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509ExtendedTrustManager;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Sockets against each other and against the JDK's, both ways. */
class SocketTest {
    private static final int TIMEOUT_S = 20;

    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final List<AutoCloseable> opened = new ArrayList<>();

    @AfterEach
    void closeAll() throws Exception {
        for (AutoCloseable one : opened) {
            one.close();
        }
        threads.shutdownNow();
        assertTrue(threads.awaitTermination(TIMEOUT_S, TimeUnit.SECONDS), "a thread hangs");
    }

    record Case(boolean clientIsOurs, boolean serverIsOurs, String protocol) {}

    static Stream<Case> cases() {
        return Stream.of("TLSv1.2", "TLSv1.3").flatMap(protocol -> Stream.of(
                new Case(true, true, protocol), new Case(true, false, protocol), new Case(false, true, protocol)));
    }

    /** Both ends of a connection. */
    private final class Ends {
        final SSLSocket client;
        final SSLSocket server;

        Ends(SSLContext clients, SSLContext servers) throws Exception {
            SSLServerSocket listener = listen(servers);
            client = (SSLSocket) clients.getSocketFactory().createSocket("localhost", listener.getLocalPort());
            server = (SSLSocket) listener.accept();
            opened.addAll(List.of(client, server));
        }

        Ends(Case one) throws Exception {
            this(TestKeys.context(one.clientIsOurs, TestKeys.CLIENT), TestKeys.context(one.serverIsOurs, TestKeys.EC));
            client.setEnabledProtocols(new String[] {one.protocol});
        }

        /** Performs the handshake. Throws what the client's part throws. */
        void shakeHands() throws Exception {
            Future<?> ofServer = inThread(() -> {
                server.startHandshake();
                return null;
            });
            client.startHandshake();
            ofServer.get(TIMEOUT_S, TimeUnit.SECONDS);
        }
    }

    private SSLServerSocket listen(SSLContext servers) throws IOException {
        SSLServerSocket listener = (SSLServerSocket)
                servers.getServerSocketFactory().createServerSocket(0, 1, InetAddress.getByName("127.0.0.1"));
        opened.add(listener);
        return listener;
    }

    private <T> Future<T> inThread(Callable<T> work) {
        return threads.submit(work);
    }

    private static byte[] random(int length) {
        byte[] bytes = new byte[length];
        new Random(length).nextBytes(bytes);
        return bytes;
    }

    @ParameterizedTest
    @MethodSource("cases")
    void dataBothWaysAtOnceAndHalfClose(Case one) throws Exception {
        Ends ends = new Ends(one);
        byte[] up = random(3_000_000);
        byte[] down = random(2_000_001);
        // The first byte performs the handshake.
        Future<byte[]> atServer = inThread(() -> ends.server.getInputStream().readNBytes(up.length));
        Future<?> fromServer = inThread(() -> {
            ends.server.getOutputStream().write(down);
            return null;
        });
        Future<byte[]> atClient = inThread(() -> ends.client.getInputStream().readNBytes(down.length));
        ends.client.getOutputStream().write(up);
        assertArrayEquals(up, atServer.get(TIMEOUT_S, TimeUnit.SECONDS));
        assertArrayEquals(down, atClient.get(TIMEOUT_S, TimeUnit.SECONDS));
        fromServer.get(TIMEOUT_S, TimeUnit.SECONDS);
        assertEquals(one.protocol, ends.client.getSession().getProtocol());
        assertEquals("CN=localhost", ends.client.getSession().getPeerPrincipal().getName());

        ends.client.shutdownOutput();
        assertEquals(-1, ends.server.getInputStream().read());
        assertTrue(ends.client.isOutputShutdown() && !ends.client.isInputShutdown() && !ends.client.isClosed());
        if (one.protocol.equals("TLSv1.3")) {
            ends.server.getOutputStream().write(7);
            assertEquals(7, ends.client.getInputStream().read());
        }
        ends.server.close();
        assertEquals(-1, ends.client.getInputStream().read());
        ends.client.close();
        assertThrows(SocketException.class, ends.client::getInputStream);
    }

    @ParameterizedTest
    @MethodSource("cases")
    void timeoutsLoseNothing(Case one) throws Exception {
        // The server's records arrive byte by byte.
        try (ServerSocket slow = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"))) {
            SSLServerSocket listener = listen(TestKeys.context(one.serverIsOurs, TestKeys.EC));
            inThread(() -> {
                relay(slow.accept(), new Socket("127.0.0.1", listener.getLocalPort()));
                return null;
            });
            SSLSocket client = (SSLSocket) TestKeys.context(one.clientIsOurs).getSocketFactory()
                    .createSocket("127.0.0.1", slow.getLocalPort());
            opened.add(client);
            client.setEnabledProtocols(new String[] {one.protocol});
            client.setSoTimeout(TIMEOUT_S * 1_000);
            Future<?> atServer = inThread(() -> {
                SSLSocket server = (SSLSocket) listener.accept();
                opened.add(server);
                server.getOutputStream().write("hello".getBytes(StandardCharsets.US_ASCII));
                return null;
            });
            client.startHandshake();
            client.setSoTimeout(1);
            StringBuilder received = new StringBuilder();
            int timeouts = 0;
            while (received.length() < 5) {
                try {
                    received.append((char) client.getInputStream().read());
                } catch (SocketTimeoutException expected) {
                    timeouts++;
                }
            }
            assertEquals("hello", received.toString());
            assertTrue(timeouts > 0, "no timeout within a record");
            atServer.get(TIMEOUT_S, TimeUnit.SECONDS);
        }
    }

    /** Carries a connection. What the server sends after its handshake comes slowly. */
    private void relay(Socket client, Socket server) throws IOException {
        opened.addAll(List.of(client, server));
        inThread(() -> client.getInputStream().transferTo(server.getOutputStream()));
        InputStream from = server.getInputStream();
        OutputStream to = client.getOutputStream();
        client.setTcpNoDelay(true);
        for (int total = 0, one; (one = from.read()) >= 0; total++) {
            to.write(one);
            if (total > 700 && from.available() < 60) {
                try {
                    Thread.sleep(3);
                } catch (InterruptedException end) {
                    return;
                }
            }
        }
    }

    /** STARTTLS: TLS begins and ends on a socket that the program keeps. */
    @ParameterizedTest
    @MethodSource("cases")
    void overASocketThatStays(Case one) throws Exception {
        try (ServerSocket listener = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"));
                Socket below = new Socket("127.0.0.1", listener.getLocalPort());
                Socket serverBelow = listener.accept()) {
            Future<?> atServer = inThread(() -> {
                // The first bytes of TLS may have come with the plain ones.
                byte[] consumed = serverBelow.getInputStream().readNBytes(3);
                SSLSocket server = (SSLSocket) TestKeys.context(one.serverIsOurs, TestKeys.EC).getSocketFactory()
                        .createSocket(serverBelow, new java.io.ByteArrayInputStream(consumed), false);
                assertFalse(server.getUseClientMode());
                assertEquals("in TLS", new String(server.getInputStream().readNBytes(6), StandardCharsets.US_ASCII));
                assertEquals(-1, server.getInputStream().read());
                server.close();
                serverBelow.getOutputStream().write("plain again".getBytes(StandardCharsets.US_ASCII));
                return null;
            });
            SSLSocket client = (SSLSocket) TestKeys.context(one.clientIsOurs).getSocketFactory()
                    .createSocket(below, "localhost", below.getPort(), false);
            client.setEnabledProtocols(new String[] {one.protocol});
            client.getOutputStream().write("in TLS".getBytes(StandardCharsets.US_ASCII));
            client.shutdownOutput();
            assertEquals(-1, client.getInputStream().read());
            client.close();
            assertFalse(below.isClosed());
            assertEquals("plain again",
                    new String(below.getInputStream().readNBytes(11), StandardCharsets.US_ASCII));
            atServer.get(TIMEOUT_S, TimeUnit.SECONDS);
        }
    }

    /** The end of the peer does not close a socket that the program keeps, and our direction goes on. */
    @Test
    void anEndOverASocketThatStays() throws Exception {
        try (ServerSocket listener = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"));
                Socket below = new Socket("127.0.0.1", listener.getLocalPort());
                Socket serverBelow = listener.accept()) {
            SSLSocket client = (SSLSocket) TestKeys.context(true).getSocketFactory()
                    .createSocket(below, "localhost", below.getPort(), false);
            Future<String> atClient = inThread(() -> {
                client.startHandshake();
                // Without close_notify.
                below.shutdownOutput();
                return new String(client.getInputStream().readNBytes(6), StandardCharsets.US_ASCII);
            });
            byte[] consumed = serverBelow.getInputStream().readNBytes(3);
            SSLSocket server = (SSLSocket) TestKeys.context(true, TestKeys.EC).getSocketFactory()
                    .createSocket(serverBelow, new java.io.ByteArrayInputStream(consumed), false);
            assertEquals(-1, server.getInputStream().read());
            assertFalse(serverBelow.isClosed());
            server.getOutputStream().write("answer".getBytes(StandardCharsets.US_ASCII));
            assertEquals("answer", atClient.get(TIMEOUT_S, TimeUnit.SECONDS));
            server.close();
            assertFalse(serverBelow.isClosed());
        }
    }

    /** In TLS 1.3 the peer owes no answer, so the reader may wait for ever. */
    @Test
    void closeOverASocketThatStaysDoesNotWaitForAReader() throws Exception {
        try (ServerSocket listener = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"));
                Socket below = new Socket("127.0.0.1", listener.getLocalPort());
                Socket serverBelow = listener.accept()) {
            SSLSocket server = (SSLSocket) TestKeys.context(false, TestKeys.EC).getSocketFactory()
                    .createSocket(serverBelow, null, true);
            SSLSocket client = (SSLSocket) TestKeys.context(true).getSocketFactory()
                    .createSocket(below, "localhost", below.getPort(), false);
            Future<?> atServer = inThread(() -> {
                server.startHandshake();
                return null;
            });
            client.startHandshake();
            atServer.get(TIMEOUT_S, TimeUnit.SECONDS);
            Future<Integer> reader = inThread(() -> client.getInputStream().read());
            Thread.sleep(200);
            inThread(() -> {
                client.close();
                return null;
            }).get(TIMEOUT_S, TimeUnit.SECONDS);
            assertFalse(below.isClosed());
            server.close();
            assertEquals(-1, reader.get(TIMEOUT_S, TimeUnit.SECONDS));
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void listenersAreTold(boolean byReading) throws Exception {
        Ends ends = new Ends(new Case(true, true, "TLSv1.3"));
        CompletableFuture<HandshakeCompletedEvent> told = new CompletableFuture<>();
        ends.client.addHandshakeCompletedListener(told::complete);
        ends.server.addHandshakeCompletedListener(event -> { });
        if (byReading) {
            inThread(() -> {
                ends.server.getOutputStream().write(1);
                return null;
            });
            assertEquals(1, ends.client.getInputStream().read());
        } else {
            ends.shakeHands();
        }
        HandshakeCompletedEvent event = told.get(TIMEOUT_S, TimeUnit.SECONDS);
        assertSame(ends.client, event.getSocket());
        assertEquals("CN=localhost", event.getPeerPrincipal().getName());
        assertThrows(IllegalArgumentException.class, () -> ends.client.addHandshakeCompletedListener(null));
        assertThrows(IllegalArgumentException.class,
                () -> ends.client.removeHandshakeCompletedListener(unknown -> { }));
    }

    @Test
    void aSessionWithoutAHandshake() throws Exception {
        SSLContext stranger = SSLContext.getInstance("TLS", TestKeys.DORMOUSE);
        stranger.init(null, TestKeys.trustManagers(TestKeys.OTHER), null);
        Ends ends = new Ends(stranger, TestKeys.context(true, TestKeys.EC));
        Future<String> atServer = inThread(() -> ends.server.getSession().getCipherSuite());
        assertEquals("SSL_NULL_WITH_NULL_NULL", ends.client.getSession().getCipherSuite());
        assertEquals("SSL_NULL_WITH_NULL_NULL", atServer.get(TIMEOUT_S, TimeUnit.SECONDS));
        assertFalse(ends.client.getSession().isValid());
        assertThrows(SSLPeerUnverifiedException.class, () -> ends.client.getSession().getPeerCertificates());
        assertTrue(ends.client.isClosed());
        assertThrows(IOException.class, ends.client::startHandshake);
    }

    /** A reader that waits, and a writer whose peer does not read. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void closeFromAnotherThread(boolean ofWriter) throws Exception {
        Ends ends = new Ends(new Case(true, false, "TLSv1.3"));
        ends.shakeHands();
        Future<?> busy = inThread(() -> {
            while (true) {
                if (ofWriter) {
                    ends.client.getOutputStream().write(new byte[100_000]);
                } else if (ends.client.getInputStream().read() < 0) {
                    return null;
                }
            }
        });
        Thread.sleep(200);
        ends.client.close();
        try {
            busy.get(TIMEOUT_S, TimeUnit.SECONDS);
        } catch (java.util.concurrent.ExecutionException ended) {
            assertInstanceOf(IOException.class, ended.getCause());
        }
        assertTrue(ends.client.isClosed());
    }

    /** Both peers write more than the buffers hold while keys are replaced: no reader waits for its writer. */
    @Test
    void newKeysWhileBothWrite() throws Exception {
        Ends ends = new Ends(new Case(true, true, "TLSv1.3"));
        ends.shakeHands();
        byte[] data = random(500_000);
        List<Future<byte[]>> received = new ArrayList<>();
        for (SSLSocket one : List.of(ends.client, ends.server)) {
            received.add(inThread(() -> one.getInputStream().readNBytes(10 * data.length)));
            inThread(() -> {
                for (int i = 0; i < 10; i++) {
                    one.startHandshake();
                    one.getOutputStream().write(data);
                }
                return null;
            });
        }
        for (Future<byte[]> one : received) {
            assertArrayEquals(data, Arrays.copyOfRange(one.get(TIMEOUT_S, TimeUnit.SECONDS), 0, data.length));
        }
    }

    @Test
    void noRenegotiation() throws Exception {
        Ends ends = new Ends(new Case(true, true, "TLSv1.2"));
        ends.shakeHands();
        assertThrows(SSLException.class, ends.client::startHandshake);
        // It goes on all the same.
        ends.client.getOutputStream().write(1);
        assertEquals(1, ends.server.getInputStream().read());
    }

    private SSLSocket connectTo(int port, String host) throws IOException, java.security.GeneralSecurityException {
        SSLSocket client = (SSLSocket) TestKeys.context(true).getSocketFactory()
                .createSocket(new Socket("127.0.0.1", port), host, port, true);
        opened.add(client);
        SSLParameters parameters = client.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        client.setSSLParameters(parameters);
        return client;
    }

    @Test
    void namesAreChecked() throws Exception {
        SSLServerSocket listener = listen(TestKeys.context(true, TestKeys.EC));
        for (String host : List.of("localhost", "127.0.0.1", "wrong.test", "127.0.0.2")) {
            SSLSocket client = connectTo(listener.getLocalPort(), host);
            Future<?> atServer = inThread(() -> {
                SSLSocket server = (SSLSocket) listener.accept();
                opened.add(server);
                server.startHandshake();
                return null;
            });
            if (host.equals("localhost") || host.equals("127.0.0.1")) {
                client.startHandshake();
                atServer.get(TIMEOUT_S, TimeUnit.SECONDS);
            } else {
                assertThrows(SSLHandshakeException.class, client::startHandshake, host);
                assertThrows(java.util.concurrent.ExecutionException.class,
                        () -> atServer.get(TIMEOUT_S, TimeUnit.SECONDS));
            }
        }
    }

    /** Whoever answers reverse lookups must not choose the name to expect in a certificate. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void theNameOfAnAddress(boolean ofDormouse) throws Exception {
        InetAddress lookedUp = InetAddress.getByAddress(new byte[] {127, 0, 0, 1});
        lookedUp.getHostName();
        InetAddress named = InetAddress.getByAddress("named.test", new byte[] {127, 0, 0, 1});
        SSLContext servers = TestKeys.context(true, TestKeys.EC);
        for (InetAddress address : List.of(lookedUp, named)) {
            SSLServerSocket listener = listen(servers);
            SSLSocket client = (SSLSocket) TestKeys.context(ofDormouse).getSocketFactory()
                    .createSocket(address, listener.getLocalPort());
            opened.add(client);
            Future<?> atServer = inThread(() -> {
                SSLSocket server = (SSLSocket) listener.accept();
                opened.add(server);
                server.startHandshake();
                return null;
            });
            String expected = address == named ? "named.test" : "127.0.0.1";
            assertEquals(expected, client.getSession().getPeerHost());
            atServer.get(TIMEOUT_S, TimeUnit.SECONDS);
        }
    }

    @ParameterizedTest
    @MethodSource("cases")
    void serverNamesProtocolsAndClientCertificates(Case one) throws Exception {
        Ends ends = new Ends(one);
        SSLParameters ofServer = ends.server.getSSLParameters();
        ofServer.setNeedClientAuth(true);
        ofServer.setSNIMatchers(List.of(SNIHostName.createSNIMatcher("known\\.test")));
        ends.server.setSSLParameters(ofServer);
        ends.server.setHandshakeApplicationProtocolSelector((socket, offered) -> {
            assertSame(ends.server, socket);
            return offered.get(1);
        });
        SSLParameters ofClient = ends.client.getSSLParameters();
        ofClient.setServerNames(List.of(new SNIHostName("known.test")));
        ofClient.setApplicationProtocols(new String[] {"one", "two"});
        ofClient.setProtocols(new String[] {one.protocol});
        ends.client.setSSLParameters(ofClient);
        ends.shakeHands();
        assertEquals("two", ends.client.getApplicationProtocol());
        assertEquals("two", ends.server.getApplicationProtocol());
        assertTrue(ends.server.getNeedClientAuth());
        assertEquals("CN=alice", ends.server.getSession().getPeerPrincipal().getName());
        assertEquals(List.of(new SNIHostName("known.test")),
                ((javax.net.ssl.ExtendedSSLSession) ends.server.getSession()).getRequestedServerNames());
    }

    /** An accepted socket has the settings of its server socket. */
    @Test
    void serverSocketsHaveSettings() throws Exception {
        SSLServerSocket listener = listen(TestKeys.context(true, TestKeys.EC));
        listener.setNeedClientAuth(true);
        listener.setEnabledProtocols(new String[] {"TLSv1.2"});
        SSLSocket client = (SSLSocket) TestKeys.context(true).getSocketFactory()
                .createSocket("localhost", listener.getLocalPort());
        SSLSocket server = (SSLSocket) listener.accept();
        opened.addAll(List.of(client, server));
        assertTrue(server.getNeedClientAuth() && !server.getUseClientMode());
        Future<?> atServer = inThread(() -> {
            server.startHandshake();
            return null;
        });
        IOException refused = assertThrows(IOException.class, () -> {
            client.startHandshake();
            client.getInputStream().read();
        });
        assertTrue(refused.getMessage().contains("handshake_failure"), refused.getMessage());
        assertThrows(java.util.concurrent.ExecutionException.class, () -> atServer.get(TIMEOUT_S, TimeUnit.SECONDS));
    }

    /** A manager that knows sockets is asked about the socket. */
    @Test
    void managersSeeTheSocket() throws Exception {
        List<Object> seen = new ArrayList<>();
        X509ExtendedTrustManager trust = new X509ExtendedTrustManager() {
            @Override
            public void checkClientTrusted(X509Certificate[] chain, String authType, Socket socket) {
                seen.add(socket);
            }

            @Override
            public void checkServerTrusted(X509Certificate[] chain, String authType, Socket socket) {
                seen.add(socket);
                SSLSocket client = (SSLSocket) socket;
                assertEquals("localhost", client.getHandshakeSession().getPeerHost());
                // It must not wait for the handshake that asks.
                assertEquals("NONE", client.getSession().getProtocol());
            }

            @Override
            public void checkClientTrusted(X509Certificate[] chain, String authType, SSLEngine engine)
                    throws CertificateException {
                throw new CertificateException("not about an engine");
            }

            @Override
            public void checkServerTrusted(X509Certificate[] chain, String authType, SSLEngine engine)
                    throws CertificateException {
                throw new CertificateException("not about an engine");
            }

            @Override
            public void checkClientTrusted(X509Certificate[] chain, String authType) throws CertificateException {
                throw new CertificateException("not without a socket");
            }

            @Override
            public void checkServerTrusted(X509Certificate[] chain, String authType) throws CertificateException {
                throw new CertificateException("not without a socket");
            }

            @Override
            public X509Certificate[] getAcceptedIssuers() {
                return new X509Certificate[0];
            }
        };
        SSLContext clients = SSLContext.getInstance("TLS", TestKeys.DORMOUSE);
        clients.init(TestKeys.keyManagers(TestKeys.CLIENT), new TrustManager[] {trust}, null);
        SSLContext servers = SSLContext.getInstance("TLS", TestKeys.DORMOUSE);
        servers.init(TestKeys.keyManagers(TestKeys.EC), new TrustManager[] {trust}, null);
        Ends ends = new Ends(clients, servers);
        ends.server.setNeedClientAuth(true);
        ends.shakeHands();
        assertEquals(List.of(ends.client, ends.server), seen);
    }

    /** As the default provider, for programs that name none. */
    @Test
    void asTheDefaultProvider() throws Exception {
        java.security.Security.insertProviderAt(TestKeys.DORMOUSE, 1);
        try {
            SSLContext context = SSLContext.getInstance("TLS");
            assertSame(TestKeys.DORMOUSE, context.getProvider());
            context.init(null, null, null);
            assertInstanceOf(SSLSocket.class, context.getSocketFactory().createSocket());
            assertInstanceOf(SSLServerSocket.class, context.getServerSocketFactory().createServerSocket());
            assertNotNull(javax.net.ssl.SSLSocketFactory.getDefault().createSocket());
        } finally {
            java.security.Security.removeProvider(DormouseProvider.NAME);
        }
    }
}
