package dormouse;

import static org.junit.jupiter.api.Assertions.assertTrue;

import dormouse.netty.DormouseHandler;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpObjectAggregator;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpServerCodec;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.handler.ssl.SslHandler;

import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/** An HTTP server of Netty. {@code /large} answers with 320 kB. */
public final class NettyHttpServer implements AutoCloseable {
    public static final byte[] LARGE = "0123456789abcdef".repeat(20_000).getBytes(StandardCharsets.US_ASCII);

    private final NioEventLoopGroup group = new NioEventLoopGroup(2);
    private final Channel channel;

    public NettyHttpServer(Function<SocketChannel, ChannelHandler> tls) throws InterruptedException {
        this(tls, ByteBufAllocator.DEFAULT);
    }

    public NettyHttpServer(Function<SocketChannel, ChannelHandler> tls, ByteBufAllocator allocator)
            throws InterruptedException {
        channel = new ServerBootstrap()
                .group(group)
                .channel(NioServerSocketChannel.class)
                .childOption(ChannelOption.ALLOCATOR, allocator)
                .childHandler(new ChannelInitializer<SocketChannel>() {
                    @Override
                    protected void initChannel(SocketChannel accepted) {
                        accepted.pipeline().addLast(tls.apply(accepted), new HttpServerCodec(),
                                new HttpObjectAggregator(1 << 20), new Answer());
                    }
                })
                .bind("127.0.0.1", 0)
                .sync()
                .channel();
    }

    public int port() {
        return ((InetSocketAddress) channel.localAddress()).getPort();
    }

    /** Closes the server and its connections. */
    @Override
    public void close() {
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).awaitUninterruptibly();
    }

    private static final class Answer extends SimpleChannelInboundHandler<FullHttpRequest> {
        @Override
        protected void channelRead0(ChannelHandlerContext context, FullHttpRequest request) {
            SslHandler tls = context.pipeline().get(SslHandler.class);
            assertTrue(tls == null
                    ? context.pipeline().get(DormouseHandler.class) != null
                    : tls.engine().getClass().getName().startsWith("dormouse."));
            byte[] body = request.uri().equals("/large") ? LARGE : "hello".getBytes(StandardCharsets.US_ASCII);
            DefaultFullHttpResponse response = new DefaultFullHttpResponse(
                    HttpVersion.HTTP_1_1, HttpResponseStatus.OK, Unpooled.wrappedBuffer(body));
            response.headers().set(HttpHeaderNames.CONTENT_LENGTH, body.length);
            context.writeAndFlush(response).addListener(ChannelFutureListener.CLOSE_ON_FAILURE);
        }
    }
}
