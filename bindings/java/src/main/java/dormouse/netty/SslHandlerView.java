package dormouse.netty;

import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelPromise;
import io.netty.handler.ssl.SslHandler;
import io.netty.util.concurrent.Future;

import java.net.SocketAddress;
import java.util.List;

/**
 * A {@link DormouseHandler} as handlers see it that look for an {@code SslHandler}, such as Netty's
 * {@code ApplicationProtocolNegotiationHandler}. It is in the pipeline only while the event of a handshake passes, so a
 * quiet connection has none. It passes everything on.
 */
final class SslHandlerView extends SslHandler {
    private final DormouseHandler handler;

    SslHandlerView(DormouseHandler handler) {
        super(handler.engine());
        this.handler = handler;
    }

    @Override
    public String applicationProtocol() {
        return handler.applicationProtocol();
    }

    @Override
    public Future<Channel> handshakeFuture() {
        return handler.handshakeFuture();
    }

    @Override
    public void handlerAdded(ChannelHandlerContext added) {}

    @Override
    public void handlerRemoved0(ChannelHandlerContext removed) {}

    @Override
    protected void decode(ChannelHandlerContext context, io.netty.buffer.ByteBuf in, List<Object> out) {
        throw new AssertionError("it receives nothing");
    }

    @Override
    public void channelActive(ChannelHandlerContext context) {
        context.fireChannelActive();
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
        context.fireChannelInactive();
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) {
        context.fireChannelRead(message);
    }

    @Override
    public void channelReadComplete(ChannelHandlerContext context) {
        context.fireChannelReadComplete();
    }

    @Override
    public void userEventTriggered(ChannelHandlerContext context, Object event) {
        context.fireUserEventTriggered(event);
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        context.fireExceptionCaught(cause);
    }

    @Override
    public void bind(ChannelHandlerContext context, SocketAddress local, ChannelPromise promise) {
        context.bind(local, promise);
    }

    @Override
    public void connect(
            ChannelHandlerContext context, SocketAddress remote, SocketAddress local, ChannelPromise promise) {
        context.connect(remote, local, promise);
    }

    @Override
    public void deregister(ChannelHandlerContext context, ChannelPromise promise) {
        context.deregister(promise);
    }

    @Override
    public void disconnect(ChannelHandlerContext context, ChannelPromise promise) {
        context.disconnect(promise);
    }

    @Override
    public void close(ChannelHandlerContext context, ChannelPromise promise) {
        context.close(promise);
    }

    @Override
    public void read(ChannelHandlerContext context) {
        context.read();
    }

    @Override
    public void write(ChannelHandlerContext context, Object message, ChannelPromise promise) {
        context.write(message, promise);
    }

    @Override
    public void flush(ChannelHandlerContext context) {
        context.flush();
    }
}
