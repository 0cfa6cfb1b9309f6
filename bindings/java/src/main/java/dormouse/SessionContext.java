package dormouse;

import java.util.Collections;
import java.util.Enumeration;

import javax.net.ssl.SSLSession;
import javax.net.ssl.SSLSessionContext;

/**
 * Limits of resumption. Sessions themselves lie in the tickets that clients keep (servers) or in the engine
 * (clients), so none can be listed or looked up.
 *
 * <p>The timeout is that of a server's tickets. A client keeps a session for a day, or less if the ticket says so.
 */
final class SessionContext implements SSLSessionContext {
    private static final int WEEK_S = 7 * 24 * 60 * 60;

    private int timeoutS = 12 * 60 * 60;
    private int cacheSize = 1_024;

    @Override
    public SSLSession getSession(byte[] id) {
        if (id == null) {
            throw new NullPointerException("the id of a session can't be null");
        }
        return null;
    }

    @Override
    public Enumeration<byte[]> getIds() {
        return Collections.emptyEnumeration();
    }

    @Override
    public synchronized void setSessionTimeout(int seconds) {
        if (seconds < 0) {
            throw new IllegalArgumentException("a session timeout of " + seconds + " s is negative");
        }
        timeoutS = seconds;
    }

    @Override
    public synchronized int getSessionTimeout() {
        return timeoutS;
    }

    @Override
    public synchronized void setSessionCacheSize(int size) {
        if (size < 0) {
            throw new IllegalArgumentException("a session cache of " + size + " sessions is negative");
        }
        cacheSize = size;
    }

    @Override
    public synchronized int getSessionCacheSize() {
        return cacheSize;
    }

    /** The lifetime of tickets. 0 means no limit; TLS allows a week (RFC 8446 section 4.6.1). */
    int ticketLifetimeS() {
        int seconds = getSessionTimeout();
        return seconds == 0 ? WEEK_S : Math.min(seconds, WEEK_S);
    }

    /** Maximum number of sessions that a client keeps. 0 asks for no limit, and gets a large one. */
    int sessionsMax() {
        int size = getSessionCacheSize();
        return size == 0 ? 65_536 : size;
    }
}
