//! A gateway that checks its backends ten times a second.

use std::net::SocketAddr;
use std::path::Path;

use crate::admin::Admin;
use crate::process::Process;
use crate::scene::{self, TLS_PORT, unused_host};
use crate::terminator::{Settings, Target, Terminator};
use crate::wait;

/// Starts the gateway with these backends.
///
/// # Panics
/// When it does not start.
pub fn start(
    to: &[SocketAddr],
    folder: &Path,
    change: impl FnOnce(&mut Settings),
) -> (Process, Admin, Settings) {
    let listen = SocketAddr::new(unused_host(), TLS_PORT);
    let mut settings = Settings::new(listen, Target::Tcp(to[0]));
    let listed: Vec<String> = to.iter().map(|to| format!("\"{to}\"")).collect();
    settings
        .options
        .push(("to", format!("[{}]", listed.join(", "))));
    settings.option("check_every", "100ms");
    Admin::in_folder(&mut settings);
    change(&mut settings);
    let terminator = scene::start(Terminator::Dormouse, &settings, folder);
    let admin = Admin::at(&folder.join("admin.sock"));
    (terminator, admin, settings)
}

/// Waits until `status` shows this check result for a backend: `healthy`, `unhealthy` or `off`.
///
/// # Panics
/// When it takes too long.
pub fn until(admin: &Admin, number: usize, check: &str) {
    wait::until_true(&format!("backend {number} to be {check}"), || {
        admin.status()["backends"][number]["check"] == check
    });
}
