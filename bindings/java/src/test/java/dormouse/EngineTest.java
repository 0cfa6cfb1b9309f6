package dormouse;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.function.IntFunction;
import java.util.stream.Stream;

import javax.net.ssl.ExtendedSSLSession;
import javax.net.ssl.SNIHostName;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLEngineResult.Status;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLHandshakeException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLPeerUnverifiedException;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Engines against each other and against the JDK's, both ways. */
class EngineTest {
    private static final byte[] HELLO = "hello".getBytes(StandardCharsets.UTF_8);

    record Case(boolean clientIsOurs, boolean serverIsOurs, String protocol, boolean direct) {
        Pair pair() throws Exception {
            SSLContext client = TestKeys.context(clientIsOurs, TestKeys.CLIENT);
            SSLContext server = TestKeys.context(serverIsOurs, TestKeys.EC, TestKeys.RSA);
            IntFunction<ByteBuffer> allocate = direct ? ByteBuffer::allocateDirect : ByteBuffer::allocate;
            Pair pair = new Pair(client.createSSLEngine("localhost", 443), server.createSSLEngine(), allocate);
            pair.client.engine.setEnabledProtocols(new String[] {protocol});
            return pair;
        }
    }

    static Stream<Case> cases() {
        List<Case> cases = new ArrayList<>();
        for (String protocol : List.of("TLSv1.2", "TLSv1.3")) {
            for (boolean direct : new boolean[] {false, true}) {
                cases.add(new Case(true, true, protocol, direct));
                cases.add(new Case(true, false, protocol, direct));
                cases.add(new Case(false, true, protocol, direct));
            }
        }
        return cases.stream();
    }

    @ParameterizedTest
    @MethodSource("cases")
    void handshakeDataAndClose(Case one) throws Exception {
        Pair pair = one.pair();
        pair.handshake();
        // The JDK's engine reports it again for a ticket.
        assertTrue(one.clientIsOurs ? pair.client.finished == 1 : pair.client.finished > 0, "FINISHED for the client");
        assertEquals(1, pair.server.finished, "FINISHED for the server");
        for (Pair.Side side : List.of(pair.client, pair.server)) {
            assertEquals(HandshakeStatus.NOT_HANDSHAKING, side.engine.getHandshakeStatus());
            assertEquals(one.protocol, side.engine.getSession().getProtocol());
            assertTrue(side.engine.getSession().isValid());
            assertEquals(32, side.engine.getSession().getId().length);
        }
        assertEquals(pair.client.engine.getSession().getCipherSuite(), pair.server.engine.getSession().getCipherSuite());
        assertEquals("localhost", pair.client.engine.getSession().getPeerHost());
        assertEquals(1, pair.client.engine.getSession().getPeerCertificates().length);
        assertNotNull(pair.server.engine.getSession().getLocalCertificates());
        assertThrows(SSLPeerUnverifiedException.class, () -> pair.server.engine.getSession().getPeerCertificates());

        assertTrue(!one.serverIsOurs || ((DormouseEngine) pair.server.engine).isAtRest(), "the server is at rest");
        byte[] large = new byte[100_000];
        new Random(1).nextBytes(large);
        Pair.send(pair.client, pair.server, HELLO);
        assertArrayEquals(HELLO, pair.server.received.toByteArray());
        Pair.send(pair.server, pair.client, large);
        assertArrayEquals(large, pair.client.received.toByteArray());
        for (Pair.Side side : List.of(pair.client, pair.server)) {
            assertTrue(!(side.engine instanceof DormouseEngine ours) || ours.isAtRest(), "at rest after data");
        }

        pair.client.engine.closeOutbound();
        assertEquals(HandshakeStatus.NEED_WRAP, pair.client.engine.getHandshakeStatus());
        pair.settle();
        assertTrue(pair.server.sawEnd && pair.server.engine.isInboundDone());
        if (one.protocol.equals("TLSv1.3")) {
            // Half closed: the server may still send.
            assertFalse(pair.server.engine.isOutboundDone());
            pair.client.received.reset();
            Pair.send(pair.server, pair.client, HELLO);
            assertArrayEquals(HELLO, pair.client.received.toByteArray());
            pair.server.engine.closeOutbound();
            pair.settle();
        }
        for (Pair.Side side : List.of(pair.client, pair.server)) {
            assertTrue(side.engine.isInboundDone() && side.engine.isOutboundDone());
            side.engine.closeInbound();
            SSLEngineResult result = side.engine.wrap(ByteBuffer.wrap(HELLO), ByteBuffer.allocate(20_000));
            assertEquals(Status.CLOSED, result.getStatus());
            assertEquals(HandshakeStatus.NOT_HANDSHAKING, result.getHandshakeStatus());
        }
    }

    @ParameterizedTest
    @MethodSource("cases")
    void bothShowCertificates(Case one) throws Exception {
        Pair pair = one.pair();
        pair.server.engine.setNeedClientAuth(true);
        pair.handshake();
        assertEquals(TestKeys.certificate(TestKeys.CLIENT), pair.server.engine.getSession().getPeerCertificates()[0]);
        assertEquals("CN=alice", pair.server.engine.getSession().getPeerPrincipal().getName());
        assertEquals(TestKeys.certificate(TestKeys.CLIENT), pair.client.engine.getSession().getLocalCertificates()[0]);
        Pair.send(pair.client, pair.server, HELLO);
        assertArrayEquals(HELLO, pair.server.received.toByteArray());
    }

    @ParameterizedTest
    @MethodSource("cases")
    void applicationProtocols(Case one) throws Exception {
        Pair pair = one.pair();
        alpn(pair.client.engine, "x/1", "h2", "http/1.1");
        alpn(pair.server.engine, "http/1.1", "h2");
        pair.handshake();
        assertEquals("http/1.1", pair.client.engine.getApplicationProtocol());
        assertEquals("http/1.1", pair.server.engine.getApplicationProtocol());

        Pair chosen = one.pair();
        alpn(chosen.client.engine, "a", "b");
        chosen.server.engine.setHandshakeApplicationProtocolSelector((engine, offered) -> {
            assertEquals(List.of("a", "b"), offered);
            assertNotNull(engine.getHandshakeSession());
            return "b";
        });
        chosen.handshake();
        assertEquals("b", chosen.client.engine.getApplicationProtocol());

        Pair none = one.pair();
        alpn(none.client.engine, "a");
        alpn(none.server.engine, "b");
        SSLException refused = assertThrows(SSLHandshakeException.class, none::handshake);
        passAlert(none.server, none.client);
        assertFails(none.client, "no_application_protocol");
        assertNotNull(refused.getMessage());

        Pair unused = one.pair();
        unused.handshake();
        assertEquals("", unused.client.engine.getApplicationProtocol());
        assertEquals("", unused.server.engine.getApplicationProtocol());
    }

    private static void alpn(SSLEngine engine, String... protocols) {
        SSLParameters parameters = engine.getSSLParameters();
        parameters.setApplicationProtocols(protocols);
        engine.setSSLParameters(parameters);
    }

    /** The side gets the alert of its peer, which has failed. */
    private static void assertFails(Pair.Side side, String alert) {
        Pair.Side peerless = side;
        SSLException failure = assertThrows(SSLException.class, () -> {
            for (int round = 0; round < 10; round++) {
                peerless.unwrap();
            }
            throw new AssertionError("no failure: " + peerless.engine);
        });
        assertTrue(failure.getMessage().contains(alert), failure.toString());
    }

    /** Wraps the alert of the side that failed. */
    private static void passAlert(Pair.Side failed, Pair.Side peer) throws SSLException {
        failed.wrap(ByteBuffer.allocate(0), peer);
    }

    @ParameterizedTest
    @MethodSource("cases")
    void serverNames(Case one) throws Exception {
        Pair pair = one.pair();
        SSLParameters parameters = pair.server.engine.getSSLParameters();
        parameters.setSNIMatchers(List.of(SNIHostName.createSNIMatcher("localhost|.*\\.test")));
        pair.server.engine.setSSLParameters(parameters);
        SSLParameters ofClient = pair.client.engine.getSSLParameters();
        ofClient.setServerNames(List.of(new SNIHostName("a.test")));
        pair.client.engine.setSSLParameters(ofClient);
        pair.handshake();
        assertEquals(List.of(new SNIHostName("a.test")),
                ((ExtendedSSLSession) pair.server.engine.getSession()).getRequestedServerNames());

        Pair other = one.pair();
        parameters.setSNIMatchers(List.of(SNIHostName.createSNIMatcher("b.test")));
        other.server.engine.setSSLParameters(parameters);
        other.client.engine.setSSLParameters(ofClient);
        assertThrows(SSLHandshakeException.class, other::handshake);
        passAlert(other.server, other.client);
        assertFails(other.client, "unrecognized_name");
    }

    @ParameterizedTest
    @MethodSource("cases")
    void endpointIdentification(Case one) throws Exception {
        for (String host : List.of("localhost", "127.0.0.1", "wrong.test")) {
            SSLContext client = TestKeys.context(one.clientIsOurs, TestKeys.CLIENT);
            SSLContext server = TestKeys.context(one.serverIsOurs, TestKeys.EC);
            Pair pair = new Pair(client.createSSLEngine(host, 443), server.createSSLEngine());
            SSLParameters parameters = pair.client.engine.getSSLParameters();
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
            pair.client.engine.setSSLParameters(parameters);
            if (host.equals("wrong.test")) {
                SSLHandshakeException refused = assertThrows(SSLHandshakeException.class, pair::handshake);
                assertTrue(refused.getMessage().contains("wrong.test"), refused.toString());
                assertNotNull(refused.getCause());
                passAlert(pair.client, pair.server);
                assertThrows(SSLException.class, () -> {
                    pair.server.unwrap();
                    pair.server.unwrap();
                });
            } else {
                pair.handshake();
                assertTrue(pair.client.finished > 0);
            }
        }
    }

    @ParameterizedTest
    @MethodSource("cases")
    void gatheredAndScattered(Case one) throws Exception {
        Pair pair = one.pair();
        pair.handshake();
        IntFunction<ByteBuffer> allocate = one.direct ? ByteBuffer::allocateDirect : ByteBuffer::allocate;
        ByteBuffer[] sources = {
            allocate.apply(0), allocate.apply(3).put("abc".getBytes()).flip(),
            ByteBuffer.wrap("xdefx".getBytes(), 1, 3).slice().asReadOnlyBuffer(),
            allocate.apply(10).position(4).put("ghi".getBytes()).flip().position(4).slice(),
        };
        ByteBuffer records = allocate.apply(20_000).position(7).slice();
        SSLEngineResult wrapped = pair.client.engine.wrap(sources, records);
        assertEquals(9, wrapped.bytesConsumed());
        assertEquals(0, sources[3].remaining());
        records.flip();
        // A source that can't be written to, targets that are just large enough.
        ByteBuffer[] targets = {allocate.apply(0), allocate.apply(2), allocate.apply(5), allocate.apply(20_000)};
        SSLEngineResult unwrapped = pair.server.engine.unwrap(
                one.serverIsOurs ? records.asReadOnlyBuffer() : records, targets);
        assertEquals(9, unwrapped.bytesProduced());
        StringBuilder text = new StringBuilder();
        for (ByteBuffer target : targets) {
            target.flip();
            text.append(StandardCharsets.US_ASCII.decode(target));
        }
        assertEquals("abcdefghi", text.toString());
    }

    @ParameterizedTest
    @MethodSource("cases")
    void buffersThatAreTooSmall(Case one) throws Exception {
        Pair pair = one.pair();
        pair.handshake();
        ByteBuffer data = ByteBuffer.wrap(new byte[100]);
        SSLEngineResult result = pair.client.engine.wrap(data, ByteBuffer.allocate(30));
        assertEquals(Status.BUFFER_OVERFLOW, result.getStatus());
        assertEquals(0, result.bytesConsumed() + result.bytesProduced());
        ByteBuffer records = ByteBuffer.allocate(20_000);
        assertEquals(100, pair.client.engine.wrap(data, records).bytesConsumed());
        records.flip();
        result = pair.server.engine.unwrap(records, ByteBuffer.allocate(99));
        assertEquals(Status.BUFFER_OVERFLOW, result.getStatus());
        assertEquals(0, records.position());
        for (int length : new int[] {0, 1, 4, 5, records.limit() - 1}) {
            result = pair.server.engine.unwrap(records.duplicate().limit(length), ByteBuffer.allocate(20_000));
            assertEquals(Status.BUFFER_UNDERFLOW, result.getStatus(), "of " + length + " bytes");
            assertEquals(0, result.bytesConsumed());
        }
        assertEquals(100, pair.server.engine.unwrap(records, ByteBuffer.allocate(20_000)).bytesProduced());
        assertThrows(java.nio.ReadOnlyBufferException.class,
                () -> pair.client.engine.wrap(data, ByteBuffer.allocate(100).asReadOnlyBuffer()));
    }

    @ParameterizedTest
    @MethodSource("cases")
    void aForgedRecordEndsTheConnection(Case one) throws Exception {
        Pair pair = one.pair();
        pair.handshake();
        ByteBuffer record = ByteBuffer.allocate(20_000);
        pair.client.engine.wrap(ByteBuffer.wrap(HELLO), record);
        record.flip();
        record.put(record.limit() - 1, (byte) (record.get(record.limit() - 1) ^ 1));
        assertThrows(SSLException.class, () -> pair.server.engine.unwrap(record, ByteBuffer.allocate(20_000)));
        assertTrue(pair.server.engine.isInboundDone());
        passAlert(pair.server, pair.client);
        assertFails(pair.client, "bad_record_mac");
    }

    @ParameterizedTest
    @MethodSource("cases")
    void anUntrustedServer(Case one) throws Exception {
        SSLContext client = TestKeys.context(one.clientIsOurs);
        SSLContext server = TestKeys.context(one.serverIsOurs, TestKeys.OTHER);
        Pair pair = new Pair(client.createSSLEngine("other.test", 443), server.createSSLEngine());
        pair.client.engine.setEnabledProtocols(new String[] {one.protocol});
        SSLHandshakeException refused = assertThrows(SSLHandshakeException.class, pair::handshake);
        assertNotNull(refused.getCause(), "what the TrustManager threw");
        assertNull(pair.client.engine.getHandshakeSession());
    }

    @Test
    void withoutAMode() {
        SSLEngine engine = assertNewEngine();
        assertThrows(IllegalStateException.class, engine::beginHandshake);
        assertThrows(IllegalStateException.class,
                () -> engine.wrap(ByteBuffer.allocate(0), ByteBuffer.allocate(20_000)));
        assertEquals("NONE", engine.getSession().getProtocol());
        assertEquals("SSL_NULL_WITH_NULL_NULL", engine.getSession().getCipherSuite());
        assertFalse(engine.getSession().isValid());
        assertEquals(HandshakeStatus.NOT_HANDSHAKING, engine.getHandshakeStatus());
    }

    private static SSLEngine assertNewEngine() {
        try {
            return TestKeys.context(true, TestKeys.EC).createSSLEngine();
        } catch (Exception problem) {
            throw new AssertionError(problem);
        }
    }

    @Test
    void aPlainRequestAtATlsServer() {
        SSLEngine engine = assertNewEngine();
        engine.setUseClientMode(false);
        ByteBuffer request = ByteBuffer.wrap("GET / HTTP/1.1\r\n\r\n".getBytes());
        SSLException problem =
                assertThrows(SSLException.class, () -> engine.unwrap(request, ByteBuffer.allocate(20_000)));
        assertTrue(problem.getMessage().contains("unrecognized SSL message"), problem.getMessage());
    }
}
