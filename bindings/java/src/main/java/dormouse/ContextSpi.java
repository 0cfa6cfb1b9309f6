package dormouse;

import java.security.GeneralSecurityException;
import java.security.KeyManagementException;
import java.security.SecureRandom;
import java.util.List;
import java.util.Set;

import javax.net.ssl.KeyManager;
import javax.net.ssl.SNIHostName;
import javax.net.ssl.SNIServerName;
import javax.net.ssl.SSLContextSpi;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLServerSocketFactory;
import javax.net.ssl.SSLSessionContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManager;

/** The part that all engines of an {@code SSLContext} share. */
final class ContextSpi extends SSLContextSpi {
    private static final int SHARED_MAX = 256;

    final SessionContext serverSessions = new SessionContext();
    final SessionContext clientSessions = new SessionContext();
    private final EngineSettings defaults;
    private final Lru<EngineSettings, EngineSettings> settings = new Lru<>(SHARED_MAX);
    private final Lru<List<SNIServerName>, List<SNIServerName>> names = new Lru<>(SHARED_MAX);
    private Identities identities;
    private PeerTrust trust;
    private Contexts contexts;

    ContextSpi(Set<Protocol> protocols) {
        defaults = share(EngineSettings.of(protocols));
    }

    /** The engine has its own source of random bytes; {@code random} is not used. */
    @Override
    protected synchronized void engineInit(KeyManager[] keys, TrustManager[] trusted, SecureRandom random)
            throws KeyManagementException {
        try {
            trust = new PeerTrust(trusted == null ? PeerTrust.ofSystem() : trusted);
        } catch (GeneralSecurityException problem) {
            throw new KeyManagementException("the system's trusted certificates can't be used", problem);
        }
        identities = new Identities(keys);
        contexts = new Contexts(trust);
    }

    @Override
    protected SSLEngine engineCreateSSLEngine() {
        return engineCreateSSLEngine(null, -1);
    }

    @Override
    protected SSLEngine engineCreateSSLEngine(String host, int port) {
        identities();
        return new DormouseEngine(this, host, port);
    }

    @Override
    protected SSLSocketFactory engineGetSocketFactory() {
        identities();
        return new DormouseSocketFactory(this);
    }

    @Override
    protected SSLServerSocketFactory engineGetServerSocketFactory() {
        identities();
        return new DormouseServerSocketFactory(this);
    }

    @Override
    protected SSLSessionContext engineGetServerSessionContext() {
        return serverSessions;
    }

    @Override
    protected SSLSessionContext engineGetClientSessionContext() {
        return clientSessions;
    }

    @Override
    protected SSLParameters engineGetDefaultSSLParameters() {
        return new SSLParameters(CipherSuite.names(defaults.suites()), Protocol.names(defaults.protocols()));
    }

    @Override
    protected SSLParameters engineGetSupportedSSLParameters() {
        return new SSLParameters(CipherSuite.names(CipherSuite.ALL), Protocol.names(Protocol.ALL));
    }

    EngineSettings defaults() {
        return defaults;
    }

    synchronized Identities identities() {
        if (identities == null) {
            throw new IllegalStateException("the SSLContext is not initialized");
        }
        return identities;
    }

    synchronized PeerTrust trust() {
        return trust;
    }

    synchronized Contexts contexts() {
        return contexts;
    }

    /** The shared object for all settings equal to these. */
    EngineSettings share(EngineSettings changed) {
        return Lru.canonical(settings, changed);
    }

    /** The shared list with this name, which many clients request. */
    List<SNIServerName> share(SNIHostName name) {
        return Lru.canonical(names, List.of(name));
    }
}
