package dormouse;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLServerSocket;
import javax.net.ssl.SSLSocket;

/** A socket under test, with a peer of the JDK in a thread of its own, and the events that can happen to it. */
final class SocketLane implements AutoCloseable {
    /** For a handshake; a test machine may be busy. */
    private static final int LONG_MS = 3_000;
    /** For data that does not come. */
    private static final int SHORT_MS = 60;

    /** What the program does with the socket, or what its peer does. */
    enum Event {
        START_HANDSHAKE,
        GET_SESSION,
        READ,
        READ_ONE,
        AVAILABLE,
        WRITE,
        SHUT_INPUT,
        SHUT_OUTPUT,
        CLOSE,
        GET_INPUT,
        GET_OUTPUT,
        PEER_WRITES,
        PEER_SHUTS_OUTPUT,
        PEER_CLOSES,
        /** TCP's end without close_notify. */
        PEER_CUTS,
        PEER_RESETS,
        /** A part of a record. */
        PEER_SENDS_PART,
        /** Bytes that are no record. */
        PEER_SENDS_HTTP;

        boolean isOfPeer() {
            return name().startsWith("PEER_");
        }
    }

    enum State {
        UNCONNECTED,
        CONNECTED,
        ESTABLISHED
    }

    /** Whose the TCP connection is. */
    enum Kind {
        OWN,
        /** Over a given socket, which closes with it. */
        OVER,
        /** Over a given socket, which stays open. */
        OVER_LENT
    }

    record Start(boolean isClient, String version, Kind kind, State state) {
        static Start parse(String[] words) {
            return new Start(words[1].equals("client"), words[0], Kind.valueOf(words[2]), State.valueOf(words[3]));
        }

        /** Whether there is such a socket. */
        boolean exists() {
            return state != State.UNCONNECTED || kind == Kind.OWN && isClient;
        }

        @Override
        public String toString() {
            return version + " " + (isClient ? "client" : "server") + " " + kind + " " + state;
        }
    }

    private final ExecutorService peers = Executors.newSingleThreadExecutor();
    private final SSLSocket subject;
    /** The socket below the one under test; null: its own. */
    private final Socket below;
    /** The TCP socket of the peer, and the peer over it. */
    private final Socket peerBelow;
    private final SSLSocket peer;
    /** The streams of the connected socket, which a program may still use after a close. */
    private final InputStream in;
    private final OutputStream out;
    private boolean isEstablished;

    SocketLane(SSLContext context, SSLContext jdk, Start start) throws Exception {
        InetAddress loopback = InetAddress.getLoopbackAddress();
        if (start.state == State.UNCONNECTED) {
            subject = (SSLSocket) context.getSocketFactory().createSocket();
            below = null;
            peerBelow = null;
            peer = null;
        } else if (start.kind == Kind.OWN && start.isClient) {
            try (ServerSocket listener = new ServerSocket(0, 1, loopback)) {
                subject = (SSLSocket) context.getSocketFactory().createSocket();
                subject.connect(new InetSocketAddress(loopback, listener.getLocalPort()));
                below = null;
                peerBelow = listener.accept();
            }
            peer = over(jdk, peerBelow, false);
        } else if (start.kind == Kind.OWN) {
            try (SSLServerSocket listener =
                    (SSLServerSocket) context.getServerSocketFactory().createServerSocket(0, 1, loopback)) {
                peerBelow = new Socket(loopback, listener.getLocalPort());
                subject = (SSLSocket) listener.accept();
                below = null;
            }
            peer = over(jdk, peerBelow, true);
        } else {
            try (ServerSocket listener = new ServerSocket(0, 1, loopback)) {
                below = new Socket(loopback, listener.getLocalPort());
                peerBelow = listener.accept();
            }
            subject = (SSLSocket) context.getSocketFactory()
                    .createSocket(below, "localhost", below.getPort(), start.kind == Kind.OVER);
            subject.setUseClientMode(start.isClient);
            peer = over(jdk, peerBelow, !start.isClient);
        }
        subject.setEnabledProtocols(new String[] {start.version});
        in = peer == null ? null : subject.getInputStream();
        out = peer == null ? null : subject.getOutputStream();
        if (peer == null) {
            return;
        }
        subject.setSoTimeout(LONG_MS);
        atPeer(() -> {
            peer.startHandshake();
            return null;
        }, false);
        if (start.state == State.ESTABLISHED) {
            subject.startHandshake();
            isEstablished = true;
            subject.setSoTimeout(SHORT_MS);
        }
    }

    private static SSLSocket over(SSLContext jdk, Socket below, boolean isClient) throws IOException {
        SSLSocket peer = (SSLSocket) jdk.getSocketFactory().createSocket(below, "localhost", below.getPort(), true);
        peer.setUseClientMode(isClient);
        return peer;
    }

    private void atPeer(Callable<Void> work, boolean waits) throws InterruptedException {
        try {
            var running = peers.submit(work);
            if (waits) {
                running.get(LONG_MS, TimeUnit.MILLISECONDS);
            }
        } catch (ExecutionException | TimeoutException expected) {
            // Of a peer whose connection has ended, or whose handshake the test does not perform.
        }
    }

    /** Makes the event happen. Returns what the socket's method returned or threw, and what the socket says then. */
    String happen(Event event) throws Exception {
        String result;
        try {
            result = did(event);
        } catch (IOException | RuntimeException thrown) {
            result = thrown.getClass().getSimpleName();
        }
        isEstablished |= result.equals("established");
        // What the JDK's closed sockets say about each direction depends on the version and on earlier events.
        String directions = subject.isClosed()
                ? " closed"
                : (subject.isInputShutdown() ? " input-shut" : "") + (subject.isOutputShutdown() ? " output-shut" : "");
        return result + directions + (subject.isConnected() ? "" : " unconnected")
                + (below != null && below.isClosed() ? " below-closed" : "");
    }

    private String did(Event event) throws Exception {
        switch (event) {
            case START_HANDSHAKE -> {
                subject.startHandshake();
                return "established";
            }
            case GET_SESSION -> {
                return subject.getSession().getProtocol();
            }
            case READ -> {
                return "read " + input().read(new byte[100]);
            }
            case READ_ONE -> {
                return "read one " + input().read();
            }
            case AVAILABLE -> {
                return "available " + input().available();
            }
            case WRITE -> (out == null ? subject.getOutputStream() : out).write(new byte[10]);
            case SHUT_INPUT -> subject.shutdownInput();
            case SHUT_OUTPUT -> subject.shutdownOutput();
            case CLOSE -> subject.close();
            case GET_INPUT -> subject.getInputStream();
            case GET_OUTPUT -> subject.getOutputStream();
            default -> {
                if (peer != null) {
                    atPeer(() -> ofPeer(event), isEstablished);
                }
            }
        }
        return "";
    }

    private InputStream input() throws IOException {
        return in == null ? subject.getInputStream() : in;
    }

    private Void ofPeer(Event event) throws IOException {
        switch (event) {
            case PEER_WRITES -> peer.getOutputStream().write("data".getBytes(StandardCharsets.US_ASCII));
            case PEER_SHUTS_OUTPUT -> peer.shutdownOutput();
            case PEER_CLOSES -> peer.close();
            case PEER_CUTS -> peerBelow.close();
            case PEER_RESETS -> {
                peerBelow.setSoLinger(true, 0);
                peerBelow.close();
            }
            case PEER_SENDS_PART -> peerBelow.getOutputStream().write(new byte[] {23, 3, 3, 0, 50, 1, 2, 3});
            default -> peerBelow.getOutputStream().write("HTTP/1.1 400 Bad Request\r\n".getBytes(StandardCharsets.US_ASCII));
        }
        return null;
    }

    @Override
    public void close() throws IOException {
        if (peerBelow != null) {
            peerBelow.close();
        }
        if (below != null) {
            below.close();
        }
        subject.close();
        peers.shutdownNow();
    }
}
