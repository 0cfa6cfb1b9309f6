package dormouse.netty;

import dormouse.BatchEngine;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelHandlerContext;

import java.nio.ByteBuffer;

import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.Status;
import javax.net.ssl.SSLException;

/** The receiving direction of a {@link DormouseHandler}: records in, plaintext out. */
abstract class ReceivingLayer extends SendingLayer {
    /**
     * Calls of an engine in sequence that consume nothing. A real engine needs a few: for room, for a task, and for
     * something to send.
     */
    private static final int IDLE_CALLS_MAX = 16;

    boolean inboundEnded;
    /** Without automatic reads: the program has asked for data and got none yet. */
    boolean isAsked;
    private boolean isReading;

    ReceivingLayer(SSLEngine engine) {
        super(engine);
    }

    /** Everything that the peer sent has arrived. */
    abstract void peerClosed();

    /** Tells the pipeline that a restored connection is established, if it does not know. */
    abstract void announce();

    @Override
    public void read(ChannelHandlerContext asking) {
        isAsked |= !asking.channel().config().isAutoRead();
        asking.read();
    }

    @Override
    public void channelRead(ChannelHandlerContext reading, Object message) {
        if (!(message instanceof ByteBuf arrived)) {
            reading.fireChannelRead(message);
            return;
        }
        if (isReading) {
            inFlight().addArrived(arrived);
            return;
        }
        isReading = true;
        try {
            for (ByteBuf next = arrived; next != null; next = flight == null ? null : flight.nextArrived()) {
                receive(next);
            }
        } finally {
            isReading = false;
            rest();
        }
    }

    /** Opens a message's records, after the one of which an earlier message had the beginning. */
    private void receive(ByteBuf message) {
        // Its handlers for the data may wait for this.
        announce();
        ByteBuf first = null;
        ByteBuf others = null;
        if (phase == Phase.HANDSHAKING) {
            inFlight().isOpening = true;
        }
        try {
            if (flight != null && flight.partial != null) {
                first = openPartial(message);
            }
            others = open(message, false);
        } finally {
            if (flight != null) {
                flight.isOpening = false;
            }
            // A failure ends both directions, and so does close_notify in TLS 1.2 (RFC 5246 section 7.2.1).
            outboundEnded |= flight != null && flight.failure != null || engine.isOutboundDone();
            isAsked &= first == null && others == null;
            // Not earlier: the program may do anything when it gets plaintext, and ask for more.
            deliver(first);
            deliver(others);
        }
        if (flight != null && flight.failure != null) {
            SSLException failure = flight.failure;
            flight.failure = null;
            fail(failure);
        } else if (engine.isInboundDone() && phase == Phase.ESTABLISHED && !inboundEnded) {
            peerClosed();
        }
    }

    /** Opens the record of which an earlier message had the beginning, if this message has the rest. */
    private ByteBuf openPartial(ByteBuf message) {
        try {
            flight.completePartial(message);
        } catch (RuntimeException | Error problem) {
            flight.failure = EngineCalls.failure(problem);
        }
        ByteBuf record = flight.partial;
        flight.partial = null;
        return open(record, true);
    }

    private void deliver(ByteBuf plaintext) {
        if (plaintext != null) {
            context.fireChannelRead(plaintext);
        }
    }

    /**
     * Opens complete records, keeps what follows them, and releases the buffer. Returns their plaintext, or null if
     * there is none.
     *
     * @param isOwn whether the buffer was allocated for one record, and may be kept
     */
    private ByteBuf open(ByteBuf records, boolean isOwn) {
        ByteBuf plaintext = null;
        try {
            if (records.isReadable() && canReceive()) {
                plaintext = openInPlace(records);
                if (plaintext == null) {
                    plaintext = openCopies(records);
                }
            }
            if (records.isReadable() && canReceive()) {
                if (isOwn) {
                    inFlight().partial = records.retain();
                } else {
                    inFlight().keepPartial(context.alloc(), records);
                }
            }
        } catch (RuntimeException | Error problem) {
            // Of the allocator, too. The stream would continue without these bytes.
            inFlight().failure = EngineCalls.failure(problem);
        } finally {
            records.release();
        }
        if (plaintext != null && !plaintext.isReadable()) {
            plaintext.release();
            return null;
        }
        return plaintext;
    }

    /** Opens complete records where they lie. Returns null if this is not possible now. */
    private ByteBuf openInPlace(ByteBuf records) {
        boolean isPossible = phase == Phase.ESTABLISHED && EngineCalls.isUnshared(records);
        if (!isPossible || !(engine instanceof BatchEngine batch)) {
            return null;
        }
        int start = records.readerIndex();
        ByteBuffer bytes = records.internalNioBuffer(start, records.readableBytes());
        int opened = records.readableBytes();
        try {
            opened = batch.openInPlace(bytes);
        } catch (SSLException | RuntimeException | Error problem) {
            inFlight().failure = EngineCalls.failure(problem);
        }
        if (opened == BatchEngine.NOT_NOW) {
            return null;
        }
        records.skipBytes(opened);
        ByteBuf plaintext =
                bytes.hasRemaining() ? records.retainedSlice(start, bytes.remaining()) : Unpooled.EMPTY_BUFFER;
        try {
            if (flight == null || flight.failure == null) {
                follow(engine.getHandshakeStatus());
            }
        } catch (SSLException | RuntimeException | Error problem) {
            inFlight().failure = EngineCalls.failure(problem);
        }
        return plaintext;
    }

    /** Opens complete records one by one into a buffer of their own. */
    private ByteBuf openCopies(ByteBuf records) {
        ByteBuf plaintext = phase == Phase.ESTABLISHED
                ? context.alloc().buffer(records.readableBytes())
                : Unpooled.EMPTY_BUFFER;
        ByteBuffer source = records.nioBuffer();
        int idleCalls = 0;
        try {
            while (source.hasRemaining() && canReceive()) {
                ByteBuffer room = plaintext.nioBuffer(plaintext.writerIndex(), plaintext.writableBytes());
                SSLEngineResult result = engine.unwrap(source, room);
                plaintext.writerIndex(plaintext.writerIndex() + result.bytesProduced());
                idleCalls = result.bytesConsumed() > 0 ? 0 : idleCalls + 1;
                if (idleCalls > IDLE_CALLS_MAX) {
                    throw new SSLException("the engine consumes nothing: " + result);
                }
                if (result.getStatus() == Status.BUFFER_UNDERFLOW) {
                    break;
                }
                if (result.getStatus() == Status.BUFFER_OVERFLOW) {
                    plaintext = withRoom(plaintext);
                } else {
                    follow(result.getHandshakeStatus());
                }
            }
        } catch (SSLException | RuntimeException | Error problem) {
            inFlight().failure = EngineCalls.failure(problem);
        }
        records.readerIndex(records.writerIndex() - source.remaining());
        return plaintext;
    }

    private boolean canReceive() {
        return phase != Phase.ENDED && !engine.isInboundDone() && (flight == null || flight.failure == null);
    }

    private ByteBuf withRoom(ByteBuf plaintext) {
        int room = engine.getSession().getApplicationBufferSize();
        return plaintext == Unpooled.EMPTY_BUFFER ? context.alloc().buffer(room) : plaintext.ensureWritable(room);
    }

    @Override
    public void channelReadComplete(ChannelHandlerContext reading) {
        flushOutput();
        // A program that has turned automatic reads off has asked for nothing.
        boolean readsOn = phase == Phase.HANDSHAKING || phase == Phase.ESTABLISHED && isAsked;
        if (readsOn && !reading.channel().config().isAutoRead()) {
            reading.read();
        }
        reading.fireChannelReadComplete();
    }
}
