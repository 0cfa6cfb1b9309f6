package dormouse.netty;

import dormouse.Connections;

import io.netty.channel.Channel;
import io.netty.channel.ChannelConfig;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOption;
import io.netty.channel.ChannelOutboundBuffer;
import io.netty.channel.ChannelPromise;
import io.netty.channel.socket.ChannelInputShutdownEvent;
import io.netty.handler.codec.DecoderException;
import io.netty.handler.ssl.SslCloseCompletionEvent;
import io.netty.handler.ssl.SslClosedEngineException;
import io.netty.handler.ssl.SslHandshakeCompletionEvent;
import io.netty.handler.ssl.SslHandshakeTimeoutException;
import io.netty.util.concurrent.DefaultPromise;
import io.netty.util.concurrent.EventExecutor;
import io.netty.util.concurrent.Future;
import io.netty.util.concurrent.Promise;
import io.netty.util.concurrent.PromiseNotifier;

import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;

import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
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
public final class DormouseHandler extends ReceivingLayer {
    private static final long HANDSHAKE_TIMEOUT_MS = 10_000;
    /** For a peer that does not read, when the channel closes. */
    private static final long CLOSE_TIMEOUT_MS = 3_000;

    /** Null after success. */
    private volatile Promise<Channel> handshake = new HandshakePromise();

    private boolean hasStarted;
    private boolean isClosing;
    /** It was established elsewhere, and the pipeline was not told yet. */
    private boolean isUnannounced;

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
        super(engine);
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
        try {
            begin();
        } catch (SSLException problem) {
            fail(problem);
        } catch (RuntimeException | Error problem) {
            // Netty would remove the handler, and the channel would continue in plaintext.
            fail(new SSLException("the connection can't begin: " + problem.getMessage(), problem));
        }
    }

    private void begin() throws SSLException {
        if (phase == Phase.ESTABLISHED) {
            // It was established elsewhere. The handlers behind this one may not be in the pipeline yet.
            context.executor().execute(this::announce);
            return;
        }
        inFlight().timer = context.executor().schedule(this::timeOut, HANDSHAKE_TIMEOUT_MS, TimeUnit.MILLISECONDS);
        engine.beginHandshake();
        sendOutput();
        flushOutput();
        if (!context.channel().config().isAutoRead()) {
            // The program may wait for the handshake before it asks for data.
            context.read();
        }
    }

    @Override
    void announce() {
        if (isUnannounced) {
            isUnannounced = false;
            fireSuccess();
        }
    }

    /** Fires the event. Handlers that look for an {@code SslHandler} when it comes find one. */
    private void fireSuccess() {
        SslHandlerView view = new SslHandlerView(this);
        context.pipeline().addAfter(context.name(), null, view);
        context.fireUserEventTriggered(SslHandshakeCompletionEvent.SUCCESS);
        if (context.pipeline().context(view) != null) {
            context.pipeline().remove(view);
        }
    }

    private void timeOut() {
        if (phase == Phase.HANDSHAKING) {
            flight.timer = null;
            fail(new SslHandshakeTimeoutException(
                    "the handshake is not done after " + HANDSHAKE_TIMEOUT_MS + " ms"));
        }
    }

    @Override
    void endHandshake() {
        if (handshake == null) {
            // The JDK's engine says it again after a ticket and after a KeyUpdate.
            return;
        }
        phase = Phase.ESTABLISHED;
        inFlight().cancelTimer();
        Promise<Channel> done = handshake;
        handshake = null;
        done.trySuccess(context.channel());
        fireSuccess();
        if (flight != null && flight.flushWaits) {
            flush(context);
        }
    }

    // End

    @Override
    void peerClosed() {
        inboundEnded = true;
        context.fireUserEventTriggered(SslCloseCompletionEvent.SUCCESS);
        if (phase == Phase.ENDED) {
            return;
        }
        if (outboundEnded) {
            // RFC 5246 section 7.2.1: TLS 1.2 discards pending writes.
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
        } else if (context.channel().isOpen()) {
            // The promise was cancelled. Our direction has ended, so the channel closes all the same.
            context.close();
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

    /** Sends an alert if there is one, reports the failure and closes the channel. */
    @Override
    void fail(SSLException why) {
        if (phase == Phase.ENDED) {
            return;
        }
        try {
            sendOutput();
        } catch (SSLException | RuntimeException | Error secondary) {
            // The first failure is the one to report.
        }
        flushAll();
        end(why);
        context.fireExceptionCaught(new DecoderException(why));
        context.close();
    }

    /** Releases everything, and fires the event that says how the handshake or the connection has ended. */
    private void end(Throwable why) {
        announce();
        Phase before = phase;
        phase = Phase.ENDED;
        if (before == Phase.ENDED) {
            return;
        }
        Flight dropped = flight;
        flight = null;
        EngineCalls.end(engine);
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

    /** Sends the answer that has waited for room. */
    @Override
    public void channelWritabilityChanged(ChannelHandlerContext changed) {
        boolean hasRoom = answerMayWait() && changed.channel().isWritable();
        if (hasRoom && engine.getHandshakeStatus() == HandshakeStatus.NEED_WRAP) {
            try {
                sendOutput();
                flushOutput();
            } catch (SSLException | RuntimeException | Error problem) {
                fail(EngineCalls.failure(problem));
            }
        }
        changed.fireChannelWritabilityChanged();
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
     * <p>It stops the reading: what arrives later is for the other process. The handshake's event is too early, because
     * data may have arrived with the handshake's end: use {@code executor().execute} there. With Netty's epoll transport
     * turn automatic reads off before that, because a read may be in the event loop's queue already.
     *
     * @throws IllegalStateException if the connection is not established and open, data is still to be sent, or a
     *     message that has arrived is not opened yet
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
        if (flight != null && (flight.isOpening || flight.hasArrived())) {
            throw new IllegalStateException(
                    "a message that has arrived is not opened yet; export later, with executor().execute(…)");
        }
        byte[] exported = ExportedChannel.write(Connections.export(engine), flight == null ? null : flight.partial);
        phase = Phase.ENDED;
        stopReading();
        if (flight != null) {
            flight.drop(new ClosedChannelException());
            flight = null;
        }
        return exported;
    }

    private void stopReading() {
        ChannelConfig config = context.channel().config();
        if (isAsked) {
            // Only a change of the setting withdraws a read.
            config.setAutoRead(true);
        }
        config.setAutoRead(false);
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
        Arrays.fill(read.connection(), (byte) 0);
        DormouseHandler handler = new DormouseHandler(engine);
        handler.phase = Phase.ESTABLISHED;
        handler.handshake = null;
        handler.isUnannounced = true;
        if (read.partial().isReadable()) {
            handler.inFlight().partial = read.partial();
        }
        return handler;
    }

    /** Whether a quiet connection has nothing but this object and its engine. */
    boolean isAtRest() {
        return flight == null && handshake == null;
    }
}
