package dormouse.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelDuplexHandler;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelPromise;
import io.netty.handler.codec.UnsupportedMessageTypeException;
import io.netty.handler.ssl.SslClosedEngineException;
import io.netty.util.ReferenceCountUtil;

import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLEngineResult.Status;
import javax.net.ssl.SSLException;

/**
 * The sending direction of a {@link DormouseHandler}: plaintext that the program writes, and records of the engine's
 * own. The handler consists of layers, because each object of its own would cost every quiet connection memory.
 */
abstract class SendingLayer extends ChannelDuplexHandler {
    /** Plaintext that is sealed into one buffer: four records. */
    private static final int SEALED_TOGETHER_MAX = 65_536;
    /** Enough for most flights of a handshake. */
    private static final int HANDSHAKE_FLIGHT = 2_048;
    /** Enough for a KeyUpdate or an alert. Peers can cause many, and the buffer of each waits to be sent. */
    private static final int SMALL_RECORD = 64;

    enum Phase {
        HANDSHAKING,
        ESTABLISHED,
        /** Failed, exported or removed: nothing is sent and nothing received. */
        ENDED
    }

    final SSLEngine engine;
    ChannelHandlerContext context;
    Phase phase = Phase.HANDSHAKING;
    /** Null at rest. */
    Flight flight;
    boolean outboundEnded;
    private boolean flushIsNeeded;

    SendingLayer(SSLEngine engine) {
        this.engine = engine;
    }

    /** Reports a failure and closes the channel. */
    abstract void fail(SSLException why);

    /** The engine has finished its handshake. */
    abstract void endHandshake();

    @Override
    public void write(ChannelHandlerContext writing, Object message, ChannelPromise promise) {
        if (!(message instanceof ByteBuf plaintext)) {
            ReferenceCountUtil.release(message);
            promise.tryFailure(new UnsupportedMessageTypeException(message, ByteBuf.class));
        } else if (phase == Phase.ENDED || outboundEnded) {
            plaintext.release();
            promise.tryFailure(new SslClosedEngineException("the connection is closed for sending"));
        } else {
            inFlight().addWrite(writing.channel(), plaintext, promise);
        }
    }

    @Override
    public void flush(ChannelHandlerContext flushing) {
        if (phase == Phase.HANDSHAKING) {
            inFlight().flushWaits = true;
        } else {
            sealWrites();
            rest();
        }
        flushIsNeeded = false;
        flushing.flush();
    }

    /** Seals everything that was written, unless our direction has ended meanwhile. */
    void sealWrites() {
        if (flight == null || outboundEnded) {
            return;
        }
        flight.flushWaits = false;
        // A promise's listener may write and flush within this loop.
        while (flight != null && flight.writes != null && !flight.writes.isEmpty()) {
            ChannelPromise promise = context.newPromise();
            ByteBuf plaintext = null;
            try {
                plaintext = flight.writes.remove(SEALED_TOGETHER_MAX, promise);
                context.write(EngineCalls.seal(engine, context.alloc(), plaintext), promise);
            } catch (SSLException | RuntimeException | Error problem) {
                // Of the allocator, too. The stream would continue without this plaintext.
                promise.tryFailure(problem);
                fail(EngineCalls.failure(problem));
            } finally {
                ReferenceCountUtil.release(plaintext);
            }
        }
    }

    /** Does what the engine asks for. */
    void follow(HandshakeStatus status) throws SSLException {
        switch (status) {
            case FINISHED -> endHandshake();
            case NEED_TASK -> {
                EngineCalls.runTasks(engine);
                // If the task has failed, this throws.
                sendOutput();
            }
            case NEED_WRAP -> {
                if (!answerMayWait() || context.channel().isWritable()) {
                    sendOutput();
                }
            }
            default -> { }
        }
    }

    /**
     * Whether what the engine has to send is only a new key, which may wait for room or for the next data. The engine
     * keeps one: a peer that requests keys without end, and reads nothing, must not fill the channel.
     */
    boolean answerMayWait() {
        return phase == Phase.ESTABLISHED && !engine.isInboundDone();
    }

    /** Writes records of the engine's own: a handshake's, an alert. */
    void sendOutput() throws SSLException {
        int room = phase == Phase.ESTABLISHED ? SMALL_RECORD : HANDSHAKE_FLIGHT;
        SSLEngineResult result;
        do {
            result = sendOutput(room);
            if (result.getStatus() == Status.BUFFER_OVERFLOW) {
                room = engine.getSession().getPacketBufferSize();
            } else if (result.getHandshakeStatus() == HandshakeStatus.FINISHED) {
                endHandshake();
            } else if (result.getHandshakeStatus() == HandshakeStatus.NEED_TASK) {
                EngineCalls.runTasks(engine);
            }
        } while (hasMoreOutput(result));
    }

    private SSLEngineResult sendOutput(int room) throws SSLException {
        ByteBuf records = context.alloc().ioBuffer(room);
        try {
            SSLEngineResult result = EngineCalls.wrap(engine, EngineCalls.NOTHING, records);
            if (records.isReadable()) {
                flushIsNeeded = true;
                context.write(records.retain());
            }
            return result;
        } finally {
            records.release();
        }
    }

    private static boolean hasMoreOutput(SSLEngineResult result) {
        return switch (result.getHandshakeStatus()) {
            case NEED_TASK -> true;
            case NEED_WRAP -> result.bytesProduced() > 0 || result.getStatus() == Status.BUFFER_OVERFLOW;
            default -> false;
        };
    }

    void flushOutput() {
        if (flushIsNeeded) {
            flushIsNeeded = false;
            context.flush();
        }
    }

    /** Sends everything that waits, records of the engine's own included. */
    void flushAll() {
        flushIsNeeded = false;
        context.flush();
    }

    /** Ends our direction: seals close_notify after everything that was written, and sends it. */
    ChannelFuture sendClose() {
        sealWrites();
        if (!outboundEnded && phase == Phase.ESTABLISHED) {
            outboundEnded = true;
            engine.closeOutbound();
            try {
                sendOutput();
            } catch (SSLException | RuntimeException | Error problem) {
                fail(EngineCalls.failure(problem));
            }
        }
        flushIsNeeded = false;
        // It is sent when everything before it is sent.
        ChannelFuture sent = context.writeAndFlush(Unpooled.EMPTY_BUFFER);
        rest();
        return sent;
    }

    Flight inFlight() {
        if (flight == null) {
            flight = new Flight();
        }
        return flight;
    }

    /** Keeps nothing if nothing is in flight. */
    void rest() {
        if (flight != null && flight.isEmpty()) {
            flight = null;
        }
    }
}
