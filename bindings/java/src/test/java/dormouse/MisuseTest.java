package dormouse;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Field;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.security.KeyStore;
import java.security.Principal;
import java.security.PrivateKey;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

import javax.net.ssl.KeyManager;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLEngineResult.Status;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLHandshakeException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509ExtendedKeyManager;
import javax.net.ssl.X509KeyManager;
import javax.net.ssl.X509TrustManager;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Custom managers, exceptions in managers, and misuse of engines. */
class MisuseTest {
    private static SSLContext context(KeyManager keys, TrustManager trust) throws Exception {
        SSLContext context = SSLContext.getInstance("TLS", TestKeys.DORMOUSE);
        context.init(
                keys == null ? null : new KeyManager[] {keys}, trust == null ? null : new TrustManager[] {trust}, null);
        return context;
    }

    private static Pair pair(SSLContext client, SSLContext server) {
        return new Pair(client.createSSLEngine("localhost", 1), server.createSSLEngine());
    }

    /** A manager that has nothing. */
    private interface NoKeys extends X509KeyManager {
        @Override
        default String[] getClientAliases(String keyType, Principal[] issuers) {
            return null;
        }

        @Override
        default String chooseClientAlias(String[] keyType, Principal[] issuers, Socket socket) {
            return null;
        }

        @Override
        default String[] getServerAliases(String keyType, Principal[] issuers) {
            return null;
        }

        @Override
        default String chooseServerAlias(String keyType, Principal[] issuers, Socket socket) {
            return null;
        }

        @Override
        default X509Certificate[] getCertificateChain(String alias) {
            return null;
        }

        @Override
        default PrivateKey getPrivateKey(String alias) {
            return null;
        }
    }

    /** A manager that throws when it is asked. */
    private static final class FailingKeys extends X509ExtendedKeyManager implements NoKeys {
        private final Throwable thrown;

        FailingKeys(Throwable thrown) {
            this.thrown = thrown;
        }

        @Override
        public String chooseEngineClientAlias(String[] keyTypes, Principal[] issuers, SSLEngine engine) {
            return chooseEngineServerAlias(null, issuers, engine);
        }

        @Override
        public String chooseEngineServerAlias(String keyType, Principal[] issuers, SSLEngine engine) {
            if (thrown instanceof Error error) {
                throw error;
            }
            throw (RuntimeException) thrown;
        }
    }

    /** A manager of X.509 without knowledge of engines, whose key can't be read. */
    private static X509KeyManager store(KeyStore keys) {
        return new NoKeys() {
            @Override
            public String chooseServerAlias(String keyType, Principal[] issuers, Socket socket) {
                try {
                    String alias = keys.aliases().nextElement();
                    return keys.getCertificate(alias).getPublicKey().getAlgorithm().equals(keyType) ? alias : null;
                } catch (Exception problem) {
                    throw new IllegalStateException(problem);
                }
            }

            @Override
            public X509Certificate[] getCertificateChain(String alias) {
                try {
                    return new X509Certificate[] {(X509Certificate) keys.getCertificate(alias)};
                } catch (Exception problem) {
                    throw new IllegalStateException(problem);
                }
            }

            @Override
            public PrivateKey getPrivateKey(String alias) {
                try {
                    return sealed((PrivateKey) keys.getKey(alias, TestKeys.PASSWORD));
                } catch (Exception problem) {
                    throw new IllegalStateException(problem);
                }
            }
        };
    }

    /** A key in a store: signature providers accept it by its interfaces, and no program can read it. */
    private static PrivateKey sealed(PrivateKey key) {
        return (PrivateKey) java.lang.reflect.Proxy.newProxyInstance(MisuseTest.class.getClassLoader(),
                key instanceof java.security.interfaces.ECPrivateKey
                        ? new Class<?>[] {java.security.interfaces.ECPrivateKey.class}
                        : new Class<?>[] {java.security.interfaces.RSAPrivateCrtKey.class},
                (proxy, method, arguments) -> switch (method.getName()) {
                    case "getEncoded", "getFormat" -> null;
                    default -> method.invoke(key, arguments);
                });
    }

    @ParameterizedTest
    @ValueSource(strings = {"EC", "RSA"})
    void aKeyThatCannotLeaveItsStore(String kind) throws Exception {
        KeyStore keys = kind.equals("EC") ? TestKeys.EC : TestKeys.RSA;
        SSLContext server = context(store(keys), null);
        for (String protocol : List.of("TLSv1.2", "TLSv1.3")) {
            Pair pair = pair(TestKeys.context(false), server);
            pair.client.engine.setEnabledProtocols(new String[] {protocol});
            pair.handshake();
            assertTrue(pair.client.finished > 0);
            assertEquals(TestKeys.certificate(keys), pair.client.engine.getSession().getPeerCertificates()[0]);
        }
    }

    @Test
    void aKeyManagerThatThrows() throws Exception {
        String why = "the token is gone";
        for (Throwable thrown : List.of(new IllegalStateException(why), new NoClassDefFoundError(why))) {
            SSLContext server = context(new FailingKeys(thrown), null);
            Pair pair = pair(TestKeys.context(true), server);
            SSLHandshakeException failure = assertThrows(SSLHandshakeException.class, pair::handshake);
            assertSame(thrown, failure.getCause());
            assertTrue(failure.getMessage().contains(why), failure.getMessage());
            pair.server.wrap(ByteBuffer.allocate(0), pair.client);
            SSLException told = assertThrows(SSLException.class, () -> {
                pair.client.unwrap();
                pair.client.unwrap();
            });
            assertTrue(told.getMessage().contains("internal_error"), told.getMessage());
        }
    }

    /** A client's is asked before there is a task, so the caller gets what it throws. */
    @Test
    void aClientsKeyManagerThatThrows() throws Exception {
        for (Throwable thrown : List.of(new IllegalStateException("gone"), new NoClassDefFoundError("gone"))) {
            SSLEngine engine = context(new FailingKeys(thrown), null).createSSLEngine("localhost", 1);
            engine.setUseClientMode(true);
            assertSame(thrown, assertThrows(thrown.getClass(), engine::beginHandshake));
            ByteBuffer room = ByteBuffer.allocate(20_000);
            assertEquals(Status.CLOSED, engine.wrap(ByteBuffer.allocate(10), room).getStatus());
            assertEquals(Status.CLOSED, engine.unwrap(ByteBuffer.allocate(10), room).getStatus());
        }
    }

    @Test
    void aServerWithoutCertificates() throws Exception {
        Pair pair = pair(TestKeys.context(true), context(null, null));
        SSLHandshakeException failure = assertThrows(SSLHandshakeException.class, pair::handshake);
        assertTrue(failure.getMessage().contains("KeyManager"), failure.getMessage());
    }

    private static X509TrustManager trustThat(CertificateException thrown) {
        return new X509TrustManager() {
            @Override
            public void checkClientTrusted(X509Certificate[] chain, String authType) throws CertificateException {
                checkServerTrusted(chain, authType);
            }

            @Override
            public void checkServerTrusted(X509Certificate[] chain, String authType) throws CertificateException {
                if (thrown != null) {
                    throw thrown;
                }
            }

            @Override
            public X509Certificate[] getAcceptedIssuers() {
                return new X509Certificate[0];
            }
        };
    }

    @Test
    void aTrustManagerThatRefuses() throws Exception {
        CertificateException thrown = new CertificateException("not today");
        Pair pair = pair(context(null, trustThat(thrown)), TestKeys.context(true, TestKeys.EC));
        SSLHandshakeException failure = assertThrows(SSLHandshakeException.class, pair::handshake);
        assertSame(thrown, failure.getCause());

        Pair ofClient = pair(TestKeys.context(true, TestKeys.CLIENT),
                context(TestKeys.keyManagers(TestKeys.EC)[0], trustThat(thrown)));
        ofClient.server.engine.setWantClientAuth(true);
        failure = assertThrows(SSLHandshakeException.class, ofClient::handshake);
        assertSame(thrown, failure.getCause());
    }

    /** The client's alert is encrypted, and the server has nothing to send: only wrap and unwrap tell why it ended. */
    @Test
    void anAlertThatATaskFinds() throws Exception {
        Pair pair = pair(context(null, trustThat(new CertificateException("not today"))),
                TestKeys.context(true, TestKeys.EC));
        pair.server.engine.setNeedClientAuth(true);
        assertThrows(SSLHandshakeException.class, pair::handshake);
        pair.client.wrap(ByteBuffer.allocate(0), pair.server);
        pair.server.unwrap();
        assertEquals(HandshakeStatus.NEED_WRAP, pair.server.engine.getHandshakeStatus());
        SSLException failure = assertThrows(SSLException.class,
                () -> pair.server.wrap(ByteBuffer.allocate(0), pair.client));
        assertTrue(failure.getMessage().contains("Received fatal alert"), failure.getMessage());
        assertEquals(HandshakeStatus.NOT_HANDSHAKING, pair.server.engine.getHandshakeStatus());
    }

    /** A plain X509TrustManager can't check names, so the engine does. */
    @Test
    void namesAreCheckedForATrustManagerThatCannot() throws Exception {
        SSLContext client = context(null, trustThat(null));
        for (String host : List.of("localhost", "127.0.0.1", "wrong.test", "127.0.0.2")) {
            Pair pair = new Pair(
                    client.createSSLEngine(host, 1), TestKeys.context(true, TestKeys.EC).createSSLEngine());
            SSLParameters parameters = pair.client.engine.getSSLParameters();
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
            pair.client.engine.setSSLParameters(parameters);
            if (host.equals("localhost") || host.equals("127.0.0.1")) {
                pair.handshake();
            } else {
                SSLHandshakeException failure = assertThrows(SSLHandshakeException.class, pair::handshake);
                assertTrue(failure.getMessage().contains(host), failure.getMessage());
            }
        }
    }

    @Test
    void engineAfterItsEnd() throws Exception {
        Pair pair = pair(TestKeys.context(true), TestKeys.context(true, TestKeys.EC));
        pair.handshake();
        pair.client.engine.closeOutbound();
        pair.client.engine.closeOutbound();
        pair.settle();
        pair.server.engine.closeOutbound();
        pair.settle();
        for (SSLEngine engine : List.of(pair.client.engine, pair.server.engine)) {
            ByteBuffer room = ByteBuffer.allocate(20_000);
            assertEquals(Status.CLOSED, engine.wrap(ByteBuffer.allocate(10), room).getStatus());
            assertEquals(Status.CLOSED, engine.unwrap(ByteBuffer.allocate(10), room).getStatus());
            assertThrows(SSLException.class, engine::beginHandshake);
            assertNull(engine.getDelegatedTask());
            engine.closeInbound();
            engine.closeOutbound();
            assertTrue(engine.getSession().isValid());
        }
    }

    @Test
    void engineThatIsClosedBeforeItsHandshake() throws Exception {
        SSLEngine client = TestKeys.context(true).createSSLEngine("localhost", 1);
        client.setUseClientMode(true);
        ByteBuffer hello = ByteBuffer.allocate(20_000);
        client.wrap(ByteBuffer.allocate(0), hello);
        for (ByteBuffer source : List.of(hello.flip(), ByteBuffer.wrap("GET / HTTP/1.1".getBytes()))) {
            SSLEngine engine = TestKeys.context(true, TestKeys.EC).createSSLEngine();
            engine.setUseClientMode(false);
            engine.closeOutbound();
            assertEquals(Status.CLOSED, engine.unwrap(source, ByteBuffer.allocate(20_000)).getStatus());
            assertEquals(Status.CLOSED, engine.wrap(source, ByteBuffer.allocate(20_000)).getStatus());
            assertEquals(HandshakeStatus.NOT_HANDSHAKING, engine.getHandshakeStatus());
            assertTrue(engine.isInboundDone() && engine.isOutboundDone());
        }
    }

    /** Programs have buffers of the session's sizes, so they could neither read such a record nor go on. */
    @ParameterizedTest
    @ValueSource(strings = {"TLSv1.2", "TLSv1.3"})
    void aRecordThatFitsNoBuffer(String protocol) throws Exception {
        for (int payload : new int[] {Records.PLAINTEXT_MAX + 1, 18_432}) {
            for (int length : new int[] {Records.PACKET_MAX, Records.HEADER + payload}) {
                Pair pair = pair(TestKeys.context(true), TestKeys.context(true, TestKeys.EC));
                pair.client.engine.setEnabledProtocols(new String[] {protocol});
                pair.handshake();
                ByteBuffer source = ByteBuffer.allocate(length);
                source.put(new byte[] {23, 3, 3}).putShort((short) payload).position(0);
                SSLEngine engine = pair.server.engine;
                ByteBuffer target = ByteBuffer.allocate(engine.getSession().getApplicationBufferSize());
                assertThrows(SSLException.class, () -> engine.unwrap(source, target), payload + " in " + length);
                assertTrue(engine.isInboundDone());
            }
        }
    }

    /** What was not opened is no plaintext. */
    @Test
    void openInPlaceThatFailsAtOnce() throws Exception {
        Pair pair = pair(TestKeys.context(true), TestKeys.context(true, TestKeys.EC));
        pair.handshake();
        DormouseEngine engine = (DormouseEngine) pair.server.engine;
        Field connection = DormouseEngine.class.getDeclaredField("connection");
        connection.setAccessible(true);
        ((NativeConnection) connection.get(engine)).free();
        ByteBuffer records = ByteBuffer.allocateDirect(100).position(10);
        assertThrows(IllegalStateException.class, () -> engine.openInPlace(records));
        assertEquals(10, records.position());
        assertEquals(10, records.limit());
    }

    @Test
    void settingsThatCannotBe() throws Exception {
        SSLEngine engine = TestKeys.context(true).createSSLEngine();
        assertThrows(IllegalArgumentException.class, () -> engine.setEnabledProtocols(new String[] {"TLSv1.1"}));
        assertThrows(IllegalArgumentException.class, () -> engine.setEnabledProtocols(null));
        assertThrows(IllegalArgumentException.class,
                () -> engine.setEnabledCipherSuites(new String[] {"TLS_RSA_WITH_AES_128_CBC_SHA"}));
        assertThrows(UnsupportedOperationException.class, () -> engine.setEnableSessionCreation(false));
        assertThrows(IllegalStateException.class,
                () -> SSLContext.getInstance("TLS", TestKeys.DORMOUSE).getSocketFactory());
        assertThrows(IllegalArgumentException.class, () -> engine.getSession().putValue(null, "x"));
        assertThrows(IllegalStateException.class,
                () -> SSLContext.getInstance("TLS", TestKeys.DORMOUSE).createSSLEngine());
        engine.setUseClientMode(true);
        engine.setEnabledProtocols(new String[] {"TLSv1.3"});
        engine.setEnabledCipherSuites(new String[] {"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"});
        assertThrows(SSLHandshakeException.class, engine::beginHandshake);
        SSLEngine begun = TestKeys.context(true).createSSLEngine();
        begun.setUseClientMode(true);
        begun.beginHandshake();
        assertThrows(IllegalArgumentException.class, () -> begun.setUseClientMode(false));
    }

    /** Threads that seal, open and close at once get results or errors, and no crash. */
    @Test
    void manyThreads() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(4);
        for (int round = 0; round < 20; round++) {
            Pair pair = pair(TestKeys.context(true), TestKeys.context(true, TestKeys.EC));
            pair.handshake();
            SSLEngine engine = pair.server.engine;
            List<Future<?>> running = new ArrayList<>();
            for (int thread = 0; thread < 4; thread++) {
                int kind = thread;
                running.add(threads.submit(() -> {
                    ByteBuffer room = ByteBuffer.allocateDirect(20_000);
                    for (int i = 0; i < 200; i++) {
                        room.clear();
                        if (kind == 3 && i == 150) {
                            engine.closeOutbound();
                        } else if (kind < 2) {
                            engine.wrap(ByteBuffer.allocate(1_000), room);
                        } else {
                            engine.getSession().getId();
                            engine.getHandshakeStatus();
                        }
                    }
                    return null;
                }));
            }
            for (Future<?> one : running) {
                one.get();
            }
        }
        threads.shutdown();
    }

    /** Objects without an owner are freed. */
    @Test
    void forgottenEngines() throws Exception {
        SSLContext client = TestKeys.context(true);
        SSLContext server = TestKeys.context(true, TestKeys.EC);
        for (int i = 0; i < 300; i++) {
            pair(client, server).handshake();
        }
        for (int i = 0; i < 50 && NativeConnection.count() > 100; i++) {
            System.gc();
            Thread.sleep(50);
        }
        assertTrue(NativeConnection.count() <= 100, NativeConnection.count() + " connections are still held");
    }
}
