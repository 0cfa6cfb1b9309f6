//! The backend of the demo: a plain TCP echo server. One thread, one epoll, and no memory per
//! connection except for bytes that the peer does not take.

use std::collections::HashMap;
use std::io;

use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::socket::{self, Addr, Attempt, ListenOptions};
use dormouse_reactor::{Fd, OnExec, descriptors};

use crate::terminal;

const LISTENER: u64 = u64::MAX;
const SCRATCH_LEN: usize = 64 * 1024;
/// Number of correct echoes before a fault.
const GOOD_ECHOES: u64 = 300;
/// Connections that the fault `lose` resets: more than a crash may.
const LOST: u64 = 5;

/// A fault of the server, to prove that the demo can fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Fault {
    /// One bit of one echo is wrong.
    Flip,
    /// A few connections are reset.
    Lose,
}

impl Fault {
    /// The name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Fault::Flip => "flip",
            Fault::Lose => "lose",
        }
    }
}

/// Serves until it is killed. Prints its address as its only line.
pub(super) fn run(fault: Option<Fault>) -> io::Result<()> {
    descriptors::raise_limit()?;
    let any = Addr::Tcp(([127, 0, 0, 1], 0).into());
    let listener = socket::listen(&any, &ListenOptions::default())?;
    terminal::print(&format!("{}\n", Addr::local(listener)?));
    let poller = Poller::create(OnExec::Close)?;
    poller.add(listener, LISTENER, Interest::READ)?;
    let mut backend = Backend {
        poller,
        scratch: vec![0; SCRATCH_LEN],
        unsent: HashMap::new(),
        echoes: 0,
        fault,
    };
    let mut events = Events::with_capacity(256);
    loop {
        backend.poller.wait(&mut events, None)?;
        for event in events.iter() {
            match event.token() {
                LISTENER => backend.accept(listener)?,
                token => {
                    let fd = Fd(token as i32);
                    // A failed connection is closed; the others continue.
                    if !backend.serve(fd).unwrap_or(false) {
                        backend.unsent.remove(&fd.0);
                        fd.close();
                    }
                }
            }
        }
    }
}

struct Backend {
    poller: Poller,
    scratch: Vec<u8>,
    /// Bytes that the peer of a connection has not taken. Until it takes them, nothing more is
    /// read.
    unsent: HashMap<i32, Vec<u8>>,
    echoes: u64,
    fault: Option<Fault>,
}

impl Backend {
    fn accept(&mut self, listener: Fd) -> io::Result<()> {
        while let Attempt::Done(accepted) = socket::accept(listener, OnExec::Close)? {
            let fd = accepted.fd;
            socket::set_nodelay(fd, true)?;
            self.poller.add(fd, fd.0 as u64, Interest::READ)?;
        }
        Ok(())
    }

    /// Continues a connection. Returns false when the connection has ended.
    fn serve(&mut self, fd: Fd) -> io::Result<bool> {
        if let Some(bytes) = self.unsent.remove(&fd.0) {
            let sent = send_all(fd, &bytes)?;
            return self.settle(fd, bytes.get(sent..).unwrap_or_default().to_vec(), true);
        }
        let count = match socket::recv(fd, &mut self.scratch)? {
            Attempt::WouldBlock => return Ok(true),
            Attempt::Done(0) => return Ok(false),
            Attempt::Done(count) => count,
        };
        self.echoes += 1;
        match self.fault {
            Some(Fault::Flip) if self.echoes == GOOD_ECHOES => {
                if let Some(byte) = self.scratch.get_mut(count / 2) {
                    *byte ^= 1;
                }
            }
            Some(Fault::Lose) if (GOOD_ECHOES..GOOD_ECHOES + LOST).contains(&self.echoes) => {
                return Ok(false);
            }
            _ => {}
        }
        let bytes = self.scratch.get(..count).unwrap_or_default();
        let sent = send_all(fd, bytes)?;
        let rest = bytes.get(sent..).unwrap_or_default().to_vec();
        self.settle(fd, rest, false)
    }

    /// Decides what to wait for: room to send while bytes are left, otherwise input.
    fn settle(&mut self, fd: Fd, rest: Vec<u8>, was_blocked: bool) -> io::Result<bool> {
        let blocked = !rest.is_empty();
        if blocked != was_blocked {
            let interest = if blocked {
                Interest::WRITE
            } else {
                Interest::READ
            };
            self.poller.modify(fd, fd.0 as u64, interest)?;
        }
        if blocked {
            self.unsent.insert(fd.0, rest);
        }
        Ok(true)
    }
}

/// Sends as much as the socket takes, and returns how much.
fn send_all(fd: Fd, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
        match socket::send(fd, rest)? {
            Attempt::Done(count) => sent += count,
            Attempt::WouldBlock => break,
        }
    }
    Ok(sent)
}
