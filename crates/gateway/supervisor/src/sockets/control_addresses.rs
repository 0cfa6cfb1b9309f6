//! The listeners of control: the admin socket, which accepts orders, and the metrics address. Main
//! opens both and keeps them across restarts of control.

use crate::error::{ServeError, system};
use crate::sockets::socket_file::SocketFile;
use dormouse_config::{Admin, Config, MetricsAddress};
use dormouse_reactor::process;
use dormouse_reactor::socket::{self, Addr, ConnectOptions, ListenOptions};
use dormouse_reactor::{Fd, OnExec};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The configured listeners. Dropping this removes the socket's file.
pub(crate) struct ControlAddresses {
    admin: Option<AdminSocket>,
    /// The metrics address, listening.
    pub(crate) metrics: Option<Fd>,
    /// Whether only this machine can reach the metrics address.
    pub(crate) metrics_is_loopback: bool,
}

struct AdminSocket {
    listener: Fd,
    file: SocketFile,
}

/// The listeners, for the next binary in this process.
#[derive(Serialize, Deserialize)]
pub(crate) struct ControlAddressesState {
    admin: Option<(i32, PathBuf)>,
    metrics: Option<i32>,
    metrics_is_loopback: bool,
}

impl ControlAddresses {
    /// Opens the listeners. A configured path must open; the default path may fail. `None`: neither is
    /// configured.
    pub(crate) fn open(config: &Config) -> Result<Option<ControlAddresses>, ServeError> {
        let metrics = config.process.metrics;
        let addresses = ControlAddresses {
            admin: open_admin(&config.process.admin)?,
            metrics: metrics.map(open_metrics).transpose()?,
            metrics_is_loopback: metrics.is_some_and(|address| address.0.ip().is_loopback()),
        };
        let is_any = addresses.admin.is_some() || addresses.metrics.is_some();
        Ok(is_any.then_some(addresses))
    }

    /// Adopts the listeners that another binary in this process has opened.
    pub(crate) fn adopt(state: &ControlAddressesState, files: &[SocketFile]) -> ControlAddresses {
        let admin = state.admin.as_ref();
        ControlAddresses {
            admin: admin.map(|(listener, path)| AdminSocket {
                listener: Fd(*listener),
                file: SocketFile::adopt(path, files),
            }),
            metrics: state.metrics.map(Fd),
            metrics_is_loopback: state.metrics_is_loopback,
        }
    }

    /// The state for the next binary in this process.
    pub(crate) fn state(&self) -> ControlAddressesState {
        let admin = self.admin.as_ref();
        ControlAddressesState {
            admin: admin.map(|admin| (admin.listener.0, admin.file.path().to_owned())),
            metrics: self.metrics.map(|fd| fd.0),
            metrics_is_loopback: self.metrics_is_loopback,
        }
    }

    /// The file of the admin socket.
    pub(crate) fn file(&self) -> Option<&SocketFile> {
        self.admin.as_ref().map(|admin| &admin.file)
    }

    /// The admin socket, listening.
    pub(crate) fn admin(&self) -> Option<Fd> {
        self.admin.as_ref().map(|admin| admin.listener)
    }

    /// Opens the admin socket again if its file was removed or replaced. Returns whether it did.
    pub(crate) fn recover_admin(&mut self) -> bool {
        let Some(lost) = self.admin.as_mut().filter(|admin| admin.file.is_lost()) else {
            return false;
        };
        let path = lost.file.path();
        match open_unix(path) {
            Ok(next) => {
                std::mem::replace(lost, next).listener.close();
                true
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "admin socket not available");
                false
            }
        }
    }

    /// The listeners' descriptors.
    pub(crate) fn fds(&self) -> Vec<Fd> {
        self.admin().into_iter().chain(self.metrics).collect()
    }
}

fn open_metrics(address: MetricsAddress) -> Result<Fd, ServeError> {
    let options = ListenOptions {
        // `[::]` means all addresses of the machine, IPv4 included.
        v6only: false,
        ..options()
    };
    socket::listen(&Addr::Tcp(address.0), &options)
        .map_err(system(format!("open the metrics address {address}")))
}

fn open_admin(admin: &Admin) -> Result<Option<AdminSocket>, ServeError> {
    match admin {
        Admin::None | Admin::Loopback(_) => Ok(None),
        Admin::Auto => Ok(open_default()),
        Admin::Unix(path) => match open_unix(path) {
            Ok(socket) => Ok(Some(socket)),
            Err(error) => Err(ServeError::System {
                what: format!("open the admin socket {}", path.display()),
                error,
                hint: "choose another path with `admin`, or set it to \"none\"",
            }),
        },
    }
}

fn open_default() -> Option<AdminSocket> {
    let Some(path) = Admin::usual_path() else {
        tracing::warn!(
            error = "XDG_RUNTIME_DIR is not set",
            "admin socket not available"
        );
        return None;
    };
    let opened = make_directory(&path).and_then(|()| open_unix(&path));
    match opened {
        Ok(socket) => Some(socket),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            tracing::warn!(
                path = %path.display(),
                error = "another instance listens there",
                            "admin socket not available"
            );
            None
        }
        Err(error) => {
            tracing::warn!(
                path = %path.display(), %error,
                "admin socket not available"
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

/// Opens a socket that only its owner can use. Replaces one that a dead main process left behind.
fn open_unix(path: &Path) -> io::Result<AdminSocket> {
    if is_orphaned(path) {
        fs::remove_file(path)?;
    }
    let listener = socket::listen(&Addr::Unix(path.to_owned()), &options())?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(AdminSocket {
        listener,
        file: SocketFile::at(path),
    })
}

/// Whether the main process that opened this socket has died. Its control process still answers there,
/// and makes room for the next start.
pub(crate) fn is_orphaned(path: &Path) -> bool {
    let address = Addr::Unix(path.to_owned());
    let Ok(connecting) = socket::connect(&address, &ConnectOptions::default()) else {
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

impl Drop for ControlAddresses {
    fn drop(&mut self) {
        self.fds().into_iter().for_each(Fd::close);
        if let Some(admin) = &self.admin {
            admin.file.remove();
        }
    }
}
