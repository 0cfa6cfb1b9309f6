//! User of keepers and workers: the configured `user`, or nobody where that is safe.

use crate::error::ServeError;
use dormouse_config::{Backend, Config};
use dormouse_helpers::helper::NOBODY;
use dormouse_reactor::process::{self, User};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Chooses the user and group of keepers and workers. `None`: those of main.
///
/// # Errors
/// The configured `user` does not exist, or main cannot switch to it.
pub(crate) fn choose(config: &Config) -> Result<Option<(u32, u32)>, ServeError> {
    match &config.process.user {
        Some(name) => configured(name, config.process.group.as_deref()).map(Some),
        None if process::user_id() != 0 => Ok(None),
        None => match obstacle_to_nobody(config) {
            None => Ok(Some(NOBODY)),
            Some(why) => {
                tracing::warn!(reason = why, "workers run as root");
                Ok(None)
            }
        },
    }
}

fn configured(name: &str, group: Option<&str>) -> Result<(u32, u32), ServeError> {
    let cannot = |error: io::Error, hint| ServeError::System {
        what: format!("run keepers and workers as the user `{name}`"),
        error,
        hint,
    };
    let user = process::look_up_user(name, group).map_err(|why| {
        cannot(
            io::Error::other(why),
            "`getent passwd` lists the existing users",
        )
    })?;
    let own = process::user_id();
    if own != 0 && own != user.uid {
        let refused = io::ErrorKind::PermissionDenied.into();
        return Err(cannot(refused, "start as root, or remove `user`"));
    }
    Ok((user.uid, user.gid))
}

/// Why keepers and workers of root do not run as nobody by default.
fn obstacle_to_nobody(config: &Config) -> Option<String> {
    let (uid, gid) = NOBODY;
    if !process::can_become(User { uid, gid }) {
        return Some(
            "this container has no other users, or root cannot switch to one; set `user`"
                .to_owned(),
        );
    }
    if let Some(path) = unix_backends(config).next() {
        return Some(format!(
            "{} is a unix socket, which the user nobody may be unable to reach; set `user`",
            path.display()
        ));
    }
    let program = std::env::current_exe().ok()?;
    let closed = program.ancestors().find(|part| !is_open_to_all(part))?;
    Some(format!(
        "the user nobody cannot execute {}, which an upgrade needs; set `user`",
        closed.display()
    ))
}

/// Whether a backend is a unix socket to which the user nobody may not connect, as far as main can see.
pub(crate) fn is_closed_to_nobody(config: &Config) -> bool {
    let is_writable = |path: &Path| {
        let mode = path.metadata().map(|found| found.permissions().mode());
        mode.is_ok_and(|mode| mode & 0o002 != 0)
    };
    unix_backends(config)
        // Sockets without a file are open to all.
        .filter(|path| !path.as_os_str().as_encoded_bytes().starts_with(b"@"))
        .any(|path| !is_writable(path) || !path.ancestors().skip(1).all(is_open_to_all))
}

fn unix_backends(config: &Config) -> impl Iterator<Item = &Path> {
    let backends = config.routes.iter().flat_map(|route| &route.to);
    backends.filter_map(|to| match &to.backend {
        Backend::Unix(path) => Some(path.as_path()),
        Backend::Tcp { .. } | Backend::Echo => None,
    })
}

/// Whether every user can execute this file or enter this folder.
fn is_open_to_all(part: &Path) -> bool {
    let mode = part.metadata().map(|found| found.permissions().mode());
    // A deleted path restricts nothing.
    mode.is_ok_and(|mode| mode & 0o001 != 0) || !part.exists()
}
