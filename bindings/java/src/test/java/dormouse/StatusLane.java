package dormouse;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;

import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLEngineResult.Status;
import javax.net.ssl.SSLException;

/** An engine under test with a peer of the JDK, the records between them, and the events that can happen to it. */
final class StatusLane {
    private static final int ROOM = 40_000;
    private static final int CALLS_MAX = 200;
    /** More than any handshake has. */
    private static final int TURNS = 10;

    private final SSLEngine subject;
    private final SSLEngine peer;
    private final Deque<byte[]> toSubject = new ArrayDeque<>();
    private final Deque<byte[]> toPeer = new ArrayDeque<>();
    private Runnable taken;

    StatusLane(SSLEngine subject, SSLEngine peer) {
        this.subject = subject;
        this.peer = peer;
    }

    /** What happens to the engine, or at its peer. */
    enum Event {
        WRAP,
        WRAP_DATA,
        WRAP_INTO_LITTLE_ROOM,
        UNWRAP,
        UNWRAP_NOTHING,
        UNWRAP_PART_OF_A_RECORD,
        UNWRAP_SEVERAL_RECORDS,
        UNWRAP_INTO_NO_ROOM,
        UNWRAP_FORGED,
        UNWRAP_PLAIN_HTTP,
        RUN_TASK,
        TAKE_TASK,
        /** Established: new keys in TLS 1.3, a renegotiation in TLS 1.2. */
        BEGIN_HANDSHAKE,
        CLOSE_OUTBOUND,
        /** What programs call at the transport's end. */
        CLOSE_INBOUND,
        /** The peer reads everything that has been wrapped, and answers. */
        PEER_TURN,
        PEER_SENDS_DATA,
        PEER_CLOSES,
        /** With an alert. */
        PEER_FAILS,
        PEER_BEGINS_HANDSHAKE
    }

    /** Where an engine is before the events. */
    enum State {
        NEW,
        READY,
        BEGUN,
        /** Client: its hello is on its way. */
        HELLO_SENT,
        /** The peer's first flight has arrived, and is not unwrapped. */
        FLIGHT_ARRIVED,
        TASK_WAITS,
        TASK_TAKEN,
        /** The peer's first flight is unwrapped, and the answer is not wrapped. */
        ANSWER_WAITS,
        /** Server: its answer is on its way. */
        ANSWER_SENT,
        /** Client of TLS 1.3: the server's tickets have arrived, and are not unwrapped. */
        TICKET_ARRIVED,
        ESTABLISHED;

        /** Whether an engine of this side and version can be in this state. */
        boolean exists(boolean isClient, String version) {
            return switch (this) {
                case HELLO_SENT -> isClient;
                case ANSWER_SENT -> !isClient;
                case TICKET_ARRIVED -> isClient && version.equals("TLSv1.3");
                default -> true;
            };
        }
    }

    /** The engine's answer to an event, without what may differ: lengths and words. */
    record Answer(String result, HandshakeStatus status, boolean isInboundDone, boolean isOutboundDone) {
        boolean isOpen() {
            return !isInboundDone && !isOutboundDone;
        }

        boolean isHandshaking() {
            return isOpen() && status != HandshakeStatus.NOT_HANDSHAKING;
        }

        @Override
        public String toString() {
            return result + (result.isEmpty() ? "" : ", ") + "then " + status + (isInboundDone ? ", inbound done" : "")
                    + (isOutboundDone ? ", outbound done" : "");
        }
    }

    Answer answer(String result) {
        return new Answer(
                result, subject.getHandshakeStatus(), subject.isInboundDone(), subject.isOutboundDone());
    }

    /** Makes the event happen. Returns what the engine's call returned or threw. */
    String happen(Event event) {
        try {
            return switch (event) {
                case WRAP -> wrap("", ROOM);
                case WRAP_DATA -> wrap("hello", ROOM);
                case WRAP_INTO_LITTLE_ROOM -> wrap("hello", 6);
                case UNWRAP -> unwrap(toSubject.peek(), ROOM);
                case UNWRAP_NOTHING -> unwrap(null, ROOM);
                case UNWRAP_PART_OF_A_RECORD -> {
                    byte[] record = toSubject.peek();
                    yield unwrap(record == null ? null : Arrays.copyOf(record, record.length / 2), ROOM);
                }
                case UNWRAP_SEVERAL_RECORDS -> unwrap(all(), ROOM);
                case UNWRAP_INTO_NO_ROOM -> unwrap(toSubject.peek(), 0);
                case UNWRAP_FORGED -> {
                    byte[] record = toSubject.peek();
                    if (record != null) {
                        record[record.length - 1] ^= 1;
                    }
                    yield unwrap(record, ROOM);
                }
                case UNWRAP_PLAIN_HTTP ->
                    unwrap("GET / HTTP/1.1\r\n\r\n".getBytes(StandardCharsets.US_ASCII), ROOM);
                case RUN_TASK -> {
                    Runnable task = taken != null ? taken : subject.getDelegatedTask();
                    taken = null;
                    if (task != null) {
                        task.run();
                    }
                    yield task == null ? "no task" : "task";
                }
                case TAKE_TASK -> {
                    Runnable task = subject.getDelegatedTask();
                    taken = task == null ? taken : task;
                    yield task == null ? "no task" : "task";
                }
                case BEGIN_HANDSHAKE -> {
                    subject.beginHandshake();
                    yield "";
                }
                case CLOSE_OUTBOUND -> {
                    subject.closeOutbound();
                    yield "";
                }
                case CLOSE_INBOUND -> {
                    subject.closeInbound();
                    yield "";
                }
                default -> {
                    happenAtPeer(event);
                    yield "";
                }
            };
        } catch (SSLException | RuntimeException thrown) {
            return thrown.getClass().getSimpleName();
        }
    }

    private String wrap(String data, int room) throws SSLException {
        ByteBuffer target = ByteBuffer.allocate(room);
        SSLEngineResult result = subject.wrap(ByteBuffer.wrap(data.getBytes(StandardCharsets.US_ASCII)), target);
        split(target.flip(), toPeer);
        return text(result);
    }

    private String unwrap(byte[] bytes, int room) throws SSLException {
        ByteBuffer source = bytes == null ? ByteBuffer.allocate(0) : ByteBuffer.wrap(bytes);
        SSLEngineResult result;
        try {
            result = subject.unwrap(source, ByteBuffer.allocate(room));
        } catch (SSLException | RuntimeException thrown) {
            toSubject.poll();
            throw thrown;
        }
        if (result.bytesConsumed() > 0) {
            toSubject.poll();
        }
        return text(result);
    }

    private static String text(SSLEngineResult result) {
        return result.getStatus() + "/" + result.getHandshakeStatus() + (result.bytesConsumed() > 0 ? " consumed" : "")
                + (result.bytesProduced() > 0 ? " produced" : "");
    }

    private byte[] all() {
        ByteBuffer joined = ByteBuffer.allocate(toSubject.stream().mapToInt(one -> one.length).sum());
        toSubject.forEach(joined::put);
        return joined.capacity() == 0 ? null : joined.array();
    }

    private static void split(ByteBuffer records, Deque<byte[]> into) {
        while (records.hasRemaining()) {
            byte[] record = new byte[Records.length(records)];
            records.get(record);
            into.add(record);
        }
    }

    private void happenAtPeer(Event event) {
        try {
            switch (event) {
                case PEER_TURN -> peerTurn();
                case PEER_SENDS_DATA -> peerWraps("data");
                case PEER_CLOSES -> peer.closeOutbound();
                case PEER_FAILS -> peer.unwrap(ByteBuffer.wrap("GET / HTTP/1.1".getBytes()), ByteBuffer.allocate(ROOM));
                default -> peer.beginHandshake();
            }
        } catch (SSLException | RuntimeException expected) {
            // Of a peer in a state that does not allow it, or by intention.
        }
        try {
            peerWraps("");
        } catch (SSLException | RuntimeException expected) {
            // The same.
        }
    }

    private void peerWraps(String data) throws SSLException {
        ByteBuffer source = ByteBuffer.wrap(data.getBytes(StandardCharsets.US_ASCII));
        for (int call = 0; call < CALLS_MAX; call++) {
            if (!source.hasRemaining() && peer.getHandshakeStatus() != HandshakeStatus.NEED_WRAP) {
                return;
            }
            ByteBuffer target = ByteBuffer.allocate(ROOM);
            SSLEngineResult result = peer.wrap(source, target);
            split(target.flip(), toSubject);
            if (result.getStatus() == Status.CLOSED || result.bytesProduced() == 0) {
                return;
            }
        }
    }

    private void peerTurn() throws SSLException {
        while (!toPeer.isEmpty()) {
            ByteBuffer record = ByteBuffer.wrap(toPeer.poll());
            for (int call = 0; record.hasRemaining() && call < CALLS_MAX; call++) {
                SSLEngineResult result = peer.unwrap(record, ByteBuffer.allocate(ROOM));
                Runnable task;
                while ((task = peer.getDelegatedTask()) != null) {
                    task.run();
                }
                if (result.getStatus() == Status.CLOSED) {
                    return;
                }
                peerWraps("");
            }
        }
        peerWraps("");
    }

    /** Brings a new engine into a state. */
    void reach(State state, boolean isClient) throws SSLException {
        peer.setUseClientMode(!isClient);
        if (state == State.NEW) {
            return;
        }
        subject.setUseClientMode(isClient);
        if (state == State.READY) {
            return;
        }
        subject.beginHandshake();
        if (state == State.BEGUN) {
            return;
        }
        peer.beginHandshake();
        wrapAll();
        if (state == State.HELLO_SENT) {
            return;
        }
        peerTurn();
        if (state == State.FLIGHT_ARRIVED) {
            return;
        }
        unwrapUntil(HandshakeStatus.NEED_TASK);
        if (state == State.TASK_WAITS || state == State.TASK_TAKEN) {
            taken = state == State.TASK_TAKEN ? subject.getDelegatedTask() : null;
            return;
        }
        if (state == State.ANSWER_WAITS) {
            // A client of the JDK may have a change_cipher_spec to send before it has read everything.
            while (!toSubject.isEmpty()) {
                wrapAll();
                unwrapUntil(HandshakeStatus.NEED_WRAP);
            }
            runTasks();
            return;
        }
        for (int turn = 0; turn < TURNS; turn++) {
            runTasks();
            wrapAll();
            if (state == State.ANSWER_SENT) {
                return;
            }
            peerTurn();
            if (state == State.TICKET_ARRIVED && subject.getHandshakeStatus() == HandshakeStatus.NOT_HANDSHAKING) {
                return;
            }
            unwrapUntil(HandshakeStatus.NEED_WRAP);
        }
    }

    private void runTasks() {
        Runnable task;
        while ((task = subject.getDelegatedTask()) != null) {
            task.run();
        }
    }

    private void wrapAll() throws SSLException {
        for (int call = 0; subject.getHandshakeStatus() == HandshakeStatus.NEED_WRAP && call < CALLS_MAX; call++) {
            wrap("", ROOM);
        }
    }

    private void unwrapUntil(HandshakeStatus awaited) throws SSLException {
        while (!toSubject.isEmpty() && subject.getHandshakeStatus() != awaited) {
            runTasks();
            if (subject.getHandshakeStatus() == awaited) {
                return;
            }
            unwrap(toSubject.peek(), ROOM);
        }
    }

    /**
     * Drives the engine as programs do that obey its statuses. Returns the first answer that would keep them busy for
     * ever: a status that asks for a call which then does nothing. Null: there is none.
     */
    String endlessAnswer() {
        boolean hasThrown = false;
        for (int call = 0; call < CALLS_MAX; call++) {
            Answer before = answer("");
            String did;
            switch (before.status) {
                case NEED_WRAP -> did = happen(Event.WRAP);
                case NEED_TASK -> did = happen(Event.RUN_TASK);
                default -> {
                    return null;
                }
            }
            // The failure of a task is thrown once. Then there is the alert.
            boolean isNews = did.contains("produced") || did.equals("task") || !hasThrown && did.endsWith("Exception");
            hasThrown |= did.endsWith("Exception");
            if (answer("").equals(before) && !isNews) {
                return before + "; the next call returned " + did + " and changed nothing";
            }
        }
        return answer("") + " after " + CALLS_MAX + " calls";
    }
}
