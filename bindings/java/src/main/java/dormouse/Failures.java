package dormouse;

import java.security.cert.CertPathValidatorException;
import java.security.cert.CertPathValidatorException.BasicReason;

import javax.net.ssl.SSLException;
import javax.net.ssl.SSLHandshakeException;
import javax.net.ssl.SSLProtocolException;

/** Ends of connections as exceptions, of the classes that the JDK throws. */
final class Failures {
    /** How the peer's direction ended, in the order of the native half. */
    enum PeerEnd {
        CLOSED,
        TRUNCATED,
        ALERT,
        REFUSED,
        HANDSHAKE
    }

    static final int UNEXPECTED_MESSAGE = 10;
    static final int HANDSHAKE_FAILURE = 40;
    static final int INTERNAL_ERROR = 80;
    static final int UNRECOGNIZED_NAME = 112;
    static final int NO_APPLICATION_PROTOCOL = 120;
    private static final int CLOSE_NOTIFY = 0;
    private static final int BAD_RECORD_MAC = 20;
    private static final int RECORD_OVERFLOW = 22;
    private static final int BAD_CERTIFICATE = 42;
    private static final int UNSUPPORTED_CERTIFICATE = 43;
    private static final int CERTIFICATE_REVOKED = 44;
    private static final int CERTIFICATE_EXPIRED = 45;
    private static final int CERTIFICATE_UNKNOWN = 46;
    private static final int INAPPROPRIATE_FALLBACK = 86;
    private static final int USER_CANCELED = 90;
    private static final int NO_RENEGOTIATION = 100;
    private static final int CERTIFICATE_REQUIRED = 116;

    private Failures() {}

    /** {@code alert}: the one that the peer sent, or that tells the peer why its record was refused. */
    static SSLException of(PeerEnd end, int alert, String reason) {
        return switch (end) {
            case ALERT -> alert == CLOSE_NOTIFY
                    ? new SSLHandshakeException("Received close_notify during handshake")
                    : ofAlert(alert, "Received fatal alert: " + reason);
            case REFUSED -> ofAlert(alert, reason);
            case HANDSHAKE -> new SSLHandshakeException(reason);
            default -> new SSLProtocolException(reason);
        };
    }

    private static SSLException ofAlert(int alert, String why) {
        return switch (alert) {
            case BAD_RECORD_MAC, RECORD_OVERFLOW, INTERNAL_ERROR, INAPPROPRIATE_FALLBACK, USER_CANCELED ->
                new SSLException(why);
            // An unknown alert, too.
            default -> isOfHandshake(alert) ? new SSLHandshakeException(why) : new SSLProtocolException(why);
        };
    }

    private static boolean isOfHandshake(int alert) {
        return alert >= HANDSHAKE_FAILURE && alert < INTERNAL_ERROR
                || alert >= NO_RENEGOTIATION && alert <= CERTIFICATE_REQUIRED
                || alert == NO_APPLICATION_PROTOCOL;
    }

    /** The alert for a peer that a TrustManager refuses with this exception: the one that the JDK would choose. */
    static int alertFor(Throwable refusal) {
        if (refusal == null || !(refusal.getCause() instanceof CertPathValidatorException invalid)
                || !(invalid.getReason() instanceof BasicReason reason)) {
            return CERTIFICATE_UNKNOWN;
        }
        return switch (reason) {
            case REVOKED -> CERTIFICATE_REVOKED;
            case EXPIRED -> CERTIFICATE_EXPIRED;
            case NOT_YET_VALID, INVALID_SIGNATURE -> BAD_CERTIFICATE;
            case ALGORITHM_CONSTRAINED -> UNSUPPORTED_CERTIFICATE;
            default -> CERTIFICATE_UNKNOWN;
        };
    }

    static SSLHandshakeException handshake(String why, Throwable cause) {
        SSLHandshakeException exception = new SSLHandshakeException(why);
        exception.initCause(cause);
        return exception;
    }
}
