package dormouse;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.function.IntFunction;

import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLEngineResult.Status;
import javax.net.ssl.SSLException;

/** A client and a server in one thread, driven by their statuses as programs drive engines. */
final class Pair {
    final Side client;
    final Side server;

    /** An engine, and the bytes in transit to it. */
    static final class Side {
        final SSLEngine engine;
        private final IntFunction<ByteBuffer> allocate;
        /** Ciphertext that has arrived, ready to be read. */
        ByteBuffer arrived;
        final ByteArrayOutputStream received = new ByteArrayOutputStream();
        int finished;
        boolean sawEnd;

        Side(SSLEngine engine, IntFunction<ByteBuffer> allocate) {
            this.engine = engine;
            this.allocate = allocate;
            arrived = allocate.apply(256 * 1024);
            arrived.flip();
        }

        void deliver(ByteBuffer records) {
            arrived.compact();
            arrived.put(records);
            arrived.flip();
        }

        /** Wraps until there is nothing to wrap. Returns whether anything was sent. */
        boolean wrap(ByteBuffer data, Side peer) throws SSLException {
            boolean sent = false;
            while (true) {
                ByteBuffer target = allocate.apply(engine.getSession().getPacketBufferSize());
                SSLEngineResult result = engine.wrap(data, target);
                note(result);
                target.flip();
                if (result.bytesProduced() != target.remaining()) {
                    throw new AssertionError(result + " but " + target);
                }
                sent |= target.hasRemaining();
                peer.deliver(target);
                runTasks();
                boolean more = data.hasRemaining() || engine.getHandshakeStatus() == HandshakeStatus.NEED_WRAP;
                if (result.getStatus() != Status.OK || result.bytesProduced() == 0 && !more || !more
                        || result.bytesProduced() == 0 && result.getHandshakeStatus() != HandshakeStatus.FINISHED) {
                    return sent;
                }
            }
        }

        /** Unwraps what has arrived. Returns whether anything was consumed. */
        boolean unwrap() throws SSLException {
            boolean consumed = false;
            while (arrived.hasRemaining()) {
                ByteBuffer target = allocate.apply(engine.getSession().getApplicationBufferSize());
                SSLEngineResult result = engine.unwrap(arrived, target);
                note(result);
                runTasks();
                target.flip();
                byte[] bytes = new byte[target.remaining()];
                target.get(bytes);
                received.writeBytes(bytes);
                consumed |= result.bytesConsumed() > 0;
                if (result.getStatus() == Status.CLOSED) {
                    sawEnd = true;
                }
                if (result.getStatus() != Status.OK
                        || result.bytesConsumed() == 0 && result.getHandshakeStatus() != HandshakeStatus.NEED_TASK) {
                    return consumed;
                }
            }
            return consumed;
        }

        void runTasks() {
            Runnable task;
            while ((task = engine.getDelegatedTask()) != null) {
                task.run();
            }
        }

        private void note(SSLEngineResult result) {
            if (result.getHandshakeStatus() == HandshakeStatus.FINISHED) {
                finished++;
            }
        }
    }

    Pair(SSLEngine client, SSLEngine server, IntFunction<ByteBuffer> allocate) {
        client.setUseClientMode(true);
        server.setUseClientMode(false);
        this.client = new Side(client, allocate);
        this.server = new Side(server, allocate);
    }

    Pair(SSLEngine client, SSLEngine server) {
        this(client, server, ByteBuffer::allocate);
    }

    /** Passes records both ways until both are quiet. */
    void settle() throws SSLException {
        ByteBuffer nothing = ByteBuffer.allocate(0);
        for (int round = 0; round < 50; round++) {
            boolean moved = client.wrap(nothing, server);
            moved |= server.unwrap();
            moved |= server.wrap(nothing, client);
            moved |= client.unwrap();
            if (!moved) {
                return;
            }
        }
        throw new AssertionError("no end after 50 rounds: " + client.engine + ", " + server.engine);
    }

    void handshake() throws SSLException {
        client.engine.beginHandshake();
        server.engine.beginHandshake();
        settle();
    }

    static void send(Side from, Side to, byte[] data) throws SSLException {
        from.wrap(ByteBuffer.wrap(data), to);
        to.unwrap();
    }
}
