//! What main and the control process say to each other.
//!
//! Main tells its [`State`] whenever it changes, so that control can answer even when main is
//! gone, and answers what control asks on behalf of somebody ([`Ask`]). Each is one message of a
//! channel, as JSON.

use dormouse_reactor::socket::{self, Attempt, MESSAGE_MAX};
use dormouse_reactor::{Fd, OnExec};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// Everything that control is told on its command line. There is nothing secret in it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Told {
    /// The admin address, listening.
    pub(crate) listener: i32,
    /// It is a TCP address, so that nobody knows who asks: questions only.
    pub(crate) questions_only: bool,
    /// Who may ask beside root.
    pub(crate) owner: u32,
    /// Control's end of the channel.
    pub(crate) channel: i32,
    /// The counters, to look at.
    pub(crate) counters: i32,
    /// The table of backends, to look at.
    pub(crate) backends: i32,
    pub(crate) workers: u32,
    /// Started again so often.
    pub(crate) restarts: u32,
}

/// From main to control.
#[derive(Serialize, Deserialize)]
pub(crate) enum Report {
    /// What main knows; told whenever it changes.
    State(Box<State>),
    /// What became of an ask.
    Answer(Answer),
    /// The program ends: control ends too.
    End,
}

/// From control to main: somebody who may has asked for this.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// Comes back with the answer.
    pub(crate) id: u64,
    pub(crate) ask: Ask,
}

/// What can be asked of main.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Read the configuration again.
    Reload,
    /// Close all connections, evenly over this time.
    Drain { over_ms: u64, order: DrainOrder },
    /// Stop draining, and accept again.
    StopDrain,
    /// Replace the running program.
    Upgrade { binary: Option<PathBuf> },
}

/// Which connections a drain closes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DrainOrder {
    /// Those which have been quiet longest.
    #[default]
    Longest,
    /// Those which have been quiet for the shortest time.
    Shortest,
}

/// What became of an ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) id: u64,
    /// Whether it was done.
    pub(crate) done: bool,
    /// What was done, or why not.
    pub(crate) words: String,
}

/// What main knows. Times are of CLOCK_BOOTTIME, so it changes only when something happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) pid: i32,
    pub(crate) born_ms: u64,
    pub(crate) phase: Phase,
    pub(crate) keepers: Vec<Keeper>,
    pub(crate) configuration: Configuration,
    pub(crate) bounds: Bounds,
    /// Those which end first, first; no more than a message has room for.
    #[serde(default)]
    pub(crate) certificates: Vec<Certificate>,
    /// Names for which certificates are had, if there are any.
    #[serde(default)]
    pub(crate) acme: Option<Acme>,
    pub(crate) drain: Option<Drain>,
    /// Backends of all routes, as many as are told of.
    pub(crate) backends: Vec<Backend>,
}

/// A backend, and where the table of backends has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Backend {
    /// The route, from 1 on.
    pub(crate) route: usize,
    pub(crate) address: String,
    /// The name which stands for this address.
    pub(crate) name: Option<String>,
    pub(crate) place: u16,
    /// Whether it is asked now and then.
    pub(crate) checked: bool,
}

/// Most certificates that are told.
pub(crate) const TOLD_MAX: usize = 200;

/// A certificate that is shown to clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Certificate {
    /// Where it was read.
    pub(crate) file: String,
    /// The first of the names it is for.
    pub(crate) name: String,
    /// Unix time.
    pub(crate) expires_s: u64,
}

/// Certificates from an ACME server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Acme {
    /// Since main began.
    pub(crate) issued: u64,
    pub(crate) failed: u64,
    /// Those which failed first; no more than a message has room for.
    pub(crate) names: Vec<AcmeName>,
}

/// A name for which a certificate is had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AcmeName {
    pub(crate) name: String,
    /// When the certificate ends, Unix time. None: it has not come yet.
    pub(crate) expires_s: Option<u64>,
    /// When the next one is asked for.
    pub(crate) next_ms: u64,
    /// Attempts in a row that failed, and why the last of them did.
    pub(crate) failures: u32,
    pub(crate) why: Option<String>,
}

/// Where the program is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// Not all workers have begun.
    Starting,
    /// Serving.
    Ready,
    /// A drain goes on: nothing new is accepted.
    Draining,
    /// The end: what is pending may end.
    Stopping,
}

/// A keeper, as main knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keeper {
    pub(crate) pid: i32,
    pub(crate) born_ms: u64,
    /// How it ended, if it has.
    pub(crate) ended: Option<String>,
}

/// Which configuration runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Configuration {
    pub(crate) file: Option<PathBuf>,
    /// How often it was loaded; 1 after the start.
    pub(crate) edition: u64,
    pub(crate) loaded_ms: u64,
    /// What became of the last reload.
    pub(crate) last_reload: Option<Reload>,
    /// Options that were changed and wait for the next start.
    pub(crate) waits_for_restart: Vec<String>,
}

/// A reload that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reload {
    pub(crate) done: bool,
    pub(crate) words: String,
    pub(crate) at_ms: u64,
}

/// Limits, to hold gauges against.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bounds {
    pub(crate) connections: u64,
    pub(crate) handshakes: u64,
    pub(crate) pending_bytes: u64,
    pub(crate) handshake_bytes: u64,
    #[serde(default)]
    pub(crate) kernel_bytes: u64,
}

/// A drain that goes on, or is over because nobody is left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Drain {
    pub(crate) begun_ms: u64,
    pub(crate) over_ms: u64,
    pub(crate) order: DrainOrder,
    /// Connections when it began.
    pub(crate) connections: u64,
    /// The count of connections closed by drains when it began.
    pub(crate) closed_before: u64,
}

/// Sends a message. `WouldBlock`: the other end is not reading, try again later.
pub(crate) fn send(channel: Fd, message: &impl Serialize) -> io::Result<Attempt<()>> {
    // With all its room from the start: there may be a key in it, and a vector that grows leaves
    // copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MESSAGE_MAX));
    serde_json::to_writer(&mut *bytes, message)?;
    socket::send_message(channel, &bytes, &[])
}

/// The next message, if there is one. An error: the other end is gone, or makes no sense.
pub(crate) fn receive<T: DeserializeOwned>(channel: Fd) -> io::Result<Option<T>> {
    let mut buffer = Zeroizing::new(vec![0; MESSAGE_MAX]);
    let Attempt::Done(message) = socket::receive_message(channel, &mut buffer, OnExec::Close)?
    else {
        return Ok(None);
    };
    message.descriptors.iter().for_each(|fd| fd.close());
    match buffer.get(..message.len) {
        None | Some([]) => Err(io::ErrorKind::UnexpectedEof.into()),
        Some(bytes) => Ok(Some(serde_json::from_slice(bytes)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_arrives() {
        let (main, control) = socket::channel(OnExec::Close).expect("a channel");
        let ask = Ask::Drain {
            over_ms: 600_000,
            order: DrainOrder::Shortest,
        };
        let request = Request { id: 7, ask };
        assert_eq!(send(control, &request).expect("sent"), Attempt::Done(()));
        let received: Option<Request> = receive(main).expect("a request");
        assert_eq!(received, Some(request));
        assert!(receive::<Request>(main).expect("no more").is_none());
        control.close();
        assert!(receive::<Request>(main).is_err(), "control is gone");
        main.close();
    }
}
