package dormouse;

import java.security.KeyStore;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.Arrays;

import javax.net.ssl.SSLException;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedTrustManager;
import javax.net.ssl.X509TrustManager;

/** Asks a TrustManager about the certificates of peers. */
final class PeerTrust {
    private static final X509Certificate[] NONE = {};

    private final X509TrustManager manager;

    /** Uses the first manager for X.509, as the JDK does; if there is none, no peer is trusted. */
    PeerTrust(TrustManager[] managers) {
        manager = Arrays.stream(managers)
                .filter(X509TrustManager.class::isInstance)
                .map(X509TrustManager.class::cast)
                .findFirst()
                .orElse(null);
    }

    /** The certificates that the JDK trusts by default. */
    static TrustManager[] ofSystem() throws java.security.GeneralSecurityException {
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init((KeyStore) null);
        return factory.getTrustManagers();
    }

    /** The issuers that a server names to its clients. */
    byte[][] authorities() throws SSLException {
        X509Certificate[] issuers = manager == null ? null : manager.getAcceptedIssuers();
        return Identities.encode(issuers == null ? NONE : issuers);
    }

    void check(DormouseEngine engine, X509Certificate[] chain) throws CertificateException {
        if (manager == null) {
            throw new CertificateException("there is no X509TrustManager, so no peer is trusted");
        }
        boolean ofServer = engine.getUseClientMode();
        String keyType = chain[0].getPublicKey().getAlgorithm();
        if (manager instanceof X509ExtendedTrustManager extended) {
            SSLSocket socket = engine.socket();
            if (ofServer && socket != null) {
                extended.checkServerTrusted(chain, keyExchange(keyType), socket);
            } else if (ofServer) {
                extended.checkServerTrusted(chain, keyExchange(keyType), engine);
            } else if (socket != null) {
                extended.checkClientTrusted(chain, keyType, socket);
            } else {
                extended.checkClientTrusted(chain, keyType, engine);
            }
            return;
        }
        if (ofServer) {
            manager.checkServerTrusted(chain, keyExchange(keyType));
        } else {
            manager.checkClientTrusted(chain, keyType);
        }
        // A plain X509TrustManager does not know the engine, so it can't check names.
        String identification = engine.settings().endpointIdentification();
        if (ofServer && identification != null && !identification.isEmpty()) {
            String host = engine.getPeerHost() == null ? engine.requestedHost() : engine.getPeerHost();
            HostNames.check(host, chain[0], identification);
        }
    }

    private static String keyExchange(String keyType) {
        return switch (keyType) {
            case "RSA", "RSASSA-PSS" -> "ECDHE_RSA";
            case "EC" -> "ECDHE_ECDSA";
            default -> "UNKNOWN";
        };
    }
}
