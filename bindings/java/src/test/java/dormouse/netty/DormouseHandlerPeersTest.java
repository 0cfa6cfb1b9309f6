package dormouse.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dormouse.NettyHttpServer;
import dormouse.Programs;
import dormouse.TestKeys;

import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.UnpooledByteBufAllocator;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.ChannelInputShutdownEvent;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.handler.ssl.ApplicationProtocolNegotiationHandler;
import io.netty.handler.ssl.SslCloseCompletionEvent;
import io.netty.handler.ssl.SslHandler;
import io.netty.handler.ssl.SslHandshakeCompletionEvent;
import io.netty.util.ResourceLeakDetector;

import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;

import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

// library: Netty 4.1 | works | `DormouseHandler`, or `SslContextBuilder` with `sslContextProvider`
/** The handler over real sockets: curl, openssl, the JDK's engine and sockets, and itself on both sides. */
class DormouseHandlerPeersTest {
    private static final int BLOCK = 100_000;
    private static final int LARGE = 80 * BLOCK;
    private static final byte[] PATTERN = new byte[LARGE];

    static {
        for (int i = 0; i < LARGE; i++) {
            PATTERN[i] = (byte) (i % 251);
        }
    }

    /** Counts what the channels of both sides allocate and do not release. */
    private final UnpooledByteBufAllocator allocator = new UnpooledByteBufAllocator(true);
    private final NioEventLoopGroup group = new NioEventLoopGroup(2);
    private boolean readsByItself = true;

    @BeforeAll
    static void detectLeaks() {
        ResourceLeakDetector.setLevel(ResourceLeakDetector.Level.PARANOID);
    }

    @AfterEach
    void everythingIsReleased() {
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).awaitUninterruptibly();
        assertEquals(0, allocator.metric().usedDirectMemory() + allocator.metric().usedHeapMemory());
    }

    private static DormouseHandler server() throws Exception {
        return DormouseHandler.server(TestKeys.context(true, TestKeys.EC, TestKeys.RSA));
    }

    private Channel listen(boolean halfClosure, Supplier<ChannelHandler> handler, ChannelHandler program) {
        return new ServerBootstrap()
                .group(group)
                .channel(NioServerSocketChannel.class)
                .childOption(ChannelOption.ALLOCATOR, allocator)
                .childOption(ChannelOption.ALLOW_HALF_CLOSURE, halfClosure)
                .childOption(ChannelOption.AUTO_READ, readsByItself)
                .childHandler(new ChannelInitializer<SocketChannel>() {
                    @Override
                    protected void initChannel(SocketChannel channel) {
                        channel.pipeline().addLast(handler.get(), program);
                    }
                })
                .bind("127.0.0.1", 0)
                .syncUninterruptibly()
                .channel();
    }

    private Channel connect(Channel server, ChannelHandler handler, ChannelHandler program) {
        return new Bootstrap()
                .group(group)
                .channel(NioSocketChannel.class)
                .option(ChannelOption.ALLOCATOR, allocator)
                .option(ChannelOption.AUTO_READ, readsByItself)
                .handler(new ChannelInitializer<SocketChannel>() {
                    @Override
                    protected void initChannel(SocketChannel channel) {
                        channel.pipeline().addLast(handler, program);
                    }
                })
                .connect(server.localAddress())
                .syncUninterruptibly()
                .channel();
    }

    private static int port(Channel server) {
        return ((InetSocketAddress) server.localAddress()).getPort();
    }

    private static <T> Supplier<T> unchecked(java.util.concurrent.Callable<T> make) {
        return () -> {
            try {
                return make.call();
            } catch (Exception problem) {
                throw new IllegalStateException(problem);
            }
        };
    }

    @ChannelHandler.Sharable
    private static class Echo extends ChannelInboundHandlerAdapter {
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
        }
    }

    /** Notes what arrives. */
    private static class Sink extends ChannelInboundHandlerAdapter {
        final CompletableFuture<Void> complete = new CompletableFuture<>();
        final BlockingQueue<Object> events = new LinkedBlockingQueue<>();
        private final long expected;
        private long count;

        Sink(long expected) {
            this.expected = expected;
        }

        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            byte[] bytes = ByteBufUtil.getBytes((ByteBuf) message);
            ((ByteBuf) message).release();
            for (byte one : bytes) {
                if (one != PATTERN[(int) count++]) {
                    complete.completeExceptionally(new AssertionError("byte " + (count - 1) + " is wrong"));
                }
            }
            if (count == expected) {
                complete.complete(null);
            }
        }

        @Override
        public void userEventTriggered(ChannelHandlerContext context, Object event) {
            events.add(event);
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
            complete.completeExceptionally(cause);
        }
    }

    private ByteBuf block(int at) {
        return allocator.buffer(BLOCK).writeBytes(PATTERN, at, BLOCK);
    }

    /** Writes {@code length} bytes in blocks, no faster than the channel takes them. */
    private ChannelFuture writeAll(Channel channel, int length) throws InterruptedException {
        ChannelFuture last = null;
        for (int at = 0; at < length; at += BLOCK) {
            last = channel.writeAndFlush(block(at));
            if (!channel.isWritable()) {
                last.sync();
            }
        }
        return last;
    }

    /** Netty's own handler for the choice of a protocol looks for an SslHandler. */
    @ParameterizedTest
    @ValueSource(strings = {"h2", "http/1.1", "other", ""})
    void applicationProtocolNegotiationHandler(String offered) throws Exception {
        SSLContext context = TestKeys.context(true, TestKeys.EC);
        CompletableFuture<String> chosen = new CompletableFuture<>();
        CompletableFuture<Channel> quiet = new CompletableFuture<>();
        Channel server = listen(false, () -> DormouseHandler.server(context, "h2", "http/1.1"),
                new ApplicationProtocolNegotiationHandler("fallback") {
                    @Override
                    protected void configurePipeline(ChannelHandlerContext context, String protocol) {
                        chosen.complete(protocol);
                        context.executor().execute(() -> quiet.complete(context.channel()));
                    }
                });
        try (SSLSocket client = (SSLSocket) TestKeys.context(false).getSocketFactory()
                .createSocket("127.0.0.1", ((InetSocketAddress) server.localAddress()).getPort())) {
            SSLParameters parameters = client.getSSLParameters();
            parameters.setApplicationProtocols(offered.isEmpty() ? new String[0] : new String[] {offered});
            client.setSSLParameters(parameters);
            if (offered.equals("other")) {
                assertThrows(SSLException.class, client::startHandshake);
                return;
            }
            client.startHandshake();
            assertEquals(offered.isEmpty() ? "fallback" : offered, chosen.get(10, TimeUnit.SECONDS));
            assertNull(quiet.get(10, TimeUnit.SECONDS).pipeline().get(SslHandler.class), "it stays in no pipeline");
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"1.2", "1.3"})
    void curl(String version) throws Exception {
        SSLContext context = TestKeys.context(true, TestKeys.EC, TestKeys.RSA);
        Path certificate = TestKeys.pemFiles(TestKeys.EC)[0];
        try (NettyHttpServer server = new NettyHttpServer(channel -> DormouseHandler.server(context), allocator)) {
            String url = "https://localhost:" + server.port();
            // Two requests on one connection.
            String said = Programs.run("curl", "-sS", "--cacert", certificate.toString(), "--tlsv" + version,
                    "--tls-max", version, "--resolve", "localhost:" + server.port() + ":127.0.0.1", url + "/",
                    url + "/large");
            assertEquals("hello" + new String(NettyHttpServer.LARGE, StandardCharsets.US_ASCII), said);
        }
    }

    @Test
    void opensslWithEachSuite() throws Exception {
        SSLContext context = TestKeys.context(true, TestKeys.EC, TestKeys.RSA);
        try (NettyHttpServer server = new NettyHttpServer(channel -> DormouseHandler.server(context), allocator)) {
            for (String suite : List.of("TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256",
                    "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305")) {
                boolean isTls13 = suite.startsWith("TLS_");
                String said = Programs.run("openssl", "s_client", "-brief", "-connect", "127.0.0.1:" + server.port(),
                        isTls13 ? "-tls1_3" : "-tls1_2", isTls13 ? "-ciphersuites" : "-cipher", suite);
                assertTrue(said.contains("Ciphersuite: " + suite), suite + ": " + said);
            }
        }
    }

    /** Eight megabytes there and back, with itself and with the JDK's engine on the other side. */
    @ParameterizedTest
    @ValueSource(strings = {"dormouse", "jdk"})
    void largeTransfer(String peer) throws Exception {
        Channel server = listen(false, unchecked(DormouseHandlerPeersTest::server), new Echo());
        SSLContext trusting = TestKeys.context(!peer.equals("jdk"));
        Sink sink = new Sink(LARGE);
        ChannelHandler handler = peer.equals("jdk")
                ? new SslHandler(clientEngine(trusting))
                : DormouseHandler.client(trusting, "localhost", port(server));
        Channel client = connect(server, handler, sink);
        assertTrue(writeAll(client, LARGE).sync().isSuccess());
        sink.complete.get(60, TimeUnit.SECONDS);
        client.close().sync();
    }

    /** A server of the JDK's engine, and our client. */
    @Test
    void ourClientWithTheJdksServer() throws Exception {
        SSLContext foreign = TestKeys.context(false, TestKeys.RSA);
        Channel server = listen(false, unchecked(() -> {
            SSLEngine engine = foreign.createSSLEngine();
            engine.setUseClientMode(false);
            return new SslHandler(engine);
        }), new Echo());
        Sink sink = new Sink(BLOCK);
        DormouseHandler handler = DormouseHandler.client(TestKeys.context(true), "localhost", port(server));
        Channel client = connect(server, handler, sink);
        handler.handshakeFuture().sync();
        writeAll(client, BLOCK);
        sink.complete.get(30, TimeUnit.SECONDS);
        client.close().sync();
        assertFalse(client.isOpen());
    }

    private static SSLEngine clientEngine(SSLContext context) {
        SSLEngine engine = context.createSSLEngine("localhost", 1);
        engine.setUseClientMode(true);
        return engine;
    }

    /** A client that is not read: its writes wait, and nothing is lost. */
    @Test
    void backpressure() throws Exception {
        CompletableFuture<Channel> accepted = new CompletableFuture<>();
        Sink sink = new Sink(LARGE) {
            @Override
            public void channelActive(ChannelHandlerContext context) {
                accepted.complete(context.channel());
            }
        };
        Channel server = listen(false, unchecked(DormouseHandlerPeersTest::server), sink);
        DormouseHandler handler = DormouseHandler.client(TestKeys.context(true), "localhost", port(server));
        Channel client = connect(server, handler, new Sink(-1));
        handler.handshakeFuture().sync();
        accepted.get().config().setAutoRead(false);
        ChannelFuture last = null;
        for (int at = 0; at < LARGE; at += BLOCK) {
            last = client.writeAndFlush(block(at));
        }
        assertFalse(client.isWritable() || last.isDone());
        accepted.get().config().setAutoRead(true);
        sink.complete.get(60, TimeUnit.SECONDS);
        assertTrue(last.sync().isSuccess());
        client.close().sync();
    }

    /** A program may wait for the handshake before it reads, as with an {@code SslHandler}. */
    @Test
    void aHandshakeWithoutAutomaticReads() throws Exception {
        readsByItself = false;
        Channel server = listen(false, unchecked(DormouseHandlerPeersTest::server), new Sink(-1));
        DormouseHandler handler = DormouseHandler.client(TestKeys.context(true), "localhost", port(server));
        Channel client = connect(server, handler, new Sink(-1));
        assertTrue(handler.handshakeFuture().await(8, TimeUnit.SECONDS) && handler.handshakeFuture().isSuccess());
        client.close().sync();
    }

    /** Bytes that arrive after an export belong to the other process. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void anExportStopsTheReading(boolean asksForMore) throws Exception {
        CompletableFuture<Channel> exported = new CompletableFuture<>();
        AtomicInteger reads = new AtomicInteger();
        ChannelHandler counting = new ChannelInboundHandlerAdapter() {
            @Override
            public void channelRead(ChannelHandlerContext context, Object message) {
                reads.incrementAndGet();
                context.fireChannelRead(message);
            }
        };
        Channel server = listen(false, unchecked(DormouseHandlerPeersTest::server), new ChannelInboundHandlerAdapter() {
            @Override
            public void handlerAdded(ChannelHandlerContext context) {
                context.pipeline().addFirst(counting);
            }

            @Override
            public void userEventTriggered(ChannelHandlerContext context, Object event) {
                if (event != SslHandshakeCompletionEvent.SUCCESS) {
                    return;
                }
                context.channel().config().setAutoRead(false);
                context.executor().execute(() -> {
                    if (asksForMore) {
                        context.read();
                    }
                    try {
                        context.pipeline().get(DormouseHandler.class).export();
                        exported.complete(context.channel());
                    } catch (SSLException | RuntimeException problem) {
                        exported.completeExceptionally(problem);
                    }
                });
            }
        });
        DormouseHandler handler = DormouseHandler.client(TestKeys.context(true), "localhost", port(server));
        Channel client = connect(server, handler, new Sink(-1));
        Channel accepted = exported.get(30, TimeUnit.SECONDS);
        int before = reads.get();
        client.writeAndFlush(block(0)).sync();
        // Before each task the event loop handles what has arrived.
        for (int i = 0; i < 3; i++) {
            accepted.eventLoop().submit(() -> { }).sync();
        }
        assertEquals(before, reads.get());
        accepted.close().sync();
        client.close().sync();
    }

    @Test
    void halfClose() throws Exception {
        Echo program = new Echo() {
            @Override
            public void userEventTriggered(ChannelHandlerContext context, Object event) {
                if (event == ChannelInputShutdownEvent.INSTANCE) {
                    context.close();
                }
            }
        };
        Channel server = listen(true, unchecked(DormouseHandlerPeersTest::server), program);
        Sink sink = new Sink(LARGE);
        DormouseHandler handler = DormouseHandler.client(TestKeys.context(true), "localhost", port(server));
        Channel client = connect(server, handler, sink);
        handler.handshakeFuture().sync();
        writeAll(client, LARGE);
        handler.closeOutbound().sync();
        sink.complete.get(60, TimeUnit.SECONDS);
        client.closeFuture().await(30, TimeUnit.SECONDS);
        assertTrue(sink.events.contains(SslCloseCompletionEvent.SUCCESS), sink.events.toString());
    }

    /** The transport ends without close_notify. */
    @Test
    void cutOff() throws Exception {
        Sink sink = new Sink(-1);
        Channel server = listen(false, unchecked(DormouseHandlerPeersTest::server), sink);
        try (Socket transport = new Socket("127.0.0.1", port(server))) {
            SSLSocket tls = (SSLSocket) TestKeys.context(false)
                    .getSocketFactory()
                    .createSocket(transport, "localhost", port(server), false);
            tls.startHandshake();
            OutputStream out = tls.getOutputStream();
            out.write(0);
            out.flush();
        }
        SslCloseCompletionEvent closed = null;
        while (closed == null) {
            Object event = sink.events.poll(30, TimeUnit.SECONDS);
            closed = event instanceof SslCloseCompletionEvent one ? one : null;
        }
        assertInstanceOf(SSLException.class, closed.cause());
        assertNull(sink.complete.getNow(null));
    }
}
