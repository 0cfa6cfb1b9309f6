package dormouse;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;

import javax.net.ssl.ExtendedSSLSession;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLException;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Connections that continue in another engine. */
class ConnectionsTest {
    private static final byte[] HELLO = "hello".getBytes(StandardCharsets.UTF_8);

    private static Pair established(String protocol) throws Exception {
        Pair pair = new Pair(TestKeys.context(false, TestKeys.CLIENT).createSSLEngine("localhost", 1),
                TestKeys.context(true, TestKeys.EC).createSSLEngine());
        pair.client.engine.setEnabledProtocols(new String[] {protocol});
        pair.server.engine.setNeedClientAuth(true);
        pair.handshake();
        return pair;
    }

    @ParameterizedTest
    @ValueSource(strings = {"TLSv1.2", "TLSv1.3"})
    void continuesInAnotherEngine(String protocol) throws Exception {
        Pair pair = established(protocol);
        Pair.send(pair.client, pair.server, HELLO);
        byte[] exported = Connections.export(pair.server.engine);
        assertTrue(pair.server.engine.isInboundDone() && pair.server.engine.isOutboundDone());
        assertThrows(IllegalStateException.class, () -> Connections.export(pair.server.engine));

        SSLContext successor = TestKeys.context(true, TestKeys.RSA);
        SSLEngine engine = successor.createSSLEngine();
        Connections.restore(engine, exported);
        assertEquals(HandshakeStatus.NOT_HANDSHAKING, engine.getHandshakeStatus());
        assertEquals(protocol, engine.getSession().getProtocol());
        assertEquals(TestKeys.certificate(TestKeys.CLIENT), engine.getSession().getPeerCertificates()[0]);
        // The guide says so: the exported bytes contain neither.
        assertNull(engine.getSession().getLocalCertificates());
        assertEquals(List.of(), ((ExtendedSSLSession) engine.getSession()).getRequestedServerNames());
        Pair.Side server = new Pair.Side(engine, java.nio.ByteBuffer::allocateDirect);
        Pair.send(pair.client, server, HELLO);
        assertArrayEquals(HELLO, server.received.toByteArray());
        Pair.send(server, pair.client, HELLO);
        assertArrayEquals(HELLO, pair.client.received.toByteArray());
        assertThrows(IllegalStateException.class, () -> Connections.restore(engine, exported));
    }

    @Test
    void bytesThatAreNoConnection() throws Exception {
        byte[] exported = Connections.export(established("TLSv1.3").server.engine);
        for (int length : new int[] {0, 1, 5, exported.length - 1}) {
            refused(Arrays.copyOf(exported, length));
        }
        refused(Arrays.copyOf(exported, exported.length + 1));
        for (int at : new int[] {0, 2, 3}) {
            byte[] changed = exported.clone();
            changed[at] = 99;
            refused(changed);
        }
        assertThrows(IllegalArgumentException.class,
                () -> Connections.restore(TestKeys.context(false).createSSLEngine(), exported));
        SSLEngine handshaking = TestKeys.context(true).createSSLEngine();
        handshaking.setUseClientMode(true);
        handshaking.beginHandshake();
        assertThrows(IllegalStateException.class, () -> Connections.export(handshaking));
        assertThrows(IllegalStateException.class, () -> Connections.restore(handshaking, exported));
    }

    private static void refused(byte[] bytes) throws Exception {
        SSLEngine engine = TestKeys.context(true).createSSLEngine();
        assertThrows(SSLException.class, () -> Connections.restore(engine, bytes));
        assertEquals("NONE", engine.getSession().getProtocol());
    }
}
