package lab;

import io.netty.bootstrap.Bootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.epoll.EpollEventLoopGroup;
import io.netty.channel.epoll.EpollSocketChannel;
import io.netty.channel.socket.SocketChannel;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslHandler;
import io.netty.handler.ssl.SslProvider;
import java.io.File;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;

/**
 * Caller URL CA new|shared|unnamed: 40 requests with Netty and netty-tcnative: an SslContext for each connection, one
 * for all, or one for all without the peer's name. http:// means no TLS.
 */
public final class Caller {
    private static final int REQUESTS = 40;

    private Caller() {}

    public static void main(String[] arguments) throws Exception {
        URI url = new URI(arguments[0]);
        boolean isPlain = url.getScheme().equals("http");
        String how = arguments[2];
        SslContext shared = isPlain ? null : context(arguments[1]);
        EventLoopGroup loop = new EpollEventLoopGroup(1);
        for (int n = 0; n < REQUESTS; n++) {
            SslContext context = isPlain || !how.equals("new") ? shared : context(arguments[1]);
            request(loop, url, context, how.equals("unnamed"));
        }
        loop.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
    }

    private static SslContext context(String ca) throws Exception {
        return SslContextBuilder.forClient()
            .sslProvider(SslProvider.OPENSSL)
            .trustManager(new File(ca))
            .endpointIdentificationAlgorithm(null)
            .build();
    }

    /** One connection, closed at the first bytes of the answer. */
    private static void request(EventLoopGroup loop, URI url, SslContext context, boolean isUnnamed) throws Exception {
        Channel channel = new Bootstrap()
            .group(loop)
            .channel(EpollSocketChannel.class)
            .handler(new ChannelInitializer<SocketChannel>() {
                @Override
                protected void initChannel(SocketChannel channel) {
                    if (context != null) {
                        SslHandler tls = isUnnamed
                            ? context.newHandler(channel.alloc())
                            : context.newHandler(channel.alloc(), url.getHost(), url.getPort());
                        channel.pipeline().addLast(tls);
                    }
                    channel.pipeline().addLast(new Answer());
                }
            })
            .connect(url.getHost(), url.getPort()).sync().channel();
        String text = "GET / HTTP/1.1\r\nHost: " + url.getHost() + "\r\n\r\n";
        channel.writeAndFlush(Unpooled.copiedBuffer(text, StandardCharsets.US_ASCII));
        channel.closeFuture().sync();
    }

    private static final class Answer extends SimpleChannelInboundHandler<ByteBuf> {
        @Override
        protected void channelRead0(ChannelHandlerContext context, ByteBuf bytes) {
            context.close();
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
            System.err.println(cause);
            System.exit(1);
        }
    }
}
