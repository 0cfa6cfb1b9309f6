package dormouse.netty;

import dormouse.Connections;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelDuplexHandler;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOption;
import io.netty.channel.ChannelOutboundBuffer;
import io.netty.channel.ChannelPromise;
import io.netty.channel.socket.ChannelInputShutdownEvent;
import io.netty.handler.codec.DecoderException;
import io.netty.handler.codec.UnsupportedMessageTypeException;
import io.netty.handler.ssl.SslCloseCompletionEvent;
import io.netty.handler.ssl.SslClosedEngineException;
import io.netty.handler.ssl.SslHandshakeCompletionEvent;
import io.netty.handler.ssl.SslHandshakeTimeoutException;
import io.netty.util.ReferenceCountUtil;
import io.netty.util.concurrent.DefaultPromise;
import io.netty.util.concurrent.EventExecutor;
import io.netty.util.concurrent.Future;
import io.netty.util.concurrent.Promise;
import io.netty.util.concurrent.PromiseNotifier;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.util.concurrent.TimeUnit;

import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLEngineResult.Status;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLHandshakeException;
import javax.net.ssl.SSLParameters;

/**
 * TLS in a pipeline of Netty, in place of an {@code SslHandler}.
 *
 * <pre>{@code
 * channel.pipeline().addLast(DormouseHandler.server(context), new HttpServerCodec(), …);
 * }</pre>
 *
 * <p>It fires the same events as an {@code SslHandler}: {@link SslHandshakeCompletionEvent} and
 * {@link SslCloseCompletionEvent}, and its failures are {@link DecoderException}s with an {@link SSLException}.
 * Between two events it has its engine and no buffer, queue or promise ({@link Flight}).
 *
 * <p>A peer's close_notify is to TLS what FIN is to TCP: with {@link ChannelOption#ALLOW_HALF_CLOSURE} the pipeline
 * gets a {@link ChannelInputShutdownEvent} and can go on sending, and without it the channel closes after
 * everything that was written is sent. {@link #closeOutbound()} ends our direction.
 *
 * <p>All methods are for the channel's event loop, except those whose description says otherwise.
 */
public final class DormouseHandler extends ChannelDuplexHandler {
    private static final long HANDSHAKE_TIMEOUT_MS = 10_000;
    /** For a peer that does not read, when the channel closes. */
    private static final long CLOSE_TIMEOUT_MS = 3_000;
    /** Plaintext that is sealed into one buffer: four records. */
    private static final int SEALED_TOGETHER_MAX = 65_536;
    /** Enough for most flights of a handshake. */
    private static final int HANDSHAKE_FLIGHT = 2_048;

    private enum Phase {
        HANDSHAKING,
        ESTABLISHED,
        /** Failed, exported or removed: nothing is sent and nothing received. */
        ENDED
    }

    private final SSLEngine engine;
    private ChannelHandlerContext context;
    private Phase phase = Phase.HANDSHAKING;
    /** Null at rest. */
    private Flight flight;
    /** Null after success. */
    private volatile Promise<Channel> handshake = new HandshakePromise();

    private boolean hasStarted;
    private boolean isReading;
    /** The message in progress had plaintext. */
    private boolean hasDelivered;
    private boolean flushIsNeeded;
    private boolean inboundEnded;
    private boolean outboundEnded;
    private boolean isClosing;

    private final class HandshakePromise extends DefaultPromise<Channel> {
        @Override
        protected EventExecutor executor() {
            if (context == null) {
                throw new IllegalStateException("the handler is in no pipeline yet");
            }
            return context.executor();
        }
    }

    /**
     * A handler for an engine whose handshake has not begun. Any provider's engine works; only Dormouse's keeps
     * nothing between two records.
     */
    public DormouseHandler(SSLEngine engine) {
        this.engine = engine;
    }

    /** A handler for accepted connections. {@code protocols}: application protocols, the preferred one first. */
    public static DormouseHandler server(SSLContext context, String... protocols) {
        SSLEngine engine = context.createSSLEngine();
        engine.setUseClientMode(false);
        set(engine, null, protocols);
        return new DormouseHandler(engine);
    }

    /** A handler for a connection to a server, whose certificate must be valid for {@code host}. */
    public static DormouseHandler client(SSLContext context, String host, int port, String... protocols) {
        SSLEngine engine = context.createSSLEngine(host, port);
        engine.setUseClientMode(true);
        set(engine, "HTTPS", protocols);
        return new DormouseHandler(engine);
    }

    private static void set(SSLEngine engine, String endpointIdentification, String[] protocols) {
        if (endpointIdentification == null && protocols.length == 0) {
            return;
        }
        SSLParameters parameters = engine.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm(endpointIdentification);
        parameters.setApplicationProtocols(protocols);
        engine.setSSLParameters(parameters);
    }

    /** The connection's engine: session, certificates, application protocol. For any thread. */
    public SSLEngine engine() {
        return engine;
    }

    /** The agreed application protocol; null: none. For any thread. */
    public String applicationProtocol() {
        String protocol = engine.getApplicationProtocol();
        return protocol == null || protocol.isEmpty() ? null : protocol;
    }

    /** Completes with the handshake. For any thread, when the handler is in a pipeline. */
    public Future<Channel> handshakeFuture() {
        Promise<Channel> pending = handshake;
        return pending != null ? pending : context.executor().newSucceededFuture(context.channel());
    }

    // Start

    @Override
    public void handlerAdded(ChannelHandlerContext added) {
        context = added;
        if (added.channel().isActive()) {
            start();
        }
    }

    @Override
    public void channelActive(ChannelHandlerContext active) {
        start();
        active.fireChannelActive();
    }

    private void start() {
        if (hasStarted || phase == Phase.ENDED) {
            return;
        }
        hasStarted = true;
        if (phase == Phase.ESTABLISHED) {
            // It was established elsewhere. The handlers behind this one may not be in the pipeline yet.
            context.executor().execute(() -> context.fireUserEventTriggered(SslHandshakeCompletionEvent.SUCCESS));
            return;
        }
        inFlight().timer = context.executor().schedule(this::timeOut, HANDSHAKE_TIMEOUT_MS, TimeUnit.MILLISECONDS);
        try {
            engine.beginHandshake();
            sendOutput();
        } catch (SSLException problem) {
            fail(problem);
        }
        flushOutput();
    }

    private void timeOut() {
        if (phase == Phase.HANDSHAKING) {
            flight.timer = null;
            fail(new SslHandshakeTimeoutException(
                    "the handshake is not done after " + HANDSHAKE_TIMEOUT_MS + " ms"));
        }
    }

    private void endHandshake() {
        phase = Phase.ESTABLISHED;
        inFlight().cancelTimer();
        Promise<Channel> done = handshake;
        handshake = null;
        done.trySuccess(context.channel());
        context.fireUserEventTriggered(SslHandshakeCompletionEvent.SUCCESS);
        if (flight != null && flight.flushWaits) {
            flush(context);
        }
    }

    // Receiving

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

    private void receive(ByteBuf message) {
        ByteBuf plaintext = null;
        try {
            if (phase == Phase.ESTABLISHED) {
                int partial = flight == null || flight.partial == null ? 0 : flight.partial.readableBytes();
                plaintext = context.alloc().buffer(partial + message.readableBytes());
            } else {
                plaintext = Unpooled.EMPTY_BUFFER;
            }
            plaintext = openAll(message, plaintext);
        } finally {
            message.release();
            if (plaintext.isReadable()) {
                hasDelivered = true;
                context.fireChannelRead(plaintext);
            } else {
                plaintext.release();
            }
        }
        if (flight != null && flight.failure != null) {
            SSLException failure = flight.failure;
            flight.failure = null;
            fail(failure);
        } else if (engine.isInboundDone() && phase == Phase.ESTABLISHED && !inboundEnded) {
            peerClosed();
        }
    }

    /** Opens the records of a message, after the partial one. Returns the target, or a larger one. */
    private ByteBuf openAll(ByteBuf message, ByteBuf target) {
        ByteBuf plaintext = target;
        if (flight != null && flight.partial != null) {
            flight.completePartial(message);
            ByteBuf record = flight.partial;
            flight.partial = null;
            plaintext = open(record, plaintext);
            if (record.isReadable() && canReceive()) {
                inFlight().partial = record;
            } else {
                record.release();
            }
        }
        if (message.isReadable() && canReceive()) {
            plaintext = open(message, plaintext);
            if (message.isReadable() && canReceive()) {
                inFlight().keepPartial(context.alloc(), message);
            }
        }
        return plaintext;
    }

    private boolean canReceive() {
        return phase != Phase.ENDED && !engine.isInboundDone() && (flight == null || flight.failure == null);
    }

    /** Opens complete records. Returns the target, or a larger one. */
    private ByteBuf open(ByteBuf records, ByteBuf target) {
        ByteBuf plaintext = target;
        ByteBuffer source = records.nioBuffer();
        try {
            while (source.hasRemaining() && canReceive()) {
                ByteBuffer room = plaintext.nioBuffer(plaintext.writerIndex(), plaintext.writableBytes());
                SSLEngineResult result = engine.unwrap(source, room);
                plaintext.writerIndex(plaintext.writerIndex() + result.bytesProduced());
                if (result.getStatus() == Status.BUFFER_UNDERFLOW) {
                    break;
                }
                if (result.getStatus() == Status.BUFFER_OVERFLOW) {
                    plaintext = withRoom(plaintext);
                } else {
                    follow(result.getHandshakeStatus());
                }
            }
        } catch (SSLException problem) {
            inFlight().failure = problem;
        }
        records.readerIndex(records.writerIndex() - source.remaining());
        return plaintext;
    }

    private ByteBuf withRoom(ByteBuf plaintext) {
        int room = engine.getSession().getApplicationBufferSize();
        return plaintext == Unpooled.EMPTY_BUFFER ? context.alloc().buffer(room) : plaintext.ensureWritable(room);
    }

    @Override
    public void channelReadComplete(ChannelHandlerContext reading) {
        flushOutput();
        if (!hasDelivered && !reading.channel().config().isAutoRead()) {
            // The program has asked for data and got none yet.
            reading.read();
        }
        hasDelivered = false;
        reading.fireChannelReadComplete();
    }

    /** Everything that the peer sent has arrived. */
    private void peerClosed() {
        inboundEnded = true;
        context.fireUserEventTriggered(SslCloseCompletionEvent.SUCCESS);
        if (phase == Phase.ENDED) {
            return;
        }
        if (engine.isOutboundDone()) {
            // RFC 5246 section 7.2.1: TLS 1.2 ends both directions, and pending writes are discarded.
            outboundEnded = true;
            dropWrites();
        }
        boolean staysOpen = !outboundEnded
                && Boolean.TRUE.equals(context.channel().config().getOption(ChannelOption.ALLOW_HALF_CLOSURE));
        if (staysOpen) {
            context.fireUserEventTriggered(ChannelInputShutdownEvent.INSTANCE);
        } else {
            close(context, context.newPromise());
        }
    }

    private void dropWrites() {
        if (flight != null && flight.writes != null) {
            flight.writes.releaseAndFailAll(new SslClosedEngineException("the peer has closed the connection"));
        }
    }

    @Override
    public void userEventTriggered(ChannelHandlerContext from, Object event) {
        if (event == ChannelInputShutdownEvent.INSTANCE && phase != Phase.ENDED) {
            // After close_notify the pipeline knows; without one, the transport's end is no end.
            if (!inboundEnded) {
                fail(cutOff());
            }
            return;
        }
        from.fireUserEventTriggered(event);
    }

    private static SSLException cutOff() {
        return new SSLException("the connection ended without close_notify: data may be missing");
    }

    // Sending

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

    /** Seals everything that was written. */
    private void sealWrites() {
        if (flight == null) {
            return;
        }
        flight.flushWaits = false;
        // A promise's listener may write and flush within this loop.
        while (flight != null && flight.writes != null && !flight.writes.isEmpty()) {
            ChannelPromise promise = context.newPromise();
            ByteBuf plaintext = flight.writes.remove(SEALED_TOGETHER_MAX, promise);
            try {
                context.write(EngineCalls.seal(engine, context.alloc(), plaintext), promise);
            } catch (SSLException problem) {
                promise.tryFailure(problem);
                fail(problem);
            } finally {
                plaintext.release();
            }
        }
    }

    /** Does what the engine asks for. */
    private void follow(HandshakeStatus status) throws SSLException {
        switch (status) {
            case FINISHED -> endHandshake();
            case NEED_TASK -> {
                EngineCalls.runTasks(engine);
                // If the task has failed, this throws.
                sendOutput();
            }
            case NEED_WRAP -> sendOutput();
            default -> { }
        }
    }

    /** Writes records of the engine's own: a handshake's, an alert. */
    private void sendOutput() throws SSLException {
        int room = HANDSHAKE_FLIGHT;
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

    private void flushOutput() {
        if (flushIsNeeded) {
            flushIsNeeded = false;
            context.flush();
        }
    }

    // End

    /** Sends everything that was written and close_notify, then closes the channel. */
    @Override
    public void close(ChannelHandlerContext closing, ChannelPromise promise) {
        if (phase != Phase.ESTABLISHED || !closing.channel().isActive()) {
            closing.close(promise);
        } else if (isClosing) {
            closing.channel().closeFuture().addListener(closed -> promise.trySuccess());
        } else {
            isClosing = true;
            ChannelFuture sent = sendClose();
            if (sent.isDone()) {
                closeBelow(promise);
                return;
            }
            inFlight().timer =
                    closing.executor().schedule(() -> closeBelow(promise), CLOSE_TIMEOUT_MS, TimeUnit.MILLISECONDS);
            sent.addListener(done -> closeBelow(promise));
        }
    }

    private void closeBelow(ChannelPromise promise) {
        if (!promise.isDone()) {
            context.close(promise);
        }
    }

    @Override
    public void disconnect(ChannelHandlerContext closing, ChannelPromise promise) {
        close(closing, promise);
    }

    /**
     * Sends everything that was written and close_notify. The peer can go on sending (TLS 1.3). For any thread.
     *
     * @return completes when close_notify is sent
     */
    public ChannelFuture closeOutbound() {
        ChannelPromise promise = context.newPromise();
        if (context.executor().inEventLoop()) {
            closeOutbound(promise);
        } else {
            context.executor().execute(() -> closeOutbound(promise));
        }
        return promise;
    }

    private void closeOutbound(ChannelPromise promise) {
        if (phase != Phase.ESTABLISHED || outboundEnded) {
            promise.tryFailure(new SslClosedEngineException("the connection is not open for sending"));
            return;
        }
        sendClose().addListener(new PromiseNotifier<>(promise));
        if (inboundEnded) {
            close(context, context.newPromise());
        }
    }

    /** Seals everything that was written and close_notify, and sends both. */
    private ChannelFuture sendClose() {
        sealWrites();
        if (!outboundEnded && phase == Phase.ESTABLISHED) {
            outboundEnded = true;
            engine.closeOutbound();
            try {
                sendOutput();
            } catch (SSLException problem) {
                fail(problem);
            }
        }
        flushIsNeeded = false;
        // It is sent when everything before it is sent.
        ChannelFuture sent = context.writeAndFlush(Unpooled.EMPTY_BUFFER);
        rest();
        return sent;
    }

    /** Sends an alert if there is one, reports the failure and closes the channel. */
    private void fail(SSLException why) {
        if (phase == Phase.ENDED) {
            return;
        }
        try {
            sendOutput();
        } catch (SSLException secondary) {
            // The first failure is the one to report.
        }
        flushIsNeeded = false;
        context.flush();
        end(why);
        context.fireExceptionCaught(new DecoderException(why));
        context.close();
    }

    /** Releases everything, and fires the event that says how the handshake or the connection has ended. */
    private void end(Throwable why) {
        Phase before = phase;
        phase = Phase.ENDED;
        if (before == Phase.ENDED) {
            return;
        }
        Flight dropped = flight;
        flight = null;
        EngineCalls.end(engine, context.alloc());
        if (dropped != null) {
            dropped.drop(why);
        }
        if (before == Phase.HANDSHAKING) {
            handshake.tryFailure(why);
            context.fireUserEventTriggered(new SslHandshakeCompletionEvent(why));
        } else if (!inboundEnded) {
            context.fireUserEventTriggered(new SslCloseCompletionEvent(why));
        }
    }

    @Override
    public void channelInactive(ChannelHandlerContext closed) {
        if (phase == Phase.HANDSHAKING) {
            end(new SSLHandshakeException("the connection ended during the handshake"));
        } else {
            end(isClosing ? new ClosedChannelException() : cutOff());
        }
        closed.fireChannelInactive();
    }

    @Override
    public void handlerRemoved(ChannelHandlerContext removed) {
        if (phase != Phase.ENDED) {
            end(new SSLException("the handler was removed from the pipeline"));
        }
    }

    /** A peer may reset a connection that both sides have ended. */
    @Override
    public void exceptionCaught(ChannelHandlerContext from, Throwable cause) {
        if (cause instanceof IOException && inboundEnded && outboundEnded) {
            from.close();
        } else {
            from.fireExceptionCaught(cause);
        }
    }

    // Restart

    /**
     * Ends the connection here and returns the bytes with which it continues in another process, about 200. They are
     * secret and can be used once: {@link #restore}. The channel's descriptor goes with them, for example over a
     * {@code DomainSocketChannel} of Netty's epoll transport; then close the channel, which sends nothing.
     *
     * <p>Stop reading first ({@code setAutoRead(false)}).
     *
     * @throws IllegalStateException if the connection is not established and open, or data is still to be sent
     */
    public byte[] export() throws SSLException {
        if (!context.executor().inEventLoop()) {
            throw new IllegalStateException("export() is for the channel's event loop");
        }
        ChannelOutboundBuffer unsent = context.channel().unsafe().outboundBuffer();
        boolean hasUnsent = unsent == null || unsent.totalPendingWriteBytes() > 0
                || flight != null && flight.writes != null && !flight.writes.isEmpty();
        if (phase != Phase.ESTABLISHED || inboundEnded || outboundEnded || isClosing || hasUnsent) {
            throw new IllegalStateException("only a connection that is established, open and flushed can be exported");
        }
        byte[] exported = ExportedChannel.write(Connections.export(engine), flight == null ? null : flight.partial);
        phase = Phase.ENDED;
        if (flight != null) {
            flight.drop(new ClosedChannelException());
            flight = null;
        }
        return exported;
    }

    /**
     * A handler for an exported connection, whose descriptor is that of the new channel. It fires a handshake event
     * when the channel is active.
     *
     * @throws SSLException if the bytes are not an exported connection
     */
    public static DormouseHandler restore(SSLContext context, byte[] exported) throws SSLException {
        ExportedChannel read = ExportedChannel.read(exported);
        SSLEngine engine = context.createSSLEngine();
        Connections.restore(engine, read.connection());
        DormouseHandler handler = new DormouseHandler(engine);
        handler.phase = Phase.ESTABLISHED;
        handler.handshake = null;
        if (read.partial().isReadable()) {
            handler.inFlight().partial = read.partial();
        }
        return handler;
    }

    private Flight inFlight() {
        if (flight == null) {
            flight = new Flight();
        }
        return flight;
    }

    /** Keeps nothing if nothing is in flight. */
    private void rest() {
        if (flight != null && flight.isEmpty()) {
            flight = null;
        }
    }

    /** Whether a quiet connection has nothing but this object and its engine. */
    boolean isAtRest() {
        return flight == null && handshake == null;
    }
}
