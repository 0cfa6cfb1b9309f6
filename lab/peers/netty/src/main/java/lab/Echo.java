package lab;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.FixedRecvByteBufAllocator;
import io.netty.channel.epoll.EpollEventLoopGroup;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.socket.SocketChannel;
import io.netty.handler.ssl.OpenSslSessionContext;
import io.netty.handler.ssl.OpenSslSessionTicketKey;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;
import io.netty.util.Version;
import java.io.File;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;

/** An echo server as Netty's own examples build one: one event loop, one SslContext for all. */
public final class Echo {
    private Echo() {}

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("version")) {
            System.out.println("Netty " + Version.identify().get("netty-handler").artifactVersion()
                + ", Java " + System.getProperty("java.version"));
            return;
        }
        SslProvider provider = SslProvider.valueOf(arguments[0]);
        String variant = arguments[4];
        int port = Integer.parseInt(arguments[1]);
        SslContextBuilder builder = SslContextBuilder.forServer(new File(arguments[2]), new File(arguments[3]))
            .sslProvider(provider)
            .protocols("TLSv1.3");
        if (variant.equals("small-cache")) {
            builder.sessionCacheSize(100);
        }
        SslContext context = builder.build();
        if (variant.equals("ticket-key")) {
            byte[] part = "0123456789abcdef".getBytes(StandardCharsets.US_ASCII);
            ((OpenSslSessionContext) context.sessionContext())
                .setTicketKeys(new OpenSslSessionTicketKey(part, part, part));
        }

        EventLoopGroup loop = new EpollEventLoopGroup(1);
        ServerBootstrap server = new ServerBootstrap()
            .group(loop)
            .channel(EpollServerSocketChannel.class)
            .option(ChannelOption.SO_BACKLOG, 4096)
            .childOption(ChannelOption.TCP_NODELAY, true)
            .childHandler(new ChannelInitializer<SocketChannel>() {
                @Override
                protected void initChannel(SocketChannel channel) {
                    if (!variant.startsWith("plain")) {
                        channel.pipeline().addLast(context.newHandler(channel.alloc()));
                    }
                    channel.pipeline().addLast(new EchoHandler());
                }
            });
        if (variant.equals("small-buffers")) {
            server.childOption(ChannelOption.RCVBUF_ALLOCATOR, new FixedRecvByteBufAllocator(512));
        }
        server.bind(new InetSocketAddress("127.0.0.1", port)).sync()
            .channel().closeFuture().sync();
    }

    /** Sends back what it reads; reads no more while the peer does not take it. */
    private static final class EchoHandler extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            context.write(message);
        }

        @Override
        public void channelReadComplete(ChannelHandlerContext context) {
            context.flush();
        }

        @Override
        public void channelWritabilityChanged(ChannelHandlerContext context) {
            context.channel().config().setAutoRead(context.channel().isWritable());
            context.fireChannelWritabilityChanged();
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
            context.close();
        }
    }
}
