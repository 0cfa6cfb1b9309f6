//! The admin address: opened by main, which keeps it, so that each control process gets the same.

use crate::error::{ServeError, system};
use dormouse_config::{Admin, Config};
use dormouse_reactor::process;
use dormouse_reactor::socket::{self, Addr, ConnectOptions, ListenOptions};
use dormouse_reactor::{Fd, OnExec};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The admin address, listening. A unix socket's file is removed when this is dropped.
pub(crate) struct AdminAddress {
    pub(crate) listener: Fd,
    /// The file of a unix socket.
    pub(crate) path: Option<PathBuf>,
}

/// Opens the address of the configuration. A configured address must open; the usual path need not.
pub(crate) fn open(config: &Config) -> Result<Option<AdminAddress>, ServeError> {
    match &config.process.admin {
        Admin::None => Ok(None),
        Admin::Auto => Ok(open_usual()),
        Admin::Unix(path) => match open_unix(path) {
            Ok(address) => Ok(Some(address)),
            Err(error) => Err(ServeError::System {
                what: format!("open the admin socket {}", path.display()),
                error,
                hint: "choose another path with `admin`, or \"none\" to do without",
            }),
        },
        Admin::Loopback(address) => {
            let listener = socket::listen(&Addr::Tcp(*address), &options())
                .map_err(system(format!("open the admin address {address}")))?;
            Ok(Some(AdminAddress {
                listener,
                path: None,
            }))
        }
    }
}

fn open_usual() -> Option<AdminAddress> {
    let Some(path) = Admin::usual_path() else {
        tracing::warn!(
            "no admin socket: XDG_RUNTIME_DIR is not set; `admin` gives it a path of its own"
        );
        return None;
    };
    let opened = make_directory(&path).and_then(|()| open_unix(&path));
    match opened {
        Ok(address) => Some(address),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            tracing::warn!(
                path = %path.display(),
                "no admin socket: another instance answers there; `admin` gives this one its own"
            );
            None
        }
        Err(error) => {
            tracing::warn!(
                path = %path.display(), %error,
                "no admin socket; `admin` gives it another path"
            );
            None
        }
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.exists() => fs::DirBuilder::new().mode(0o700).create(parent),
        _ => Ok(()),
    }
}

/// Opens a socket for its owner alone, in place of one that a former process has left.
fn open_unix(path: &Path) -> io::Result<AdminAddress> {
    let address = Addr::Unix(path.to_owned());
    let listener = match socket::listen(&address, &options()) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_orphaned(&address) => {
            fs::remove_file(path)?;
            socket::listen(&address, &options())
        }
        other => other,
    }?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(AdminAddress {
        listener,
        path: Some(path.to_owned()),
    })
}

/// Whether the main process that opened this socket has died: its control process still answers there.
fn is_orphaned(address: &Addr) -> bool {
    let Ok(connecting) = socket::connect(address, &ConnectOptions::default()) else {
        return false;
    };
    let opened_by = socket::peer_process(connecting.fd());
    connecting.fd().close();
    opened_by.is_ok_and(|main| !process::runs(main))
}

fn options() -> ListenOptions {
    ListenOptions {
        backlog: 64,
        on_exec: OnExec::Close,
        ..ListenOptions::default()
    }
}

impl Drop for AdminAddress {
    fn drop(&mut self) {
        self.listener.close();
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}
