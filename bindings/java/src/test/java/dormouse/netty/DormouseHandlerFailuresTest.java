package dormouse.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.Mockito.doReturn;
import static org.mockito.Mockito.doThrow;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.verify;
import static org.mockito.Mockito.when;

import dormouse.TestKeys;

import io.netty.buffer.AbstractByteBufAllocator;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.CompositeByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOutboundHandlerAdapter;
import io.netty.channel.ChannelPipeline;
import io.netty.channel.ChannelPromise;
import io.netty.util.ReferenceCountUtil;
import io.netty.util.concurrent.EventExecutor;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;

import javax.net.ssl.KeyManager;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLEngineResult.Status;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLSession;
import javax.net.ssl.X509ExtendedKeyManager;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The handler when its engine, a manager or the allocator fails: no plaintext is sent, and nothing waits for ever. */
class DormouseHandlerFailuresTest {
    private static final byte[] HELLO = "hello".getBytes(StandardCharsets.UTF_8);
    private static final int WHOLE = 1 << 20;
    private static final Duration LIMIT = Duration.ofSeconds(10);

    private Embedded client;
    private Embedded server;

    private static DormouseHandler serverHandler() throws Exception {
        return DormouseHandler.server(TestKeys.context(true, TestKeys.EC));
    }

    private static DormouseHandler clientHandler() throws Exception {
        return DormouseHandler.client(TestKeys.context(true), "localhost", 1);
    }

    private void connect() throws Exception {
        server = new Embedded(serverHandler());
        client = new Embedded(clientHandler());
        Embedded.settle(client, server, WHOLE);
        assertTrue(client.handler.handshakeFuture().isSuccess() && server.handler.handshakeFuture().isSuccess());
    }

    @AfterEach
    void everythingIsReleased() {
        for (Embedded side : Arrays.asList(client, server)) {
            if (side != null) {
                side.channel.close();
                side.channel.runPendingTasks();
                side.sent();
                assertEquals(0, side.unreleased(), "bytes of buffers are left");
            }
        }
    }

    private static ByteBuf hello() {
        return Unpooled.copiedBuffer(HELLO);
    }

    /** It follows the client's last record of the handshake, so it is opened as a copy. */
    @Test
    void aRecordThatFitsNoBuffer() throws Exception {
        server = new Embedded(serverHandler());
        client = new Embedded(clientHandler());
        server.arrive(client.sent());
        client.arrive(server.sent());
        byte[] last = client.sent();
        byte[] both = Arrays.copyOf(last, last.length + 5 + 18_432);
        System.arraycopy(new byte[] {23, 3, 3, 0x48, 0}, 0, both, last.length, 5);
        assertTimeoutPreemptively(LIMIT, () -> server.arrive(both));
        assertFalse(server.channel.isOpen());
        assertInstanceOf(SSLException.class, server.failures.get(0).getCause());
    }

    /** An engine that consumes nothing. */
    @ParameterizedTest
    @CsvSource({"BUFFER_OVERFLOW, NEED_UNWRAP", "OK, NEED_WRAP", "OK, NEED_TASK", "OK, NOT_HANDSHAKING"})
    void anEngineThatStandsStill(Status status, HandshakeStatus handshake) throws Exception {
        SSLSession session = mock(SSLSession.class);
        when(session.getPacketBufferSize()).thenReturn(100);
        when(session.getApplicationBufferSize()).thenReturn(100);
        SSLEngine engine = mock(SSLEngine.class);
        when(engine.getSession()).thenReturn(session);
        when(engine.getHandshakeStatus()).thenReturn(handshake);
        when(engine.unwrap(any(ByteBuffer.class), any(ByteBuffer.class)))
                .thenReturn(new SSLEngineResult(status, handshake, 0, 0));
        when(engine.wrap(any(ByteBuffer[].class), any(ByteBuffer.class)))
                .thenReturn(new SSLEngineResult(Status.OK, HandshakeStatus.NEED_UNWRAP, 0, 0));
        server = new Embedded(new DormouseHandler(engine));
        assertTimeoutPreemptively(LIMIT, () -> server.arrive(HELLO));
        assertFalse(server.channel.isOpen());
        assertInstanceOf(SSLException.class, server.failures.get(0).getCause());
    }

    /** One of another provider. */
    @Test
    void anEngineThatCannotBeClosed() throws Exception {
        SSLEngine engine = mock(SSLEngine.class);
        when(engine.wrap(any(ByteBuffer[].class), any(ByteBuffer.class)))
                .thenReturn(new SSLEngineResult(Status.OK, HandshakeStatus.NEED_UNWRAP, 0, 0));
        when(engine.unwrap(any(ByteBuffer.class), any(ByteBuffer.class))).thenThrow(new SSLException("no TLS"));
        doThrow(new IllegalStateException("a test's")).when(engine).closeOutbound();
        client = new Embedded(new DormouseHandler(engine));
        ChannelFuture write = client.channel.writeAndFlush(hello());
        client.arrive(HELLO);
        assertEquals("no TLS", write.cause().getMessage());
        assertEquals("no TLS", client.failures.get(0).getCause().getMessage());
        assertFalse(client.channel.isOpen());
    }

    /** A peer that requests new keys without end, and reads nothing. */
    @Test
    void answersThatAreNotRead() throws Exception {
        int count = 2_000;
        SSLEngine engine = TestKeys.context(false).createSSLEngine("localhost", 1);
        engine.setUseClientMode(true);
        server = new Embedded(serverHandler());
        client = new Embedded(new DormouseHandler(engine));
        Embedded.settle(client, server, WHOLE);
        boolean[] flows = {false};
        server.channel.pipeline().addFirst(new ChannelOutboundHandlerAdapter() {
            @Override
            public void flush(ChannelHandlerContext context) {
                if (flows[0]) {
                    context.flush();
                }
            }
        });
        for (int i = 0; i < count; i++) {
            // The JDK's engine requests a key in return.
            engine.beginHandshake();
            client.write(new byte[1]);
            server.arrive(client.sent());
        }
        assertEquals(count, server.received.size(), server.failures.toString());
        assertTrue(server.unreleased() < 64 * 1024, server.unreleased() + " bytes of answers");
        assertEquals(HandshakeStatus.NEED_WRAP, server.handler.engine().getHandshakeStatus());
        flows[0] = true;
        server.channel.flush();
        assertEquals(HandshakeStatus.NOT_HANDSHAKING, server.handler.engine().getHandshakeStatus());
        server.write(HELLO);
        Embedded.settle(server, client, WHOLE);
        assertEquals("hello", client.text(), client.failures.toString());
    }

    private void sendsNothing(DormouseHandler handler) {
        client = new Embedded(handler);
        ChannelFuture write = client.channel.writeAndFlush(hello());
        assertNotNull(write.cause());
        assertEquals(0, client.sent().length);
        assertFalse(client.channel.isOpen());
        assertInstanceOf(SSLException.class, handler.handshakeFuture().cause());
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void anEngineWithoutAMode(boolean ofDormouse) throws Exception {
        sendsNothing(new DormouseHandler(TestKeys.context(ofDormouse, TestKeys.EC).createSSLEngine()));
    }

    @ParameterizedTest
    @ValueSource(classes = {IllegalStateException.class, NoClassDefFoundError.class})
    void aKeyManagerThatThrows(Class<? extends Throwable> kind) throws Exception {
        Throwable thrown = kind.getConstructor(String.class).newInstance("the token is gone");
        X509ExtendedKeyManager keys = mock(X509ExtendedKeyManager.class, call -> {
            throw thrown;
        });
        SSLContext context = SSLContext.getInstance("TLS", TestKeys.DORMOUSE);
        context.init(new KeyManager[] {keys}, TestKeys.trustManagers(TestKeys.EC), null);
        sendsNothing(DormouseHandler.client(context, "localhost", 1));
        assertSame(thrown, client.handler.handshakeFuture().cause().getCause());
    }

    /** An event loop that is shutting down takes no timer and no task. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void anExecutorThatRejects(boolean isRestored) throws Exception {
        connect();
        DormouseHandler handler = isRestored
                ? DormouseHandler.restore(TestKeys.context(true, TestKeys.EC), server.handler.export())
                : serverHandler();
        EventExecutor executor = mock(EventExecutor.class, call -> {
            throw new RejectedExecutionException("shut down");
        });
        doReturn(true).when(executor).inEventLoop();
        Channel channel = mock(Channel.class);
        when(channel.isActive()).thenReturn(true);
        ChannelHandlerContext context = mock(ChannelHandlerContext.class);
        when(context.channel()).thenReturn(channel);
        when(context.alloc()).thenReturn(server.allocator);
        when(context.executor()).thenReturn(executor);
        when(context.pipeline()).thenReturn(mock(ChannelPipeline.class));
        handler.handlerAdded(context);
        verify(context).close();
        assertTrue(handler.engine().isInboundDone() && handler.engine().isOutboundDone());
    }

    /** An allocator that can run out of memory. */
    private static final class Limited extends AbstractByteBufAllocator {
        private final ByteBufAllocator memory;
        boolean isEmpty;
        int bufferMax = Integer.MAX_VALUE;

        Limited(ByteBufAllocator memory) {
            super(true);
            this.memory = memory;
        }

        private void take() {
            if (isEmpty) {
                throw new OutOfMemoryError("a test's");
            }
        }

        @Override
        protected ByteBuf newHeapBuffer(int initialCapacity, int maxCapacity) {
            take();
            return memory.heapBuffer(initialCapacity, Math.min(maxCapacity, bufferMax));
        }

        @Override
        protected ByteBuf newDirectBuffer(int initialCapacity, int maxCapacity) {
            take();
            return memory.directBuffer(initialCapacity, Math.min(maxCapacity, bufferMax));
        }

        @Override
        public CompositeByteBuf compositeDirectBuffer(int maxNumComponents) {
            take();
            return super.compositeDirectBuffer(maxNumComponents);
        }

        @Override
        public boolean isDirectBufferPooled() {
            return false;
        }
    }

    private static Limited limit(Embedded side) {
        Limited memory = new Limited(side.allocator);
        side.channel.config().setAllocator(memory);
        return memory;
    }

    private static void failedForMemory(Embedded side) {
        assertFalse(side.channel.isOpen());
        assertInstanceOf(SSLException.class, side.failures.get(0).getCause());
        assertInstanceOf(OutOfMemoryError.class, side.failures.get(0).getCause().getCause());
    }

    /** What was to be sealed is lost, so nothing after it may be sent. */
    @ParameterizedTest
    @ValueSource(ints = {1, 2})
    void noMemoryToSeal(int count) throws Exception {
        connect();
        Limited memory = limit(client);
        List<ChannelFuture> writes = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            writes.add(client.channel.write(hello()));
        }
        memory.isEmpty = true;
        client.channel.flush();
        memory.isEmpty = false;
        writes.add(client.channel.writeAndFlush(hello()));
        for (ChannelFuture write : writes) {
            assertNotNull(write.cause());
        }
        failedForMemory(client);
        Embedded.settle(client, server, WHOLE);
        assertEquals("", server.text());
    }

    /** For the close_notify, which the peer then does not get. */
    @Test
    void noMemoryToClose() throws Exception {
        connect();
        limit(client).isEmpty = true;
        client.channel.pipeline().close();
        failedForMemory(client);
    }

    /** For plaintext, or for the beginning of a record. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void noMemoryToOpen(boolean isWhole) throws Exception {
        connect();
        client.write(HELLO);
        byte[] record = client.sent();
        limit(server).isEmpty = true;
        server.receivesHeapBuffers = true;
        server.arrive(isWhole ? record : Arrays.copyOf(record, 10));
        failedForMemory(server);
        assertEquals("", server.text());
    }

    @Test
    void noMemoryForTheRestOfARecord() throws Exception {
        connect();
        client.write(new byte[1_000]);
        byte[] record = client.sent();
        limit(server).bufferMax = 100;
        server.arrive(Arrays.copyOf(record, 10));
        server.arrive(Arrays.copyOfRange(record, 10, record.length));
        assertFalse(server.channel.isOpen());
        assertInstanceOf(SSLException.class, server.failures.get(0).getCause());
    }

    /** It says FINISHED again after a ticket and after a KeyUpdate. */
    @ParameterizedTest
    @CsvSource({"TLSv1.2, true", "TLSv1.2, false", "TLSv1.3, true", "TLSv1.3, false"})
    void theJdksEngine(String protocol, boolean isClient) throws Exception {
        SSLContext context = TestKeys.context(false, TestKeys.EC);
        SSLEngine engine = context.createSSLEngine("localhost", 1);
        engine.setUseClientMode(isClient);
        engine.setEnabledProtocols(new String[] {protocol});
        DormouseHandler ofJdk = new DormouseHandler(engine);
        client = new Embedded(isClient ? ofJdk : clientHandler());
        server = new Embedded(isClient ? serverHandler() : ofJdk);
        client.channel.writeAndFlush(hello());
        server.channel.writeAndFlush(hello());
        Embedded.settle(client, server, WHOLE);
        Embedded ours = isClient ? server : client;
        if (protocol.equals("TLSv1.3")) {
            ours.handler.engine().beginHandshake();
        }
        for (Embedded side : List.of(ours, ours == client ? server : client)) {
            side.write(HELLO);
            Embedded.settle(client, server, WHOLE);
        }
        assertTrue(client.failures.isEmpty() && server.failures.isEmpty(), client.failures + " " + server.failures);
        assertEquals("hellohello", client.text());
        assertEquals("hellohello", server.text());
        client.channel.close();
        Embedded.settle(client, server, WHOLE);
        assertFalse(client.channel.isOpen() || server.channel.isOpen());
        assertTrue(server.failures.isEmpty(), server.failures.toString());
    }

    /** The peer reads nothing, so the end of the channel is up to the timer. */
    @Test
    void aCloseThatWasCancelled() throws Exception {
        connect();
        List<ChannelPromise> sending = new ArrayList<>();
        client.channel.pipeline().addFirst(new ChannelOutboundHandlerAdapter() {
            @Override
            public void write(ChannelHandlerContext context, Object message, ChannelPromise promise) {
                ReferenceCountUtil.release(message);
                sending.add(promise);
            }
        });
        ChannelFuture closing = client.channel.pipeline().close();
        assertFalse(sending.isEmpty() || closing.isDone());
        assertTrue(closing.cancel(false));
        client.channel.advanceTimeBy(4, TimeUnit.SECONDS);
        client.channel.runScheduledPendingTasks();
        assertFalse(client.channel.isOpen());
    }
}
