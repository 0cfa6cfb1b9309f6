import dormouse.DormouseProvider;
import dormouse.netty.DormouseHandler;

import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.epoll.EpollChannelOption;
import io.netty.channel.epoll.EpollDomainSocketChannel;
import io.netty.channel.epoll.EpollEventLoopGroup;
import io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.epoll.EpollSocketChannel;
import io.netty.channel.unix.DomainSocketAddress;
import io.netty.channel.unix.DomainSocketReadMode;
import io.netty.channel.unix.FileDescriptor;
import io.netty.channel.unix.UnixChannel;
import io.netty.handler.codec.LengthFieldBasedFrameDecoder;
import io.netty.handler.ssl.JdkSslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;
import io.netty.util.concurrent.PromiseCombiner;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.TimeUnit;

import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;

import sun.misc.Signal;

/**
 * A server that restarts without losing a connection: it answers each line with its process and a count.
 *
 * <pre>java -cp 'dormouse.jar:netty/*' RestartServer.java PORT CERTIFICATE KEY</pre>
 *
 * <p>On SIGHUP it starts its own command again. The successor connects twice to a unix socket: one connection passes
 * descriptors, the other one, in the same order, what belongs to each of them. The first is the listening socket.
 * Everything runs on one event loop.
 */
public final class RestartServer {
    private static final String SUCCESSOR = "RESTART_SERVER_SOCKET";
    /** For handshakes that have begun. A connection can be passed on when it is established. */
    private static final long GRACE_MS = 300;
    private static final int LINE_MAX = 10_000;
    private static final int STATE_MAX = 100_000;

    private final EpollEventLoopGroup group = new EpollEventLoopGroup(1);
    private final SSLContext tls;
    private final Set<Client> clients = new HashSet<>();
    private Channel listener;
    private boolean isRestarting;

    private RestartServer(File certificate, File key) throws Exception {
        tls = ((JdkSslContext) SslContextBuilder.forServer(certificate, key)
                        .sslProvider(SslProvider.JDK)
                        .sslContextProvider(new DormouseProvider())
                        .build())
                .context();
    }

    public static void main(String[] arguments) throws Exception {
        RestartServer server = new RestartServer(new File(arguments[1]), new File(arguments[2]));
        Signal.handle(new Signal("HUP"), signal -> server.group.execute(server::restart));
        String path = System.getenv(SUCCESSOR);
        if (path == null) {
            server.listen(new EpollServerSocketChannel(), Integer.parseInt(arguments[0]));
        } else {
            server.new Inheritance().receive(path);
        }
    }

    /** {@code port}: -1 if the channel listens already. */
    private void listen(EpollServerSocketChannel channel, int port) {
        ServerBootstrap bootstrap = new ServerBootstrap()
                .group(group)
                .channelFactory(() -> channel)
                .childHandler(new ChannelInitializer<>() {
                    @Override
                    protected void initChannel(Channel accepted) {
                        accepted.pipeline().addLast(DormouseHandler.server(tls), new Client(0));
                    }
                });
        (port < 0 ? bootstrap.register() : bootstrap.bind("127.0.0.1", port)).addListener(done -> {
            listener = channel;
            System.out.println("process " + ProcessHandle.current().pid() + " listens at " + channel.localAddress());
        });
    }

    /** The program's own part of a connection: its count, and a line that has not ended. */
    private final class Client extends ChannelInboundHandlerAdapter {
        private final ByteBuf line = Unpooled.buffer();
        private long count;
        private Channel channel;

        Client(long count) {
            this.count = count;
        }

        @Override
        public void handlerAdded(ChannelHandlerContext added) {
            channel = added.channel();
            clients.add(this);
        }

        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            ByteBuf data = (ByteBuf) message;
            line.writeBytes(data);
            data.release();
            for (int end = line.bytesBefore((byte) '\n'); end >= 0; end = line.bytesBefore((byte) '\n')) {
                String answer = ProcessHandle.current().pid() + " " + ++count + " "
                        + line.readCharSequence(end + 1, StandardCharsets.UTF_8);
                context.write(Unpooled.copiedBuffer(answer, StandardCharsets.UTF_8));
            }
            line.discardReadBytes();
            context.flush();
            if (line.readableBytes() > LINE_MAX) {
                context.close();
            }
        }

        @Override
        public void channelInactive(ChannelHandlerContext context) {
            clients.remove(this);
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
            context.close();
        }
    }

    // The predecessor

    private void restart() {
        if (isRestarting || listener == null) {
            return;
        }
        isRestarting = true;
        List<Channel> connected = new ArrayList<>();
        try {
            File socket = Files.createTempDirectory("restart").resolve("socket").toFile();
            socket.getParentFile().deleteOnExit();
            socket.deleteOnExit();
            new ServerBootstrap()
                    .group(group)
                    .channel(EpollServerDomainSocketChannel.class)
                    .childHandler(new ChannelInitializer<>() {
                        @Override
                        protected void initChannel(Channel channel) {
                            connected.add(channel);
                            if (connected.size() == 2) {
                                passOn(connected.get(0), connected.get(1));
                            }
                        }
                    })
                    .bind(new DomainSocketAddress(socket))
                    .addListener(bound -> startSuccessor(socket));
        } catch (IOException problem) {
            System.err.println("no directory for a socket: " + problem);
            isRestarting = false;
        }
    }

    private void startSuccessor(File socket) {
        try {
            // ProcessHandle.Info does not know long arguments.
            String[] command = Files.readString(Path.of("/proc/self/cmdline")).split("\0");
            ProcessBuilder successor = new ProcessBuilder(command).inheritIO();
            successor.environment().put(SUCCESSOR, socket.getPath());
            successor.start();
        } catch (IOException problem) {
            System.err.println("the successor can't be started: " + problem);
            isRestarting = false;
        }
    }

    private void passOn(Channel descriptors, Channel states) {
        listener.config().setAutoRead(false);
        group.schedule(() -> {
            send(descriptors, listener, states, Unpooled.EMPTY_BUFFER);
            clients.forEach(client -> client.channel.config().setAutoRead(false));
            // Behind reads that are in the event loop's queue already.
            group.execute(() -> passOnAll(descriptors, states));
        }, GRACE_MS, TimeUnit.MILLISECONDS);
    }

    private void passOnAll(Channel descriptors, Channel states) {
        List<ChannelFuture> flushed = new ArrayList<>();
        for (Client client : List.copyOf(clients)) {
            // When it is sent, everything before it is.
            flushed.add(client.channel
                    .writeAndFlush(Unpooled.EMPTY_BUFFER)
                    .addListener(sent -> passOn(descriptors, states, client)));
        }
        PromiseCombiner all = new PromiseCombiner(group.next());
        flushed.forEach(all::add);
        all.finish(group.next().<Void>newPromise().addListener(done -> {
            ChannelFuture last = states.writeAndFlush(Unpooled.EMPTY_BUFFER);
            last.addListener(sent -> descriptors.writeAndFlush(Unpooled.EMPTY_BUFFER).addListener(ended -> System.exit(0)));
        }));
    }

    private static void passOn(Channel descriptors, Channel states, Client client) {
        try {
            byte[] exported = client.channel.pipeline().get(DormouseHandler.class).export();
            ByteBuf state = Unpooled.buffer();
            state.writeLong(client.count).writeInt(exported.length).writeBytes(exported).writeBytes(client.line);
            send(descriptors, client.channel, states, state);
        } catch (IllegalStateException | SSLException notEstablished) {
            client.channel.close();
        }
    }

    /** The channel's close, at the end of this process, sends nothing: the successor has the descriptor, too. */
    private static void send(Channel descriptors, Channel passed, Channel states, ByteBuf state) {
        descriptors.writeAndFlush(((UnixChannel) passed).fd());
        states.write(Unpooled.buffer().writeInt(state.readableBytes()));
        states.writeAndFlush(state);
    }

    // The successor

    /** Descriptors and states, which arrive in the same order on two connections. */
    private final class Inheritance {
        private final Queue<FileDescriptor> descriptors = new ArrayDeque<>();
        private final Queue<ByteBuf> states = new ArrayDeque<>();

        void receive(String socket) throws InterruptedException {
            open(socket, DomainSocketReadMode.FILE_DESCRIPTORS, new ChannelInboundHandlerAdapter() {
                @Override
                public void channelRead(ChannelHandlerContext context, Object message) throws Exception {
                    descriptors.add((FileDescriptor) message);
                    takeOver();
                }
            });
            open(socket, DomainSocketReadMode.BYTES,
                    new LengthFieldBasedFrameDecoder(STATE_MAX, 0, Integer.BYTES, 0, Integer.BYTES),
                    new ChannelInboundHandlerAdapter() {
                        @Override
                        public void channelRead(ChannelHandlerContext context, Object message) throws Exception {
                            states.add((ByteBuf) message);
                            takeOver();
                        }
                    });
        }

        /** In this order: the predecessor knows the two by it. */
        private void open(String socket, DomainSocketReadMode mode, ChannelHandler... handlers)
                throws InterruptedException {
            new Bootstrap()
                    .group(group)
                    .channel(EpollDomainSocketChannel.class)
                    .option(EpollChannelOption.DOMAIN_SOCKET_READ_MODE, mode)
                    .handler(new ChannelInitializer<>() {
                        @Override
                        protected void initChannel(Channel channel) {
                            channel.pipeline().addLast(handlers);
                        }
                    })
                    .connect(new DomainSocketAddress(socket))
                    .sync();
        }

        private void takeOver() throws SSLException {
            while (!descriptors.isEmpty() && !states.isEmpty()) {
                int descriptor = descriptors.remove().intValue();
                ByteBuf state = states.remove();
                try {
                    if (state.isReadable()) {
                        restore(new EpollSocketChannel(descriptor), state);
                    } else {
                        listen(new EpollServerSocketChannel(descriptor), -1);
                    }
                } finally {
                    state.release();
                }
            }
        }

        private void restore(EpollSocketChannel channel, ByteBuf state) throws SSLException {
            Client client = new Client(state.readLong());
            byte[] exported = new byte[state.readInt()];
            state.readBytes(exported);
            client.line.writeBytes(state);
            channel.pipeline().addLast(DormouseHandler.restore(tls, exported), client);
            group.register(channel);
        }
    }
}
