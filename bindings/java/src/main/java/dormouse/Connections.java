package dormouse;

import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLException;

/**
 * Moves established connections to another process, together with their sockets: a server can be replaced without
 * losing one.
 *
 * <p>Java itself can't pass a socket to another process. Netty's epoll transport can (a {@code DomainSocketChannel}
 * that sends file descriptors), and a process that is started with a socket as its standard input finds it with
 * {@code System.inheritedChannel()}.
 */
public final class Connections {
    private Connections() {}

    /**
     * Ends the engine here and returns the bytes with which the connection continues elsewhere, about 150. They are
     * secret and can be used once: two engines with the same bytes would use the same keys for different data.
     *
     * <p>Unwrap everything that was received and send everything that was wrapped first; an incomplete record must
     * reach the other process, too.
     *
     * @throws IllegalStateException if the handshake is not done, or the connection is closed
     */
    public static byte[] export(SSLEngine engine) throws SSLException {
        return ours(engine).export();
    }

    /**
     * Continues an exported connection in a new engine.
     *
     * @throws SSLException if the bytes are not an exported connection, or come from another version
     * @throws IllegalStateException if the engine has begun a handshake
     */
    public static void restore(SSLEngine engine, byte[] exported) throws SSLException {
        ours(engine).restore(exported);
    }

    private static DormouseEngine ours(SSLEngine engine) {
        if (engine instanceof DormouseEngine found) {
            return found;
        }
        throw new IllegalArgumentException("not an engine of Dormouse: " + engine);
    }
}
