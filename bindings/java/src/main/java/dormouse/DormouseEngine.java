package dormouse;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLEngineResult.Status;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLHandshakeException;
import javax.net.ssl.SSLSession;
import javax.net.ssl.SSLSocket;

/**
 * A connection's engine. Its statuses are those of the JDK's engine, which programs expect.
 *
 * <p>Between two records it consists of this object, its session and 136 bytes outside the heap: incomplete records
 * stay in the caller's buffers, and all data of the handshake is dropped with {@link #handshake}.
 *
 * <p>Invariants:
 * <ul>
 * <li>{@code handshake} is set in the phase HANDSHAKING, and in FAILED until its failure has been thrown.
 * <li>While a task runs, only the task uses the native connection. It may set the phase ESTABLISHED before it ends:
 *     the engine is established when {@code handshake} is null, too.
 * <li>{@code connection} is null in the phase NEW, and when both directions are closed and nothing is to be sent.
 * </ul>
 */
class DormouseEngine extends ConfiguredEngine implements BatchEngine {
    private enum Phase {
        NEW,
        HANDSHAKING,
        ESTABLISHED,
        FAILED
    }

    /** How long a client waits for tickets after its handshake. */
    private static final long TICKETS_MS = 1_000;
    /** Room for a KeyUpdate before the first record of a batch. */
    private static final int BATCH_START = 32;

    private Phase phase = Phase.NEW;
    private NativeConnection connection;
    private Handshake handshake;
    private DormouseSession session;
    private String applicationProtocol;
    /** How the peer's direction ended, if the current call has found its end. */
    private SSLException ended;

    private boolean clientMode;
    private boolean modeIsSet;
    private boolean inboundClosed;
    private boolean outboundClosed;
    /** Whether there are records to send besides the caller's data. */
    private boolean outputWaits;
    private boolean justEstablished;
    /** Whether the next wrap must report that the handshake is finished. */
    private boolean finishedWaits;
    private boolean awaitsTickets;

    DormouseEngine(ContextSpi context, String host, int port) {
        super(context, host, port);
    }

    // Receiving

    @Override
    public SSLEngineResult unwrap(ByteBuffer source, ByteBuffer[] targets, int offset, int length)
            throws SSLException {
        if (source == null || targets == null) {
            throw new IllegalArgumentException("the source and the targets can't be null");
        }
        Buffers.checkRange(targets, offset, length);
        for (int i = offset; i < offset + length; i++) {
            Buffers.checkWritable(targets[i]);
        }
        synchronized (this) {
            SSLEngineResult early = beforeTransfer(inboundClosed, HandshakeStatus.NEED_WRAP);
            if (early != null) {
                return early;
            }
            if (!source.hasRemaining()) {
                return new SSLEngineResult(Status.BUFFER_UNDERFLOW, getHandshakeStatus(), 0, 0);
            }
            int record = Records.length(source);
            if (record == Records.INCOMPLETE) {
                return new SSLEngineResult(Status.BUFFER_UNDERFLOW, getHandshakeStatus(), 0, 0);
            }
            if (record < 0) {
                throw refuse(source, record);
            }
            int type = Records.type(source);
            if (phase == Phase.HANDSHAKING && handshake.needsTask(type)) {
                return leaveToTask(source, record);
            }
            return open(source, record, type, targets, offset, length);
        }
    }

    /** Opens one record. */
    private SSLEngineResult open(
            ByteBuffer source, int record, int type, ByteBuffer[] targets, int offset, int length)
            throws SSLException {
        // Also for records without data, as in the JDK.
        int content = phase == Phase.ESTABLISHED ? Math.max(record - session.suite.overhead(), 0) : 0;
        if (content > Buffers.remaining(targets, offset, length)) {
            return new SSLEngineResult(Status.BUFFER_OVERFLOW, getHandshakeStatus(), 0, 0);
        }
        if (handshake != null && type == Records.CHANGE_CIPHER_SPEC) {
            handshake.sawChangeCipherSpec = true;
        }
        ByteBuffer only = content == 0 ? null : Buffers.only(targets, offset, length, content);
        byte[] scratch = content > 0 && only == null ? Buffers.scratch() : null;
        int produced = step(connection.handle(), source, record, only, scratch, content);
        source.position(source.position() + record);
        if (only != null) {
            only.position(only.position() + produced);
        } else if (scratch != null) {
            Buffers.scatter(scratch, produced, targets, offset);
        }
        throwEnd();
        HandshakeStatus status = getHandshakeStatus();
        if (justEstablished) {
            endHandshake(outputWaits);
            status = outputWaits ? HandshakeStatus.NEED_WRAP : HandshakeStatus.FINISHED;
        }
        stopAwaitingTickets();
        releaseIfDone();
        return new SSLEngineResult(inboundClosed ? Status.CLOSED : Status.OK, status, record, produced);
    }

    /** Passes bytes to the native half, and answers a ClientHello. Returns the plaintext's length. */
    private int step(long handle, ByteBuffer source, int count, ByteBuffer target, byte[] scratch, int room)
            throws SSLException {
        byte[] copy = null;
        if (source != null && !Buffers.isAccessible(source)) {
            copy = new byte[count];
            source.get(source.position(), copy);
        }
        byte[] sourceArray = copy != null ? copy : source == null || source.isDirect() ? null : source.array();
        int sourceAt = copy != null || source == null
                ? 0
                : source.isDirect() ? source.position() : source.arrayOffset() + source.position();
        boolean toHeap = target != null && !target.isDirect();
        byte[] targetArray = toHeap ? target.array() : scratch;
        int targetAt = target == null ? 0 : toHeap ? target.arrayOffset() + target.position() : target.position();
        long found = Native.open(handle, this, sourceArray, sourceArray == null ? source : null, sourceAt, count,
                targetArray, targetArray == null ? target : null, targetAt, room);
        while (handshake != null && handshake.isUndecided()) {
            handshake.decide(handle);
            found = Native.open(handle, this, null, null, 0, 0, null, null, 0, 0);
        }
        outputWaits = (found & Native.OUTPUT_WAITS) != 0;
        return (int) found;
    }

    /** Called by the native half: a ClientHello has arrived. */
    void clientHello(String serverName, byte[][] alpn) {
        handshake.noteHello(serverName, alpn);
    }

    /** Called by the native half in a handshake. Returns null, or why the peer is not trusted. */
    String judge(byte[][] chain) {
        Handshake current = handshake;
        return current == null ? "the handshake is over" : current.judge(chain);
    }

    /** Called by the native half when {@link #judge} has returned a reason. */
    int refusalAlert() {
        Handshake current = handshake;
        return Failures.alertFor(current == null ? null : current.cause);
    }

    /** Called by the native half: the handshake is done. */
    void established(
            boolean tls13, String suite, byte[] alpn, String signature, boolean sentOwn, byte[][] peer) {
        handshake.noteAgreed(tls13 ? Protocol.TLS13 : Protocol.TLS12, CipherSuite.valueOf(suite), peer);
        handshake.noteOwnCertificate(signature, sentOwn);
        session = handshake.session;
        applicationProtocol = alpn == null ? "" : shared(new String(alpn, StandardCharsets.ISO_8859_1));
        phase = Phase.ESTABLISHED;
        justEstablished = true;
        awaitsTickets = clientMode && tls13;
    }

    /** The settings' own object, so that connections share it. */
    private String shared(String protocol) {
        int known = settings().alpn().indexOf(protocol);
        return known >= 0 ? settings().alpn().get(known) : protocol.intern();
    }

    /** Called by the native half: the peer's direction has ended. */
    void ended(int kind, int alert, String reason) {
        Failures.PeerEnd end = Failures.PeerEnd.values()[kind];
        if (end == Failures.PeerEnd.CLOSED) {
            inboundClosed = true;
        } else if (ended == null) {
            ended = Failures.of(end, alert, reason);
        }
    }

    /** Handles the end that {@link #ended} has recorded. */
    private void throwEnd() throws SSLException {
        if (ended != null) {
            throw fail(takeEnd());
        }
        if (inboundClosed && session.protocol == Protocol.TLS12) {
            // RFC 5246 section 7.2.1: the other side answers at once.
            closeOutbound();
        }
    }

    private SSLException takeEnd() {
        SSLException end = ended;
        ended = null;
        if (handshake != null) {
            end = handshake.refusal != null ? handshake.refusal : end;
            Throwable cause = handshake.cause != null ? handshake.cause : KeySigner.takeFailure();
            if (cause != null && end.getCause() == null) {
                end.initCause(cause);
            }
        }
        return end;
    }

    /** Refuses a source that does not start with a record. */
    private SSLException refuse(ByteBuffer source, int problem) {
        String why = problem == Records.NOT_TLS
                ? "Unsupported or unrecognized SSL message: it begins with byte " + Records.type(source)
                : "a record is larger than " + Records.PACKET_MAX + " bytes, which no cipher suite needs";
        try {
            if (handshake != null && handshake.expectsHello()) {
                Native.refuse(connection.handle(), Failures.UNEXPECTED_MESSAGE);
                outputWaits = Native.outputLen(connection.handle()) > 0;
            } else {
                step(connection.handle(), source, Math.min(source.remaining(), Records.HEADER), null, null, 0);
            }
        } catch (SSLException secondary) {
            // The first problem is the one to report.
        }
        ended = null;
        return fail(new SSLException(why));
    }

    // Delegated tasks

    private SSLEngineResult leaveToTask(ByteBuffer source, int record) {
        handshake.record = new byte[record];
        source.get(handshake.record);
        handshake.task = Handshake.Task.READY;
        return new SSLEngineResult(Status.OK, HandshakeStatus.NEED_TASK, record, 0);
    }

    @Override
    public synchronized Runnable getDelegatedTask() {
        if (handshake == null || handshake.task != Handshake.Task.READY) {
            return null;
        }
        handshake.task = Handshake.Task.RUNNING;
        return this::runTask;
    }

    /** Opens a record of the handshake. The engine is not locked meanwhile: managers may take long. */
    private void runTask() {
        Handshake current;
        ByteBuffer record;
        long handle;
        synchronized (this) {
            current = handshake;
            if (current == null || current.record == null) {
                throw new IllegalStateException("a delegated task can run once");
            }
            record = ByteBuffer.wrap(current.record);
            current.record = null;
            handle = connection.handle();
        }
        SSLException failure = null;
        try {
            step(handle, record, record.remaining(), null, null, 0);
        } catch (SSLException problem) {
            failure = problem;
        } catch (RuntimeException | Error problem) {
            // Of a manager, too. A task without an end would block the engine.
            failure = Failures.handshake("the handshake can't continue: " + problem.getMessage(), problem);
        }
        synchronized (this) {
            current.task = Handshake.Task.NONE;
            if (failure == null && ended != null) {
                failure = takeEnd();
            }
            if (failure != null) {
                current.taskFailure = fail(failure);
            } else if (justEstablished) {
                endHandshake(true);
            }
            if (current.closeRequested && !outboundClosed) {
                closeOutbound();
            }
        }
    }

    // Sending

    @Override
    public SSLEngineResult wrap(ByteBuffer[] sources, int offset, int length, ByteBuffer target)
            throws SSLException {
        if (sources == null || target == null) {
            throw new IllegalArgumentException("the sources and the target can't be null");
        }
        Buffers.checkRange(sources, offset, length);
        Buffers.checkWritable(target);
        synchronized (this) {
            SSLEngineResult early = beforeTransfer(isOutboundDone(), HandshakeStatus.NEED_UNWRAP);
            if (early != null) {
                return early;
            }
            if (outputWaits) {
                return drain(target);
            }
            if (finishedWaits) {
                finishedWaits = false;
                return new SSLEngineResult(Status.OK, HandshakeStatus.FINISHED, 0, 0);
            }
            if (phase != Phase.ESTABLISHED) {
                fail(null);
                handshake = null;
                return new SSLEngineResult(Status.CLOSED, getHandshakeStatus(), 0, 0);
            }
            int count = Math.min(Buffers.remaining(sources, offset, length), Records.CONTENT_MAX);
            if (count == 0) {
                return new SSLEngineResult(Status.OK, getHandshakeStatus(), 0, 0);
            }
            return seal(sources, offset, length, count, target);
        }
    }

    /** Moves records of the handshake, or an alert, to the target. */
    private SSLEngineResult drain(ByteBuffer target) throws SSLException {
        boolean toHeap = !target.isDirect();
        int at = toHeap ? target.arrayOffset() + target.position() : target.position();
        int produced = Native.drain(connection.handle(), toHeap ? target.array() : null, toHeap ? null : target, at,
                target.remaining());
        if (produced < 0) {
            return new SSLEngineResult(Status.BUFFER_OVERFLOW, getHandshakeStatus(), 0, 0);
        }
        target.position(target.position() + produced);
        outputWaits = Native.outputLen(connection.handle()) > 0;
        HandshakeStatus status = getHandshakeStatus();
        if (finishedWaits && !outputWaits) {
            finishedWaits = false;
            status = HandshakeStatus.FINISHED;
        }
        releaseIfDone();
        return new SSLEngineResult(isOutboundDone() ? Status.CLOSED : Status.OK, status, 0, produced);
    }

    /** Seals data as one record. */
    private SSLEngineResult seal(ByteBuffer[] sources, int offset, int length, int count, ByteBuffer target)
            throws SSLException {
        ByteBuffer only = Buffers.only(sources, offset, length, count);
        byte[] sourceArray;
        int sourceAt;
        if (only == null || !Buffers.isAccessible(only)) {
            only = null;
            sourceArray = Buffers.scratch();
            sourceAt = 0;
            Buffers.gather(sources, offset, sourceArray, count);
        } else {
            sourceArray = only.isDirect() ? null : only.array();
            sourceAt = only.isDirect() ? only.position() : only.arrayOffset() + only.position();
        }
        boolean toHeap = !target.isDirect();
        int targetAt = toHeap ? target.arrayOffset() + target.position() : target.position();
        int produced = Native.seal(connection.handle(), sourceArray, sourceArray == null ? only : null, sourceAt,
                count, toHeap ? target.array() : null, toHeap ? null : target, targetAt, target.remaining());
        if (produced < 0) {
            return new SSLEngineResult(Status.BUFFER_OVERFLOW, getHandshakeStatus(), 0, 0);
        }
        Buffers.advance(sources, offset, count);
        target.position(target.position() + produced);
        stopAwaitingTickets();
        return new SSLEngineResult(Status.OK, getHandshakeStatus(), count, produced);
    }

    // All records of a buffer

    @Override
    public synchronized int openInPlace(ByteBuffer records) throws SSLException {
        requireDirect(records);
        if (phase != Phase.ESTABLISHED || handshake != null || inboundClosed || !records.hasRemaining()) {
            return NOT_NOW;
        }
        int at = records.position();
        int end = records.limit();
        // If the call throws, nothing in the buffer is plaintext.
        records.limit(at);
        long found = Native.openInPlace(connection.handle(), this, records, at, end - at);
        if (found < 0) {
            records.limit(end);
            return NOT_NOW;
        }
        outputWaits = (found & Native.BATCH_OUTPUT_WAITS) != 0;
        records.limit(at + (int) (found & Native.LENGTH_MASK));
        throwEnd();
        releaseIfDone();
        return (int) (found >>> Native.LENGTH_BITS & Native.LENGTH_MASK);
    }

    @Override
    public synchronized int batchLength(int plaintextLength) {
        boolean isBusy = outputWaits || finishedWaits || handshake != null;
        if (phase != Phase.ESTABLISHED || isBusy || outboundClosed) {
            return NOT_NOW;
        }
        int full = (plaintextLength + CONTENT_MAX - 1) / CONTENT_MAX;
        return Math.addExact(plaintextLength, BATCH_START + full * session.suite.overhead());
    }

    @Override
    public synchronized int contentAt(int index) {
        return BATCH_START + session.suite.header() + index * (CONTENT_MAX + session.suite.overhead());
    }

    @Override
    public synchronized void sealInPlace(ByteBuffer batch, int plaintextLength) throws SSLException {
        requireDirect(batch);
        if (batchLength(plaintextLength) == NOT_NOW) {
            throw new IllegalStateException("call batchLength() first: " + this);
        }
        int at = batch.position();
        long sealed = Native.sealInPlace(connection.handle(), batch, at, batch.remaining(), plaintextLength);
        batch.limit(at + (int) (sealed & Native.LENGTH_MASK));
        batch.position(at + (int) (sealed >>> Native.LENGTH_BITS));
        stopAwaitingTickets();
    }

    private static void requireDirect(ByteBuffer buffer) {
        Buffers.checkWritable(buffer);
        if (!buffer.isDirect()) {
            throw new IllegalArgumentException("the buffer must be direct; use wrap() or unwrap() for others");
        }
    }

    // Checks and ends of both directions

    /** Returns the result if the transfer cannot begin; otherwise null. {@code waits}: the status that stops it. */
    private SSLEngineResult beforeTransfer(boolean isClosed, HandshakeStatus waits) throws SSLException {
        requireMode();
        if (handshake != null && handshake.taskFailure != null) {
            SSLException failure = handshake.taskFailure;
            handshake = null;
            throw failure;
        }
        if (isClosed) {
            return new SSLEngineResult(Status.CLOSED, getHandshakeStatus(), 0, 0);
        }
        if ((phase == Phase.NEW || phase == Phase.HANDSHAKING) && !inboundClosed && !outboundClosed) {
            start();
            if (getHandshakeStatus() == waits) {
                return new SSLEngineResult(Status.OK, waits, 0, 0);
            }
        }
        if (getHandshakeStatus() == HandshakeStatus.NEED_TASK) {
            return new SSLEngineResult(Status.OK, HandshakeStatus.NEED_TASK, 0, 0);
        }
        return null;
    }

    private void requireMode() {
        if (!modeIsSet) {
            throw new IllegalStateException("call setUseClientMode() first");
        }
    }

    /** Begins the handshake if it has not begun. */
    private void start() throws SSLException {
        if (phase != Phase.NEW) {
            return;
        }
        phase = Phase.HANDSHAKING;
        handshake = new Handshake(this, context);
        try {
            long handle = handshake.start();
            connection = new NativeConnection(this, handle);
            if (clientMode) {
                step(handle, null, 0, null, null, 0);
            }
        } catch (SSLException | RuntimeException | Error problem) {
            // Of a KeyManager, too.
            fail(null);
            handshake = null;
            throw problem;
        }
    }

    @Override
    public synchronized void beginHandshake() throws SSLException {
        requireMode();
        if (inboundClosed || outboundClosed) {
            throw new SSLException("the engine is closed");
        }
        if (finishedWaits) {
            // The handshake that has just ended is the one.
            return;
        }
        if (phase == Phase.ESTABLISHED && handshake == null) {
            if (session.protocol == Protocol.TLS12) {
                throw new SSLException("renegotiation is not supported (RFC 9325 section 3.5); open a new connection");
            }
            Native.updateKeys(connection.handle());
            outputWaits = true;
            finishedWaits = true;
            return;
        }
        start();
    }

    private void endHandshake(boolean byWrap) {
        justEstablished = false;
        finishedWaits = byWrap;
        handshake = null;
    }

    @Override
    public synchronized HandshakeStatus getHandshakeStatus() {
        if (handshake != null && handshake.task != Handshake.Task.NONE) {
            return HandshakeStatus.NEED_TASK;
        }
        // Wrap also reports the failure of a task, which may have nothing to send.
        boolean failureWaits = handshake != null && handshake.taskFailure != null;
        if (outputWaits || failureWaits) {
            return HandshakeStatus.NEED_WRAP;
        }
        if (inboundClosed && outboundClosed) {
            return HandshakeStatus.NOT_HANDSHAKING;
        }
        if (phase == Phase.HANDSHAKING) {
            // Without the peer's answers the handshake can't end. The next wrap says so.
            return inboundClosed ? HandshakeStatus.NEED_WRAP : HandshakeStatus.NEED_UNWRAP;
        }
        return finishedWaits ? HandshakeStatus.NEED_WRAP : HandshakeStatus.NOT_HANDSHAKING;
    }

    /** Closes both directions. An alert may remain to be sent. */
    private SSLException fail(SSLException why) {
        phase = Phase.FAILED;
        inboundClosed = true;
        outboundClosed = true;
        finishedWaits = false;
        justEstablished = false;
        if (handshake != null && handshake.task == Handshake.Task.NONE && handshake.taskFailure == null) {
            handshake.cause = null;
        }
        releaseIfDone();
        return why;
    }

    private void releaseIfDone() {
        if (inboundClosed && outboundClosed && !outputWaits && connection != null) {
            connection.free();
            connection = null;
        }
    }

    private void stopAwaitingTickets() {
        if (awaitsTickets && System.currentTimeMillis() - session.getCreationTime() > TICKETS_MS) {
            awaitsTickets = false;
            if (connection != null) {
                Native.ignoreTickets(connection.handle());
            }
        }
    }

    @Override
    public synchronized void closeOutbound() {
        if (outboundClosed) {
            return;
        }
        if (handshake != null && handshake.task == Handshake.Task.RUNNING) {
            handshake.closeRequested = true;
            return;
        }
        outboundClosed = true;
        if (phase == Phase.ESTABLISHED) {
            try {
                Native.close(connection.handle());
            } catch (SSLException cannotSend) {
                // There is nothing to close any more.
            }
            outputWaits = Native.outputLen(connection.handle()) > 0;
        } else {
            // Before the handshake is done there is no key for a close_notify.
            outputWaits = false;
            handshake = null;
            inboundClosed = true;
            phase = Phase.FAILED;
        }
        releaseIfDone();
    }

    @Override
    public synchronized void closeInbound() throws SSLException {
        if (inboundClosed) {
            return;
        }
        inboundClosed = true;
        releaseIfDone();
        if (phase != Phase.NEW) {
            throw new SSLException("closing inbound before receiving peer's close_notify");
        }
    }

    @Override
    public synchronized boolean isInboundDone() {
        return inboundClosed;
    }

    @Override
    public synchronized boolean isOutboundDone() {
        return outboundClosed && !outputWaits;
    }

    /** Whether the handshake is done, and the connection has not failed. */
    synchronized boolean isEstablished() {
        return phase == Phase.ESTABLISHED && handshake == null;
    }

    /** The socket of which this is the engine; null: the program has the engine itself. */
    SSLSocket socket() {
        return null;
    }

    /** Whether nothing is kept besides this object, its session and the native state. */
    synchronized boolean isAtRest() {
        return handshake == null && (connection == null || Native.isAtRest(connection.handle()));
    }

    // Restart

    /** Ends the engine and returns the connection as bytes. */
    synchronized byte[] export() throws SSLException {
        if (phase != Phase.ESTABLISHED || handshake != null || inboundClosed || outboundClosed) {
            throw new IllegalStateException("only an established and open connection can be exported: " + this);
        }
        byte[] state = Native.export(connection.handle());
        try {
            return new ExportedConnection(clientMode, session.protocol, session.suite, applicationProtocol,
                    getPeerHost(), getPeerPort(), session.peer, state)
                    .write();
        } finally {
            Arrays.fill(state, (byte) 0);
            outputWaits = false;
            fail(null);
        }
    }

    /** Continues an exported connection. */
    synchronized void restore(byte[] exported) throws SSLException {
        if (phase != Phase.NEW || inboundClosed || outboundClosed) {
            throw new IllegalStateException("the engine is not new: " + this);
        }
        ExportedConnection read = ExportedConnection.read(exported);
        long handle = Native.restore(read.state());
        Arrays.fill(read.state(), (byte) 0);
        connection = new NativeConnection(this, handle);
        clientMode = read.isClient();
        modeIsSet = true;
        phase = Phase.ESTABLISHED;
        session = new DormouseSession(
                sessionContext(), read.protocol(), read.suite(), read.peerHost(), read.peerPort());
        session.peer = read.peer();
        applicationProtocol = shared(read.alpn());
        outputWaits = Native.outputLen(handle) > 0;
    }

    // Negotiated parameters

    @Override
    public synchronized SSLSession getSession() {
        if (session == null) {
            session = noSession();
        }
        return session;
    }

    /** What there is without a handshake. */
    DormouseSession noSession() {
        return new DormouseSession(sessionContext(), null, null, getPeerHost(), getPeerPort());
    }

    @Override
    public synchronized SSLSession getHandshakeSession() {
        return handshake == null ? null : handshake.session;
    }

    @Override
    public synchronized String getApplicationProtocol() {
        return applicationProtocol;
    }

    @Override
    public synchronized String getHandshakeApplicationProtocol() {
        return handshake == null ? null : handshake.alpn;
    }

    SessionContext sessionContext() {
        return clientMode ? context.clientSessions : context.serverSessions;
    }

    // Mode

    @Override
    public synchronized void setUseClientMode(boolean mode) {
        if (phase != Phase.NEW && mode != clientMode) {
            throw new IllegalArgumentException("the handshake has begun, so the mode can't change");
        }
        clientMode = mode;
        modeIsSet = true;
    }

    @Override
    public synchronized boolean getUseClientMode() {
        return clientMode;
    }

    @Override
    public String toString() {
        return "DormouseEngine(" + (clientMode ? "client" : "server") + ", " + phase + ")";
    }
}
