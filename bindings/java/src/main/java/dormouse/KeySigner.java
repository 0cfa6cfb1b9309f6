package dormouse;

import java.security.GeneralSecurityException;
import java.security.PrivateKey;
import java.security.Signature;
import java.security.spec.AlgorithmParameterSpec;
import java.security.spec.MGF1ParameterSpec;
import java.security.spec.PSSParameterSpec;

/** Signs with a key that can't leave its store, such as one of a PKCS #11 token. */
final class KeySigner {
    private static final ThreadLocal<Throwable> FAILURE = new ThreadLocal<>();

    private final PrivateKey key;

    KeySigner(PrivateKey key) {
        this.key = key;
    }

    /** Called by the engine. Returns null if it fails; {@link #takeFailure} then returns the reason. */
    byte[] sign(int scheme, byte[] message) {
        try {
            Signature signature = Signature.getInstance(algorithm(scheme));
            AlgorithmParameterSpec parameters = parameters(scheme);
            signature.initSign(key);
            if (parameters != null) {
                signature.setParameter(parameters);
            }
            signature.update(message);
            return signature.sign();
        } catch (Throwable failure) {
            FAILURE.set(failure);
            return null;
        }
    }

    /** Why a signature of this thread failed; null if none has. */
    static Throwable takeFailure() {
        Throwable failure = FAILURE.get();
        FAILURE.remove();
        return failure;
    }

    /** The schemes of RFC 8446 section 4.2.3. */
    private static String algorithm(int scheme) throws GeneralSecurityException {
        return switch (scheme) {
            case 0x0403 -> "SHA256withECDSA";
            case 0x0503 -> "SHA384withECDSA";
            case 0x0603 -> "SHA512withECDSA";
            case 0x0401 -> "SHA256withRSA";
            case 0x0501 -> "SHA384withRSA";
            case 0x0601 -> "SHA512withRSA";
            case 0x0804, 0x0805, 0x0806 -> "RSASSA-PSS";
            case 0x0807 -> "Ed25519";
            default -> throw new GeneralSecurityException("unknown signature scheme " + scheme);
        };
    }

    private static PSSParameterSpec parameters(int scheme) {
        return switch (scheme) {
            case 0x0804 -> pss("SHA-256", 32);
            case 0x0805 -> pss("SHA-384", 48);
            case 0x0806 -> pss("SHA-512", 64);
            default -> null;
        };
    }

    private static PSSParameterSpec pss(String digest, int length) {
        return new PSSParameterSpec(digest, "MGF1", new MGF1ParameterSpec(digest), length, 1);
    }
}
