package dormouse;

import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.SequenceInputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.SocketException;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArraySet;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BiFunction;

import javax.net.ssl.HandshakeCompletedEvent;
import javax.net.ssl.HandshakeCompletedListener;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSession;
import javax.net.ssl.SSLSocket;

/** A blocking TLS connection, which behaves as the JDK's sockets do. Its TCP connection is a plain socket. */
final class DormouseSocket extends SocketDelegate {
    private final SocketEngine engine;
    private final boolean isLayered;
    /** Whether the socket below closes with this one. */
    private final boolean ownsBelow;
    private final Set<HandshakeCompletedListener> listeners = new CopyOnWriteArraySet<>();
    private final AtomicBoolean isClosed = new AtomicBoolean();
    private BiFunction<SSLSocket, List<String>, String> alpnSelector;
    /** The host that the program has named, or its address. */
    private volatile String peerHost;
    /** Null until the TCP connection is there. */
    private volatile SocketConnection connection;

    /** A client's socket, not connected yet. */
    DormouseSocket(ContextSpi context) {
        super(new Socket());
        isLayered = false;
        ownsBelow = true;
        engine = new SocketEngine(context, this);
        engine.setUseClientMode(true);
    }

    /**
     * A socket over a connected one.
     *
     * @param consumed what a program has read from it already; null: nothing
     */
    DormouseSocket(
            ContextSpi context, Socket below, InputStream consumed, String peerHost, boolean autoClose,
            boolean isClient)
            throws IOException {
        super(below);
        if (!below.isConnected()) {
            throw new SocketException("Underlying socket is not connected");
        }
        isLayered = true;
        ownsBelow = autoClose;
        engine = new SocketEngine(context, this);
        engine.setUseClientMode(isClient);
        connected(peerHost, consumed);
    }

    /** The socket of an accepted connection, with the settings of its server socket. */
    DormouseSocket(ContextSpi context, Socket accepted, DormouseEngine settings) throws IOException {
        super(accepted);
        isLayered = false;
        ownsBelow = true;
        engine = new SocketEngine(context, this);
        engine.setUseClientMode(settings.getUseClientMode());
        engine.adopt(settings);
        connected(null, null);
    }

    // Connection

    @Override
    public void bind(SocketAddress address) throws IOException {
        if (isLayered) {
            throw new IOException("Underlying socket should already be connected");
        }
        below.bind(address);
    }

    @Override
    public void connect(SocketAddress address) throws IOException {
        connect(address, 0);
    }

    @Override
    public void connect(SocketAddress address, int timeout) throws IOException {
        if (isLayered) {
            throw new SocketException("Already connected");
        }
        if (!(address instanceof InetSocketAddress)) {
            throw new SocketException("Cannot handle non-Inet socket addresses.");
        }
        below.connect(address, timeout);
        connected(null, null);
    }

    /** Connects to a server by its name, which must then be in its certificate if the program has that checked. */
    void connect(String host, int port) throws IOException {
        below.connect(host == null
                ? new InetSocketAddress(InetAddress.getByName(null), port)
                : new InetSocketAddress(host, port));
        connected(host, null);
    }

    private void connected(String host, InputStream consumed) throws IOException {
        peerHost = host == null || host.isEmpty() ? nameOf(getInetAddress()) : host;
        InputStream in = below.getInputStream();
        connection = new SocketConnection(engine, below, consumed == null ? in : behind(consumed, in), ownsBelow,
                this::notifyListeners);
    }

    /** A SequenceInputStream closes a stream that has ended: here it would be the socket. */
    private static InputStream behind(InputStream consumed, InputStream in) {
        return new SequenceInputStream(consumed, new FilterInputStream(in) {
            @Override
            public void close() {}
        });
    }

    /**
     * The name by which the program has looked the address up. A name that a reverse lookup has found is none: whoever
     * answers that would choose the name to expect in the server's certificate.
     */
    private static String nameOf(InetAddress address) {
        if (address == null) {
            return null;
        }
        String name = Native.originalHostName(address);
        return name == null || name.isEmpty() ? address.getHostAddress() : name;
    }

    String peerHost() {
        return peerHost;
    }

    private SocketConnection connection() throws SocketException {
        SocketConnection current = connection;
        if (current == null) {
            throw new SocketException("Socket is not connected");
        }
        return current;
    }

    // Handshake

    @Override
    public void startHandshake() throws IOException {
        SocketConnection current = connection();
        if (isClosed() || current.hasEnded()) {
            throw new SocketException("Socket has been closed or broken");
        }
        if (engine.isEstablished()) {
            current.updateKeys();
        } else {
            current.handshake();
        }
    }

    @Override
    public SSLSession getSession() {
        SocketConnection current = connection;
        // A TrustManager may ask during the handshake.
        if (current != null && !engine.isEstablished() && !current.isHandshakeOfThisThread()) {
            try {
                current.handshake();
            } catch (IOException problem) {
                current.abandon(problem);
            }
        }
        return engine.isEstablished() ? engine.getSession() : engine.noSession();
    }

    @Override
    public SSLSession getHandshakeSession() {
        return engine.getHandshakeSession();
    }

    @Override
    public void addHandshakeCompletedListener(HandshakeCompletedListener listener) {
        requireListener(listener);
        listeners.add(listener);
    }

    @Override
    public void removeHandshakeCompletedListener(HandshakeCompletedListener listener) {
        requireListener(listener);
        if (!listeners.remove(listener)) {
            throw new IllegalArgumentException("the listener was not added");
        }
    }

    private static void requireListener(HandshakeCompletedListener listener) {
        if (listener == null) {
            throw new IllegalArgumentException("the listener can't be null");
        }
    }

    /** In a thread of its own, as the JDK does: a listener may read from the socket. */
    private void notifyListeners() {
        if (listeners.isEmpty()) {
            return;
        }
        HandshakeCompletedEvent event = new HandshakeCompletedEvent(this, engine.getSession());
        new Thread(null, () -> listeners.forEach(one -> one.handshakeCompleted(event)), "dormouse-handshake-completed",
                0, false).start();
    }

    // Data

    @Override
    public InputStream getInputStream() throws IOException {
        SocketConnection current = open();
        if (current.isInboundDone()) {
            throw new SocketException("Socket input is already shutdown");
        }
        return new InputStream() {
            @Override
            public int read() throws IOException {
                byte[] one = new byte[1];
                return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
            }

            @Override
            public int read(byte[] target, int offset, int length) throws IOException {
                Objects.checkFromIndexSize(offset, length, target.length);
                return length == 0 ? 0 : current.read(target, offset, length);
            }

            @Override
            public int available() {
                return current.available();
            }

            @Override
            public void close() throws IOException {
                DormouseSocket.this.close();
            }
        };
    }

    @Override
    public OutputStream getOutputStream() throws IOException {
        SocketConnection current = open();
        if (current.isOutboundDone()) {
            throw new SocketException("Socket output is already shutdown");
        }
        return new OutputStream() {
            @Override
            public void write(int one) throws IOException {
                write(new byte[] {(byte) one}, 0, 1);
            }

            @Override
            public void write(byte[] source, int offset, int length) throws IOException {
                Objects.checkFromIndexSize(offset, length, source.length);
                if (length > 0) {
                    current.write(source, offset, length);
                }
            }

            @Override
            public void close() throws IOException {
                DormouseSocket.this.close();
            }
        };
    }

    private SocketConnection open() throws SocketException {
        if (isClosed()) {
            throw new SocketException("Socket is closed");
        }
        return connection();
    }

    // Ends

    @Override
    public void shutdownInput() throws IOException {
        if (!isInputShutdown()) {
            open().closeInbound();
        }
    }

    @Override
    public void shutdownOutput() throws IOException {
        if (!isOutputShutdown()) {
            open().closeOutbound();
        }
    }

    @Override
    public boolean isInputShutdown() {
        SocketConnection current = connection;
        return current != null
                && (isClosed.get() || current.isInboundDone() && (!ownsBelow || below.isInputShutdown()));
    }

    @Override
    public boolean isOutputShutdown() {
        SocketConnection current = connection;
        return current != null
                && (isClosed.get() || current.isOutboundDone() && (!ownsBelow || below.isOutputShutdown()));
    }

    @Override
    public boolean isClosed() {
        SocketConnection current = connection;
        return isClosed.get() || current != null && current.hasFailed() || ownsBelow && below.isClosed();
    }

    @Override
    public void close() throws IOException {
        if (!isClosed.compareAndSet(false, true)) {
            return;
        }
        SocketConnection current = connection;
        if (current != null) {
            current.close();
        } else if (ownsBelow) {
            below.close();
        }
    }

    // Settings, which the engine has

    @Override
    public String[] getSupportedCipherSuites() {
        return engine.getSupportedCipherSuites();
    }

    @Override
    public String[] getEnabledCipherSuites() {
        return engine.getEnabledCipherSuites();
    }

    @Override
    public void setEnabledCipherSuites(String[] suites) {
        engine.setEnabledCipherSuites(suites);
    }

    @Override
    public String[] getSupportedProtocols() {
        return engine.getSupportedProtocols();
    }

    @Override
    public String[] getEnabledProtocols() {
        return engine.getEnabledProtocols();
    }

    @Override
    public void setEnabledProtocols(String[] protocols) {
        engine.setEnabledProtocols(protocols);
    }

    @Override
    public void setUseClientMode(boolean mode) {
        engine.setUseClientMode(mode);
    }

    @Override
    public boolean getUseClientMode() {
        return engine.getUseClientMode();
    }

    @Override
    public void setNeedClientAuth(boolean need) {
        engine.setNeedClientAuth(need);
    }

    @Override
    public boolean getNeedClientAuth() {
        return engine.getNeedClientAuth();
    }

    @Override
    public void setWantClientAuth(boolean want) {
        engine.setWantClientAuth(want);
    }

    @Override
    public boolean getWantClientAuth() {
        return engine.getWantClientAuth();
    }

    @Override
    public void setEnableSessionCreation(boolean allowed) {
        engine.setEnableSessionCreation(allowed);
    }

    @Override
    public boolean getEnableSessionCreation() {
        return engine.getEnableSessionCreation();
    }

    @Override
    public SSLParameters getSSLParameters() {
        return engine.getSSLParameters();
    }

    @Override
    public void setSSLParameters(SSLParameters parameters) {
        engine.setSSLParameters(parameters);
    }

    @Override
    public String getApplicationProtocol() {
        return engine.getApplicationProtocol();
    }

    @Override
    public String getHandshakeApplicationProtocol() {
        return engine.getHandshakeApplicationProtocol();
    }

    @Override
    public synchronized void setHandshakeApplicationProtocolSelector(
            BiFunction<SSLSocket, List<String>, String> selector) {
        alpnSelector = selector;
        engine.setHandshakeApplicationProtocolSelector(
                selector == null ? null : (ofSocket, offered) -> selector.apply(this, offered));
    }

    @Override
    public synchronized BiFunction<SSLSocket, List<String>, String> getHandshakeApplicationProtocolSelector() {
        return alpnSelector;
    }

    @Override
    public String toString() {
        return "DormouseSocket(" + peerHost + ":" + getPort() + ", " + engine + ")";
    }
}
