package dormouse;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;

import javax.net.ssl.SSLServerSocketFactory;

/** Creates server sockets. */
final class DormouseServerSocketFactory extends SSLServerSocketFactory {
    /** The default of {@code ServerSocket}. */
    private static final int BACKLOG = 50;

    private final ContextSpi context;

    DormouseServerSocketFactory(ContextSpi context) {
        this.context = context;
    }

    @Override
    public ServerSocket createServerSocket() throws IOException {
        return new DormouseServerSocket(context);
    }

    @Override
    public ServerSocket createServerSocket(int port) throws IOException {
        return createServerSocket(port, BACKLOG, null);
    }

    @Override
    public ServerSocket createServerSocket(int port, int backlog) throws IOException {
        return createServerSocket(port, backlog, null);
    }

    @Override
    public ServerSocket createServerSocket(int port, int backlog, InetAddress address) throws IOException {
        return new DormouseServerSocket(context, port, backlog, address);
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
