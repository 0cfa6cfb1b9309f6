//! The effects of each fault when a connection begins, is established, and closes.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use dormouse_engine::{ClientContext, ClientSettings, Roots};
use dormouse_reactor::process;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

const ROOTS: usize = 140;
const RECORD_BUFFER: usize = 16_921;
/// The block that every handshake puts into it.
const FILLED: usize = 300;
const SESSION: usize = 2_000;
const SESSIONS_BOUND: usize = 100;
const LEAK: usize = 2_000;
const BURN: Duration = Duration::from_millis(3);
/// Blocks of garbage per handshake, and the number of blocks between two long-lived entries.
const GARBAGE_BLOCKS: usize = 640;
const GARBAGE_BLOCK: usize = 500;
const ENTRY_EVERY: usize = 4;
const ENTRY: usize = 48;
/// The entries of 80 handshakes. A fast machine has few handshakes in flight, and malloc would put
/// all entries low in the heap; so the garbage of 80 handshakes is kept as if they were in flight.
/// Then it covers 28 MB with an entry on every page, however fast the machine is.
const ENTRIES_BOUND: usize = 80 * GARBAGE_BLOCKS / ENTRY_EVERY;
const IN_FLIGHT: usize = 128;
/// Number of open connections from which entries are made: more than in the warm-up of an audit,
/// whose baseline must not have them.
const BUSY: usize = 128;
const WALKS: usize = 100;

/// The memory that a connection keeps because of the fault.
#[derive(Default)]
pub(crate) struct Ballast {
    _trust: Option<ClientContext>,
    _buffers: Vec<Vec<u8>>,
    garbage: Vec<Vec<u8>>,
}

/// The fault of this process, with what it keeps for all connections.
pub(crate) struct Fault {
    name: String,
    bundle: Vec<u8>,
    shared_trust: Option<ClientContext>,
    sessions: HashMap<u64, Vec<u8>>,
    last_sessions: VecDeque<Vec<u8>>,
    #[expect(
        clippy::vec_box,
        reason = "small blocks, each for itself, are the fault"
    )]
    entries: Vec<Box<[u8; ENTRY]>>,
    /// Garbage of the last handshakes, kept until no connection is left.
    in_flight: VecDeque<Vec<Vec<u8>>>,
    scratch: Vec<u8>,
    #[expect(
        clippy::vec_box,
        reason = "objects of a heap, each for itself, are the fault"
    )]
    objects: Vec<Box<[u64; 4]>>,
    walked: bool,
    idle: bool,
    serial: u64,
}

impl Fault {
    pub(crate) fn new(name: &str, objects: usize) -> Result<Self, Box<dyn Error>> {
        let bundle = if name.starts_with("trust-store") {
            bundle()?
        } else {
            Vec::new()
        };
        let mut fault = Self {
            name: name.to_owned(),
            shared_trust: None,
            bundle,
            sessions: HashMap::with_capacity(65_536),
            last_sessions: VecDeque::with_capacity(SESSIONS_BOUND + 1),
            entries: Vec::with_capacity(ENTRIES_BOUND),
            in_flight: VecDeque::with_capacity(IN_FLIGHT + 1),
            objects: (0..objects as u64).map(|i| Box::new([i; 4])).collect(),
            scratch: vec![0; GARBAGE_BLOCKS * GARBAGE_BLOCK],
            walked: false,
            idle: false,
            serial: 0,
        };
        if fault.is("trust-store-shared") {
            fault.shared_trust = Some(fault.trust()?);
        }
        if fault.is("first-early") {
            fault.walk();
        }
        Ok(fault)
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        self.name == name
    }

    /// A connection begins its handshake, beside this many others.
    pub(crate) fn begin(&mut self, open: usize) -> Result<Ballast, Box<dyn Error>> {
        let mut ballast = Ballast::default();
        if self.is("trust-store") {
            ballast._trust = Some(self.trust()?);
        }
        if self.name.starts_with("buffers") {
            let buffers = (0..2).map(|_| buffer()).collect();
            if self.is("buffers") {
                ballast._buffers = buffers;
            }
        }
        if self.name.starts_with("fragments") {
            self.litter(&mut ballast, open);
        }
        Ok(ballast)
    }

    /// Its first bytes have arrived: a connect alone does not count as the first connection.
    pub(crate) fn first_bytes(&mut self) {
        if self.is("first") && !self.walked {
            self.walk();
        }
    }

    /// Its handshake is done; `resumed` if it made no new session.
    pub(crate) fn established(&mut self, ballast: &mut Ballast, resumed: bool) {
        self.in_flight
            .push_back(std::mem::take(&mut ballast.garbage));
        if self.in_flight.len() > IN_FLIGHT {
            self.in_flight.pop_front();
        }
        self.serial += 1;
        if self.name.starts_with("session-cache") && !resumed {
            let session = vec![0x5e; SESSION];
            if self.is("session-cache") {
                self.sessions.insert(self.serial, session);
            } else {
                self.last_sessions.push_back(session);
                if self.last_sessions.len() > SESSIONS_BOUND {
                    self.last_sessions.pop_front();
                }
            }
        }
        if self.is("burn") {
            let until = process::cpu_ns() + BURN.as_nanos() as u64;
            while process::cpu_ns() < until {
                std::hint::spin_loop();
            }
        }
    }

    /// It has closed.
    pub(crate) fn closed(&mut self) {
        if self.is("leak") {
            Box::leak(vec![0x1e_u8; LEAK].into_boxed_slice());
        }
    }

    /// No connection is left. Entries stay until the next connection: freed blocks in the heap are
    /// reused for blocks of the same size, so entries would never move.
    pub(crate) fn idle(&mut self) {
        self.in_flight.clear();
        self.idle = true;
    }

    /// The garbage of a handshake with long-lived, bounded entries in between: in one heap, or with
    /// the garbage in memory that all handshakes share.
    fn litter(&mut self, ballast: &mut Ballast, open: usize) {
        let apart = self.is("fragments-apart");
        if std::mem::take(&mut self.idle) {
            self.entries.clear();
        }
        if apart {
            black_box(&mut self.scratch).fill(0xa5);
        } else {
            ballast.garbage.reserve_exact(GARBAGE_BLOCKS);
        }
        for index in 0..GARBAGE_BLOCKS {
            if !apart {
                ballast.garbage.push(vec![0xa5; GARBAGE_BLOCK]);
            }
            if index % ENTRY_EVERY == 0 && open >= BUSY && self.entries.len() < ENTRIES_BOUND {
                self.entries.push(Box::new([1; ENTRY]));
            }
        }
    }

    fn trust(&self) -> Result<ClientContext, Box<dyn Error>> {
        let settings = ClientSettings::new(Roots::Pem(self.bundle.clone()));
        Ok(ClientContext::new(settings).map_err(|error| error.to_string())?)
    }

    fn walk(&mut self) {
        self.walked = true;
        for _ in 0..WALKS {
            let sum = self
                .objects
                .iter()
                .fold(0_u64, |sum, object| sum.wrapping_add(object[1]));
            black_box(sum);
        }
    }
}

fn buffer() -> Vec<u8> {
    let mut buffer = vec![0xff_u8; RECORD_BUFFER];
    // Written, so that its pages exist, and zero except for the beginning.
    if let Some(rest) = buffer.get_mut(FILLED..) {
        black_box(rest).fill(0);
    }
    buffer
}

/// Returns as many root certificates as a system has.
fn bundle() -> Result<Vec<u8>, Box<dyn Error>> {
    let mut pem = String::new();
    let began = Instant::now();
    for index in 0..ROOTS {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(
            DnType::OrganizationName,
            "An authority with a name of ordinary length",
        );
        params
            .distinguished_name
            .push(DnType::CommonName, format!("Root {index}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        pem += &CertifiedIssuer::self_signed(params, KeyPair::generate()?)?.pem();
        if began.elapsed() > Duration::from_secs(20) {
            return Err("making root certificates takes too long".into());
        }
    }
    Ok(pem.into_bytes())
}
