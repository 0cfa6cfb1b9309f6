package dormouse.measure;

import dormouse.DormouseProvider;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandler.Sharable;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;

/**
 * An echo server of Netty: {@code EchoServer TLS CERTIFICATE KEY}, where TLS is plain, jdk, tcnative or dormouse.
 * It prints its port. For each line that it reads it collects garbage and prints the bytes of all objects that are
 * left. It ends with its input.
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
        SslContext tls = tls(arguments[0], new File(arguments[1]), new File(arguments[2]));
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
                            channel.pipeline().addLast(tls.newHandler(channel.alloc()));
                        }
                        channel.pipeline().addLast(echo);
                    }
                })
                .bind("127.0.0.1", 0)
                .sync()
                .channel();
        System.out.println(((InetSocketAddress) server.localAddress()).getPort());
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        while (orders.readLine() != null) {
            System.gc();
            Thread.sleep(200);
            System.gc();
            Runtime runtime = Runtime.getRuntime();
            System.out.println(runtime.totalMemory() - runtime.freeMemory());
        }
        System.exit(0);
    }

    private static SslContext tls(String name, File certificate, File key) throws Exception {
        SslContextBuilder builder = SslContextBuilder.forServer(certificate, key);
        return switch (name) {
            case "plain" -> null;
            case "jdk" -> builder.sslProvider(SslProvider.JDK).build();
            case "tcnative" -> builder.sslProvider(SslProvider.OPENSSL).build();
            case "dormouse" -> builder.sslProvider(SslProvider.JDK).sslContextProvider(new DormouseProvider()).build();
            default -> throw new IllegalArgumentException(name);
        };
    }
}
