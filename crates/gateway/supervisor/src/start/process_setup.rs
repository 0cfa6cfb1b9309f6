//! Main's first steps in its process: limits, signals, the poller.

use crate::error::{ServeError, system};
use crate::tokens;
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::signal::{self, Signal, Signals};
use dormouse_reactor::{OnExec, descriptors, process};
use std::fs;

/// Makes main the reaper of orphaned workers, forbids core dumps, and raises the descriptor limit, which
/// the plan relies on and workers inherit.
pub(crate) fn prepare_process() -> Result<(), ServeError> {
    if let Err(error) = fs::metadata("/proc/self/exe") {
        return Err(ServeError::System {
            what: "read /proc/self/exe: the file system /proc is missing".to_owned(),
            error,
            hint: "mount it: mount -t proc proc /proc; in a chroot: RootDirectory= with MountAPIVFS=yes",
        });
    }
    process::set_subreaper().map_err(system("become the reaper of orphaned workers"))?;
    process::forbid_core_dumps().map_err(system("forbid core dumps"))?;
    descriptors::raise_limit().map_err(system("raise the limit on descriptors"))?;
    Ok(())
}

/// Opens the signals that main handles. Every process that main starts inherits them blocked.
///
/// All other signals are ignored, except those that report a fault of main: without main nothing could
/// end the program in order.
pub(crate) fn open_signals() -> Result<Signals, ServeError> {
    signal::ignore_meaningless();
    Signals::open(
        &[
            Signal::Terminate,
            Signal::Interrupt,
            Signal::Quit,
            Signal::User1,
            Signal::Hangup,
            Signal::Child,
            Signal::User2,
        ],
        OnExec::Close,
    )
    .map_err(system("listen for signals"))
}

/// Opens main's poller.
pub(crate) fn open_poller(signals: &Signals) -> Result<Poller, ServeError> {
    let poller = Poller::create(OnExec::Close).map_err(system("create an epoll instance"))?;
    poller
        .add(signals.fd(), tokens::SIGNALS, Interest::READ)
        .map_err(system("wait for signals"))?;
    Ok(poller)
}
