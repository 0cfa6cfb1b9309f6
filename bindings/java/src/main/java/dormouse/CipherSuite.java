package dormouse;

import java.util.Arrays;
import java.util.Collections;
import java.util.EnumSet;
import java.util.Set;

/** The cipher suites, in the order of the engine. All of them are AEAD with forward secrecy. */
enum CipherSuite {
    TLS_AES_128_GCM_SHA256,
    TLS_AES_256_GCM_SHA384,
    TLS_CHACHA20_POLY1305_SHA256,
    TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256;

    static final Set<CipherSuite> ALL = Collections.unmodifiableSet(EnumSet.allOf(CipherSuite.class));

    Protocol protocol() {
        return ordinal() < 3 ? Protocol.TLS13 : Protocol.TLS12;
    }

    boolean isChacha20() {
        return this == TLS_CHACHA20_POLY1305_SHA256
                || this == TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
                || this == TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256;
    }

    /** Bytes of a record before its plaintext. */
    int header() {
        return protocol() == Protocol.TLS13 || isChacha20() ? Records.HEADER : Records.HEADER + 8;
    }

    /** Bytes of a record besides its plaintext, including the header. */
    int overhead() {
        if (protocol() == Protocol.TLS13) {
            return Records.HEADER + 1 + 16;
        }
        return isChacha20() ? Records.HEADER + 16 : Records.HEADER + 8 + 16;
    }

    static String[] names(Set<CipherSuite> suites) {
        return Arrays.stream(values()).filter(suites::contains).map(Enum::name).toArray(String[]::new);
    }

    static Set<CipherSuite> parse(String[] names) {
        EnumSet<CipherSuite> found = EnumSet.noneOf(CipherSuite.class);
        for (String name : names) {
            try {
                found.add(valueOf(name));
            } catch (IllegalArgumentException | NullPointerException unknown) {
                throw new IllegalArgumentException("the cipher suite " + name + " is not supported; supported are "
                        + String.join(", ", names(ALL)));
            }
        }
        if (found.isEmpty()) {
            throw new IllegalArgumentException("no cipher suite is named; name at least one");
        }
        return Collections.unmodifiableSet(found);
    }
}
