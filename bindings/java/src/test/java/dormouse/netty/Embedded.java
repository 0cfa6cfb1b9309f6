package dormouse.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.UnpooledByteBufAllocator;
import io.netty.channel.Channel;
import io.netty.channel.ChannelConfig;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOption;
import io.netty.channel.DefaultChannelConfig;
import io.netty.channel.embedded.EmbeddedChannel;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** A channel without a socket: a handler, and what it tells the pipeline. */
final class Embedded {
    /** Counts what is allocated and not released. Without the leak detector, whose wrappers look like shared buffers. */
    final UnpooledByteBufAllocator allocator = new UnpooledByteBufAllocator(true, true);
    final DormouseHandler handler;
    final EmbeddedChannel channel;
    final ByteArrayOutputStream received = new ByteArrayOutputStream();
    final List<Object> events = new ArrayList<>();
    final List<Throwable> failures = new ArrayList<>();
    boolean allowsHalfClosure;
    /** Whether received buffers are on the heap, as with transports that are not sockets. */
    boolean receivesHeapBuffers;

    /** {@code next}: handlers behind it, before the one that notes everything. */
    Embedded(DormouseHandler handler, ChannelHandler... next) {
        this.handler = handler;
        channel = new HalfClosable();
        channel.config().setAllocator(allocator);
        channel.pipeline().addLast(handler);
        channel.pipeline().addLast(next);
        channel.pipeline().addLast(new Notes());
        try {
            channel.register();
            channel.runPendingTasks();
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
    }

    /** Embedded channels do not know this option. */
    private final class HalfClosable extends EmbeddedChannel {
        private final ChannelConfig config = new DefaultChannelConfig(this) {
            @Override
            @SuppressWarnings("unchecked")
            public <T> T getOption(ChannelOption<T> option) {
                return option == ChannelOption.ALLOW_HALF_CLOSURE
                        ? (T) Boolean.valueOf(allowsHalfClosure)
                        : super.getOption(option);
            }
        };

        HalfClosable() {
            super(false, false);
        }

        @Override
        public ChannelConfig config() {
            return config == null ? super.config() : config;
        }
    }

    private final class Notes extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            ByteBuf bytes = (ByteBuf) message;
            received.writeBytes(ByteBufUtil.getBytes(bytes));
            bytes.release();
        }

        @Override
        public void userEventTriggered(ChannelHandlerContext context, Object event) {
            events.add(event);
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
            failures.add(cause);
        }
    }

    Channel write(byte[] data) {
        channel.writeOneOutbound(allocator.buffer().writeBytes(data));
        channel.flushOutbound();
        return channel;
    }

    /** What it has sent since the last call. */
    byte[] sent() {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        for (ByteBuf one = channel.readOutbound(); one != null; one = channel.readOutbound()) {
            all.writeBytes(ByteBufUtil.getBytes(one));
            one.release();
        }
        return all.toByteArray();
    }

    void arrive(byte[] bytes) {
        channel.writeInbound((receivesHeapBuffers ? allocator.heapBuffer() : allocator.buffer()).writeBytes(bytes));
    }

    /** Passes bytes both ways until both are quiet, at most {@code piece} at a time. */
    static void settle(Embedded one, Embedded other, int piece) {
        boolean moved = true;
        while (moved) {
            moved = pass(one, other, piece) | pass(other, one, piece);
        }
    }

    private static boolean pass(Embedded from, Embedded to, int piece) {
        byte[] bytes = from.sent();
        for (int at = 0; at < bytes.length; at += piece) {
            byte[] part = new byte[Math.min(piece, bytes.length - at)];
            System.arraycopy(bytes, at, part, 0, part.length);
            if (to.channel.isOpen()) {
                to.arrive(part);
            }
        }
        return bytes.length > 0;
    }

    String text() {
        return received.toString(StandardCharsets.UTF_8);
    }

    /** Bytes of buffers that nobody has released. */
    long unreleased() {
        return allocator.metric().usedDirectMemory() + allocator.metric().usedHeapMemory();
    }
}
