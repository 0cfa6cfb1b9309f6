package dormouse;

import java.lang.ref.Cleaner;
import java.security.Principal;
import java.security.PrivateKey;
import java.security.cert.CertificateEncodingException;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import javax.net.ssl.KeyManager;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.X509ExtendedKeyManager;
import javax.net.ssl.X509KeyManager;

/** The certificates that a KeyManager chooses, in the engine's form. */
final class Identities {
    private static final Cleaner CLEANER = Cleaner.create();
    private static final int CACHED_MAX = 64;
    private static final String[] KEY_TYPES = {"EC", "RSA", "EdDSA"};

    private final X509KeyManager manager;
    private final Lru<Source, Identity> cache = new Lru<>(CACHED_MAX);

    /** A certificate chain with its key, which the engine has read. */
    static final class Identity {
        final X509Certificate[] chain;
        final long handle;

        private Identity(X509Certificate[] chain, long handle) {
            this.chain = chain;
            this.handle = handle;
            CLEANER.register(this, () -> Native.freeIdentity(handle));
        }

        String keyType() {
            return chain[0].getPublicKey().getAlgorithm();
        }
    }

    private record Source(List<X509Certificate> chain, PrivateKey key) {}

    /** Uses the first manager for X.509, as the JDK does. */
    Identities(KeyManager[] managers) {
        KeyManager[] given = managers == null ? new KeyManager[0] : managers;
        manager = Arrays.stream(given)
                .filter(X509KeyManager.class::isInstance)
                .map(X509KeyManager.class::cast)
                .findFirst()
                .orElse(null);
    }

    /** The manager's choice for a client, at most one for each type of key. */
    List<Identity> forServer(DormouseEngine engine) throws SSLException {
        List<Identity> chosen = new ArrayList<>();
        if (manager == null) {
            return chosen;
        }
        SSLSocket socket = engine.socket();
        for (String keyType : KEY_TYPES) {
            String alias = socket == null && manager instanceof X509ExtendedKeyManager extended
                    ? extended.chooseEngineServerAlias(keyType, null, engine)
                    : manager.chooseServerAlias(keyType, null, socket);
            Identity identity = identity(alias);
            if (identity != null && !chosen.contains(identity)) {
                chosen.add(identity);
            }
        }
        return chosen;
    }

    /** The manager's choice for a server that may request a certificate; null: none. */
    Identity forClient(DormouseEngine engine) throws SSLException {
        if (manager == null) {
            return null;
        }
        Principal[] anyIssuer = null;
        SSLSocket socket = engine.socket();
        String alias = socket == null && manager instanceof X509ExtendedKeyManager extended
                ? extended.chooseEngineClientAlias(KEY_TYPES, anyIssuer, engine)
                : manager.chooseClientAlias(KEY_TYPES, anyIssuer, socket);
        return identity(alias);
    }

    private Identity identity(String alias) throws SSLException {
        if (alias == null) {
            return null;
        }
        PrivateKey key = manager.getPrivateKey(alias);
        X509Certificate[] chain = manager.getCertificateChain(alias);
        if (key == null || chain == null || chain.length == 0) {
            return null;
        }
        Source source = new Source(List.of(chain), key);
        Identity known = cache.get(source);
        if (known == null) {
            known = load(alias, chain, key);
            cache.put(source, known);
        }
        return known;
    }

    private static Identity load(String alias, X509Certificate[] chain, PrivateKey key) throws SSLException {
        byte[][] encoded = encode(chain);
        byte[] secret = "PKCS#8".equals(key.getFormat()) ? key.getEncoded() : null;
        if (secret == null) {
            return new Identity(chain.clone(), Native.identityOfSigner(encoded, new KeySigner(key), alias));
        }
        try {
            return new Identity(chain.clone(), Native.identity(encoded, secret, alias));
        } finally {
            Arrays.fill(secret, (byte) 0);
        }
    }

    static byte[][] encode(X509Certificate[] certificates) throws SSLException {
        byte[][] encoded = new byte[certificates.length][];
        try {
            for (int i = 0; i < certificates.length; i++) {
                encoded[i] = certificates[i].getEncoded();
            }
        } catch (CertificateEncodingException problem) {
            throw new SSLException("a certificate can't be encoded", problem);
        }
        return encoded;
    }
}
