//! The worker's environment, which main provides in a real gateway: configuration, certificates, shared memory.

use super::pairs::{AUTHORITY_PEM, KEY_PEM, LEAF_PEM, NAME};
use super::scenario::{ProxyHeaders, RouteKind, Scenario};
use crate::kernel::{Kernel, Repair};
use dormouse_config::{
    self as config, ByteSize, ConnectTime, Flag, Loaded, Machine, Network, ProxyProtocol, Section,
    Starttls, Timeouts, Truncation,
};
use dormouse_engine::TicketKeys;
use dormouse_handover::layout;
use dormouse_handover::notes::Notes;
use dormouse_handover::share::Share;
use dormouse_handover::slot::{SLOT_LAYOUT_VERSION, Slot};
use dormouse_handover::{
    Descriptors, Handover, OriginPem, Pem, PemContents, RestDescriptors, Revocation,
};
use dormouse_reactor::Fd;
use dormouse_reactor::pending::Pending;
use dormouse_reactor::shared::Shared;
use dormouse_reactor::slab::{Foreign, Slab};
use dormouse_reactor::socket::Addr;
use dormouse_rest::Records;
use dormouse_tables::backends::Backends;
use dormouse_tables::client_sessions::ClientSessions;
use dormouse_tables::clients::Clients;
use dormouse_tables::traffic::Traffic;
use std::io;
use std::net::Ipv4Addr;
use std::sync::OnceLock;
use std::time::Duration;

/// The listener's address.
pub(crate) const LISTEN: &str = "203.0.113.1:443";

/// Addresses of the backends or servers.
const TCP: [&str; 2] = ["198.51.100.1:8080", "198.51.100.2:8080"];
const UNIX: &str = "unix:/run/backend.sock";

/// Number of slots.
const CONNECTIONS: u32 = 200;
const PENDING_BYTES: usize = 4 << 20;

/// The backends of a kind of route.
pub(crate) fn backends(route_kind: RouteKind) -> Vec<Addr> {
    let texts: &[&str] = match route_kind {
        RouteKind::Echo => &[],
        RouteKind::TerminateUnix => &[UNIX],
        RouteKind::Terminate
        | RouteKind::BackendTls
        | RouteKind::PassThrough
        | RouteKind::Originate => &TCP,
    };
    let parsed = texts.iter().map(|text| text.parse());
    parsed.map(|address| address.expect("an address")).collect()
}

/// The configuration for a kind of route, loaded once per process.
fn loaded(route_kind: RouteKind) -> &'static Loaded {
    static LOADED: OnceLock<Vec<Loaded>> = OnceLock::new();
    let all = LOADED.get_or_init(|| RouteKind::ALL.map(load).into());
    let index = RouteKind::ALL.iter().position(|&kind| kind == route_kind);
    &all[index.expect("a known kind")]
}

fn load(route_kind: RouteKind) -> Loaded {
    let mut flags = vec![("listen", LISTEN)];
    let targets: &[&str] = match route_kind {
        RouteKind::Echo => &["echo:"],
        RouteKind::TerminateUnix => &[UNIX],
        RouteKind::Terminate
        | RouteKind::BackendTls
        | RouteKind::PassThrough
        | RouteKind::Originate => &TCP,
    };
    flags.extend(targets.iter().map(|target| ("to", *target)));
    let section = match route_kind {
        RouteKind::Originate => {
            flags.extend([("server-name", NAME), ("insecure", "true")]);
            Section::Originate
        }
        RouteKind::PassThrough => {
            flags.push(("pass-through", "true"));
            Section::Route
        }
        _ => {
            flags.push(("self-signed", NAME));
            Section::Route
        }
    };
    if route_kind == RouteKind::BackendTls {
        flags.extend([("backend-tls", "true"), ("backend-name", NAME)]);
    }
    let flags = flags
        .into_iter()
        .map(|(name, value)| Flag::new(name, value));
    let flags: Vec<Flag> = flags.collect();
    let machine = Machine::read();
    let loaded = config::load(None, section, &flags, &machine);
    let mut loaded = loaded.unwrap_or_else(|mistakes| panic!("{}", mistakes.render(false)));
    let plan = &mut loaded.plan;
    (plan.workers, plan.connections_max) = (1, CONNECTIONS);
    plan.pending_memory.0 = PENDING_BYTES as u64;
    loaded.config.timeouts.hang_timeout = None;
    loaded
}

/// The descriptors named in the handover, and some of the shared memory they refer to.
pub(crate) struct Setup {
    pub(crate) handover: Fd,
    pub(crate) slots: Fd,
    pub(crate) counters: Shared,
    pub(crate) backends: Backends,
    pub(crate) clients: Clients,
    pub(crate) traffic: Traffic,
    owned: Vec<Fd>,
    /// The worker's channel to tcp-repair and the records, if connections may rest.
    rest: Option<RestDescriptors>,
}

/// A kernel without faults, and a worker's environment in it.
pub(crate) fn calm(scenario: &Scenario) -> io::Result<(Kernel, Setup)> {
    let mut kernel = Kernel::new(1, scenario.faults, scenario.buffers);
    kernel.calm = true;
    let listener = kernel.listen(LISTEN.parse().map_err(io::Error::other)?)?;
    let orders = kernel.open_orders()?;
    for address in backends(scenario.route_kind) {
        kernel.add_backend(address);
    }
    let setup = Setup::new(scenario, listener, orders, None)?;
    Ok((kernel, setup))
}

/// Creates tcp-repair, if connections may rest. Returns the worker's part.
pub(crate) fn begin_repair(
    scenario: &Scenario,
    kernel: &mut Kernel,
) -> io::Result<Option<RestDescriptors>> {
    if !scenario.options.rests {
        return Ok(None);
    }
    let count = 2 * CONNECTIONS;
    let records = Records::create(count)?;
    let reader = records.reader()?;
    let deaths = match scenario.options.repair_dies {
        0 => Vec::new(),
        steps => vec![2 * steps, steps],
    };
    kernel.repair = Some(Repair::begin(records, deaths));
    Ok(Some(RestDescriptors {
        channel: kernel.open_repair()?.0,
        records: reader.0,
        records_count: count,
        first: 0,
        count,
    }))
}

impl Setup {
    /// Creates the environment for a scenario. `listener` and `orders` are the worker's simulated descriptors.
    pub(crate) fn new(
        scenario: &Scenario,
        listener: Fd,
        orders: Fd,
        rest: Option<RestDescriptors>,
    ) -> io::Result<Setup> {
        let slots = Slab::<Slot>::create("sim-slots", CONNECTIONS, SLOT_LAYOUT_VERSION)?;
        let counters = Shared::create("sim-counters", 1)?;
        let clients = Clients::create(CONNECTIONS, 1)?;
        let backends = Backends::create(1)?;
        let traffic = Traffic::create(1)?;
        let sessions = match scenario.route_kind {
            RouteKind::Originate => Some(ClientSessions::create(dormouse_routes::origin::PLACES)?),
            _ => None,
        };
        let mut handover = handover(scenario);
        for upstream in handover.config.routes.iter().flat_map(|route| &route.to) {
            for address in upstream.backend.addresses() {
                backends.place(&address.to_string());
            }
        }
        let pending_bytes = handover.share.pending_bytes_max as usize;
        let pending = Pending::create("sim-pending", pending_bytes)?;
        let notes = Notes::default().write()?;
        let owned = vec![
            notes,
            pending.fd(),
            counters.fd(),
            clients.fd(),
            backends.fds().roster,
            backends.fds().marks,
            traffic.fd(),
            sessions.as_ref().map_or(Fd::NONE, ClientSessions::fd),
        ];
        handover.descriptors = Descriptors {
            listeners: vec![(listener.0, 0)],
            doors: vec![vec![0]],
            slots: slots.fd().0,
            pending: pending.fd().0,
            counters: counters.fd().0,
            clients: clients.fd().0,
            clients_for: CONNECTIONS,
            backends: backends.fds().marks.0,
            roster: backends.fds().roster.0,
            sessions: sessions.map(|sessions| sessions.fd().0),
            orders: orders.0,
            notes: notes.0,
            traffic: traffic.fd().0,
            rest,
            ..Descriptors::default()
        };
        let handover = handover.write()?;
        Ok(Setup {
            handover,
            slots: slots.fd(),
            counters,
            backends,
            clients,
            traffic,
            owned,
            rest,
        })
    }

    /// Converts the slots into new memory, like a new binary.
    pub(crate) fn convert_slots(&mut self) -> io::Result<()> {
        let from = Foreign::open(self.slots).map_err(io::Error::other)?;
        let slots = layout::convert(&from)?;
        let mut handover = Handover::read(self.handover)?;
        handover.descriptors.slots = slots.fd().0;
        let written = handover.write()?;
        from.wipe();
        self.slots.close();
        self.handover.close();
        (self.slots, self.handover) = (slots.fd(), written);
        Ok(())
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        if let Some(rest) = self.rest {
            Fd(rest.records).close();
        }
        let all = self.owned.iter().chain([&self.slots, &self.handover]);
        all.filter(|&&fd| fd != Fd::NONE).for_each(|fd| fd.close());
    }
}

/// The handover document of the worker.
pub(crate) fn handover(scenario: &Scenario) -> Handover {
    let loaded = loaded(scenario.route_kind);
    let mut config = loaded.config.clone();
    let mut plan = loaded.plan.clone();
    if scenario.short_timeouts {
        shorten(&mut config.timeouts);
    }
    let options = scenario.options;
    let truncation = match options.truncation_closes {
        true => Truncation::Close,
        false => Truncation::Abort,
    };
    for route in &mut config.routes {
        (route.truncation, route.backend_truncation) = (truncation, truncation);
        route.half_close = !options.closes_both;
        route.rest_after = options.rests.then_some(Duration::from_millis(1));
        if options.connects_late {
            route.backend_connect = ConnectTime::FirstData;
        }
        if options.starttls {
            route.starttls = Starttls::Smtp;
        }
        route.proxy_protocol = match options.proxy_headers {
            ProxyHeaders::None | ProxyHeaders::FromClients => ProxyProtocol::Off,
            ProxyHeaders::ToBackendsV1 => ProxyProtocol::V1,
            ProxyHeaders::ToBackendsV2 => ProxyProtocol::V2,
        };
        if options.proxy_headers == ProxyHeaders::FromClients {
            let address = Ipv4Addr::UNSPECIFIED.into();
            route.accept_proxy_from = vec![Network { address, prefix: 0 }];
        }
    }
    for originate in &mut config.originate {
        (originate.truncation, originate.warm) = (truncation, options.warm);
        if options.starttls {
            originate.starttls = Starttls::Smtp;
        }
    }
    if options.paced {
        config.limits.bytes_per_client = Some(ByteSize(64 << 10));
    }
    if scenario.low_limits {
        plan.connections_max = 4;
        plan.handshakes_max = 1;
        plan.pending_memory.0 = 256 << 10;
    }
    plan.awake_max = options.awake;
    if scenario.pending_bytes > 0 {
        plan.pending_memory.0 = scenario.pending_bytes;
    }
    if scenario.kernel_bytes > 0 {
        plan.kernel_memory.0 = scenario.kernel_bytes;
    }
    let certificates = match scenario.route_kind.terminates() {
        true => vec![vec![leaf()]],
        false => vec![Vec::new(); config.routes.len()],
    };
    let roots = OriginPem {
        roots: Some(AUTHORITY_PEM.to_owned()),
        revocation: Revocation::default(),
        identity: None,
    };
    Handover {
        worker: 0,
        edition: 1,
        user: None,
        share: Share::of(0, &plan),
        numbers: vec![0],
        clients: vec![None; config.routes.len()],
        certificates,
        origins: vec![roots.clone(); config.originate.len()],
        backend_tls: match scenario.route_kind {
            RouteKind::BackendTls => vec![Some(roots)],
            _ => vec![None; config.routes.len()],
        },
        ticket_keys: ticket_keys().to_vec(),
        descriptors: Descriptors::default(),
        config,
    }
}

fn shorten(timeouts: &mut Timeouts) {
    timeouts.idle_timeout = Some(Duration::from_secs(2));
    timeouts.total_timeout = Some(Duration::from_secs(5));
    timeouts.partial_record_timeout = Duration::from_secs(1);
    timeouts.handshake_timeout = Duration::from_secs(1);
    timeouts.drain_timeout = Duration::from_secs(1);
}

/// The worker's certificate.
fn leaf() -> Pem {
    Pem::from(PemContents {
        name: "leaf.pem".to_owned(),
        key_name: "leaf.key".to_owned(),
        chain: LEAF_PEM.to_owned(),
        ocsp: Vec::new(),
        ocsp_from_file: false,
        is_pushed: false,
        key: KEY_PEM.to_owned(),
    })
}

fn ticket_keys() -> &'static [u8] {
    static KEYS: OnceLock<Vec<u8>> = OnceLock::new();
    KEYS.get_or_init(|| {
        let keys = TicketKeys::generate(dormouse_testkit::now(), 3_600).expect("keys");
        keys.export().to_vec()
    })
}
