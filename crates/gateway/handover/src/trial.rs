//! Makes a binary crash or hang at a chosen point, for tests: `DORMOUSE_TRIAL=crash:PHASE[:WORKER]`, in
//! debug builds only. In an upgrade, the new binary finds its trials in a file beside its own, one a line, because the
//! environment is that of the old one.

/// Whether this build obeys trials. A release does not: what follows a check of this is not in its binary.
const OBEYS: bool = cfg!(debug_assertions);

/// The trials that the test has chosen.
fn chosen() -> Vec<String> {
    if !OBEYS {
        return Vec::new();
    }
    let of_file = || {
        let own = std::env::current_exe().ok()?;
        // Another binary may have its place by now.
        let own = own.to_string_lossy();
        let own = own.strip_suffix(" (deleted)").unwrap_or(&own);
        std::fs::read_to_string(format!("{own}.trial")).ok()
    };
    let all = of_environment().into_iter().chain(of_file());
    all.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// The trial that is chosen for this process alone.
fn of_environment() -> Option<String> {
    match OBEYS {
        true => std::env::var("DORMOUSE_TRIAL").ok(),
        false => None,
    }
}

/// Crashes, hangs or waits a second if the test has chosen this phase, and this worker or any.
pub fn crash_at(phase: &str, worker: u32) {
    if !OBEYS {
        return;
    }
    for trial in chosen() {
        let mut words = trial.split(':');
        let (how, at, whose) = (words.next(), words.next(), words.next());
        if at != Some(phase) || whose.is_some_and(|whose| whose != worker.to_string()) {
            continue;
        }
        match how {
            Some("crash") => std::process::abort(),
            Some("hang") => std::thread::sleep(std::time::Duration::from_secs(600)),
            Some("wait") => std::thread::sleep(std::time::Duration::from_secs(1)),
            _ => {}
        }
    }
}

/// Crashes the worker if the received bytes begin with a record of N bytes:
/// `DORMOUSE_TRIAL=crash:record:N`.
pub fn crash_on(received: &[u8]) {
    if !OBEYS {
        return;
    }
    static LEN: std::sync::OnceLock<Option<u16>> = std::sync::OnceLock::new();
    let len = LEN.get_or_init(|| {
        let trial = of_environment()?;
        trial.strip_prefix("crash:record:")?.parse().ok()
    });
    if let (Some(len), [_, _, _, high, low, ..]) = (len, received)
        && *len == u16::from_be_bytes([*high, *low])
    {
        std::process::abort();
    }
}

/// Holds a descriptor for a moment in the first thread of a worker that is about to confine itself, as its sandbox does:
/// `DORMOUSE_TRIAL=hold:descriptor`.
pub(crate) fn hold_descriptor(role: dormouse_reactor::sandbox::Role) {
    use dormouse_reactor::sandbox::Role;
    let is_chosen = of_environment().is_some_and(|trial| trial == "hold:descriptor");
    if OBEYS && is_chosen && matches!(role, Role::WorkersFirstThread { .. }) {
        let held = std::fs::File::open("/dev/null");
        std::thread::sleep(std::time::Duration::from_millis(200));
        drop(held);
    }
}

/// Fails if the test wants main to be unable to execute a new binary: `DORMOUSE_TRIAL=fail:execution`.
///
/// # Errors
/// That of the trial.
pub fn fail_execution() -> std::io::Result<()> {
    match OBEYS && chosen().iter().any(|trial| trial == "fail:execution") {
        true => Err(std::io::Error::other("a trial")),
        false => Ok(()),
    }
}

/// Tries forbidden operations in a process that has confined itself, and logs the outcomes:
/// `DORMOUSE_TRIAL=forbidden`.
pub(crate) fn try_forbidden_operations(role: dormouse_reactor::sandbox::Role) {
    if OBEYS && of_environment().is_some_and(|trial| trial == "forbidden") {
        let probes = dormouse_reactor::sandbox::probes();
        let words: Vec<String> = probes.iter().map(ToString::to_string).collect();
        tracing::info!(%role, outcomes = words.join(" "), "sandbox trial");
    }
}
