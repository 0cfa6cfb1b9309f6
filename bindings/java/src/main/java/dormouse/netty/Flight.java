package dormouse.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.channel.Channel;
import io.netty.channel.ChannelPromise;
import io.netty.channel.CoalescingBufferQueue;

import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.Future;

import javax.net.ssl.SSLException;

/** What a {@link DormouseHandler} needs only while something is in flight. A quiet connection has none. */
final class Flight {
    /** Few connections have more than one write in flight. */
    private static final int WRITES_EXPECTED = 4;
    private static final int HEADER = 5;
    /** So that a client that sends only the beginning of a record gets little memory for it. */
    private static final int PARTIAL_MIN = 64;

    /** The beginning of a record; null: none. */
    ByteBuf partial;
    /** Messages that arrived while the one before them was being opened; null: none. */
    private Queue<ByteBuf> arrived;
    /** Plaintext that waits for a flush or for the handshake; null: none. */
    CoalescingBufferQueue writes;
    boolean flushWaits;
    /** A message with the handshake's end is being opened. What is behind the end is in no field yet. */
    boolean isOpening;
    /** The failure that the call in progress has found. */
    SSLException failure;
    /** The limit of the handshake, or of sending close_notify. */
    Future<?> timer;

    void addWrite(Channel channel, ByteBuf plaintext, ChannelPromise promise) {
        if (writes == null) {
            writes = new CoalescingBufferQueue(channel, WRITES_EXPECTED, true);
        }
        writes.add(plaintext, promise);
    }

    void addArrived(ByteBuf message) {
        if (arrived == null) {
            arrived = new ArrayDeque<>(1);
        }
        arrived.add(message);
    }

    ByteBuf nextArrived() {
        return arrived == null ? null : arrived.poll();
    }

    boolean hasArrived() {
        return arrived != null && !arrived.isEmpty();
    }

    /** Keeps the beginning of a record, in a buffer that grows with it. */
    void keepPartial(ByteBufAllocator allocator, ByteBuf rest) {
        partial = allocator.buffer(Math.max(rest.readableBytes(), PARTIAL_MIN)).writeBytes(rest);
    }

    /** Moves bytes to the partial record, until it is complete or the source is empty. */
    void completePartial(ByteBuf source) {
        move(source, HEADER - partial.readableBytes());
        if (partial.readableBytes() >= HEADER) {
            int length = HEADER + partial.getUnsignedShort(partial.readerIndex() + HEADER - Short.BYTES);
            move(source, length - partial.readableBytes());
        }
    }

    private void move(ByteBuf source, int missing) {
        int count = Math.min(missing, source.readableBytes());
        if (count > 0) {
            partial.writeBytes(source, count);
        }
    }

    void cancelTimer() {
        if (timer != null) {
            timer.cancel(false);
            timer = null;
        }
    }

    boolean isEmpty() {
        boolean hasWrites = writes != null && !writes.isEmpty();
        boolean hasMessages = isOpening || partial != null || hasArrived();
        return !hasMessages && !hasWrites && !flushWaits && failure == null && timer == null;
    }

    /** Releases everything. */
    void drop(Throwable why) {
        cancelTimer();
        if (partial != null) {
            partial.release();
            partial = null;
        }
        for (ByteBuf message = nextArrived(); message != null; message = nextArrived()) {
            message.release();
        }
        if (writes != null) {
            writes.releaseAndFailAll(why);
        }
    }
}
