//! Messages between main and the control process.
//!
//! Main sends its [`State`] after each change, so that control can answer even after main has died.
//! Control forwards the orders of administrators ([`AdminOrder`]), and main returns the results.

use crate::connections::{Page, PageOrder};
use crate::pem::SecretText;
use dormouse_config::LogLevel;
use dormouse_reactor::socket::MESSAGE_MAX;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Arguments of the control process, on its command line. Nothing in them is secret.
#[derive(Serialize, Deserialize)]
pub struct ControlArguments {
    /// The admin socket, listening.
    pub admin: Option<i32>,
    /// The metrics address, listening. It refuses orders, because its users are not authenticated.
    pub metrics: Option<i32>,
    /// Whether the metrics address is a loopback address.
    pub metrics_is_loopback: bool,
    /// The user id that may use the admin socket, besides root.
    pub owner: u32,
    /// Control's end of the channel.
    pub channel: i32,
    /// The counters, read-only.
    pub counters: i32,
    /// The marks in the table of backends, read-only.
    pub backends: i32,
    /// The roster of backends, read-only.
    pub roster: i32,
    /// The table of traffic, read-only.
    pub traffic: i32,
    /// The number of workers.
    pub workers: u32,
    /// Number of restarts of the control process.
    pub restarts: u32,
}

/// Message from main to control.
#[derive(Serialize, Deserialize)]
pub enum Report {
    /// Main's state, sent after each change.
    State(Box<State>),
    /// The result of an order.
    Result(AdminResult),
    /// A page of a list of connections: the result of the order with this id.
    Page(u64, Box<Page>),
    /// The program ends: control must end, too.
    End,
    /// Main is about to execute a new binary, which inherits the channel and sends [`Report::Replaced`] once it runs.
    /// If main cannot execute it, another result of the same order and [`Report::End`] follow.
    Replacing {
        /// The result of the upgrade, for the client that waits for it.
        once_running: Option<AdminResult>,
    },
    /// The new binary runs, with a control process of its own.
    Replaced,
}

/// Message from control to main: an administrator's order.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct ForwardedOrder {
    /// Id that the result repeats.
    pub id: u64,
    /// The order.
    pub order: AdminOrder,
}

/// An administrator's order.
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
        /// The backend's address or name, as in the configuration or in `status`.
        address: String,
        /// The name of the route. `None`: all routes with this backend.
        route: Option<String>,
        /// The change.
        change: BackendChange,
    },
    /// Change the log level.
    LogLevel(LogLevel),
    /// Rotate the ticket keys now.
    RotateTicketKeys,
    /// Open the file of the connection log again.
    ReopenLogs,
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
    /// List or close some connections.
    Page(Box<PageOrder>),
    /// Upgrade to another binary.
    Upgrade {
        /// The new binary. `None`: the file at the path from which the running one was started.
        binary: Option<PathBuf>,
    },
}

/// A change of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BackendChange {
    /// New connections go to the backend again.
    In,
    /// No new connections go to the backend. Its existing connections continue.
    Out,
    /// The backend's weight.
    Weight(u32),
}

/// Which connections a drain closes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DrainOrder {
    /// The connections that have been idle for the longest time.
    #[default]
    Longest,
    /// The connections that have been idle for the shortest time.
    Shortest,
}

/// The result of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdminResult {
    /// The id of the forwarded order.
    pub id: u64,
    /// Whether the order was carried out.
    pub done: bool,
    /// The result, or the reason of the failure.
    pub words: String,
}

/// Main's state. Times are on CLOCK_BOOTTIME, so the state changes only when something happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Main's process id.
    pub pid: i32,
    /// When main started.
    pub born_ms: u64,
    /// Phase of the program's life.
    pub phase: Phase,
    /// One keeper per worker, in the order of the workers.
    pub keepers: Vec<Keeper>,
    /// The running configuration.
    pub configuration: Configuration,
    /// Limits of the whole gateway.
    pub bounds: Bounds,
    /// Certificates, those that expire first come first; as many as fit into a message.
    pub certificates: Vec<Certificate>,
    /// Automatic certificates, if there are any.
    pub acme: Option<Acme>,
    /// The current drain, if there is one.
    pub drain: Option<Drain>,
    /// Routes, then originations; as many as fit into a message.
    pub routes: Vec<Route>,
    /// The addresses of all listeners.
    pub listeners: Vec<String>,
    /// Backends of all routes; as many as fit into a message.
    pub backends: Vec<Backend>,
}

impl State {
    /// Shortens the lists until the state fits into a message, the longest list first. Each keeps its first half, and
    /// so on.
    pub fn fit(&mut self) {
        while !self.fits() && self.halve_longest() {}
    }

    fn fits(&self) -> bool {
        // Control's message has a few more characters around the state.
        const AROUND: usize = 64;
        serde_json::to_string(self).is_ok_and(|text| text.len() + AROUND <= MESSAGE_MAX)
    }

    /// Returns `false` if all lists are empty.
    fn halve_longest(&mut self) -> bool {
        let names = |backend: &Backend| backend.routes.len();
        let named_max = self.backends.iter().map(names).max().unwrap_or(0);
        let acme = self.acme.as_ref().map_or(0, |acme| acme.names.len());
        let longest = [
            self.backends.iter().map(names).sum(),
            self.certificates.len(),
            acme,
            self.routes.len(),
            self.listeners.len(),
            self.backends.len(),
        ];
        let max = longest.into_iter().max().unwrap_or(0);
        match longest.iter().position(|len| *len == max && max > 0) {
            Some(0) if named_max > 1 => {
                for backend in &mut self.backends {
                    backend.routes.truncate(named_max / 2);
                    let Backend {
                        routes, differing, ..
                    } = backend;
                    differing.retain(|one| routes.contains(&one.route));
                }
            }
            Some(1) => self.certificates.truncate(max / 2),
            Some(2) => self
                .acme
                .iter_mut()
                .for_each(|acme| acme.names.truncate(max / 2)),
            Some(3) => self.routes.truncate(max / 2),
            Some(4) => self.listeners.truncate(max / 2),
            Some(_) => self.backends.truncate(self.backends.len() / 2),
            None => return false,
        }
        true
    }
}

/// A route or an origination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The configured name, or a number.
    pub name: String,
    /// The number of its row in the table of traffic.
    pub number: u16,
    /// The addresses on which it listens.
    pub listen: Vec<String>,
}

/// What an administrator has set for a backend in one of its routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendOfRoute {
    /// Name of the route.
    pub route: String,
    /// Whether the backend was taken out of this route.
    pub out: bool,
    /// The weight in this route.
    pub weight: u32,
}

/// A backend, and its place in the table of backends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backend {
    /// The names of the routes that use it.
    pub routes: Vec<String>,
    /// The address, as in the table of backends.
    pub address: String,
    /// The name that resolved to this address.
    pub name: Option<String>,
    /// Place in the table of backends; 0: none.
    pub place: u16,
    /// Whether health checks are configured.
    pub checked: bool,
    /// The weight.
    pub weight: u32,
    /// Whether an administrator has taken the backend out of all its routes.
    pub out: bool,
    /// The routes in which `out` or `weight` differs.
    pub differing: Vec<BackendOfRoute>,
}

/// Maximum number of certificates in a report.
pub const CERTIFICATES_MAX: usize = 200;

/// A server certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// The file.
    pub file: String,
    /// The certificate's first name.
    pub name: String,
    /// Unix time of the expiry.
    pub expires_s: u64,
    /// An administrator pushed it through the admin socket.
    pub is_pushed: bool,
}

/// Certificates from an ACME server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acme {
    /// Certificates issued since main started.
    pub issued: u64,
    /// Failed attempts since main started.
    pub failed: u64,
    /// Names, those with failures first; as many as fit into a message.
    pub names: Vec<AcmeName>,
}

/// A name with an automatic certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcmeName {
    /// The domain name.
    pub name: String,
    /// Unix time of the certificate's expiry. `None`: no certificate was issued yet.
    pub expires_s: Option<u64>,
    /// Time of the next attempt.
    pub next_ms: u64,
    /// Failed attempts in a row.
    pub failures: u32,
    /// Why the last attempt failed. `None`: it succeeded.
    pub why: Option<String>,
}

/// Phase of the program's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Not all workers have started.
    Starting,
    /// Serving.
    Ready,
    /// Draining: no connections are accepted.
    Draining,
    /// Stopping: only pending bytes are still delivered.
    Stopping,
}

/// A keeper, from main's view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keeper {
    /// The keeper's process id.
    pub pid: i32,
    /// When the keeper started.
    pub born_ms: u64,
    /// How it ended, if it has.
    pub ended: Option<String>,
}

/// The running configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// The file. `None`: all options came from flags.
    pub file: Option<PathBuf>,
    /// 1 after the start, one more after each reload.
    pub edition: u64,
    /// When it was loaded.
    pub loaded_ms: u64,
    /// The result of the last reload.
    pub last_reload: Option<Reload>,
    /// Changed options that take effect at the next start.
    pub waits_for_restart: Vec<String>,
}

/// A finished reload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reload {
    /// Whether the new configuration was accepted.
    pub done: bool,
    /// What was loaded, or why the configuration was refused.
    pub words: String,
    /// When the reload ended.
    pub at_ms: u64,
}

/// Limits, for comparison with gauges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Connections.
    pub connections: u64,
    /// Handshakes in flight.
    pub handshakes: u64,
    /// Bytes of pending memory.
    pub pending_bytes: u64,
    /// Bytes that one client may send in its handshake.
    pub handshake_bytes: u64,
    /// Bytes in long send queues of the kernel.
    pub kernel_bytes: u64,
}

/// A drain that is running, or has closed all connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// When the drain began.
    pub begun_ms: u64,
    /// The time over which connections are closed.
    pub over_ms: u64,
    /// Which connections are closed first.
    pub order: DrainOrder,
    /// Number of connections at its start.
    pub connections: u64,
    /// Value of the counter `closed_drained` at its start.
    pub closed_before: u64,
    /// Each worker has reported that it has no connection any more.
    pub is_empty: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{receive, send};
    use dormouse_reactor::OnExec;
    use dormouse_reactor::socket::{self, Attempt};

    /// Routes with long names, all of which share some backends.
    #[test]
    fn the_state_of_a_large_configuration_fits_into_a_message() {
        let text = r#"{"pid":1,"born_ms":0,"phase":"ready","keepers":[],"configuration":{"file":null,"edition":1,
            "loaded_ms":0,"last_reload":null,"waits_for_restart":[]},"bounds":{"connections":1,"handshakes":1,
            "pending_bytes":1,"handshake_bytes":1,"kernel_bytes":1},"certificates":[],"drain":null,"routes":[],
            "listeners":[],"backends":[]}"#;
        let mut state: State = serde_json::from_str(text).expect("a state");
        let before = state.clone();
        state.fit();
        assert_eq!(state, before, "a small state stays");
        let name = |n: usize| format!("{n:03}.a-route-of-the-configuration.example");
        state.routes = (0..200)
            .map(|n| Route {
                name: name(n),
                number: n as u16,
                listen: vec!["0.0.0.0:443".to_owned()],
            })
            .collect();
        let differing = |n| BackendOfRoute {
            route: name(n),
            out: true,
            weight: 1,
        };
        state.backends = (0..200)
            .map(|n| Backend {
                routes: (0..1000).map(name).collect(),
                address: format!("10.0.0.{n}:8080"),
                name: None,
                place: 1,
                checked: true,
                weight: 1,
                out: false,
                differing: (0..1000).map(differing).collect(),
            })
            .collect();
        state.listeners = (0..1000).map(|n| format!("127.0.0.1:{n}")).collect();
        state.fit();
        let (main, control) = socket::channel(OnExec::Close).expect("a channel");
        let report = Report::State(Box::new(state.clone()));
        assert_eq!(send(main, &report).expect("sent"), Attempt::Done(()));
        assert_eq!((state.routes.len(), state.backends.len()), (200, 200));
        assert!(
            state
                .backends
                .iter()
                .all(|backend| !backend.routes.is_empty())
        );
        main.close();
        control.close();
    }

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
        assert!(
            receive::<ForwardedOrder>(main)
                .expect("an empty channel")
                .is_none()
        );
        control.close();
        assert!(receive::<ForwardedOrder>(main).is_err(), "control is gone");
        main.close();
    }
}
