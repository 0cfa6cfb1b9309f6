package dormouse;

import java.security.Principal;
import java.security.SecureRandom;
import java.security.cert.Certificate;
import java.security.cert.X509Certificate;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import javax.net.ssl.ExtendedSSLSession;
import javax.net.ssl.SNIServerName;
import javax.net.ssl.SSLPeerUnverifiedException;
import javax.net.ssl.SSLSessionBindingEvent;
import javax.net.ssl.SSLSessionBindingListener;
import javax.net.ssl.SSLSessionContext;

/**
 * The results of a connection's handshake. It is kept for each connection, so it has few fields, and shares their
 * objects with other sessions.
 */
final class DormouseSession extends ExtendedSSLSession {
    private static final byte[] NO_ID = {};
    private static final int ID_LENGTH = 32;
    private static final SecureRandom RANDOM = new SecureRandom();
    /** Those of the engine, as the JDK names them. */
    private static final String[] SIGNATURE_ALGORITHMS = {
        "SHA256withECDSA", "SHA384withECDSA", "SHA512withECDSA", "Ed25519", "RSASSA-PSS", "SHA256withRSA",
        "SHA384withRSA", "SHA512withRSA",
    };

    private final SessionContext context;
    private final String peerHost;
    private final int peerPort;
    private final long createdAt;
    private byte[] id;
    private Map<String, Object> values;
    private boolean invalid;

    /** Null before the handshake; the newest enabled version during it. */
    Protocol protocol;
    CipherSuite suite;
    X509Certificate[] peer;
    X509Certificate[] local;
    List<SNIServerName> requestedNames = List.of();

    DormouseSession(SessionContext context, Protocol protocol, CipherSuite suite, String peerHost, int peerPort) {
        this.context = context;
        this.protocol = protocol;
        this.suite = suite;
        this.peerHost = peerHost;
        this.peerPort = peerPort;
        createdAt = System.currentTimeMillis();
    }

    /** Created on request: tickets carry the sessions, so no session is looked up by its id. */
    @Override
    public synchronized byte[] getId() {
        if (protocol == null) {
            return NO_ID;
        }
        if (id == null) {
            id = new byte[ID_LENGTH];
            RANDOM.nextBytes(id);
        }
        return id.clone();
    }

    @Override
    public SSLSessionContext getSessionContext() {
        return protocol == null ? null : context;
    }

    @Override
    public long getCreationTime() {
        return createdAt;
    }

    /** Each connection has a session of its own. */
    @Override
    public long getLastAccessedTime() {
        return createdAt;
    }

    @Override
    public synchronized void invalidate() {
        invalid = true;
    }

    @Override
    public synchronized boolean isValid() {
        return protocol != null && !invalid;
    }

    @Override
    public void putValue(String name, Object value) {
        require(name);
        require(value);
        Object before;
        synchronized (this) {
            if (values == null) {
                values = new HashMap<>(2);
            }
            before = values.put(name, value);
        }
        if (value instanceof SSLSessionBindingListener listener) {
            listener.valueBound(new SSLSessionBindingEvent(this, name));
        }
        unbound(name, before);
    }

    @Override
    public synchronized Object getValue(String name) {
        require(name);
        return values == null ? null : values.get(name);
    }

    @Override
    public void removeValue(String name) {
        require(name);
        Object before;
        synchronized (this) {
            before = values == null ? null : values.remove(name);
        }
        unbound(name, before);
    }

    @Override
    public synchronized String[] getValueNames() {
        return values == null ? new String[0] : values.keySet().toArray(String[]::new);
    }

    private void unbound(String name, Object value) {
        if (value instanceof SSLSessionBindingListener listener) {
            listener.valueUnbound(new SSLSessionBindingEvent(this, name));
        }
    }

    private static void require(Object argument) {
        if (argument == null) {
            throw new IllegalArgumentException("names and values of a session can't be null");
        }
    }

    @Override
    public Certificate[] getPeerCertificates() throws SSLPeerUnverifiedException {
        if (peer == null) {
            throw new SSLPeerUnverifiedException("the peer sent no certificate");
        }
        return peer.clone();
    }

    @Override
    public Certificate[] getLocalCertificates() {
        return local == null ? null : local.clone();
    }

    @Override
    public Principal getPeerPrincipal() throws SSLPeerUnverifiedException {
        if (peer == null) {
            throw new SSLPeerUnverifiedException("the peer sent no certificate");
        }
        return peer[0].getSubjectX500Principal();
    }

    @Override
    public Principal getLocalPrincipal() {
        return local == null ? null : local[0].getSubjectX500Principal();
    }

    @Override
    public String getCipherSuite() {
        return suite == null ? "SSL_NULL_WITH_NULL_NULL" : suite.name();
    }

    @Override
    public String getProtocol() {
        return protocol == null ? "NONE" : protocol.text;
    }

    @Override
    public String getPeerHost() {
        return peerHost;
    }

    @Override
    public int getPeerPort() {
        return peerPort;
    }

    @Override
    public int getPacketBufferSize() {
        return Records.PACKET_MAX;
    }

    @Override
    public int getApplicationBufferSize() {
        return Records.PLAINTEXT_MAX;
    }

    @Override
    public String[] getLocalSupportedSignatureAlgorithms() {
        return SIGNATURE_ALGORITHMS.clone();
    }

    /** The engine does not keep the peer's list; these are the algorithms that the engine accepts. */
    @Override
    public String[] getPeerSupportedSignatureAlgorithms() {
        return SIGNATURE_ALGORITHMS.clone();
    }

    @Override
    public List<SNIServerName> getRequestedServerNames() {
        return requestedNames;
    }

    @Override
    public List<byte[]> getStatusResponses() {
        return List.of();
    }

    @Override
    public String toString() {
        return "Session(" + getProtocol() + "|" + getCipherSuite() + ")";
    }
}
