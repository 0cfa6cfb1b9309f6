//! Findings about handshakes that wait for each other.

use super::subject::AuditSubject;
use super::units::{percent, whole};
use crate::catalogue::{Confidence, FindingId, Severity};
use crate::model::Finding;
use crate::model::{LockWaits, ParallelHandshakes, SilentClients};

/// Speed of several clients as a multiple of one client's, below which they wait for each other.
const SPEEDUP_MIN: f64 = 1.5;
/// Idle cores without which the processor is the limit.
const IDLE_CORES: f64 = 0.3;
/// Cores that the server may use while it waits for something else.
const WAITING_CORES: f64 = 0.5;
/// Cores that the audit's clients may use without being the limit: they are one thread.
const CLIENT_CORES: f64 = 0.7;
/// Share of the time that its control group lets a server use, from which that limit is the cause.
const QUOTA_SHARE: f64 = 0.7;
/// Cores that a server uses if one thread is its limit.
const ONE_THREAD: std::ops::Range<f64> = 0.85..1.15;
/// Share of the samples in which threads wait for the same lock, if it is the limit.
const LOCK_SHARE: f64 = 0.5;
/// The same, and the share of the clients whose threads wait for it, where that is enough although no core is idle.
const LOCK_ALWAYS: f64 = 0.8;
const LOCK_CLIENTS: f64 = 0.5;
/// Share of the samples in which the thread with the lock waited for something else than a core. On a busy machine a thread
/// that lost its core may hold any lock for a while, but then it is ready to run.
const LOCK_ASLEEP: f64 = 0.3;

pub(super) fn judge_silent(subject: &AuditSubject, figures: &SilentClients) -> Option<Finding> {
    let blocked_by = figures.blocked_by?;
    let (severity, confidence, clients, they, title) = match blocked_by {
        1 => {
            let title = "one client that connects and says nothing keeps all others".to_owned();
            (
                Severity::High,
                Confidence::High,
                "client",
                "that client",
                title,
            )
        }
        _ => {
            let title =
                format!("{blocked_by} clients that connect and say nothing keep all others");
            (
                Severity::Medium,
                Confidence::Medium,
                "clients",
                "they",
                title,
            )
        }
    };
    let measured = format!(
        "beside {blocked_by} silent {clients}, a ClientHello got no answer within {} ms; alone, and after {they} had left, it got one, in {:.1} ms when alone",
        whole(figures.waited_ms),
        figures.alone_ms
    );
    let cause = match figures.established_blocks {
        Some(true) => "the server serves one connection at a time: an established idle connection blocked the others, too".into(),
        Some(false) => "the thread that accepts connections waits there for the client's part of the handshake; an established idle connection blocked nobody".into(),
        None => format!("{blocked_by} threads or processes, or fewer, make all handshakes, and each waits for its client meanwhile; or the server limits connections without a handshake"),
    };
    Some(Finding {
        title: format!("{title} from a handshake"),
        reference: "a client that says nothing delays nobody".into(),
        ..subject
            .finding(FindingId::HandshakesSerialised, severity, measured)
            .because(cause, confidence)
    })
}

pub(super) fn judge_parallel(
    subject: &AuditSubject,
    figures: &ParallelHandshakes,
) -> Option<Finding> {
    // The kernel stops a server that has used its time, with whatever lock it holds.
    let is_at_quota = |quota| figures.server_cores > QUOTA_SHARE * quota;
    if figures.quota_cores.is_some_and(is_at_quota) {
        return None;
    }
    let is_locked = figures.lock.value().is_some_and(|lock| {
        let is_asleep = lock.asleep_share.is_none_or(|share| share > LOCK_ASLEEP);
        lock.share > LOCK_ALWAYS
            && lock.threads > LOCK_CLIENTS * f64::from(figures.clients)
            && is_asleep
    });
    if is_locked {
        return Some(waiting(subject, figures));
    }
    let cores_are_free = figures.idle_cores > IDLE_CORES && figures.client_cores < CLIENT_CORES;
    if !cores_are_free {
        return None;
    }
    let speedup = figures.together_per_s / figures.alone_per_s.max(1e-9);
    if speedup < SPEEDUP_MIN && figures.server_cores < WAITING_CORES {
        return Some(waiting(subject, figures));
    }
    let is_one_thread = ONE_THREAD.contains(&figures.server_cores);
    is_one_thread.then(|| parallel(subject, figures, Severity::Info))
}

/// Connections wait for each other, and not for the processor.
fn waiting(subject: &AuditSubject, figures: &ParallelHandshakes) -> Finding {
    let found = Finding {
        reference: "more clients, more connections per second, until the cores are busy".into(),
        ..parallel(subject, figures, Severity::Medium)
    };
    let lock = figures.lock.value().filter(|lock| lock.share > LOCK_SHARE);
    let Some(lock) = lock else {
        let cause = "not known: for each connection the server waits, one after the other, for something besides the processor, such as a lookup of names, a key server, a log or a lock; or it limits the rate of connections. `strace -f -T -p PID` under load shows the calls that take long";
        let title = format!(
            "{} clients at a time are served no faster than one",
            figures.clients
        );
        return Finding {
            title,
            ..found.because(cause, Confidence::Low)
        };
    };
    let cause = format!(
        "one lock: in {} of {} samples, {:.1} threads waited for the same lock, which a thread holds while it waits for something else",
        percent(lock.share),
        lock.samples,
        lock.threads
    );
    let title = "connections wait for one lock".into();
    Finding {
        title,
        ..found.because(cause, Confidence::High)
    }
}

/// A finding about several clients, with the usual texts: one thread makes all handshakes, and is busy.
fn parallel(subject: &AuditSubject, figures: &ParallelHandshakes, severity: Severity) -> Finding {
    let lock = figures.lock.value().filter(|lock| lock.share > 0.0);
    let measured = format!(
        "{} connections per second with one client, {} with {}; meanwhile the server used {:.2} cores, the audit's clients {:.2}, and {:.2} were idle{}",
        whole(figures.alone_per_s),
        whole(figures.together_per_s),
        figures.clients,
        figures.server_cores,
        figures.client_cores,
        figures.idle_cores,
        lock.map_or_else(String::new, lock_words)
    );
    Finding {
        command: subject.bench("churn", "-n 2000 -c 16"),
        ..subject.finding(FindingId::HandshakesSerialised, severity, measured)
    }
}

fn lock_words(lock: &LockWaits) -> String {
    format!(
        "; in {} of {} samples two or more threads waited for the same lock",
        percent(lock.share),
        lock.samples
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Audit, Measured};

    fn subject() -> AuditSubject {
        AuditSubject::new(&Audit::begin("server", "s", "127.0.0.1:1"))
    }

    fn silent(blocked_by: Option<u64>, established_blocks: Option<bool>) -> SilentClients {
        SilentClients {
            tried: blocked_by.unwrap_or(16),
            blocked_by,
            waited_ms: 2_000.0,
            alone_ms: 1.2,
            established_blocks,
        }
    }

    #[test]
    fn a_silent_client_that_blocks_others_is_a_fault() {
        assert!(judge_silent(&subject(), &silent(None, None)).is_none());
        let one = judge_silent(&subject(), &silent(Some(1), Some(false))).unwrap();
        assert_eq!(
            (one.severity, one.confidence),
            (Severity::High, Confidence::High)
        );
        assert!(one.cause.contains("accepts"), "{}", one.cause);
        let whole = judge_silent(&subject(), &silent(Some(1), Some(true))).unwrap();
        assert!(
            whole.cause.contains("one connection at a time"),
            "{}",
            whole.cause
        );
        let several = judge_silent(&subject(), &silent(Some(8), None)).unwrap();
        assert_eq!(several.severity, Severity::Medium);
    }

    fn parallel(together_per_s: f64, [server, clients, idle]: [f64; 3]) -> ParallelHandshakes {
        ParallelHandshakes {
            clients: 16,
            alone_per_s: 400.0,
            together_per_s,
            server_cores: server,
            client_cores: clients,
            idle_cores: idle,
            quota_cores: None,
            lock: Measured::not("not sampled"),
        }
    }

    fn severity(figures: &ParallelHandshakes) -> Option<Severity> {
        judge_parallel(&subject(), figures).map(|finding| finding.severity)
    }

    #[test]
    fn clients_that_wait_for_each_other_and_not_for_the_processor() {
        let waits = parallel(430.0, [0.15, 0.2, 1.6]);
        assert_eq!(severity(&waits), Some(Severity::Medium));
        assert_eq!(severity(&parallel(1_900.0, [0.6, 0.6, 0.8])), None);
        // The processor is the limit, or the audit's own clients are.
        assert_eq!(severity(&parallel(430.0, [0.3, 0.3, 0.1])), None);
        assert_eq!(severity(&parallel(430.0, [0.15, 0.95, 0.9])), None);
        // An event loop that is busy.
        assert_eq!(
            severity(&parallel(600.0, [0.98, 0.4, 0.6])),
            Some(Severity::Info)
        );
    }

    /// Containers usually have a part of a core, or one: more clients are served no faster, and other cores are idle.
    #[test]
    fn a_server_at_the_limit_of_its_control_group_waits_for_nothing() {
        let with = |server, quota| ParallelHandshakes {
            quota_cores: Some(quota),
            ..parallel(430.0, [server, 0.2, 1.6])
        };
        assert_eq!(severity(&with(0.23, 0.25)), None);
        assert_eq!(severity(&with(0.98, 1.0)), None);
        assert_eq!(severity(&with(0.15, 2.0)), Some(Severity::Medium));
    }

    #[test]
    fn a_lock_is_named_if_threads_were_seen_to_wait_for_it() {
        let mut waits = parallel(430.0, [0.15, 0.2, 1.6]);
        let finding = judge_parallel(&subject(), &waits).unwrap();
        assert_eq!(finding.confidence, Confidence::Low);
        waits.lock = Measured::Value(LockWaits {
            samples: 48,
            share: 0.96,
            threads: 12.5,
            asleep_share: None,
        });
        let finding = judge_parallel(&subject(), &waits).unwrap();
        assert_eq!(finding.confidence, Confidence::High);
        assert!(finding.cause.contains("12.5 threads"), "{}", finding.cause);
        // Recorded on a busy machine: with the lock, and without it, where threads without a core held another one.
        let mut busy = parallel(253.0, [0.2, 0.12, 0.0]);
        let lock = |share, threads, asleep_share| {
            Measured::Value(LockWaits {
                samples: 95,
                share,
                threads,
                asleep_share,
            })
        };
        busy.lock = lock(0.97, 11.8, None);
        assert_eq!(severity(&busy), Some(Severity::Medium));
        busy.lock = lock(0.11, 12.7, None);
        assert_eq!(severity(&busy), None);
        // Java with a whole lock's queue, whose first thread was ready to run.
        let mut busy = parallel(220.0, [0.66, 0.06, 0.0]);
        busy.lock = lock(0.86, 26.8, Some(0.0));
        assert_eq!(severity(&busy), None);
    }
}
