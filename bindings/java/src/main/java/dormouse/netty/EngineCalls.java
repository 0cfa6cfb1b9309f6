package dormouse.netty;

import dormouse.BatchEngine;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.CompositeByteBuf;

import java.nio.ByteBuffer;

import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.Status;
import javax.net.ssl.SSLException;

/** An engine's calls over Netty's buffers. */
final class EngineCalls {
    static final ByteBuffer[] NOTHING = {ByteBuffer.allocate(0)};
    private static final int CONTENT_MAX = 16_384;
    /** What a record adds to its content, at most. */
    private static final int OVERHEAD_MAX = 32;
    /** For a KeyUpdate before the data. */
    private static final int SMALL_RECORD_MAX = 64;

    private EngineCalls() {}

    /** Wraps once. Records go to the target's end. */
    static SSLEngineResult wrap(SSLEngine engine, ByteBuffer[] sources, ByteBuf target) throws SSLException {
        ByteBuffer room = target.nioBuffer(target.writerIndex(), target.writableBytes());
        SSLEngineResult result = engine.wrap(sources, room);
        target.writerIndex(target.writerIndex() + result.bytesProduced());
        return result;
    }

    /**
     * Whether nothing else can use the buffer's memory, so that it may be changed. A buffer of a socket is so, unless a
     * handler before this one has retained it.
     */
    static boolean isUnshared(ByteBuf buffer) {
        boolean hasOneOwner = buffer.refCnt() == 1 && buffer.unwrap() == null;
        return hasOneOwner && buffer.isDirect() && !buffer.isReadOnly() && !(buffer instanceof CompositeByteBuf);
    }

    /** Seals all of the plaintext. The caller releases it. */
    static ByteBuf seal(SSLEngine engine, ByteBufAllocator allocator, ByteBuf plaintext) throws SSLException {
        if (engine instanceof BatchEngine batch) {
            int length = batch.batchLength(plaintext.readableBytes());
            if (length != BatchEngine.NOT_NOW) {
                return sealInPlace(batch, allocator.directBuffer(length, length), plaintext);
            }
        }
        return sealCopies(engine, allocator, plaintext);
    }

    /** Copies plaintext to the places in {@code records} where it is sealed. */
    private static ByteBuf sealInPlace(BatchEngine engine, ByteBuf records, ByteBuf plaintext) throws SSLException {
        try {
            int length = plaintext.readableBytes();
            for (int index = 0; plaintext.isReadable(); index++) {
                int part = Math.min(plaintext.readableBytes(), BatchEngine.CONTENT_MAX);
                plaintext.readBytes(records.setIndex(0, engine.contentAt(index)), part);
            }
            ByteBuffer bytes = records.internalNioBuffer(0, records.capacity());
            int start = bytes.position();
            engine.sealInPlace(bytes, length);
            return records.setIndex(bytes.position() - start, bytes.limit() - start).retain();
        } finally {
            records.release();
        }
    }

    private static ByteBuf sealCopies(SSLEngine engine, ByteBufAllocator allocator, ByteBuf plaintext)
            throws SSLException {
        int left = plaintext.readableBytes();
        int overhead = (left + CONTENT_MAX - 1) / CONTENT_MAX * OVERHEAD_MAX + SMALL_RECORD_MAX;
        ByteBuf records = allocator.ioBuffer(left + overhead);
        try {
            ByteBuffer[] sources = plaintext.nioBuffers();
            while (left > 0) {
                SSLEngineResult result = wrap(engine, sources, records);
                left -= result.bytesConsumed();
                if (result.getStatus() == Status.BUFFER_OVERFLOW) {
                    records.ensureWritable(engine.getSession().getPacketBufferSize());
                } else if (result.bytesConsumed() == 0 && result.bytesProduced() == 0) {
                    throw new SSLException("the connection is closed for sending");
                }
            }
            return records.retain();
        } finally {
            records.release();
        }
    }

    /** As the failure of a connection: what a manager, an engine or an allocator has thrown. */
    static SSLException failure(Throwable thrown) {
        return thrown instanceof SSLException known
                ? known
                : new SSLException("the connection can't continue: " + thrown.getMessage(), thrown);
    }

    static void runTasks(SSLEngine engine) {
        for (Runnable task = engine.getDelegatedTask(); task != null; task = engine.getDelegatedTask()) {
            task.run();
        }
    }

    /** Ends an engine without telling the peer, so that its secrets are wiped. */
    static void end(SSLEngine engine) {
        try {
            engine.closeOutbound();
            closeInbound(engine);
            if (engine.isOutboundDone()) {
                return;
            }
            // Not of the channel's allocator: this runs when that has no memory, too.
            ByteBuffer unsent = ByteBuffer.allocate(engine.getSession().getPacketBufferSize());
            while (engine.wrap(NOTHING, unsent).bytesProduced() > 0) {
                unsent.clear();
            }
        } catch (SSLException | RuntimeException | Error secondary) {
            // It has ended, or it never began, or it fails. The channel has to be closed in any case.
        }
    }

    private static void closeInbound(SSLEngine engine) {
        try {
            engine.closeInbound();
        } catch (SSLException cutOff) {
            // The handler knows.
        }
    }
}
