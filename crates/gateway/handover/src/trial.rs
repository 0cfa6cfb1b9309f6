//! Makes a binary crash or hang at a chosen point, for tests: `DORMOUSE_TRIAL=crash:PHASE[:WORKER]`, in
//! debug builds only. In an upgrade, the new binary finds its trials in a file beside its own, one a line, because the
//! environment is that of the old one.

/// The trials that the test has chosen.
#[cfg(debug_assertions)]
fn chosen() -> Vec<String> {
    let of_file = || {
        let own = std::env::current_exe().ok()?;
        // Another binary may have its place by now.
        let own = own.to_string_lossy();
        let own = own.strip_suffix(" (deleted)").unwrap_or(&own);
        std::fs::read_to_string(format!("{own}.trial")).ok()
    };
    let of_environment = std::env::var("DORMOUSE_TRIAL").ok();
    let all = of_environment.into_iter().chain(of_file());
    all.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// Crashes, hangs or waits a second if the test has chosen this phase, and this worker or any.
#[cfg(debug_assertions)]
pub fn crash_at(phase: &str, worker: u32) {
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
#[cfg(debug_assertions)]
pub fn crash_on(received: &[u8]) {
    static LEN: std::sync::OnceLock<Option<u16>> = std::sync::OnceLock::new();
    let len = LEN.get_or_init(|| {
        let trial = std::env::var("DORMOUSE_TRIAL").ok()?;
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
#[cfg(debug_assertions)]
pub(crate) fn hold_descriptor(role: dormouse_reactor::sandbox::Role) {
    use dormouse_reactor::sandbox::Role;
    let is_chosen = std::env::var("DORMOUSE_TRIAL").is_ok_and(|trial| trial == "hold:descriptor");
    if is_chosen && matches!(role, Role::WorkersFirstThread { .. }) {
        let held = std::fs::File::open("/dev/null");
        std::thread::sleep(std::time::Duration::from_millis(200));
        drop(held);
    }
}

#[cfg(not(debug_assertions))]
pub(crate) fn hold_descriptor(_role: dormouse_reactor::sandbox::Role) {}

/// Fails if the test wants main to be unable to execute a new binary: `DORMOUSE_TRIAL=fail:execution`.
///
/// # Errors
/// That of the trial.
#[cfg(debug_assertions)]
pub fn fail_execution() -> std::io::Result<()> {
    match chosen().iter().any(|trial| trial == "fail:execution") {
        true => Err(std::io::Error::other("a trial")),
        false => Ok(()),
    }
}

/// Does nothing in a release build.
///
/// # Errors
/// Never.
#[cfg(not(debug_assertions))]
pub fn fail_execution() -> std::io::Result<()> {
    Ok(())
}

/// Tries forbidden operations in a process that has confined itself, and logs the outcomes:
/// `DORMOUSE_TRIAL=forbidden`.
#[cfg(debug_assertions)]
pub(crate) fn try_forbidden_operations(role: dormouse_reactor::sandbox::Role) {
    if std::env::var("DORMOUSE_TRIAL").is_ok_and(|trial| trial == "forbidden") {
        let probes = dormouse_reactor::sandbox::probes();
        let words: Vec<String> = probes.iter().map(ToString::to_string).collect();
        tracing::info!(%role, outcomes = words.join(" "), "sandbox trial");
    }
}

#[cfg(not(debug_assertions))]
pub(crate) fn try_forbidden_operations(_role: dormouse_reactor::sandbox::Role) {}

/// Does nothing in a release build.
#[cfg(not(debug_assertions))]
pub fn crash_at(_phase: &str, _worker: u32) {}

/// Does nothing in a release build.
#[cfg(not(debug_assertions))]
pub fn crash_on(_received: &[u8]) {}
