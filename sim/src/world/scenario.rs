//! The scenario of a seed: kind of route, peers, faults, orders.

use crate::Random;
use crate::kernel::{Buffers, Faults};

/// A stall of a reader that the gateway tolerates: `drain_timeout` is longer.
pub const STALL_US: u64 = 5_000_000;

/// The kind of the route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteKind {
    /// TLS from clients, echoed by the route itself.
    Echo,
    /// TLS from clients, plaintext to backends.
    Terminate,
    /// TLS from clients, plaintext to a backend on a unix socket.
    TerminateUnix,
    /// TLS from clients, TLS to backends.
    BackendTls,
    /// TLS between clients and backends, untouched.
    PassThrough,
    /// Plaintext from clients, TLS to servers.
    Originate,
}

impl RouteKind {
    /// All kinds.
    pub const ALL: [RouteKind; 6] = [
        RouteKind::Echo,
        RouteKind::Terminate,
        RouteKind::TerminateUnix,
        RouteKind::BackendTls,
        RouteKind::PassThrough,
        RouteKind::Originate,
    ];

    /// Whether clients use TLS.
    pub(crate) fn has_tls_clients(self) -> bool {
        self != RouteKind::Originate
    }

    /// Whether backends use TLS.
    pub(crate) fn has_tls_backends(self) -> bool {
        matches!(
            self,
            RouteKind::BackendTls | RouteKind::PassThrough | RouteKind::Originate
        )
    }

    /// Whether the gateway makes the handshake with clients.
    pub(crate) fn terminates(self) -> bool {
        matches!(
            self,
            RouteKind::Echo
                | RouteKind::Terminate
                | RouteKind::TerminateUnix
                | RouteKind::BackendTls
        )
    }

    /// Whether `half_close = false` is possible.
    pub fn may_close_both(self) -> bool {
        self.terminates() && !self.has_tls_backends()
    }
}

/// An order of main.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// No order.
    None,
    /// The worker stops.
    Stop,
    /// The worker drains its connections.
    Drain,
    /// The worker closes its connections at once, and then accepts again.
    DrainAndBack,
    /// Another binary takes over.
    Upgrade,
    /// The worker loads a new edition of the same configuration.
    Reload,
}

/// Use of the PROXY protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ProxyHeaders {
    /// No headers.
    #[default]
    None,
    /// Clients send a header, like a proxy in front of the gateway.
    FromClients,
    /// Backends receive headers of version 1.
    ToBackendsV1,
    /// Backends receive headers of version 2.
    ToBackendsV2,
}

/// Options of the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Whether truncation is relayed as a close (`truncation = "close"`).
    pub truncation_closes: bool,
    /// Use of the PROXY protocol.
    pub proxy_headers: ProxyHeaders,
    /// Whether each client address is limited to 64 KiB per second (`bytes_per_client`).
    pub paced: bool,
    /// Number of connections to servers that are opened in advance (`warm`).
    pub warm: u32,
    /// Whether a client's end also ends the backend's direction (`half_close = false`).
    pub closes_both: bool,
    /// Whether backends are connected at the client's first data (`backend_connect = "first-data"`).
    pub connects_late: bool,
    /// Whether clients ask for TLS within SMTP, and backends greet (`starttls = "smtp"`); of an origination, whether its
    /// servers are asked for TLS.
    pub starttls: bool,
    /// Whether quiet connections leave the kernel (`rest_after`).
    pub rests: bool,
    /// Number of connections that may have sockets (`max_awake`); 0: all.
    pub awake: u32,
    /// Steps of tcp-repair until it dies; 0: it does not.
    pub repair_dies: u64,
}

/// The initial conditions and faults of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// The kind of the route.
    pub route_kind: RouteKind,
    /// Number of clients that connect.
    pub clients: u32,
    /// Most clients at a time.
    pub at_once: u32,
    /// Connections that are established before the worker starts.
    pub established: u32,
    /// Faults of the kernel.
    pub faults: Faults,
    /// Sizes of the sockets' queues.
    pub buffers: Buffers,
    /// One in this many peers ends by an abort; 0: none.
    pub aborts: usize,
    /// Steps until the worker is killed, and until its successor is killed.
    pub kills: [u64; 2],
    /// An order of main, and the round in which the worker receives it.
    pub command: (Command, u64),
    /// Whether timeouts are so short that connections exceed them.
    pub short_timeouts: bool,
    /// Whether limits are so low that connections reach them.
    pub low_limits: bool,
    /// `pending_memory`; 0: the default.
    pub pending_bytes: u64,
    /// `kernel_memory`; 0: the default.
    pub kernel_bytes: u64,
    /// How long every third peer reads nothing.
    pub stall_us: u64,
    /// Options of the configuration.
    pub options: Options,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn of(seed: u64) -> Scenario {
        let mut random = Random::new(seed);
        let route_kind = RouteKind::ALL[random.below(RouteKind::ALL.len())];
        let kills = match random.once_in(2) {
            true => [
                1 + random.below(4_000) as u64,
                1 + random.below(4_000) as u64,
            ],
            false => [u64::MAX; 2],
        };
        let commands = [
            Command::Stop,
            Command::Drain,
            Command::Upgrade,
            Command::Upgrade,
            Command::Reload,
        ];
        let command = match random.once_in(2) {
            true => commands[random.below(commands.len())],
            false => Command::None,
        };
        let queue = |random: &mut Random| [20, 700, 4_096, 65_536, 65_536][random.below(5)];
        let mut scenario = Scenario {
            seed,
            route_kind,
            clients: 1 + random.below(12) as u32,
            at_once: 1 + random.below(8) as u32,
            established: random.below(24) as u32,
            faults: Faults::default(),
            buffers: Buffers {
                send: queue(&mut random),
                receive: queue(&mut random),
            },
            aborts: [0, 0, 3, 10][random.below(4)],
            kills,
            command: (command, 5 + random.below(200) as u64),
            short_timeouts: random.once_in(8),
            low_limits: random.once_in(6),
            pending_bytes: 0,
            kernel_bytes: 0,
            stall_us: 0,
            options: Options::default(),
        };
        scenario.faults = any_faults(&mut random);
        scenario.stall_us = [0, 0, 0, STALL_US, 20 * STALL_US][random.below(5)];
        scenario.options = any_options(route_kind, &mut random);
        if route_kind != RouteKind::Originate && random.once_in(3) {
            scenario.options.rests = true;
            scenario.options.awake = [0, 0, 16][random.below(3)];
            scenario.options.repair_dies = [0, 1 + random.below(300) as u64][random.below(2)];
        }
        if scenario.buffers.send.min(scenario.buffers.receive) < 1_000 {
            scenario.clients = scenario.clients.min(3);
            scenario.established = scenario.established.min(3);
        }
        if scenario.options.starttls {
            scenario.divide_nothing_short();
            if scenario.options.warm > 0 {
                // While a peer stalls, warm connections are renewed, and each dialogue takes many rounds.
                scenario.stall_us = scenario.stall_us.min(STALL_US);
            }
        }
        scenario
    }

    /// A kernel divides neither the first bytes that it sends on a connection nor what is peeked at, if they are short: a
    /// header and a greeting.
    fn divide_nothing_short(&mut self) {
        (self.faults.would_block, self.faults.partial) = (0, 0);
        for queue in [&mut self.buffers.send, &mut self.buffers.receive] {
            *queue = (*queue).max(4_096);
        }
    }

    /// The scenario of a seed without faults, deaths and orders: only a defect can fail it.
    pub fn calm(seed: u64) -> Scenario {
        Scenario {
            faults: Faults::default(),
            command: (Command::None, 0),
            kills: [u64::MAX; 2],
            short_timeouts: false,
            low_limits: false,
            stall_us: 0,
            options: Options::default(),
            ..Scenario::of(seed)
        }
    }

    /// Limit of a peer's content; small with short queues, which need many rounds.
    pub(crate) fn content_max(&self) -> u64 {
        match self.buffers.send.min(self.buffers.receive) {
            0..100 => 300,
            100..1_000 => 3_000,
            _ => u64::MAX,
        }
    }

    /// Whether the gateway may close connections that no peer has ended.
    pub(crate) fn gateway_may_close(&self) -> bool {
        self.short_timeouts
            || self.faults.joint_would_block > 0
            || self.faults.no_watch > 0
            || self.options.warm > 0
            || self.stall_us > STALL_US
            || matches!(
                self.command.0,
                Command::Stop | Command::Drain | Command::DrainAndBack
            )
    }
}

fn any_options(route_kind: RouteKind, random: &mut Random) -> Options {
    let headers = match route_kind {
        RouteKind::Originate => &[ProxyHeaders::None][..],
        RouteKind::Echo => &[
            ProxyHeaders::None,
            ProxyHeaders::None,
            ProxyHeaders::FromClients,
        ],
        RouteKind::Terminate
        | RouteKind::TerminateUnix
        | RouteKind::BackendTls
        | RouteKind::PassThrough => &[
            ProxyHeaders::None,
            ProxyHeaders::None,
            ProxyHeaders::FromClients,
            ProxyHeaders::ToBackendsV1,
            ProxyHeaders::ToBackendsV2,
        ],
    };
    Options {
        truncation_closes: random.once_in(4),
        proxy_headers: headers[random.below(headers.len())],
        paced: random.once_in(8),
        warm: match route_kind {
            RouteKind::Originate => [0, 0, 2][random.below(3)],
            _ => 0,
        },
        closes_both: route_kind.may_close_both() && random.once_in(4),
        connects_late: route_kind.terminates() && random.once_in(4),
        starttls: (route_kind.may_close_both() || route_kind == RouteKind::Originate)
            && random.once_in(4),
        rests: false,
        awake: 0,
        repair_dies: 0,
    }
}

fn any_faults(random: &mut Random) -> Faults {
    let mut any_of = |choices: [usize; 4]| choices[random.below(4)];
    Faults {
        would_block: any_of([0, 0, 2, 9]),
        partial: any_of([0, 0, 2, 9]),
        late_event: any_of([0, 0, 2, 5]),
        no_descriptor: any_of([0, 0, 0, 6]),
        no_port: any_of([0, 0, 0, 6]),
        refused: any_of([0, 0, 0, 4]),
        unanswered: any_of([0, 0, 0, 9]),
        slow_connect: any_of([0, 0, 2, 4]),
        joint_would_block: 0,
        no_watch: 0,
    }
}
