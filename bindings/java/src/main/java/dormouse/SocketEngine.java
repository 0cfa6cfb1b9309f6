package dormouse;

import javax.net.ssl.SSLSocket;

/** The engine of a socket: its managers are asked about the socket, and the socket knows the peer. */
final class SocketEngine extends DormouseEngine {
    /** Null for the settings of a server socket. */
    private final DormouseSocket socket;

    SocketEngine(ContextSpi context, DormouseSocket socket) {
        super(context, null, -1);
        this.socket = socket;
    }

    @Override
    SSLSocket socket() {
        return socket;
    }

    @Override
    public String getPeerHost() {
        return socket == null ? null : socket.peerHost();
    }

    @Override
    public int getPeerPort() {
        return socket == null ? -1 : socket.getPort();
    }
}
