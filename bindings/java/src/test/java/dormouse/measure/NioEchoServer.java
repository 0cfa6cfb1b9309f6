package dormouse.measure;

import dormouse.DormouseProvider;

import io.netty.handler.ssl.JdkSslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;

import java.io.File;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.ArrayDeque;
import java.util.Iterator;

import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLException;

/**
 * An echo server over a {@code Selector}, without a framework: {@code NioEchoServer TLS CERTIFICATE KEY}, where TLS is
 * plain, dormouse or jdk. All connections share three buffers; one keeps bytes of its own only while a record is
 * incomplete or its peer does not read.
 */
public final class NioEchoServer {
    private static final int BUFFER = 1 << 17;
    private static final int BACKLOG = 1_000;

    private final SSLContext tls;
    private final Selector selector = Selector.open();
    private final ByteBuffer input = ByteBuffer.allocateDirect(BUFFER);
    private final ByteBuffer plaintext = ByteBuffer.allocateDirect(BUFFER);
    private final ByteBuffer output = ByteBuffer.allocateDirect(BUFFER);

    /** {@code tls}: null for plaintext. */
    private NioEchoServer(SSLContext tls) throws IOException {
        this.tls = tls;
    }

    private static final class Connection {
        final SocketChannel channel;
        /** Null: plaintext. */
        final SSLEngine engine;
        /** The beginning of a record; null: none. */
        ByteBuffer incomplete;
        /** What the peer has not taken; null: nothing. */
        ArrayDeque<ByteBuffer> unsent;

        Connection(SocketChannel channel, SSLEngine engine) {
            this.channel = channel;
            this.engine = engine;
        }
    }

    public static void main(String[] arguments) throws Exception {
        SSLContext tls = context(arguments[0], new File(arguments[1]), new File(arguments[2]));
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress("127.0.0.1", 0), BACKLOG);
        NioEchoServer server = new NioEchoServer(tls);
        Thread thread = new Thread(() -> server.serve(listener), "server");
        thread.setDaemon(true);
        thread.start();
        System.out.println(listener.socket().getLocalPort());
        Orders.obey();
    }

    private static SSLContext context(String name, File certificate, File key) throws SSLException {
        SslContextBuilder builder = SslContextBuilder.forServer(certificate, key).sslProvider(SslProvider.JDK);
        switch (name) {
            case "plain":
                return null;
            case "dormouse":
                builder.sslContextProvider(new DormouseProvider());
                break;
            case "jdk":
                break;
            default:
                throw new IllegalArgumentException(name);
        }
        return ((JdkSslContext) builder.build()).context();
    }

    private void serve(ServerSocketChannel listener) {
        try {
            listener.configureBlocking(false);
            listener.register(selector, SelectionKey.OP_ACCEPT);
            while (true) {
                selector.select();
                Iterator<SelectionKey> ready = selector.selectedKeys().iterator();
                while (ready.hasNext()) {
                    SelectionKey key = ready.next();
                    ready.remove();
                    if (key.isAcceptable()) {
                        accept(listener);
                    } else {
                        attend(key);
                    }
                }
            }
        } catch (IOException problem) {
            problem.printStackTrace();
            System.exit(1);
        }
    }

    private void accept(ServerSocketChannel listener) throws IOException {
        SocketChannel channel = listener.accept();
        if (channel == null) {
            return;
        }
        channel.configureBlocking(false);
        // As Netty does.
        channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
        SSLEngine engine = null;
        if (tls != null) {
            engine = tls.createSSLEngine();
            engine.setUseClientMode(false);
        }
        channel.register(selector, SelectionKey.OP_READ, new Connection(channel, engine));
    }

    private void attend(SelectionKey key) throws IOException {
        Connection connection = (Connection) key.attachment();
        try {
            if (key.isWritable()) {
                sendWaiting(connection);
            }
            if (key.isReadable() && !receive(connection)) {
                connection.channel.close();
                return;
            }
            boolean waits = connection.unsent != null;
            key.interestOps(waits ? SelectionKey.OP_READ | SelectionKey.OP_WRITE : SelectionKey.OP_READ);
        } catch (IOException gone) {
            connection.channel.close();
        }
    }

    /** Returns false at the connection's end. */
    private boolean receive(Connection connection) throws IOException {
        input.clear();
        if (connection.incomplete != null) {
            input.put(connection.incomplete);
            connection.incomplete = null;
        }
        if (connection.channel.read(input) < 0) {
            return false;
        }
        input.flip();
        if (connection.engine == null) {
            send(connection, input);
            return true;
        }
        return open(connection);
    }

    private boolean open(Connection connection) throws IOException {
        SSLEngine engine = connection.engine;
        while (true) {
            plaintext.clear();
            SSLEngineResult result = engine.unwrap(input, plaintext);
            plaintext.flip();
            while (plaintext.hasRemaining()) {
                seal(connection, plaintext);
            }
            if (result.getStatus() == SSLEngineResult.Status.CLOSED) {
                return false;
            }
            HandshakeStatus next = engine.getHandshakeStatus();
            if (next == HandshakeStatus.NEED_TASK) {
                engine.getDelegatedTask().run();
                next = engine.getHandshakeStatus();
            }
            plaintext.clear().limit(0);
            while (next == HandshakeStatus.NEED_WRAP) {
                seal(connection, plaintext);
                next = engine.getHandshakeStatus();
            }
            if (result.getStatus() == SSLEngineResult.Status.BUFFER_UNDERFLOW && next != HandshakeStatus.NEED_TASK) {
                break;
            }
        }
        if (input.hasRemaining()) {
            connection.incomplete = ByteBuffer.allocate(input.remaining()).put(input).flip();
        }
        return true;
    }

    private void seal(Connection connection, ByteBuffer data) throws IOException {
        output.clear();
        connection.engine.wrap(data, output);
        send(connection, output.flip());
    }

    private static void send(Connection connection, ByteBuffer bytes) throws IOException {
        if (connection.unsent == null) {
            connection.channel.write(bytes);
        }
        if (bytes.hasRemaining()) {
            if (connection.unsent == null) {
                connection.unsent = new ArrayDeque<>();
            }
            connection.unsent.add(ByteBuffer.allocate(bytes.remaining()).put(bytes).flip());
        }
    }

    private static void sendWaiting(Connection connection) throws IOException {
        while (connection.unsent != null) {
            ByteBuffer first = connection.unsent.peek();
            connection.channel.write(first);
            if (first.hasRemaining()) {
                return;
            }
            connection.unsent.remove();
            if (connection.unsent.isEmpty()) {
                connection.unsent = null;
            }
        }
    }
}
