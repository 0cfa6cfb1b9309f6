package dormouse.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dormouse.TestKeys;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.socket.ChannelInputShutdownEvent;
import io.netty.handler.codec.DecoderException;
import io.netty.handler.codec.UnsupportedMessageTypeException;
import io.netty.handler.ssl.SslCloseCompletionEvent;
import io.netty.handler.ssl.SslHandshakeCompletionEvent;
import io.netty.handler.ssl.SslHandshakeTimeoutException;
import io.netty.util.ResourceLeakDetector;

import java.nio.channels.ClosedChannelException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;

import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLHandshakeException;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The handler without sockets: every order of events, and every buffer. */
class DormouseHandlerTest {
    private static final byte[] HELLO = "hello".getBytes(StandardCharsets.UTF_8);
    private static final int WHOLE = 1 << 20;

    private static SSLContext serverContext;
    private static SSLContext clientContext;

    private Embedded client;
    private Embedded server;

    @BeforeAll
    static void contexts() throws Exception {
        ResourceLeakDetector.setLevel(ResourceLeakDetector.Level.PARANOID);
        serverContext = TestKeys.context(true, TestKeys.EC);
        clientContext = TestKeys.context(true);
    }

    private static DormouseHandler serverHandler() {
        return DormouseHandler.server(serverContext);
    }

    private static DormouseHandler clientHandler() {
        return DormouseHandler.client(clientContext, "localhost", 1);
    }

    /** A pair whose handshake is done. */
    private void connect(DormouseHandler serverHandler, DormouseHandler clientHandler) {
        server = new Embedded(serverHandler);
        client = new Embedded(clientHandler);
        Embedded.settle(client, server, WHOLE);
        assertTrue(client.events.contains(SslHandshakeCompletionEvent.SUCCESS), client.failures.toString());
        assertTrue(server.events.contains(SslHandshakeCompletionEvent.SUCCESS), server.failures.toString());
    }

    private void connect() {
        connect(serverHandler(), clientHandler());
    }

    @AfterEach
    void everythingIsReleased() {
        for (Embedded side : Arrays.asList(client, server)) {
            if (side != null) {
                side.channel.close();
                side.channel.runPendingTasks();
                side.sent();
                assertEquals(0, side.unreleased(), "bytes of buffers are left");
                assertTrue(side.handler.engine().isInboundDone() && side.handler.engine().isOutboundDone());
            }
        }
    }

    @ParameterizedTest
    @CsvSource({"TLSv1.2, 3, false", "TLSv1.2, 1000, true", "TLSv1.2, 1000000, false", "TLSv1.3, 7, false",
        "TLSv1.3, 1000, true", "TLSv1.3, 20000, false", "TLSv1.3, 1000000, false", "TLSv1.3, 1000000, true"})
    void recordsInPieces(String protocol, int piece, boolean receivesHeapBuffers) {
        server = new Embedded(serverHandler());
        client = new Embedded(clientHandler());
        server.receivesHeapBuffers = receivesHeapBuffers;
        assertFalse(client.handler.handshakeFuture().isDone());
        server.handler.engine().setEnabledProtocols(new String[] {protocol});
        Embedded.settle(client, server, piece);
        assertTrue(client.handler.handshakeFuture().isSuccess());
        assertEquals(protocol, client.handler.engine().getSession().getProtocol());
        byte[] large = new byte[40_000];
        Arrays.fill(large, (byte) 'x');
        client.write(large);
        server.write(HELLO);
        Embedded.settle(client, server, piece);
        assertArrayEquals(large, server.received.toByteArray());
        assertEquals("hello", client.text());
        assertTrue(server.handler.isAtRest());
        assertEquals(0, server.unreleased(), "at rest it has no buffer");
    }

    /** A handler before this one may have kept the buffer. */
    @Test
    void buffersThatOthersUseStayAsTheyAre() {
        connect();
        client.write(HELLO);
        byte[] record = client.sent();
        ByteBuf arrived = server.allocator.directBuffer().writeBytes(record);
        ByteBuf kept = arrived.retainedDuplicate();
        server.channel.writeInbound(arrived);
        assertEquals("hello", server.text());
        assertArrayEquals(record, ByteBufUtil.getBytes(kept));
        kept.release();
    }

    /** Two buffers of plaintext come from one message; both were opened before the first one is delivered. */
    @Test
    void anExportWhileDataIsDelivered() throws Exception {
        byte[][] exported = {null};
        server = new Embedded(serverHandler(), new ChannelInboundHandlerAdapter() {
            @Override
            public void channelRead(ChannelHandlerContext context, Object message) throws Exception {
                if (exported[0] == null) {
                    exported[0] = server.handler.export();
                }
                context.fireChannelRead(message);
            }
        });
        client = new Embedded(clientHandler());
        Embedded.settle(client, server, WHOLE);
        client.write(HELLO);
        byte[] first = client.sent();
        client.write(HELLO);
        byte[] second = client.sent();
        server.arrive(Arrays.copyOf(first, 9));
        byte[] rest = Arrays.copyOfRange(first, 9, first.length + second.length + 4);
        System.arraycopy(second, 0, rest, first.length - 9, second.length);
        client.write(HELLO);
        byte[] third = client.sent();
        System.arraycopy(third, 0, rest, rest.length - 4, 4);
        server.arrive(rest);
        assertEquals("hellohello", server.text());
        server.channel.close();
        assertEquals(0, server.unreleased());
        server = new Embedded(DormouseHandler.restore(serverContext, exported[0]));
        server.arrive(Arrays.copyOfRange(third, 4, third.length));
        assertEquals("hello", server.text());
    }

    /** The server's data follows the end of the handshake in the same message. */
    @Test
    void anExportWhileTheHandshakeEnds() throws Exception {
        List<Throwable> refused = new ArrayList<>();
        byte[][] exported = {null};
        server = new Embedded(serverHandler());
        server.handler.engine().setEnabledProtocols(new String[] {"TLSv1.2"});
        client = new Embedded(clientHandler(), new ChannelInboundHandlerAdapter() {
            @Override
            public void userEventTriggered(ChannelHandlerContext context, Object event) {
                refused.add(assertThrows(IllegalStateException.class, () -> client.handler.export()));
                context.executor().execute(() -> exported[0] = assertDoesNotThrow(() -> client.handler.export()));
            }
        });
        server.channel.writeAndFlush(Unpooled.copiedBuffer(HELLO));
        server.arrive(client.sent());
        client.arrive(server.sent());
        server.arrive(client.sent());
        byte[] end = server.sent();
        server.write(HELLO);
        byte[] record = server.sent();
        byte[] message = Arrays.copyOf(end, end.length + 4);
        System.arraycopy(record, 0, message, end.length, 4);
        client.arrive(message);
        assertEquals(1, refused.size(), client.failures.toString());
        assertTrue(refused.get(0).getMessage().contains("executor().execute"), refused.toString());
        assertEquals("hello", client.text());
        client.channel.close();
        assertEquals(0, client.unreleased());
        client = new Embedded(DormouseHandler.restore(clientContext, exported[0]));
        client.arrive(Arrays.copyOfRange(record, 4, record.length));
        assertEquals("hello", client.text());
    }

    /** A message that arrives while another one is delivered waits, and an export would lose it. */
    @Test
    void anExportWhileAMessageWaits() throws Exception {
        List<Throwable> refused = new ArrayList<>();
        byte[][] records = {null, null};
        server = new Embedded(serverHandler(), new ChannelInboundHandlerAdapter() {
            @Override
            public void channelRead(ChannelHandlerContext context, Object message) {
                if (refused.isEmpty()) {
                    server.arrive(records[1]);
                    refused.add(assertThrows(IllegalStateException.class, () -> server.handler.export()));
                }
                context.fireChannelRead(message);
            }
        });
        client = new Embedded(clientHandler());
        Embedded.settle(client, server, WHOLE);
        for (int i = 0; i < 2; i++) {
            client.write(HELLO);
            records[i] = client.sent();
        }
        server.arrive(records[0]);
        assertEquals(1, refused.size(), server.failures.toString());
        assertEquals("hellohello", server.text());
    }

    @Test
    void theBeginningOfARecordTakesLittleMemory() {
        connect();
        client.write(new byte[16_000]);
        byte[] record = client.sent();
        server.arrive(Arrays.copyOf(record, 10));
        assertTrue(server.unreleased() <= 64, server.unreleased() + " bytes");
        server.arrive(Arrays.copyOfRange(record, 10, record.length));
        assertEquals(16_000, server.received.size());
    }

    @Test
    void applicationProtocols() {
        connect(DormouseHandler.server(serverContext, "h2", "http/1.1"),
                DormouseHandler.client(clientContext, "localhost", 1, "http/1.1"));
        assertEquals("http/1.1", server.handler.applicationProtocol());
        assertEquals("http/1.1", client.handler.applicationProtocol());
        everythingIsReleased();
        connect();
        assertNull(server.handler.applicationProtocol());
    }

    @Test
    void smallWritesShareARecord() {
        connect();
        for (int i = 0; i < 10; i++) {
            client.channel.writeOneOutbound(Unpooled.copiedBuffer(HELLO));
        }
        client.channel.flushOutbound();
        int length = client.sent().length;
        assertTrue(length < 100, length + " bytes for ten writes of 5 bytes");
    }

    @Test
    void writesBeforeTheHandshakeWait() {
        server = new Embedded(serverHandler());
        client = new Embedded(clientHandler());
        ChannelFuture first = client.channel.write(Unpooled.copiedBuffer(HELLO));
        ChannelFuture empty = client.channel.writeAndFlush(Unpooled.EMPTY_BUFFER);
        assertFalse(first.isDone());
        Embedded.settle(client, server, WHOLE);
        assertEquals("hello", server.text());
        assertTrue(first.isSuccess() && empty.isSuccess());
    }

    @Test
    void wrongMessagesAndWritesAfterTheEnd() {
        connect();
        ByteBuf released = client.allocator.buffer();
        assertInstanceOf(UnsupportedMessageTypeException.class, client.channel.writeAndFlush("text").cause());
        client.channel.close();
        assertInstanceOf(ClosedChannelException.class, client.channel.writeAndFlush(released).cause());
        assertEquals(0, released.refCnt());
    }

    @Test
    void aPeersCloseClosesTheChannelAfterWhatWasWritten() {
        server = new Embedded(serverHandler(), new ChannelInboundHandlerAdapter() {
            @Override
            public void channelRead(ChannelHandlerContext context, Object message) {
                // Flushed by nobody.
                context.write(((ByteBuf) message).retainedDuplicate());
                context.fireChannelRead(message);
            }
        });
        client = new Embedded(clientHandler());
        Embedded.settle(client, server, WHOLE);
        client.write(HELLO);
        client.handler.closeOutbound();
        Embedded.settle(client, server, WHOLE);
        assertEquals("hello", client.text());
        assertFalse(server.channel.isOpen() || client.channel.isOpen());
        assertTrue(server.events.contains(SslCloseCompletionEvent.SUCCESS));
        assertTrue(client.events.contains(SslCloseCompletionEvent.SUCCESS));
        assertTrue(server.failures.isEmpty() && client.failures.isEmpty());
    }

    /** Answers at once, and notes what becomes of the answers. */
    private static ChannelInboundHandlerAdapter answering(List<ChannelFuture> answers) {
        return new ChannelInboundHandlerAdapter() {
            @Override
            public void channelRead(ChannelHandlerContext context, Object message) {
                answers.add(context.writeAndFlush(((ByteBuf) message).retainedDuplicate()));
                context.fireChannelRead(message);
            }
        };
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aPeersCloseInTls12EndsBothDirections(boolean allowsHalfClosure) {
        List<ChannelFuture> answers = new ArrayList<>();
        server = new Embedded(serverHandler(), answering(answers));
        client = new Embedded(clientHandler());
        server.handler.engine().setEnabledProtocols(new String[] {"TLSv1.2"});
        server.allowsHalfClosure = allowsHalfClosure;
        Embedded.settle(client, server, WHOLE);
        client.write(HELLO);
        client.handler.closeOutbound();
        Embedded.settle(client, server, WHOLE);
        assertEquals("hello", server.text());
        assertInstanceOf(SSLException.class, answers.get(0).cause());
        assertTrue(server.failures.isEmpty() && client.failures.isEmpty(), server.failures + " " + client.failures);
        assertTrue(server.events.contains(SslCloseCompletionEvent.SUCCESS));
        assertTrue(client.events.contains(SslCloseCompletionEvent.SUCCESS), "it got a close_notify, too");
        assertFalse(server.events.contains(ChannelInputShutdownEvent.INSTANCE));
        assertFalse(server.channel.isOpen() || client.channel.isOpen());
    }

    /** An answer that can't be sent any more fails, and does not hide why. */
    @ParameterizedTest
    @CsvSource({"true, Received fatal alert", "false, record refused"})
    void aPeerThatFailsAfterItsQuestion(boolean sendsAlert, String why) {
        List<ChannelFuture> answers = new ArrayList<>();
        server = new Embedded(serverHandler(), answering(answers));
        client = new Embedded(clientHandler());
        Embedded.settle(client, server, WHOLE);
        client.write(HELLO);
        byte[] question = client.sent();
        byte[] last = Arrays.copyOf(new byte[] {23, 3, 3, 0, 32}, 5 + 32);
        if (sendsAlert) {
            client.arrive(last);
            last = client.sent();
        }
        byte[] both = Arrays.copyOf(question, question.length + last.length);
        System.arraycopy(last, 0, both, question.length, last.length);
        server.arrive(both);
        assertEquals("hello", server.text());
        assertInstanceOf(SSLException.class, answers.get(0).cause());
        assertEquals(1, server.failures.size(), server.failures.toString());
        assertTrue(server.failures.get(0).getCause().getMessage().contains(why), server.failures.toString());
        assertEquals(sendsAlert, server.sent().length == 0, "a bad record is answered with an alert");
    }

    @Test
    void halfClose() {
        connect();
        server.allowsHalfClosure = true;
        ChannelFuture closed = client.handler.closeOutbound();
        assertTrue(closed.isSuccess());
        assertInstanceOf(SSLException.class, client.channel.writeAndFlush(Unpooled.copiedBuffer(HELLO)).cause());
        assertInstanceOf(SSLException.class, client.handler.closeOutbound().cause());
        Embedded.settle(client, server, WHOLE);
        assertTrue(server.events.contains(ChannelInputShutdownEvent.INSTANCE));
        assertTrue(server.channel.isOpen());
        // The end of the transport's direction is nothing new.
        server.channel.pipeline().fireUserEventTriggered(ChannelInputShutdownEvent.INSTANCE);
        assertEquals(1, server.events.stream().filter(one -> one == ChannelInputShutdownEvent.INSTANCE).count());
        server.write(HELLO);
        Embedded.settle(client, server, WHOLE);
        assertEquals("hello", client.text());
        server.channel.close();
        Embedded.settle(client, server, WHOLE);
        assertFalse(server.channel.isOpen() || client.channel.isOpen());
        assertTrue(server.failures.isEmpty() && client.failures.isEmpty());
    }

    @Test
    void anEndWithoutCloseNotifyIsAFailure() {
        connect();
        server.channel.pipeline().fireUserEventTriggered(ChannelInputShutdownEvent.INSTANCE);
        assertFalse(server.channel.isOpen());
        assertInstanceOf(SSLException.class, server.failures.get(0).getCause());

        client.channel.disconnect();
        everythingIsReleased();
        connect();
        server.channel.unsafe().close(server.channel.voidPromise());
        Object last = server.events.get(server.events.size() - 1);
        assertInstanceOf(SSLException.class, ((SslCloseCompletionEvent) last).cause());
    }

    @Test
    void bytesThatAreNotTls() {
        server = new Embedded(serverHandler());
        server.arrive("GET / HTTP/1.1\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
        assertInstanceOf(DecoderException.class, server.failures.get(0));
        assertInstanceOf(SSLException.class, server.failures.get(0).getCause());
        SslHandshakeCompletionEvent event = (SslHandshakeCompletionEvent) server.events.get(0);
        assertFalse(event.isSuccess());
        assertFalse(server.handler.handshakeFuture().isSuccess());
        assertFalse(server.channel.isOpen());
        assertEquals(21, server.sent()[0], "an alert");
    }

    @Test
    void aChangedRecord() {
        connect();
        client.write(HELLO);
        client.write(HELLO);
        byte[] records = client.sent();
        records[records.length - 1] ^= 1;
        server.arrive(records);
        assertEquals("hello", server.text(), "what was right before it");
        assertInstanceOf(SSLException.class, server.failures.get(0).getCause());
        assertFalse(server.channel.isOpen());
        Embedded.settle(client, server, WHOLE);
        assertTrue(client.failures.get(0).getCause().getMessage().contains("bad_record_mac"), client.failures.toString());
    }

    @Test
    void aServerThatIsNotTrusted() throws Exception {
        server = new Embedded(serverHandler());
        client = new Embedded(DormouseHandler.client(clientContext, "other.test", 1));
        ChannelFuture write = client.channel.writeAndFlush(Unpooled.copiedBuffer(HELLO));
        Embedded.settle(client, server, WHOLE);
        assertInstanceOf(SSLHandshakeException.class, client.handler.handshakeFuture().cause());
        assertInstanceOf(SSLHandshakeException.class, write.cause());
        assertFalse(client.channel.isOpen() || server.channel.isOpen());
        assertFalse(server.failures.isEmpty(), "the server got an alert");
    }

    @Test
    void aHandshakeHasALimit() {
        server = new Embedded(serverHandler());
        server.channel.advanceTimeBy(9, TimeUnit.SECONDS);
        server.channel.runScheduledPendingTasks();
        assertTrue(server.channel.isOpen());
        server.channel.advanceTimeBy(2, TimeUnit.SECONDS);
        server.channel.runScheduledPendingTasks();
        assertFalse(server.channel.isOpen());
        assertInstanceOf(SslHandshakeTimeoutException.class, server.handler.handshakeFuture().cause());
    }

    @Test
    void aPeerThatLeavesDuringTheHandshake() {
        client = new Embedded(clientHandler());
        ChannelFuture write = client.channel.writeAndFlush(Unpooled.copiedBuffer(HELLO));
        client.channel.unsafe().close(client.channel.voidPromise());
        assertInstanceOf(SSLHandshakeException.class, client.handler.handshakeFuture().cause());
        assertInstanceOf(SSLHandshakeException.class, write.cause());
    }

    @ParameterizedTest
    @ValueSource(strings = {"close", "remove", "removeAtHandshake", "closeAtHandshake"})
    void endsFromWithinACallback(String what) {
        server = new Embedded(serverHandler(), new ChannelInboundHandlerAdapter() {
            @Override
            public void channelRead(ChannelHandlerContext context, Object message) {
                ((ByteBuf) message).release();
                if (what.equals("close")) {
                    context.close();
                } else if (what.equals("remove")) {
                    context.pipeline().remove(DormouseHandler.class);
                }
            }

            @Override
            public void userEventTriggered(ChannelHandlerContext context, Object event) {
                if (what.equals("removeAtHandshake") && event == SslHandshakeCompletionEvent.SUCCESS) {
                    context.pipeline().remove(DormouseHandler.class);
                } else if (what.equals("closeAtHandshake") && event == SslHandshakeCompletionEvent.SUCCESS) {
                    context.close();
                }
                context.fireUserEventTriggered(event);
            }
        });
        client = new Embedded(clientHandler());
        client.channel.writeAndFlush(Unpooled.copiedBuffer(HELLO));
        client.channel.writeAndFlush(Unpooled.copiedBuffer(HELLO));
        Embedded.settle(client, server, WHOLE);
        assertTrue(server.failures.isEmpty(), server.failures.toString());
        assertEquals(what.startsWith("close"), !server.channel.isOpen());
    }

    /** Listeners and handlers that write, flush and receive within a write, a flush and a receive. */
    @Test
    void callsWithinCalls() {
        server = new Embedded(serverHandler(), new ChannelInboundHandlerAdapter() {
            private int left = 3;

            @Override
            public void channelRead(ChannelHandlerContext context, Object message) {
                if (left-- > 0) {
                    client.write(("" + left).getBytes(StandardCharsets.UTF_8));
                    server.arrive(client.sent());
                }
                context.fireChannelRead(message);
            }
        });
        client = new Embedded(clientHandler());
        Embedded.settle(client, server, WHOLE);
        ChannelFutureListener more = done -> {
            client.channel.write(Unpooled.copiedBuffer("b", StandardCharsets.UTF_8));
            client.channel.writeAndFlush(Unpooled.copiedBuffer("c", StandardCharsets.UTF_8));
        };
        client.channel.write(Unpooled.wrappedBuffer(new byte[70_000])).addListener(more);
        client.channel.writeAndFlush(Unpooled.copiedBuffer("a", StandardCharsets.UTF_8));
        Embedded.settle(client, server, WHOLE);
        String text = server.text().replace("\0", "");
        assertTrue(text.startsWith("a") && text.contains("bc"), text);
        assertEquals(70_000 + 3 + 3, server.text().length());
    }

    @Test
    void withoutAutomaticReads() {
        connect();
        int[] reads = {0};
        server.channel.config().setAutoRead(false);
        server.channel.pipeline().addFirst(new io.netty.channel.ChannelDuplexHandler() {
            @Override
            public void read(ChannelHandlerContext context) {
                reads[0]++;
            }
        });
        client.write(HELLO);
        byte[] record = client.sent();
        server.arrive(Arrays.copyOf(record, 3));
        assertEquals(0, reads[0], "the program has not asked");
        server.channel.read();
        assertEquals(1, reads[0]);
        server.arrive(Arrays.copyOfRange(record, 3, 6));
        assertEquals(2, reads[0], "the record is incomplete, so it reads on");
        server.arrive(Arrays.copyOfRange(record, 6, record.length));
        assertEquals("hello", server.text());
        assertEquals(2, reads[0], "the program has its data");
    }

    /** An event loop may come to the data, or to the end, before its tasks. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aRestoredConnectionIsAnnouncedFirst(boolean isCutOff) throws Exception {
        connect();
        client.write(HELLO);
        byte[] record = client.sent();
        byte[] exported = server.handler.export();
        server.channel.close();
        List<Object> seen = new ArrayList<>();
        server = new Embedded(DormouseHandler.restore(serverContext, exported), new ChannelInboundHandlerAdapter() {
            @Override
            public void channelRegistered(ChannelHandlerContext context) {
                if (isCutOff) {
                    context.pipeline().fireUserEventTriggered(ChannelInputShutdownEvent.INSTANCE);
                } else {
                    context.pipeline().fireChannelRead(context.alloc().directBuffer().writeBytes(record));
                }
            }

            @Override
            public void channelRead(ChannelHandlerContext context, Object message) {
                seen.add(((ByteBuf) message).toString(StandardCharsets.UTF_8));
                context.fireChannelRead(message);
            }

            @Override
            public void userEventTriggered(ChannelHandlerContext context, Object event) {
                seen.add(event instanceof SslCloseCompletionEvent ? "end" : event);
            }
        });
        assertEquals(List.of(SslHandshakeCompletionEvent.SUCCESS, isCutOff ? "end" : "hello"), seen);
    }

    @ParameterizedTest
    @ValueSource(ints = {0, 3, 200})
    void continuesElsewhere(int partial) throws Exception {
        connect();
        client.write(new byte[300]);
        byte[] record = client.sent();
        server.arrive(Arrays.copyOf(record, partial));
        server.channel.write(Unpooled.copiedBuffer(HELLO));
        assertThrows(IllegalStateException.class, () -> server.handler.export());
        server.channel.flush();
        Embedded.settle(server, client, WHOLE);
        byte[] exported = server.handler.export();
        assertTrue(exported.length < 300 + partial, exported.length + " bytes");
        assertThrows(IllegalStateException.class, () -> server.handler.export());
        server.channel.close();
        assertEquals(0, server.sent().length, "the peer hears nothing");
        assertEquals(0, server.unreleased());

        server = new Embedded(DormouseHandler.restore(serverContext, exported));
        assertTrue(server.events.contains(SslHandshakeCompletionEvent.SUCCESS));
        assertTrue(server.handler.handshakeFuture().isSuccess());
        server.arrive(Arrays.copyOfRange(record, partial, record.length));
        assertEquals(300, server.received.size());
        server.write(HELLO);
        Embedded.settle(client, server, WHOLE);
        assertEquals("hellohello", client.text());
        for (int length : new int[] {0, 3, 4, 20, exported.length - partial - 1}) {
            byte[] cut = Arrays.copyOf(exported, length);
            assertThrows(SSLException.class, () -> DormouseHandler.restore(serverContext, cut));
        }
    }
}
