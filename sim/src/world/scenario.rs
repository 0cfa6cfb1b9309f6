//! What a seed stands for: the kind of route, who connects, and what goes wrong.

use crate::Random;
use crate::kernel::{Buffers, Faults};

/// A peer that reads nothing for so long is waited for: `drain_timeout` is longer.
pub const DEAF_US: u64 = 5_000_000;

/// The way that connections go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// TLS from clients, answered by the route itself.
    Echo,
    /// TLS from clients, plaintext to backends.
    Terminate,
    /// The same, to a backend that is reached by a unix socket.
    TerminateUnix,
    /// TLS from clients, TLS to backends.
    BackendTls,
    /// TLS between clients and backends, untouched.
    PassThrough,
    /// Plaintext from clients, TLS to servers.
    Originate,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 6] = [
        Way::Echo,
        Way::Terminate,
        Way::TerminateUnix,
        Way::BackendTls,
        Way::PassThrough,
        Way::Originate,
    ];

    /// Do clients speak TLS?
    pub(crate) fn has_tls_clients(self) -> bool {
        self != Way::Originate
    }

    /// Do backends speak TLS?
    pub(crate) fn has_tls_backends(self) -> bool {
        matches!(self, Way::BackendTls | Way::PassThrough | Way::Originate)
    }

    /// Does the gateway shake hands with clients?
    pub(crate) fn terminates(self) -> bool {
        matches!(
            self,
            Way::Echo | Way::Terminate | Way::TerminateUnix | Way::BackendTls
        )
    }
}

/// What main orders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Nothing.
    None,
    /// Everything stops.
    Stop,
    /// Connections are closed one after the other.
    Drain,
    /// Another binary takes over.
    Upgrade,
    /// Another configuration, which changes nothing.
    Reload,
}

/// The PROXY protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ProxyHeaders {
    /// Nobody sends a header.
    #[default]
    None,
    /// Clients come through a proxy, which says who they are.
    FromClients,
    /// Backends are told who the client is, by a line.
    ToBackendsV1,
    /// The same, by a binary header.
    ToBackendsV2,
}

/// Options of the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Whether a FIN without close_notify is passed on as an end.
    pub truncation_closes: bool,
    /// Who tells whom by a PROXY header where a connection comes from.
    pub proxy_headers: ProxyHeaders,
    /// Whether clients may pass 64 KiB per second, all together.
    pub paced: bool,
    /// Connections to servers that are made before anybody asks.
    pub warm: u32,
}

/// Everything that a seed decides before anything happens.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The seed itself.
    pub seed: u64,
    /// The way.
    pub way: Way,
    /// Clients that connect.
    pub clients: u32,
    /// How many of them at a time.
    pub at_once: u32,
    /// Connections that are established already when the worker starts.
    pub established: u32,
    /// What goes wrong.
    pub faults: Faults,
    /// Sizes of sockets' queues.
    pub buffers: Buffers,
    /// How often a peer ends as nobody should: once in so many.
    pub aborts: usize,
    /// The worker dies after so many steps, and again.
    pub kills: [u64; 2],
    /// What main orders, and in which round.
    pub command: (Command, u64),
    /// Whether timeouts are so short that connections run into them.
    pub short_timeouts: bool,
    /// Whether limits are so low that connections run into them.
    pub low_limits: bool,
    /// For so long every third peer reads nothing.
    pub deaf_us: u64,
    /// The configuration.
    pub options: Options,
}

impl Scenario {
    /// What `seed` stands for.
    pub fn of(seed: u64) -> Scenario {
        let mut random = Random::new(seed);
        let way = Way::ALL[random.below(Way::ALL.len())];
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
            way,
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
            deaf_us: 0,
            options: Options::default(),
        };
        scenario.faults = any_faults(&mut random);
        scenario.deaf_us = [0, 0, 0, DEAF_US, 20 * DEAF_US][random.below(5)];
        scenario.options = any_options(way, &mut random);
        if scenario.buffers.send.min(scenario.buffers.receive) < 1_000 {
            scenario.clients = scenario.clients.min(3);
            scenario.established = scenario.established.min(3);
        }
        scenario
    }

    /// The same without anything that goes wrong, so that only what is broken can be seen.
    pub fn calm(seed: u64) -> Scenario {
        Scenario {
            faults: Faults::default(),
            command: (Command::None, 0),
            kills: [u64::MAX; 2],
            short_timeouts: false,
            low_limits: false,
            deaf_us: 0,
            options: Options::default(),
            ..Scenario::of(seed)
        }
    }

    /// Most that a peer says: with short queues everything takes very long.
    pub(crate) fn speech_max(&self) -> u64 {
        match self.buffers.send.min(self.buffers.receive) {
            0..100 => 300,
            100..1_000 => 3_000,
            _ => u64::MAX,
        }
    }

    /// May the gateway close connections that nobody has ended?
    pub(crate) fn gateway_may_close(&self) -> bool {
        self.short_timeouts
            || self.faults.joint_again > 0
            || self.options.warm > 0
            || self.deaf_us > DEAF_US
            || matches!(self.command.0, Command::Stop | Command::Drain)
    }
}

fn any_options(way: Way, random: &mut Random) -> Options {
    let headers = match way {
        Way::Originate => &[ProxyHeaders::None][..],
        Way::Echo => &[
            ProxyHeaders::None,
            ProxyHeaders::None,
            ProxyHeaders::FromClients,
        ],
        Way::Terminate | Way::TerminateUnix | Way::BackendTls | Way::PassThrough => &[
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
        warm: match way {
            Way::Originate => [0, 0, 2][random.below(3)],
            _ => 0,
        },
    }
}

fn any_faults(random: &mut Random) -> Faults {
    let mut some = |choices: [usize; 4]| choices[random.below(4)];
    Faults {
        again: some([0, 0, 2, 9]),
        partial: some([0, 0, 2, 9]),
        late_event: some([0, 0, 2, 5]),
        no_descriptor: some([0, 0, 0, 6]),
        no_port: some([0, 0, 0, 6]),
        refused: some([0, 0, 0, 4]),
        unanswered: some([0, 0, 0, 9]),
        slow_connect: some([0, 0, 2, 4]),
        joint_again: 0,
    }
}
