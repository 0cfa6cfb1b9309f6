//! The control process, as main sees it: its address, its life, what it asks.

use super::error::{ServeError, system};
use super::{Supervisor, TOKEN_CONTROL};
use dormouse_config::{Admin, Config};
use dormouse_handover::child;
use dormouse_handover::talk;
use dormouse_helpers::helper::{self, Privileges};
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::process::{self, Ended, Pid};
use dormouse_reactor::shared::Shared;
use dormouse_reactor::socket::{self, Addr, Attempt, ListenOptions};
use dormouse_reactor::{Fd, OnExec};
use dormouse_tables::backends::Backends;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use talk::{Answer, Ask, Report, Request, State};

/// A control process that lived so long did not die of how it was started.
const SETTLED_MS: u64 = 10_000;

/// What is said again when control did not take it the first time, after so long.
const AGAIN_MS: u64 = 100;

/// The admin address, which main opens and keeps, so that each control process gets the same.
pub(super) struct Address {
    listener: Fd,
    /// The file of a unix socket, which is removed at the end.
    path: Option<PathBuf>,
}

/// What control may look at.
#[derive(Clone, Copy)]
pub(super) struct Tables<'a> {
    pub(super) counters: &'a Shared,
    pub(super) backends: &'a Backends,
}

impl Tables<'_> {
    /// Descriptors by which they can be looked at.
    fn readers(self) -> io::Result<(Fd, Fd)> {
        let counters = self.counters.reader()?;
        let backends = self.backends.reader().inspect_err(|_| counters.close())?;
        Ok((counters, backends))
    }
}

/// The control process and its channel.
pub(super) struct Control {
    address: Address,
    privileges: Privileges,
    pid: Option<Pid>,
    channel: Fd,
    born_ms: u64,
    restarts: u32,
    /// Ends one soon after the other.
    streak: u32,
    start_at_ms: Option<u64>,
    /// What was told last.
    told: Option<State>,
    answers: Vec<Answer>,
}

/// Opens the address that is configured. What is configured must be had; the usual path need not.
pub(super) fn open_address(config: &Config) -> Result<Option<Address>, ServeError> {
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
            Ok(Some(Address {
                listener,
                path: None,
            }))
        }
    }
}

fn open_usual() -> Option<Address> {
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

/// For the owner alone. A socket that a former process left is replaced.
fn open_unix(path: &Path) -> io::Result<Address> {
    let listener = socket::listen(&Addr::Unix(path.to_owned()), &options())?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(Address {
        listener,
        path: Some(path.to_owned()),
    })
}

fn options() -> ListenOptions {
    ListenOptions {
        backlog: 64,
        on_exec: OnExec::Close,
        ..ListenOptions::default()
    }
}

impl Address {
    /// The address that another binary in this process has opened.
    pub(super) fn again(listener: Fd, path: Option<PathBuf>) -> Address {
        Address { listener, path }
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        self.listener.close();
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

impl Control {
    /// Starts the process. `None` when there is no address to answer on.
    pub(super) fn start(
        address: Option<Address>,
        config: &Config,
        tables: Tables<'_>,
        poller: &Poller,
    ) -> io::Result<Option<Control>> {
        let Some(address) = address else {
            return Ok(None);
        };
        let mut control = Control {
            address,
            privileges: Privileges::nobody(config),
            pid: None,
            channel: Fd::NONE,
            born_ms: 0,
            restarts: 0,
            streak: 0,
            start_at_ms: None,
            told: None,
            answers: Vec::new(),
        };
        control.start_process(tables, poller)?;
        Ok(Some(control))
    }

    fn start_process(&mut self, tables: Tables<'_>, poller: &Poller) -> io::Result<()> {
        let (ours, theirs) = socket::channel(OnExec::Close)?;
        let readers = tables.readers().inspect_err(|_| {
            ours.close();
            theirs.close();
        });
        let (counters, backends) = readers?;
        let told = talk::Told {
            listener: self.address.listener.0,
            questions_only: self.address.path.is_none(),
            owner: process::user_id(),
            channel: theirs.0,
            counters: counters.0,
            backends: backends.0,
            workers: tables.counters.workers() as u32,
            restarts: self.restarts,
        };
        let inherited = vec![self.address.listener, theirs, counters, backends];
        let started = helper::start("control", &self.privileges, &told, inherited);
        theirs.close();
        counters.close();
        backends.close();
        let pid = started.inspect_err(|_| ours.close())?;
        poller.add(ours, TOKEN_CONTROL, Interest::READ)?;
        self.pid = Some(pid);
        self.channel = ours;
        self.born_ms = process::boottime_ms();
        self.told = None;
        Ok(())
    }

    /// The process, if there is one.
    pub(super) fn pid(&self) -> Option<Pid> {
        self.pid
    }

    /// The listening socket and the path of its file, for another binary in this process.
    pub(super) fn address(&self) -> (Fd, Option<PathBuf>) {
        (self.address.listener, self.address.path.clone())
    }

    /// When something has to be done for it.
    pub(super) fn next_deadline_ms(&self) -> Option<u64> {
        self.start_at_ms
    }

    /// The process has ended: another is started, ever later if it ends again and again.
    fn ended(&mut self, ended: Ended, poller: &Poller) {
        let now_ms = process::boottime_ms();
        tracing::error!("the control process is gone ({ended}); it is started again");
        let _ = poller.remove(self.channel);
        self.channel.close();
        self.channel = Fd::NONE;
        self.pid = None;
        self.restarts += 1;
        self.streak = if now_ms.saturating_sub(self.born_ms) >= SETTLED_MS {
            1
        } else {
            self.streak.saturating_add(1)
        };
        let delay = child::backoff(self.streak);
        self.start_at_ms = Some(now_ms + delay.map_or(0, |d| d.as_millis() as u64));
    }

    /// Tells what is new. What does not fit into the channel is told again later.
    fn tell(&mut self, state: State) {
        if self.pid.is_none() {
            // Whoever waited for an answer has lost their connection.
            self.answers.clear();
            return;
        }
        let is_new = self.told.as_ref() != Some(&state);
        if is_new {
            let report = Report::State(Box::new(state.clone()));
            match talk::send(self.channel, &report) {
                Ok(Attempt::Done(())) => self.told = Some(state),
                Ok(Attempt::WouldBlock) => return self.later(),
                Err(error) => tracing::debug!(%error, "control can't be told the state"),
            }
        }
        while let Some(answer) = self.answers.first() {
            match talk::send(self.channel, &Report::Answer(answer.clone())) {
                Ok(Attempt::WouldBlock) => return self.later(),
                _ => drop(self.answers.remove(0)),
            }
        }
    }

    fn later(&mut self) {
        self.start_at_ms = Some(process::boottime_ms() + AGAIN_MS);
    }
}

impl Supervisor {
    /// Was this the control process?
    pub(super) fn is_control(&self, pid: Pid) -> bool {
        self.control.as_ref().is_some_and(|c| c.pid == Some(pid))
    }

    /// It was, and has ended.
    pub(super) fn on_control_ended(&mut self, ended: Ended) {
        if let Some(control) = &mut self.control {
            control.ended(ended, &self.poller);
        }
    }

    /// Starts it again when it is time, and tells it what is new. Called once a turn.
    pub(super) fn attend_to_control(&mut self) {
        let state = self.state();
        let Some(control) = &mut self.control else {
            return;
        };
        if control
            .start_at_ms
            .is_some_and(|at| at <= process::boottime_ms())
        {
            control.start_at_ms = None;
            let tables = Tables {
                counters: &self.counters,
                backends: &self.backends,
            };
            if control.pid.is_none()
                && let Err(error) = control.start_process(tables, &self.poller)
            {
                tracing::error!(%error, "the control process can't be started");
                control.streak = control.streak.saturating_add(1);
                let delay_ms = 100 << control.streak.min(9);
                control.start_at_ms = Some(process::boottime_ms() + delay_ms);
            }
        }
        control.tell(state);
    }

    /// Control passes on what somebody has asked for.
    pub(super) fn on_control(&mut self) {
        let Some(control) = &self.control else {
            return;
        };
        match talk::receive::<Request>(control.channel) {
            Ok(None) => {}
            Ok(Some(Request { id, ask })) => self.on_ask(id, ask),
            // Its end is heard of by SIGCHLD.
            Err(_) => drop(self.poller.remove(control.channel)),
        }
    }

    fn on_ask(&mut self, id: u64, ask: Ask) {
        tracing::info!(?ask, "asked by way of the admin address");
        match ask {
            Ask::Upgrade { binary } => self.begin_upgrade(binary.as_deref(), Some(id)),
            // It answers when all workers have the new configuration.
            Ask::Reload => self.reload(Some(id)),
            Ask::Drain { over_ms, order } => {
                let result = self.begin_drain(over_ms, order);
                self.answer(id, result);
            }
            Ask::StopDrain => {
                let result = self.stop_drain();
                self.answer(id, result);
            }
        }
    }

    /// Answers an ask: with what was done, or why not. It is sent at the end of the turn.
    pub(super) fn answer(&mut self, id: u64, result: Result<String, String>) {
        if let Some(control) = &mut self.control {
            control.answers.push(Answer {
                id,
                done: result.is_ok(),
                words: result.unwrap_or_else(|why| why),
            });
        }
    }

    /// The program ends, and control with it.
    pub(super) fn end_control(&mut self) {
        if let Some(control) = &self.control {
            let _ = talk::send(control.channel, &Report::End);
        }
    }
}
