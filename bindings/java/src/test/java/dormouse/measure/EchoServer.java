package dormouse.measure;

import dormouse.DormouseProvider;
import dormouse.netty.DormouseHandler;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandler.Sharable;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.ssl.JdkSslContext;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;

import java.io.File;
import java.net.InetSocketAddress;
import java.util.function.Function;

import javax.net.ssl.SSLContext;

/**
 * An echo server of Netty: {@code EchoServer TLS CERTIFICATE KEY}, where TLS is plain, dormouse, engine
 * ({@code SslHandler} with Dormouse's engine), tcnative or jdk.
 * It prints its port.
 */
public final class EchoServer {
    private EchoServer() {}

    @Sharable
    private static final class Echo extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            context.write(message, context.voidPromise());
        }

        @Override
        public void channelReadComplete(ChannelHandlerContext context) {
            context.flush();
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
            context.close();
        }
    }

    public static void main(String[] arguments) throws Exception {
        Function<Channel, ChannelHandler> tls = tls(arguments[0], new File(arguments[1]), new File(arguments[2]));
        Echo echo = new Echo();
        NioEventLoopGroup group = new NioEventLoopGroup(1);
        Channel server = new ServerBootstrap()
                .group(group)
                .channel(NioServerSocketChannel.class)
                .option(ChannelOption.SO_BACKLOG, 1_000)
                .childHandler(new ChannelInitializer<SocketChannel>() {
                    @Override
                    protected void initChannel(SocketChannel channel) {
                        if (tls != null) {
                            channel.pipeline().addLast(tls.apply(channel));
                        }
                        channel.pipeline().addLast(echo);
                    }
                })
                .bind("127.0.0.1", 0)
                .sync()
                .channel();
        System.out.println(((InetSocketAddress) server.localAddress()).getPort());
        Orders.obey();
    }

    /** Null: none. */
    private static Function<Channel, ChannelHandler> tls(String name, File certificate, File key) throws Exception {
        SslContextBuilder builder = SslContextBuilder.forServer(certificate, key);
        switch (name) {
            case "plain":
                return null;
            case "dormouse":
                builder.sslProvider(SslProvider.JDK).sslContextProvider(new DormouseProvider());
                SSLContext context = ((JdkSslContext) builder.build()).context();
                return channel -> DormouseHandler.server(context);
            case "engine":
                builder.sslProvider(SslProvider.JDK).sslContextProvider(new DormouseProvider());
                break;
            case "tcnative":
                builder.sslProvider(SslProvider.OPENSSL);
                break;
            case "jdk":
                builder.sslProvider(SslProvider.JDK);
                break;
            default:
                throw new IllegalArgumentException(name);
        }
        SslContext built = builder.build();
        return channel -> built.newHandler(channel.alloc());
    }
}
