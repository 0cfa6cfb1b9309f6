//! Messages between main and the control process.
//!
//! Main sends its [`State`] after each change, so that control can answer even after main has died.
//! Control forwards the orders of administrators ([`AdminOrder`]), and main returns the results.

use crate::connections::{Page, PageOrder};
use crate::pem::SecretText;
use dormouse_config::{LogLevel, Network};
use dormouse_reactor::socket::MESSAGE_MAX;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

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
    /// A part of the lists of routes and backends, sent after each change of them.
    Listing(Listing),
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
    /// Change the running configuration.
    Change {
        /// The change.
        change: RunningChange,
        /// Whether it outlasts a reload and a restart.
        is_kept: bool,
    },
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
    /// Log handshakes and ends of the connections with some clients.
    Trace {
        /// Their network.
        client: Network,
        /// For this long.
        for_ms: u64,
    },
    /// List or close some connections.
    Page(Box<PageOrder>),
    /// Upgrade to another binary.
    Upgrade {
        /// The new binary. `None`: the file at the path from which the running one was started.
        binary: Option<PathBuf>,
    },
}

/// A change of the running configuration, which its file does not have. Its text is what follows `dormouse ctl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunningChange {
    /// The log level.
    LogLevel(LogLevel),
    /// How many new connections a backend gets.
    Backend {
        /// The backend's address or name, as in the configuration or in `status`.
        address: String,
        /// The name of the route. `None`: all routes with this backend.
        route: Option<String>,
        /// The change.
        change: BackendChange,
    },
}

impl fmt::Display for RunningChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, route, change) = match self {
            RunningChange::LogLevel(level) => return write!(f, "log-level {level}"),
            RunningChange::Backend {
                address,
                route,
                change,
            } => (address, route, change),
        };
        match change {
            BackendChange::In => write!(f, "in {address}")?,
            BackendChange::Out => write!(f, "out {address}")?,
            BackendChange::Weight(weight) => write!(f, "weight {address} {weight}")?,
        }
        match route {
            Some(route) => write!(f, " --route {route}"),
            None => Ok(()),
        }
    }
}

impl FromStr for RunningChange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (order, rest) = text.split_once(' ').ok_or("the order has no argument")?;
        if order == "log-level" {
            let known = LogLevel::WORDS.iter().find(|(word, _)| *word == rest);
            let (_, level) = known.ok_or_else(|| format!("no log level `{rest}`"))?;
            return Ok(RunningChange::LogLevel(*level));
        }
        let (backend, route) = match rest.rsplit_once(" --route ") {
            Some((backend, route)) => (backend, Some(route.to_owned())),
            None => (rest, None),
        };
        let (address, change) = match order {
            "in" => (backend, BackendChange::In),
            "out" => (backend, BackendChange::Out),
            "weight" => {
                let (address, weight) = backend.rsplit_once(' ').ok_or("a number is missing")?;
                let weight = weight.parse();
                let weight = weight.map_err(|_| "the weight is not a number".to_owned())?;
                (address, BackendChange::Weight(weight))
            }
            _ => return Err(format!("no order `{order}`")),
        };
        Ok(RunningChange::Backend {
            address: address.to_owned(),
            route,
            change,
        })
    }
}

/// A change that outlasts reloads and restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptChange {
    /// The change, as [`RunningChange`] writes it.
    pub change: String,
    /// Why it has no effect. `None`: it has.
    pub problem: Option<String>,
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
    /// What comes from a SPIFFE agent, if anything does.
    pub spiffe: Option<Spiffe>,
    /// The current drain, if there is one.
    pub drain: Option<Drain>,
    /// The addresses of all listeners.
    pub listeners: Vec<String>,
}

/// A part of the lists of routes and backends. There may be thousands, so they come in several messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Listing {
    /// Routes, then originations.
    pub routes: Vec<Route>,
    /// Backends of all routes.
    pub backends: Vec<Backend>,
    /// Whether the lists begin with this part.
    pub is_first: bool,
    /// Whether they end with it.
    pub is_last: bool,
}

/// Bytes of a listing's lists. A few could fill the channel.
const LISTED_BYTES_MAX: usize = MESSAGE_MAX / 4;

impl Listing {
    /// Splits the lists, so that each part fits into a message. The parts are in reverse order: the last one is the first
    /// to send.
    pub fn parts(routes: &[Route], backends: &[Backend]) -> Vec<Listing> {
        fn len(item: &impl Serialize) -> usize {
            serde_json::to_string(item).map_or(0, |text| text.len())
        }
        let mut parts = vec![Listing::default()];
        let mut bytes = 0;
        let mut part_for = |more: usize, parts: &mut Vec<Listing>| {
            bytes += more;
            if bytes > LISTED_BYTES_MAX {
                parts.push(Listing::default());
                bytes = more;
            }
            parts.len() - 1
        };
        for route in routes {
            let at = part_for(len(route), &mut parts);
            parts[at].routes.push(route.clone());
        }
        for backend in backends {
            let at = part_for(len(backend), &mut parts);
            parts[at].backends.push(backend.clone());
        }
        parts[0].is_first = true;
        let last = parts.len() - 1;
        parts[last].is_last = true;
        parts.reverse();
        parts
    }
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
        let acme = self.acme.as_ref().map_or(0, |acme| acme.names.len());
        let kept = self.configuration.kept_changes.len();
        let longest = [self.certificates.len(), acme, self.listeners.len(), kept];
        let max = longest.into_iter().max().unwrap_or(0);
        match longest.iter().position(|len| *len == max && max > 0) {
            Some(0) => self.certificates.truncate(max / 2),
            Some(1) => self
                .acme
                .iter_mut()
                .for_each(|acme| acme.names.truncate(max / 2)),
            Some(2) => self.listeners.truncate(max / 2),
            Some(_) => self.configuration.kept_changes.truncate(max / 2),
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
    /// `route_memory_share`, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_share: Option<u32>,
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
    /// Whether the name has not resolved yet: `address` is the name then, and it has no place.
    #[serde(default)]
    pub is_unresolved: bool,
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

/// What comes from a SPIFFE agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spiffe {
    /// Its address.
    pub agent: String,
    /// Why there is no agent. `None`: it has answered last.
    pub away: Option<String>,
    /// When it came or went.
    pub since_ms: u64,
    /// Its responses since main started.
    pub responses: u64,
    /// Certificates, the first few.
    pub certificates: Vec<SpiffeCertificate>,
    /// Trust domains whose authorities are known, the first few.
    pub trust_domains: Vec<String>,
}

/// A certificate of a SPIFFE agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpiffeCertificate {
    /// Its id.
    pub id: String,
    /// Unix time of the expiry.
    pub expires_s: u64,
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
    /// Changes by `ctl` that outlast reloads and restarts; as many as fit into a message.
    #[serde(default)]
    pub kept_changes: Vec<KeptChange>,
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
    /// Connections that have sockets, if others may rest; otherwise 0.
    #[serde(default)]
    pub awake: u64,
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

    /// Thousands of routes and backends arrive, in parts that fit into messages.
    #[test]
    fn long_lists_arrive_in_parts() {
        let name = |n: usize| format!("{n:05}.a-route-of-the-configuration.example");
        let routes: Vec<Route> = (0..10_000)
            .map(|n| Route {
                name: name(n),
                number: n as u16,
                listen: vec!["0.0.0.0:443".to_owned(); 8],
                memory_share: None,
            })
            .collect();
        let backends: Vec<Backend> = (0..2_000)
            .map(|n| Backend {
                routes: (0..64).map(name).collect(),
                address: format!("10.0.{}.{}:8080", n / 250, n % 250),
                name: None,
                is_unresolved: false,
                place: 1,
                checked: true,
                weight: 1,
                out: false,
                differing: Vec::new(),
            })
            .collect();
        let (main, control) = socket::channel(OnExec::Close).expect("a channel");
        let (mut listed, mut listed_backends) = (Vec::new(), Vec::new());
        let mut parts = Listing::parts(&routes, &backends);
        assert!(parts.len() > 50, "{}", parts.len());
        while let Some(part) = parts.pop() {
            assert_eq!(part.is_first, listed.is_empty());
            assert_eq!(part.is_last, parts.is_empty());
            let report = Report::Listing(part);
            assert_eq!(send(main, &report).expect("sent"), Attempt::Done(()));
            let Some(Report::Listing(part)) = receive(control).expect("a message") else {
                panic!("not a listing");
            };
            listed.extend(part.routes);
            listed_backends.extend(part.backends);
        }
        assert!(listed == routes && listed_backends == backends);
        let none = Listing::parts(&[], &[]);
        assert!(none.len() == 1 && none[0].is_first && none[0].is_last);
        main.close();
        control.close();
    }

    /// More listeners than fit.
    #[test]
    fn the_state_of_a_large_configuration_fits_into_a_message() {
        let text = r#"{"pid":1,"born_ms":0,"phase":"ready","keepers":[],"configuration":{"file":null,"edition":1,
            "loaded_ms":0,"last_reload":null,"waits_for_restart":[]},"bounds":{"connections":1,"handshakes":1,
            "pending_bytes":1,"handshake_bytes":1,"kernel_bytes":1},"certificates":[],"drain":null,"listeners":[]}"#;
        let mut state: State = serde_json::from_str(text).expect("a state");
        let before = state.clone();
        state.fit();
        assert_eq!(state, before, "a small state stays");
        state.listeners = (0..10_000).map(|n| format!("127.0.0.1:{n}")).collect();
        state.fit();
        let (main, control) = socket::channel(OnExec::Close).expect("a channel");
        let report = Report::State(Box::new(state.clone()));
        assert_eq!(send(main, &report).expect("sent"), Attempt::Done(()));
        assert!(state.listeners.len() > 1000, "{}", state.listeners.len());
        main.close();
        control.close();
    }

    #[test]
    fn a_change_has_the_text_of_its_command() {
        for text in [
            "log-level debug",
            "out 10.0.0.7:80",
            "in unix:/run/an app.sock --route shop",
            "weight app.internal:80 7",
            "weight [::1]:80 7 --route 2",
        ] {
            let change: RunningChange = text.parse().expect(text);
            assert_eq!(change.to_string(), text);
        }
        for text in [
            "",
            "log-level",
            "log-level loud",
            "weight a",
            "weight a b",
            "drop a",
        ] {
            assert!(text.parse::<RunningChange>().is_err(), "{text}");
        }
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
