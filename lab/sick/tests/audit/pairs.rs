//! Pairs of a fault and its healthy twin, which does the same work, by runtime. `lab/sick/often` runs them repeatedly.

use super::runtimes::{Runtime, files};
use super::{Judged, is_clean, is_named};

/// Each pair becomes two tests: `NAME::fault` and `NAME::twin`.
macro_rules! pairs {
    ($($name:ident: $runtime:ident $fault:literal is $($id:literal)&+, beside $twin:literal;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            #[ignore = "a whole audit: `make sick` runs it"]
            fn fault() {
                is_named_in(Runtime::$runtime, $fault, &[$($id),+]);
            }

            #[test]
            #[ignore = "a whole audit: `make sick` runs it"]
            fn twin() {
                is_clean_in(Runtime::$runtime, $twin);
            }
        })*
    };
}

pairs! {
    openssl_keeps_sessions: OpenSsl "sessions" is "session-cache-grows", beside "sessions-bounded";
    openssl_context_each: OpenSsl "context" is "context-per-connection", beside "context-shared";
    openssl_object_unfreed: OpenSsl "unfreed" is "leak-per-connection", beside "healthy";
    openssl_unfreed_in_one_version: OpenSsl "unfreed-12" is "leak-per-connection", beside "healthy";
    openssl_second_process_leaks: OpenSsl "second" is "leak-per-connection", beside "two";
    openssl_certificate_unfreed: OpenSsl "peer" is "leak-per-connection", beside "peer-freed";
    openssl_sessions_unnamed: OpenSsl "unnamed" is "session-offer-refused", beside "named";
    openssl_refused_leak: OpenSsl "refused" is "leak-per-connection", beside "healthy";
    openssl_password_each: OpenSsl "password" is "handshake-cpu", beside "password-once";
    openssl_polls_connections: OpenSsl "polling" is "idle-cpu", beside "timer";
    openssl_no_tickets_in_13: OpenSsl "no-13" is "no-resumption-in-one-version", beside "healthy";
    openssl_small_pieces: OpenSsl "pieces" is "records-small", beside "healthy";
    openssl_padded_records: OpenSsl "padded" is "records-padded", beside "padded-little";
    threads_lock_while_waiting: Threads "lock" is "handshakes-serialised", beside "no-lock";
    threads_in_small_number: Threads "few" is "handshakes-serialised", beside "no-lock";
    openssl_two_faults: OpenSsl "two-faults" is "session-cache-grows" & "handshake-cpu", beside "two-healthy";
    gnutls_session_undeinited: GnuTls "undeinited" is "leak-per-connection", beside "healthy";
    gnutls_trust_store_each: GnuTls "trust" is "context-per-connection", beside "trust-shared";
    gnutls_keys_each: GnuTls "keys-each" is "no-resumption", beside "healthy";
    gnutls_without_tickets: GnuTls "silent" is "no-resumption", beside "healthy";
    go_goroutines: Go "goroutines" is "leak-per-connection", beside "healthy";
    go_keys_each: Go "keys-each" is "no-resumption", beside "keys-once";
    go_small_records: Go "records" is "records-small", beside "healthy";
    go_two_faults: Go "two-faults" is "leak-per-connection" & "no-resumption", beside "bounded";
    python_context_each: Python "context" is "handshake-cpu", beside "trusting";
    python_handshake_in_accept_loop: Python "inline" is "handshakes-serialised", beside "healthy";
    python_cycles: Python "leak" is "leak-per-connection", beside "cycles";
    asyncio_tasks: Asyncio "tasks" is "leak-per-connection", beside "healthy";
    node_leak: Node "leak" is "leak-per-connection", beside "bounded";
    node_listeners: Node "listeners" is "leak-per-connection", beside "healthy";
    node_context_each: Node "context" is "handshake-cpu", beside "context-cached";
    node_without_tickets: Node "no-tickets" is "no-resumption", beside "healthy";
    java_leak: Java "leak" is "leak-per-connection", beside "bounded";
    java_sockets_kept: Java "sockets" is "leak-per-connection", beside "healthy";
    java_handshake_in_accept_loop: Java "inline" is "handshakes-serialised", beside "healthy";
    java_context_each: Java "context" is "no-resumption", beside "healthy";
}

pub(super) fn is_named_in(runtime: Runtime, fault: &str, ids: &[&str]) {
    if let Some(judged) = audit(runtime, fault) {
        for id in ids {
            is_named(&judged, id);
        }
    }
}

pub(super) fn is_clean_in(runtime: Runtime, twin: &str) {
    if let Some(judged) = audit(runtime, twin) {
        is_clean(&judged);
    }
}

/// Audits a server; one that asks for a client certificate gets one.
pub(super) fn audit(runtime: Runtime, fault: &str) -> Option<Judged> {
    let (certificate, key) = files();
    let options = ["--sni", "localhost", "--cert", certificate, "--key", key];
    let is_asking = fault.starts_with("peer");
    runtime.audit(fault, if is_asking { &options } else { &options[..2] })
}
