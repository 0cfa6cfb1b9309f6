package dormouse;

import java.io.ByteArrayInputStream;
import java.lang.ref.Reference;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.List;

import javax.net.ssl.SNIHostName;
import javax.net.ssl.SNIMatcher;
import javax.net.ssl.SNIServerName;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLHandshakeException;

/** A handshake in progress: its decisions, and the work that waits for its end. The engine drops it at the end. */
final class Handshake {
    /** A record that a delegated task opens. */
    enum Task {
        NONE,
        READY,
        RUNNING
    }

    private final DormouseEngine engine;
    private final ContextSpi context;
    final DormouseSession session;

    Task task = Task.NONE;
    /** The record for the task. */
    byte[] record;
    /** The exception of a task, to be thrown by the next wrap or unwrap. */
    SSLException taskFailure;
    /** The exception of a manager or a callback. */
    Throwable cause;
    /** Why we refused the client. */
    SSLException refusal;
    boolean closeRequested;
    boolean sawChangeCipherSpec;
    boolean hasAnswered;

    private boolean sawHello;
    private String serverName;
    private byte[][] offeredAlpn;
    private List<Identities.Identity> identities = List.of();
    /** The chosen application protocol; null before it is known. */
    String alpn;

    Handshake(DormouseEngine engine, ContextSpi context) {
        this.engine = engine;
        this.context = context;
        Protocol newest = engine.settings().usableProtocols().contains(Protocol.TLS13) ? Protocol.TLS13 : Protocol.TLS12;
        session = new DormouseSession(engine.sessionContext(), newest, null, engine.getPeerHost(), engine.getPeerPort());
    }

    /** Starts the native connection. */
    long start() throws SSLException {
        if (engine.settings().usableProtocols().isEmpty()) {
            throw new SSLHandshakeException("no enabled protocol has an enabled cipher suite; protocols: "
                    + engine.settings().protocols() + ", suites: " + engine.settings().suites());
        }
        if (!engine.getUseClientMode()) {
            return Native.listen();
        }
        Identities.Identity identity = context.identities().forClient(engine);
        identities = identity == null ? List.of() : List.of(identity);
        String name = engine.requestedHost();
        session.requestedNames = engine.requestedNames();
        boolean isNamed = name != null;
        // A resumed session is not checked again, so it must have been checked for the same host.
        String host = engine.getPeerHost();
        boolean resumes = isNamed && (host == null || host.equalsIgnoreCase(name));
        Contexts.Context shared =
                context.contexts().client(identity, engine.settings(), context.clientSessions, resumes);
        try {
            // IP addresses are not sent as server names, so any address can stand for "no name".
            return Native.connect(shared.handle, isNamed ? name : "0.0.0.0");
        } finally {
            Reference.reachabilityFence(shared);
        }
    }

    /** Whether opening a record of this type may take long, because it calls managers or uses keys. */
    boolean needsTask(int type) {
        if (type != Records.HANDSHAKE && type != Records.APPLICATION_DATA) {
            return false;
        }
        if (engine.getUseClientMode()) {
            // After it, TLS 1.2 has only Finished, whose unwrap ends the handshake.
            return !(sawChangeCipherSpec && type == Records.HANDSHAKE);
        }
        return !hasAnswered
                || engine.settings().clientCertificates() != EngineSettings.ClientCertificates.NONE;
    }

    void noteHello(String name, byte[][] alpn) {
        sawHello = true;
        serverName = name;
        offeredAlpn = alpn;
    }

    /** Whether the client waits for {@link #decide}. */
    boolean isUndecided() {
        return sawHello && !hasAnswered && refusal == null;
    }

    boolean expectsHello() {
        return !engine.getUseClientMode() && !sawHello;
    }

    /** Server: chooses a context by the ClientHello, or refuses the client. */
    void decide(long connection) throws SSLException {
        hasAnswered = true;
        try {
            if (!acceptsName()) {
                refuse(connection, Failures.UNRECOGNIZED_NAME, "no SNIMatcher accepts the server name " + serverName);
                return;
            }
            alpn = chooseAlpn();
            if (alpn == null) {
                refuse(connection, Failures.NO_APPLICATION_PROTOCOL,
                        "no common application protocol (ALPN); the client offers " + offered());
                return;
            }
            identities = context.identities().forServer(engine);
            if (identities.isEmpty()) {
                refuse(connection, Failures.HANDSHAKE_FAILURE,
                        "the KeyManager has no certificate for this client, with a key of type EC, RSA or EdDSA");
                return;
            }
            session.local = identities.get(0).chain;
            Contexts.Context shared =
                    context.contexts().server(identities, engine.settings(), context.serverSessions);
            byte[] chosen = alpn.isEmpty() ? null : alpn.getBytes(StandardCharsets.ISO_8859_1);
            Native.decide(connection, shared.handle, chosen);
            Reference.reachabilityFence(shared);
        } catch (RuntimeException | Error | SSLException problem) {
            cause = problem;
            refuse(connection, Failures.INTERNAL_ERROR, "the handshake can't continue: " + problem.getMessage());
        }
    }

    private void refuse(long connection, int alert, String why) {
        refusal = Failures.handshake(why, cause);
        Native.refuse(connection, alert);
    }

    private boolean acceptsName() {
        if (serverName == null) {
            return true;
        }
        SNIHostName name;
        try {
            name = new SNIHostName(serverName);
        } catch (IllegalArgumentException notAName) {
            return engine.settings().matchers().isEmpty();
        }
        session.requestedNames = context.share(name);
        boolean isMatched = engine.settings().matchers().isEmpty();
        for (SNIMatcher matcher : engine.settings().matchers()) {
            isMatched |= matcher.getType() == name.getType() && matcher.matches(name);
        }
        return isMatched;
    }

    /** Empty: none is used. Null: there is no common one. */
    private String chooseAlpn() {
        List<String> offered = offered();
        if (offered.isEmpty()) {
            return "";
        }
        if (engine.getHandshakeApplicationProtocolSelector() != null) {
            String chosen = engine.getHandshakeApplicationProtocolSelector().apply(engine, offered);
            return chosen == null || chosen.isEmpty() || offered.contains(chosen) ? chosen : null;
        }
        List<String> ours = engine.settings().alpn();
        if (ours.isEmpty()) {
            return "";
        }
        return ours.stream().filter(offered::contains).findFirst().orElse(null);
    }

    private List<String> offered() {
        List<String> names = new ArrayList<>();
        for (byte[] name : offeredAlpn) {
            names.add(new String(name, StandardCharsets.ISO_8859_1));
        }
        return names;
    }

    /** Asks the TrustManager. Returns null, or why it does not trust the peer. */
    String judge(byte[][] chain) {
        try {
            context.trust().check(engine, parse(chain));
            return null;
        } catch (Throwable problem) {
            cause = problem;
            String why = problem.getMessage();
            return why == null ? problem.toString() : why;
        }
    }

    /** Completes the session. */
    void noteAgreed(Protocol protocol, CipherSuite suite, byte[][] peer) {
        session.protocol = protocol;
        session.suite = suite;
        try {
            session.peer = peer.length == 0 ? null : parse(peer);
        } catch (CertificateException unreadable) {
            // The TrustManager has accepted it, so it was readable.
            session.peer = null;
        }
    }

    /** Records our own chain: a server's by the negotiated algorithms, a client's if it was sent. */
    void noteOwnCertificate(String signature, boolean clientSentIt) {
        if (engine.getUseClientMode()) {
            session.local = clientSentIt ? identities.get(0).chain : null;
            return;
        }
        boolean isRsa = signature != null ? signature.startsWith("rsa") : session.suite.name().contains("_RSA_");
        for (Identities.Identity identity : identities) {
            if (identity.keyType().equals("RSA") == isRsa) {
                session.local = identity.chain;
            }
        }
    }

    static X509Certificate[] parse(byte[][] chain) throws CertificateException {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        X509Certificate[] parsed = new X509Certificate[chain.length];
        for (int i = 0; i < chain.length; i++) {
            parsed[i] = (X509Certificate) factory.generateCertificate(new ByteArrayInputStream(chain[i]));
        }
        return parsed;
    }

    /** The names in a client's request. */
    static List<SNIServerName> names(String host) {
        if (host == null || HostNames.isAddress(host)) {
            return List.of();
        }
        try {
            return List.of(new SNIHostName(host));
        } catch (IllegalArgumentException notAName) {
            return List.of();
        }
    }
}
