//! Who keepers and workers become: the `user` of the configuration, or nobody where that is safe.

use crate::error::ServeError;
use dormouse_config::{Backend, Config};
use dormouse_helpers::helper::NOBODY;
use dormouse_reactor::process::{self, User};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// User and group of keepers and workers. `None`: those of main.
///
/// # Errors
/// The `user` of the configuration is not there, or main can't become it.
pub(crate) fn choose(config: &Config) -> Result<Option<(u32, u32)>, ServeError> {
    match &config.process.user {
        Some(name) => configured(name, config.process.group.as_deref()).map(Some),
        None if process::user_id() != 0 => Ok(None),
        None => match why_not_nobody(config) {
            None => Ok(Some(NOBODY)),
            Some(why) => {
                tracing::warn!("workers run as root, because {why}: set `user`");
                Ok(None)
            }
        },
    }
}

fn configured(name: &str, group: Option<&str>) -> Result<(u32, u32), ServeError> {
    let cannot = |error: io::Error, hint| ServeError::System {
        what: format!("become the user `{name}` in keepers and workers"),
        error,
        hint,
    };
    let user = process::look_up_user(name, group)
        .map_err(|why| cannot(io::Error::other(why), "`getent passwd` shows who there is"))?;
    let own = process::user_id();
    if own != 0 && own != user.uid {
        let refused = io::ErrorKind::PermissionDenied.into();
        return Err(cannot(refused, "start as root, or without `user`"));
    }
    Ok((user.uid, user.gid))
}

/// Why keepers and workers of root can't be nobody without having been asked.
fn why_not_nobody(config: &Config) -> Option<String> {
    let (uid, gid) = NOBODY;
    if !process::can_become(User { uid, gid }) {
        return Some("this container has no other users, or root may not become one".to_owned());
    }
    let mut backends = config.routes.iter().flat_map(|route| &route.to);
    let unix = backends.find_map(|to| match &to.backend {
        Backend::Unix(path) => Some(path),
        Backend::Tcp { .. } | Backend::Echo => None,
    });
    if let Some(path) = unix {
        return Some(format!(
            "{} is a unix socket, which nobody may not be able to reach",
            path.display()
        ));
    }
    let program = std::env::current_exe().ok()?;
    let closed = program.ancestors().find(|part| !is_open_to_all(part))?;
    Some(format!(
        "{} is closed to others, and an upgrade could not start the program",
        closed.display()
    ))
}

/// Whether every user may execute this file, or go through this folder.
fn is_open_to_all(part: &Path) -> bool {
    let mode = part.metadata().map(|found| found.permissions().mode());
    // What is not there any more closes nothing.
    mode.is_ok_and(|mode| mode & 0o001 != 0) || !part.exists()
}
