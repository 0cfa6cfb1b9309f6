//! Programs on a JVM, and Netty with the JDK's TLS or with BoringSSL.

use super::program::{Program, advice, echo, on};
use super::signs::Signs;

const GROWTH: &str = "check whether the growth ends after some rounds (--thorough): a JVM's heap grows before the JVM collects. The serial collector with -XX:MaxHeapFreeRatio=15 and small pool chunks were tried with {{advice.netty-jdk.serial}}; a limit alone, -Xmx64m, with {{advice.netty-jdk.heap-max}}";
const SESSION_CACHE: &str = "limit the JDK's session cache: start the JVM with -Djavax.net.ssl.sessionCacheSize=1000, or call SSLSessionContext.setSessionCacheSize. By default it keeps 20,480 sessions for a day. Not tried in the lab";
const RESUMPTION: &str = "use one SSLContext for all connections. Tried with {{advice.netty-jdk.one-context}}. The JDK cannot share ticket keys between processes: let `dormouse serve` terminate TLS";
const RENEGOTIATION: &str = "start the JVM with -Djdk.tls.rejectClientInitiatedRenegotiation=true. Tried with Undertow 2.3.18 on OpenJDK 17.0.15, which then refused it";
const HANDSHAKE_COST: &str = "audit again after tens of thousands of handshakes: until then a JVM interprets and compiles its code. If the cost stays, use one SSLContext or SslContext for all connections. Tried with a client whose trust store has one certificate: {{advice.java.roots}}";
const AT_A_TIME: &str = "call startHandshake, or the first read, in the thread of each connection and not in the accept loop, after setSoTimeout. Tried in lab/sick";
const CLIENT_SESSIONS: &str = "use one SSLContext for all connections: it holds the sessions, by host name and port. Tried with HttpsURLConnection and {{advice.java.context}}";
const KEEP_ALIVE: &str = "read each answer to its end, and leave http.keepAlive on. Tried with HttpsURLConnection and {{advice.java.keep-alive}}";
const CLIENT_COST: &str = "create one SSLContext, and use one process for many requests: a JVM first loads and interprets its code. Tried with HttpsURLConnection, a trust store of one certificate, and {{advice.java.roots}}";

/// What reports call it.
pub(crate) const NAME: &str = "the JVM";
/// Part of the name of a class of TLS sessions, and the JDK's own class.
pub(crate) const SESSION_CLASS: &str = "SSLSession";
pub(crate) const JDK_SESSION_CLASS: &str = "sun.security.ssl.SSLSessionImpl";
/// Sessions that the JDK's cache keeps by default (`javax.net.ssl.sessionCacheSize`).
pub(crate) const JDK_SESSIONS: u64 = 20_480;
/// Parts of the names of classes of sessions that are not those of an application.
pub(crate) const NO_APPLICATION: [&str; 4] = ["SSL", "TLS", "HTTP2", "Http2"];
/// Beginnings of the names of threads that compile and collect; the serial collector runs in the VM's thread.
pub(crate) const THREADS: [&str; 8] = [
    "C1 CompilerThre",
    "C2 CompilerThre",
    "G1 ",
    "GC Thread#",
    "Shenandoah ",
    "VM Thread",
    "XWorker",
    "ZWorker",
];

fn is_jvm(signs: &Signs) -> bool {
    signs.file("libjvm.so")
}

pub(super) const PROGRAM: Program = Program {
    compiles: true,
    connection_classes: &["SSLEngine", "SSLSocketImpl", "SslHandler", "SocketChannel"],
    advice: advice! {
        FREE_PAGES: "if bursts recur, change nothing: the next burst uses the pages. Otherwise run jcmd PID System.trim_native_heap after a burst; tried with Jetty 12.0.16 on OpenJDK 17.0.15, where it returned the free pages";
        SESSION_CACHE: SESSION_CACHE;
        GROWTH: GROWTH;
        RESUMPTION: RESUMPTION;
        RENEGOTIATION: RENEGOTIATION;
        HANDSHAKE_COST: HANDSHAKE_COST;
        HANDSHAKES_AT_A_TIME: AT_A_TIME;
        CLIENT_SESSIONS: CLIENT_SESSIONS;
        KEEP_ALIVE: KEEP_ALIVE;
        CLIENT_COST: CLIENT_COST;
    },
    ..Program::collecting("JVM program", is_jvm)
};

pub(super) const NETTY_JDK: Program = Program {
    compiles: true,
    lab: |_| echo("netty-jdk"),
    advice: advice! {
        IDLE_MEMORY: "use netty-tcnative (BoringSSL) instead of the JDK's SSLEngine. Tried with {{compare.netty-tcnative}}, the second figure with the settings below. With the JDK's engine: use the serial collector with small free ratios, which returns free heap to the system, and small pool chunks. Tried with {{compare.netty-jdk}}. Receive buffers of 512 bytes alone made it worse: {{advice.netty-jdk.small-buffers}}. With `dormouse serve` in front, which terminates TLS, both together took {{behind.netty}}";
        SESSION_CACHE: SESSION_CACHE;
        GROWTH: GROWTH;
        RESUMPTION: RESUMPTION;
        RENEGOTIATION: RENEGOTIATION;
        HANDSHAKE_COST: HANDSHAKE_COST;
        HANDSHAKES_AT_A_TIME: AT_A_TIME;
        CLIENT_SESSIONS: CLIENT_SESSIONS;
        KEEP_ALIVE: KEEP_ALIVE;
        CLIENT_COST: CLIENT_COST;
    },
    ..Program::collecting("Netty (JDK SSLEngine)", |signs| {
        is_jvm(signs) && (signs.file("netty") || signs.word("netty"))
    })
};

pub(super) const NETTY_TCNATIVE: Program = Program {
    compiles: true,
    lab: |_| echo("netty-tcnative"),
    advice: advice! {
        IDLE_MEMORY: "use the serial collector and small pool chunks. Tried with {{compare.netty-tcnative}}, which is among the lowest costs of all servers in the lab. Receive buffers of 512 bytes made it worse: {{advice.netty-tcnative.small-buffers}}";
        GROWTH: "use the serial collector and small pool chunks. Tried with {{advice.netty-tcnative.serial}}. A smaller session cache, SslContextBuilder.sessionCacheSize(100), was tried with {{advice.netty-tcnative.small-cache}}";
        RESUMPTION: "use one SslContext for all connections, and call OpenSslSessionContext.setTicketKeys with the same keys in all processes. Tried with {{advice.netty-tcnative.shared}}";
        HANDSHAKE_COST: HANDSHAKE_COST;
        CLIENT_SESSIONS: "use one SslContext for all connections, and newHandler(allocator, host, port): sessions are stored by host and port. Tried with {{advice.netty-client.context}}; without host and port, {{advice.netty-client.unnamed}}";
        CLIENT_COST: CLIENT_COST;
    },
    ..Program::collecting("Netty (tcnative)", |signs| {
        is_jvm(signs) && signs.file("netty_tcnative")
    })
};
