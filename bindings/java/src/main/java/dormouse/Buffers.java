package dormouse;

import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;

/** Several buffers used as one, for gathering and scattering. */
final class Buffers {
    private static final ThreadLocal<byte[]> SCRATCH = ThreadLocal.withInitial(() -> new byte[Records.PACKET_MAX]);

    private Buffers() {}

    /** Memory of this thread, enough for the content of a record. */
    static byte[] scratch() {
        return SCRATCH.get();
    }

    static int remaining(ByteBuffer[] buffers, int offset, int length) {
        long sum = 0;
        for (int i = offset; i < offset + length; i++) {
            sum += buffers[i].remaining();
        }
        return (int) Math.min(sum, Integer.MAX_VALUE);
    }

    /** The first buffer that is not empty, if it has at least this many bytes; null otherwise. */
    static ByteBuffer only(ByteBuffer[] buffers, int offset, int length, int needed) {
        for (int i = offset; i < offset + length; i++) {
            int remaining = buffers[i].remaining();
            if (remaining > 0) {
                return remaining >= needed ? buffers[i] : null;
            }
        }
        return null;
    }

    /** Whether native code can access the bytes: read-only heap buffers hide their array. */
    static boolean isAccessible(ByteBuffer buffer) {
        return buffer.isDirect() || buffer.hasArray();
    }

    /** Copies bytes without moving the buffers' positions. */
    static void gather(ByteBuffer[] buffers, int offset, byte[] target, int count) {
        int at = 0;
        for (int i = offset; at < count; i++) {
            int part = Math.min(count - at, buffers[i].remaining());
            buffers[i].get(buffers[i].position(), target, at, part);
            at += part;
        }
    }

    /** Moves the buffers' positions. */
    static void advance(ByteBuffer[] buffers, int offset, int count) {
        int left = count;
        for (int i = offset; left > 0; i++) {
            int part = Math.min(left, buffers[i].remaining());
            buffers[i].position(buffers[i].position() + part);
            left -= part;
        }
    }

    static void scatter(byte[] source, int count, ByteBuffer[] buffers, int offset) {
        int at = 0;
        for (int i = offset; at < count; i++) {
            int part = Math.min(count - at, buffers[i].remaining());
            buffers[i].put(source, at, part);
            at += part;
        }
    }

    static void checkRange(ByteBuffer[] buffers, int offset, int length) {
        if (offset < 0 || length < 0 || offset > buffers.length - length) {
            throw new IndexOutOfBoundsException(
                    length + " buffers from " + offset + " of an array of " + buffers.length);
        }
        for (int i = offset; i < offset + length; i++) {
            if (buffers[i] == null) {
                throw new IllegalArgumentException("buffer " + i + " is null");
            }
        }
    }

    static void checkWritable(ByteBuffer buffer) {
        if (buffer.isReadOnly()) {
            throw new ReadOnlyBufferException();
        }
    }
}
