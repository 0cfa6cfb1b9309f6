package dormouse;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.net.SocketException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLEngineResult.Status;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLHandshakeException;
import javax.net.ssl.SSLProtocolException;

/**
 * An engine over the streams of a connected socket, for a thread that reads and another one that writes.
 *
 * <p>It reads one record at a time and nothing beyond it: between two records there is no buffer, and after the end of
 * TLS the program finds the next byte in the socket below.
 *
 * <p>Invariants:
 * <ul>
 * <li>{@code incoming} and {@code plaintext} belong to the holder of the read lock.
 * <li>The holder of the write lock sends everything that it has wrapped, in this order, or nothing is ever sent again.
 * <li>Locks are taken in the order handshake, read, write.
 * </ul>
 */
final class SocketConnection {
    private static final ByteBuffer NOTHING = ByteBuffer.allocate(0);
    /** The JDK's property: whether an end without close_notify is an error. */
    private static final boolean REQUIRE_CLOSE_NOTIFY = Boolean.getBoolean("com.sun.net.ssl.requireCloseNotify");
    /** How long a close waits for a writer that is stuck, if SO_LINGER does not say it. */
    private static final long CLOSE_WAIT_MS = 1_000;
    /** How much a close reads and discards. */
    private static final long DISCARDED_MAX = 1 << 20;

    private final SocketEngine engine;
    private final Socket below;
    private final InputStream in;
    private final OutputStream out;
    /** Whether the socket below ends with this connection. */
    private final boolean ownsBelow;
    private final Runnable whenEstablished;

    private final ReentrantLock handshakeLock = new ReentrantLock();
    private final ReentrantLock readLock = new ReentrantLock();
    private final ReentrantLock writeLock = new ReentrantLock();

    /** The header of the next record, or room for the whole record. Null: nothing has arrived. */
    private byte[] incoming;
    private int arrived;
    /** The rest of a record that did not fit into the reader's array; null: none. */
    private ByteBuffer plaintext;
    /** Why the connection has failed. */
    private volatile IOException failure;
    /** Only a part of a record may have been sent. */
    private volatile boolean isOutputBroken;
    private volatile boolean isClosed;

    SocketConnection(SocketEngine engine, Socket below, InputStream in, boolean ownsBelow, Runnable whenEstablished)
            throws IOException {
        this.engine = engine;
        this.below = below;
        this.in = in;
        this.ownsBelow = ownsBelow;
        this.whenEstablished = whenEstablished;
        out = below.getOutputStream();
    }

    // Handshake

    /** Performs the handshake, unless it is done or the connection has ended. After a timeout it can be continued. */
    void handshake() throws IOException {
        if (engine.isEstablished() || hasEnded()) {
            return;
        }
        handshakeLock.lock();
        readLock.lock();
        try {
            if (engine.isEstablished() || hasEnded()) {
                return;
            }
            advanceHandshake();
        } catch (EOFException end) {
            throw fail(Failures.handshake("Remote host terminated the handshake", end));
        } catch (SSLException | SocketException problem) {
            throw fail(problem);
        } catch (RuntimeException problem) {
            // Of a KeyManager.
            throw fail(new SSLException("the handshake can't begin: " + problem.getMessage(), problem));
        } finally {
            readLock.unlock();
            handshakeLock.unlock();
        }
        whenEstablished.run();
    }

    private void advanceHandshake() throws IOException {
        engine.beginHandshake();
        while (true) {
            switch (engine.getHandshakeStatus()) {
                case NEED_TASK -> engine.getDelegatedTask().run();
                case NEED_WRAP -> sendOutput();
                case NEED_UNWRAP -> {
                    ByteBuffer record = nextRecord();
                    if (record == null) {
                        throw new EOFException("the peer has closed the connection");
                    }
                    open(record, NOTHING);
                }
                default -> {
                    if (!engine.isEstablished()) {
                        throw new SSLHandshakeException("the connection was closed during the handshake");
                    }
                    return;
                }
            }
        }
    }

    boolean isHandshakeOfThisThread() {
        return handshakeLock.isHeldByCurrentThread();
    }

    /** TLS 1.3: replaces the keys of our direction. */
    void updateKeys() throws IOException {
        engine.beginHandshake();
        try {
            sendOutput();
        } catch (SocketException problem) {
            throw fail(problem);
        }
    }

    // Receiving

    /** Returns the number of bytes, or -1 at the end. */
    int read(byte[] target, int offset, int length) throws IOException {
        if (failure != null) {
            throw new SSLException("Connection has closed: " + failure, failure);
        }
        if (engine.isInboundDone()) {
            return takePlaintext(target, offset, length);
        }
        handshake();
        if (!engine.isEstablished()) {
            throw new SocketException("Connection or inbound has closed");
        }
        readLock.lock();
        try {
            while (plaintext == null && !engine.isInboundDone()) {
                if (isClosed) {
                    return -1;
                }
                ByteBuffer record = nextRecord();
                if (record == null) {
                    endWithoutCloseNotify();
                    continue;
                }
                int count = openData(record, ByteBuffer.wrap(target, offset, length));
                if (count > 0) {
                    return count;
                }
            }
            return takePlaintext(target, offset, length);
        } catch (EOFException end) {
            throw fail(new SSLException("the connection ended within a record: data is missing", end));
        } catch (SSLException problem) {
            throw fail(problem);
        } finally {
            readLock.unlock();
        }
    }

    /** Returns the length of the plaintext in the target. What has no room there goes to {@code plaintext}. */
    private int openData(ByteBuffer record, ByteBuffer target) throws IOException {
        SSLEngineResult result = open(record, target);
        int count = result.bytesProduced();
        if (result.getStatus() == Status.BUFFER_OVERFLOW) {
            ByteBuffer whole = ByteBuffer.allocate(record.remaining());
            open(record, whole);
            plaintext = whole.flip().hasRemaining() ? whole : null;
        }
        sendOutputIfFree();
        if (engine.isOutboundDone()) {
            // TLS 1.2 ends both directions at once.
            shutBelowOutput();
        }
        return count;
    }

    private int takePlaintext(byte[] target, int offset, int length) {
        readLock.lock();
        try {
            if (plaintext == null) {
                return -1;
            }
            int count = Math.min(length, plaintext.remaining());
            plaintext.get(target, offset, count);
            if (!plaintext.hasRemaining()) {
                plaintext = null;
            }
            return count;
        } finally {
            readLock.unlock();
        }
    }

    /** The number of bytes that can be read without waiting. */
    int available() {
        if (!readLock.tryLock()) {
            return 0;
        }
        try {
            return plaintext == null ? 0 : plaintext.remaining();
        } finally {
            readLock.unlock();
        }
    }

    /**
     * Reads to the end of the next record. If this throws, what has arrived is kept. Returns null if the transport has
     * ended before a record.
     *
     * @throws EOFException if it has ended within a record
     */
    private ByteBuffer nextRecord() throws IOException {
        if (incoming == null) {
            incoming = new byte[Records.HEADER];
        }
        while (true) {
            while (arrived < incoming.length) {
                int count;
                try {
                    count = in.read(incoming, arrived, incoming.length - arrived);
                } catch (SocketException problem) {
                    throw fail(problem);
                }
                if (count < 0) {
                    if (arrived > 0) {
                        throw new EOFException("the peer has closed the connection within a record");
                    }
                    return null;
                }
                arrived += count;
            }
            int length = Records.announcedLength(incoming);
            if (length == arrived) {
                return ByteBuffer.wrap(incoming);
            }
            incoming = Arrays.copyOf(incoming, length);
        }
    }

    private SSLEngineResult open(ByteBuffer record, ByteBuffer target) throws IOException {
        SSLEngineResult result = engine.unwrap(record, target);
        if (result.bytesConsumed() > 0) {
            incoming = null;
            arrived = 0;
        }
        return result;
    }

    /** Like the JDK, accepts it unless the property demands close_notify. */
    private void endWithoutCloseNotify() throws IOException {
        if (REQUIRE_CLOSE_NOTIFY) {
            throw new SSLProtocolException("Remote host terminated the connection");
        }
        try {
            engine.closeInbound();
        } catch (SSLException cutOff) {
            // The engine can't know that this is accepted.
        }
        if (isTls12()) {
            engine.closeOutbound();
            sendOutputIfFree();
            shutBelowOutput();
        }
        shutBelowInput();
    }

    private boolean isTls12() {
        return engine.getSession().getProtocol().equals(Protocol.TLS12.text);
    }

    // Sending

    void write(byte[] source, int offset, int length) throws IOException {
        handshake();
        writeLock.lock();
        try {
            ByteBuffer data = ByteBuffer.wrap(source, offset, length);
            while (data.hasRemaining()) {
                boolean isOpen = engine.isEstablished() && !isOutputBroken && failure == null;
                if (!isOpen || wrap(data).getStatus() == Status.CLOSED) {
                    throw new SocketException("Connection or outbound has closed");
                }
            }
        } catch (SSLException problem) {
            throw fail(problem);
        } finally {
            writeLock.unlock();
        }
        sendOutputIfFree();
    }

    /** Wraps and sends one record, or records of the engine's own. The caller has the write lock. */
    private SSLEngineResult wrap(ByteBuffer data) throws IOException {
        int content = Math.min(data.remaining(), Records.CONTENT_MAX);
        int room = content == 0 ? Records.PACKET_MAX : content + Records.OVERHEAD_MAX;
        ByteBuffer target = ByteBuffer.allocate(room);
        SSLEngineResult result = engine.wrap(data, target);
        if (result.getStatus() == Status.BUFFER_OVERFLOW) {
            target = ByteBuffer.allocate(Records.PACKET_MAX);
            result = engine.wrap(data, target);
        }
        try {
            out.write(target.array(), 0, target.position());
        } catch (IOException problem) {
            isOutputBroken = true;
            throw problem;
        }
        return result;
    }

    /** Sends records of the engine's own: a flight of the handshake, an alert, new keys. */
    private void sendOutput() throws IOException {
        writeLock.lock();
        try {
            while (engine.getHandshakeStatus() == HandshakeStatus.NEED_WRAP) {
                if (isOutputBroken) {
                    throw new SocketException("Connection or outbound has closed");
                }
                if (wrap(NOTHING).getStatus() == Status.CLOSED) {
                    return;
                }
            }
        } finally {
            writeLock.unlock();
        }
    }

    /** Does the same, unless another thread is writing: then that one does it. A reader must not wait for a writer. */
    private void sendOutputIfFree() throws IOException {
        while (engine.getHandshakeStatus() == HandshakeStatus.NEED_WRAP && !isOutputBroken && writeLock.tryLock()) {
            try {
                sendOutput();
            } finally {
                writeLock.unlock();
            }
        }
    }

    // Ends

    boolean isInboundDone() {
        return engine.isInboundDone();
    }

    boolean isOutboundDone() {
        return engine.isOutboundDone();
    }

    boolean hasFailed() {
        return failure != null;
    }

    boolean hasEnded() {
        return hasFailed() || engine.isInboundDone() || engine.isOutboundDone();
    }

    /** Sends the alert, if there is one, and ends the connection. Returns the failure, to be thrown. */
    private <E extends IOException> E fail(E why) {
        if (failure == null) {
            failure = why;
        }
        try {
            engine.closeOutbound();
            sendOutputIfFree();
        } catch (IOException secondary) {
            why.addSuppressed(secondary);
        }
        try {
            closeBelow();
        } catch (IOException secondary) {
            why.addSuppressed(secondary);
        }
        return why;
    }

    /** Ends a connection whose handshake will not be continued. */
    void abandon(IOException why) {
        if (failure == null) {
            fail(Failures.handshake("the handshake was abandoned: " + why.getMessage(), why));
        }
    }

    private void shutBelowInput() throws IOException {
        if (ownsBelow && !below.isInputShutdown()) {
            below.shutdownInput();
        }
    }

    private void shutBelowOutput() throws IOException {
        if (ownsBelow && !below.isOutputShutdown()) {
            below.shutdownOutput();
        }
    }

    private void closeBelow() throws IOException {
        if (ownsBelow) {
            below.close();
        }
    }

    /** Ends our direction with close_notify. */
    void closeOutbound() throws IOException {
        writeLock.lock();
        try {
            engine.closeOutbound();
            sendOutput();
        } finally {
            writeLock.unlock();
        }
        shutBelowOutput();
    }

    /** Ends the peer's direction. Throws if the peer has not ended it. */
    void closeInbound() throws IOException {
        try {
            engine.closeInbound();
        } finally {
            shutBelowInput();
        }
    }

    /**
     * Ends both directions, and closes the socket below if it belongs to this connection. If it does not, the socket is
     * left at the first byte after TLS.
     */
    void close() throws IOException {
        isClosed = true;
        try {
            sayGoodbye();
            if (ownsBelow) {
                discardArrived();
            } else {
                awaitGoodbye();
            }
        } finally {
            closeBelow();
        }
    }

    /** Sends close_notify, unless a writer is stuck. */
    private void sayGoodbye() {
        boolean isInterrupted = Thread.interrupted();
        try {
            int linger = below.getSoLinger();
            long wait = linger < 0 ? CLOSE_WAIT_MS : TimeUnit.SECONDS.toMillis(linger);
            if (writeLock.tryLock(wait, TimeUnit.MILLISECONDS)) {
                try {
                    closeOutbound();
                } finally {
                    writeLock.unlock();
                }
            }
        } catch (IOException gone) {
            // The peer can't be told.
        } catch (InterruptedException interrupted) {
            isInterrupted = true;
        }
        if (isInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** The kernel resets a connection that is closed with unread bytes, and the peer may lose what was sent before. */
    private void discardArrived() {
        if (!readLock.tryLock()) {
            return;
        }
        try {
            long discarded = 0;
            for (int count = in.available(); count > 0 && discarded < DISCARDED_MAX; count = in.available()) {
                discarded += in.skip(count);
            }
        } catch (IOException gone) {
            // Then nothing can be lost.
        } finally {
            readLock.unlock();
        }
    }

    /**
     * Reads to the peer's close_notify. TLS 1.3 owes none, so only what has arrived is read there. A thread that is
     * reading finds it itself.
     */
    private void awaitGoodbye() {
        if (!readLock.tryLock()) {
            return;
        }
        try {
            boolean isOwed = isTls12();
            while (engine.isEstablished() && !engine.isInboundDone() && (isOwed || in.available() > 0)) {
                ByteBuffer record = nextRecord();
                if (record == null) {
                    return;
                }
                open(record, ByteBuffer.allocate(record.remaining()));
            }
        } catch (IOException problem) {
            // The program learns it from the socket below.
        } finally {
            readLock.unlock();
        }
    }
}
