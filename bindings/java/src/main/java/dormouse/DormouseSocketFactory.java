package dormouse;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;

import javax.net.ssl.SSLSocketFactory;

/** Creates sockets of clients, and sockets over connected ones. */
final class DormouseSocketFactory extends SSLSocketFactory {
    private final ContextSpi context;

    DormouseSocketFactory(ContextSpi context) {
        this.context = context;
    }

    /** How a new socket gets its connection. */
    private interface Connecting {
        void connect(DormouseSocket socket) throws IOException;
    }

    private Socket connected(Connecting connecting) throws IOException {
        DormouseSocket socket = new DormouseSocket(context);
        try {
            connecting.connect(socket);
        } catch (IOException | RuntimeException problem) {
            socket.close();
            throw problem;
        }
        return socket;
    }

    @Override
    public Socket createSocket() {
        return new DormouseSocket(context);
    }

    @Override
    public Socket createSocket(String host, int port) throws IOException {
        return connected(socket -> socket.connect(host, port));
    }

    @Override
    public Socket createSocket(String host, int port, InetAddress localHost, int localPort) throws IOException {
        return connected(socket -> {
            socket.bind(new InetSocketAddress(localHost, localPort));
            socket.connect(host, port);
        });
    }

    @Override
    public Socket createSocket(InetAddress host, int port) throws IOException {
        return connected(socket -> socket.connect(new InetSocketAddress(host, port)));
    }

    @Override
    public Socket createSocket(InetAddress host, int port, InetAddress localHost, int localPort) throws IOException {
        return connected(socket -> {
            socket.bind(new InetSocketAddress(localHost, localPort));
            socket.connect(new InetSocketAddress(host, port));
        });
    }

    /** A client's socket; {@code setUseClientMode(false)} makes it a server's. */
    @Override
    public Socket createSocket(Socket below, String host, int port, boolean autoClose) throws IOException {
        return new DormouseSocket(context, below, null, host, autoClose, true);
    }

    /** A server's socket. */
    @Override
    public Socket createSocket(Socket below, InputStream consumed, boolean autoClose) throws IOException {
        return new DormouseSocket(context, below, consumed, null, autoClose, false);
    }

    @Override
    public String[] getDefaultCipherSuites() {
        return CipherSuite.names(context.defaults().suites());
    }

    @Override
    public String[] getSupportedCipherSuites() {
        return CipherSuite.names(CipherSuite.ALL);
    }
}
