package dormouse;

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
    private static final int ILLEGAL_PARAMETER = 47;

    private Failures() {}

    static SSLException of(PeerEnd end, int alert, String reason) {
        return switch (end) {
            case ALERT -> ofAlert(alert, reason);
            case HANDSHAKE -> new SSLHandshakeException(reason);
            default -> new SSLProtocolException(reason);
        };
    }

    private static SSLException ofAlert(int alert, String name) {
        String text = "Received fatal alert: " + name;
        if (alert == CLOSE_NOTIFY) {
            return new SSLHandshakeException("Received close_notify during handshake");
        }
        if (alert == UNEXPECTED_MESSAGE) {
            return new SSLProtocolException(text);
        }
        boolean ofHandshake = alert >= HANDSHAKE_FAILURE && alert < INTERNAL_ERROR || alert > 100
                || alert == ILLEGAL_PARAMETER;
        return ofHandshake ? new SSLHandshakeException(text) : new SSLException(text);
    }

    static SSLHandshakeException handshake(String why, Throwable cause) {
        SSLHandshakeException exception = new SSLHandshakeException(why);
        exception.initCause(cause);
        return exception;
    }
}
