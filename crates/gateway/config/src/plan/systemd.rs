//! Environment variables of the service manager (sd_notify(3), sd_listen_fds(3)).

/// Variables that the service manager sets for main alone; processes that main starts do not get
/// them.
pub const SYSTEMD_VARIABLES: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
];

/// Returns a number from the environment.
pub fn environment_number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Returns whether the variable `name` holds the id of this process; `if_unset` if the variable is
/// not set.
pub fn is_for_this_process(name: &str, if_unset: bool) -> bool {
    match std::env::var(name) {
        Ok(pid) => pid == std::process::id().to_string(),
        Err(_) => if_unset,
    }
}

/// Returns whether the service manager has handed listening sockets to this process.
pub fn hands_in_listeners() -> bool {
    is_for_this_process("LISTEN_PID", false)
        && environment_number("LISTEN_FDS").is_some_and(|count| count > 0)
}
