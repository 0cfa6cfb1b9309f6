//! Messages between main and the control process.
//!
//! Main sends its [`State`] whenever it changes, so that control can answer even when main is gone.
//! Control passes on what an administrator orders ([`AdminOrder`]), and main sends back the result.

use crate::pem::SecretText;
use dormouse_config::LogLevel;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Arguments of the control process, on its command line. Nothing in them is secret.
#[derive(Serialize, Deserialize)]
pub struct ControlArguments {
    /// The admin socket, listening.
    pub admin: Option<i32>,
    /// The address of metrics, listening: nobody knows who asks there, so orders are refused.
    pub metrics: Option<i32>,
    /// Only this machine reaches the address of metrics.
    pub metrics_is_loopback: bool,
    /// Who may ask beside root.
    pub owner: u32,
    /// Control's end of the channel.
    pub channel: i32,
    /// The counters, to look at.
    pub counters: i32,
    /// The table of backends, to look at.
    pub backends: i32,
    /// The table of traffic, to look at.
    pub traffic: i32,
    /// The number of workers.
    pub workers: u32,
    /// Started again so often.
    pub restarts: u32,
}

/// From main to control.
#[derive(Serialize, Deserialize)]
pub enum Report {
    /// What main knows; sent whenever it changes.
    State(Box<State>),
    /// The result of an order.
    Result(AdminResult),
    /// The program ends: control ends too.
    End,
}

/// From control to main: an order of an administrator.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct ForwardedOrder {
    /// Comes back with the result.
    pub id: u64,
    /// The order.
    pub order: AdminOrder,
}

/// What an administrator can order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminOrder {
    /// Read the configuration again.
    Reload,
    /// Close all connections, evenly over this time.
    Drain {
        /// Milliseconds until the last connection is closed.
        over_ms: u64,
        /// Which connections are closed first.
        order: DrainOrder,
    },
    /// Stop draining, and accept again.
    StopDrain,
    /// Change how many new connections a backend gets.
    Backend {
        /// Its address or name, as the configuration or `status` has it.
        address: String,
        /// The name of the route. `None`: all routes that have it.
        route: Option<String>,
        /// What changes.
        change: BackendChange,
    },
    /// Change what is logged.
    LogLevel(LogLevel),
    /// Make new ticket keys now.
    RotateTicketKeys,
    /// Show clients this certificate from now on.
    PushCertificate {
        /// The chain, the leaf first, and its key, PEM.
        pem: SecretText,
        /// The name of the route. `None`: all routes with a certificate for one of its names.
        route: Option<String>,
    },
    /// Stop using certificates that were pushed.
    WithdrawCertificate {
        /// A name that they are for.
        name: String,
        /// The name of the route. `None`: all routes.
        route: Option<String>,
    },
    /// Replace the running program.
    Upgrade {
        /// The new binary; `None`: whatever lies now where the running one was started from.
        binary: Option<PathBuf>,
    },
}

/// A change of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BackendChange {
    /// It gets new connections again.
    In,
    /// It gets no new connections. Those it has go on.
    Out,
    /// Its share of new connections.
    Weight(u32),
}

/// Which connections a drain closes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DrainOrder {
    /// Those which have been quiet longest.
    #[default]
    Longest,
    /// Those which have been quiet for the shortest time.
    Shortest,
}

/// The result of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdminResult {
    /// The id of the forwarded order.
    pub id: u64,
    /// Whether it was done.
    pub done: bool,
    /// What was done, or why not.
    pub words: String,
}

/// What main knows. Times are of CLOCK_BOOTTIME, so it changes only when something happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Main's process id.
    pub pid: i32,
    /// When main started.
    pub born_ms: u64,
    /// Where the program is in its life.
    pub phase: Phase,
    /// One keeper per worker, in the order of the workers.
    pub keepers: Vec<Keeper>,
    /// The configuration that runs.
    pub configuration: Configuration,
    /// Limits of the whole gateway.
    pub bounds: Bounds,
    /// Those which end first, first; no more than a message has room for.
    #[serde(default)]
    pub certificates: Vec<Certificate>,
    /// Names for which certificates are had, if there are any.
    #[serde(default)]
    pub acme: Option<Acme>,
    /// The drain that goes on, if there is one.
    pub drain: Option<Drain>,
    /// Routes, then originations, as many as are told of.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// The addresses that are listened on.
    #[serde(default)]
    pub listeners: Vec<String>,
    /// Backends of all routes, as many as are told of.
    pub backends: Vec<Backend>,
}

/// A route or an origination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Its name, as the configuration has it or by its number.
    pub name: String,
    /// The number of its row in the table of traffic.
    pub number: u16,
    /// The addresses that it listens on.
    pub listen: Vec<String>,
}

/// A backend, and where the table of backends has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backend {
    /// The names of the routes that use it.
    pub routes: Vec<String>,
    /// Its address, as the table of backends knows it.
    pub address: String,
    /// The name which stands for this address.
    pub name: Option<String>,
    /// Its place in the table of backends; 0: it has none.
    pub place: u16,
    /// Whether it is asked now and then.
    pub checked: bool,
    /// Its share of new connections.
    #[serde(default)]
    pub weight: u32,
    /// An administrator has taken it out.
    #[serde(default)]
    pub out: bool,
}

/// Certificates in a report, at most.
pub const CERTIFICATES_MAX: usize = 200;

/// A certificate that is shown to clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// Where it was read.
    pub file: String,
    /// The first of the names it is for.
    pub name: String,
    /// Unix time.
    pub expires_s: u64,
    /// An administrator pushed it through the admin socket.
    #[serde(default)]
    pub is_pushed: bool,
}

/// Certificates from an ACME server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acme {
    /// Since main began.
    pub issued: u64,
    /// Attempts that failed, since main began.
    pub failed: u64,
    /// Those which failed first; no more than a message has room for.
    pub names: Vec<AcmeName>,
}

/// A name for which a certificate is had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcmeName {
    /// The domain name.
    pub name: String,
    /// When the certificate ends, Unix time. None: it has not come yet.
    pub expires_s: Option<u64>,
    /// When the next one is asked for.
    pub next_ms: u64,
    /// Attempts in a row that failed, and why the last of them did.
    pub failures: u32,
    /// Why the last attempt failed; `None`: it did not.
    pub why: Option<String>,
}

/// Where the program is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
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
pub struct Keeper {
    /// The keeper's process id.
    pub pid: i32,
    /// When the keeper started.
    pub born_ms: u64,
    /// How it ended, if it has.
    pub ended: Option<String>,
}

/// Which configuration runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// The file that was read; `None`: all options came from flags.
    pub file: Option<PathBuf>,
    /// How often it was loaded; 1 after the start.
    pub edition: u64,
    /// When it was loaded.
    pub loaded_ms: u64,
    /// What became of the last reload.
    pub last_reload: Option<Reload>,
    /// Options that were changed and wait for the next start.
    pub waits_for_restart: Vec<String>,
}

/// A reload that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reload {
    /// Whether the new configuration runs.
    pub done: bool,
    /// What was loaded, or why not.
    pub words: String,
    /// When the reload ended.
    pub at_ms: u64,
}

/// Limits, to hold gauges against.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Connections in slots.
    pub connections: u64,
    /// Handshakes in flight.
    pub handshakes: u64,
    /// Bytes of pending memory.
    pub pending_bytes: u64,
    /// Bytes that one client may send in its handshake.
    pub handshake_bytes: u64,
    /// Bytes in long send queues of the kernel; 0: told by a main of an older version.
    #[serde(default)]
    pub kernel_bytes: u64,
}

/// A drain that goes on, or is over because nobody is left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// When the drain began.
    pub begun_ms: u64,
    /// The time over which connections are closed.
    pub over_ms: u64,
    /// Which connections are closed first.
    pub order: DrainOrder,
    /// Connections when it began.
    pub connections: u64,
    /// The count of connections closed by drains when it began.
    pub closed_before: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{receive, send};
    use dormouse_reactor::OnExec;
    use dormouse_reactor::socket::{self, Attempt};

    #[test]
    fn orders_arrive() {
        let (main, control) = socket::channel(OnExec::Close).expect("a channel");
        let order = AdminOrder::Drain {
            over_ms: 600_000,
            order: DrainOrder::Shortest,
        };
        let forwarded = ForwardedOrder { id: 7, order };
        assert_eq!(send(control, &forwarded).expect("sent"), Attempt::Done(()));
        let received: Option<ForwardedOrder> = receive(main).expect("an order");
        assert_eq!(received, Some(forwarded));
        assert!(receive::<ForwardedOrder>(main).expect("no more").is_none());
        control.close();
        assert!(receive::<ForwardedOrder>(main).is_err(), "control is gone");
        main.close();
    }
}
