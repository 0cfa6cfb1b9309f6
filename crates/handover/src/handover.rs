//! What main hands to a keeper and its workers: one memory file, read again by every worker after
//! a crash, and by a new binary after an upgrade.
//!
//! It has three parts, so that nobody needs to read more than it is to know:
//!
//! | part | format | read by |
//! |---|---|---|
//! | for the keeper: log, names, bounds; what has changed since it was written | JSON | keeper, worker |
//! | configuration, certificates, numbers of descriptors | JSON | worker |
//! | private keys, ticket keys | bytes | worker |
//!
//! What a worker itself changes, numbers of descriptors and addresses of backends, stands in the first
//! part and goes before what the second says: so the second, which is as long as there are
//! certificates, is copied then and not read and written.
//!
//! A keeper never has the secrets in its memory: it reads the first part with `pread` and maps
//! nothing. It is data, not objects: a new binary can read what an old one wrote.

use crate::share::Share;
use dormouse_config::{ClientMatch, Config, Log, Sandbox};
use dormouse_engine::{ClientCertificates, Identity, IdentityError};
use dormouse_reactor::Fd;
use dormouse_reactor::memory::{Mapping, PAGE, read_at};
use dormouse_reactor::process::{self, User};
use dormouse_tables::counters::Count;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use zeroize::{Zeroize as _, Zeroizing};

/// Version of the three parts and their order. JSON may gain fields without a new version.
pub(crate) const HANDOVER_VERSION: u64 = 2;

const MAGIC: u64 = u64::from_le_bytes(*b"dm-hndvr");
const HEAD_BYTES: usize = 8 * 5;
/// The largest part, so that a damaged head does not ask for all memory.
const PART_BYTES_MAX: usize = 64 << 20;

/// Everything a worker is told before it starts.
#[derive(Serialize, Deserialize)]
pub struct Handover {
    /// Which of the workers this is, from 0.
    pub worker: u32,
    /// The configuration as main has read and checked it.
    pub config: Config,
    /// This worker's share of the limits.
    pub share: Share,
    /// Numbers of the routes, then of the originations: what slots call them by.
    pub numbers: Vec<u16>,
    /// Certificates by route, in the order of `config.routes`.
    pub certificates: Vec<Vec<Pem>>,
    /// Who may vouch for clients, by route.
    #[serde(default)]
    pub clients: Vec<Option<ClientTrust>>,
    /// The same for originations: trust and own certificate.
    pub origins: Vec<OriginPem>,
    /// The same for the backends of routes with which TLS is spoken.
    #[serde(default)]
    pub backend_tls: Vec<Option<OriginPem>>,
    /// Ticket keys as they are exported; the same in all workers.
    #[serde(skip)]
    pub ticket_keys: Vec<u8>,
    /// The worker's descriptors, by number.
    pub descriptors: Descriptors,
}

/// Who may vouch for clients, and who of those may come in.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientTrust {
    /// Whether a client without a certificate is refused.
    pub required: bool,
    /// PEM.
    pub roots: String,
    /// Revocation lists: where each was read, and what was there, PEM.
    pub crls: Vec<(String, String)>,
    /// Certificates that are accepted; empty: every one that the authorities vouch for.
    #[serde(default)]
    pub allow: Vec<ClientMatch>,
}

impl ClientTrust {
    /// As the engine takes it.
    pub fn settings(&self) -> ClientCertificates {
        ClientCertificates {
            required: self.required,
            roots: self.roots.clone().into_bytes(),
            crls: self
                .crls
                .iter()
                .map(|(name, pem)| (name.clone(), pem.clone().into_bytes()))
                .collect(),
            allow: self.allow.iter().map(ClientMatch::rule).collect(),
        }
    }
}

/// The little that a keeper is told.
#[derive(Clone, Serialize, Deserialize)]
pub struct ForKeeper {
    /// Which of the workers its own is, from 0.
    pub worker: u32,
    /// The number of workers of the gateway.
    pub workers: u32,
    /// Level, format and target of the log.
    pub log: Log,
    /// Who keeper and worker are to be; `None`: who they are.
    pub user: Option<(u32, u32)>,
    /// Whether both confine themselves.
    #[serde(default)]
    pub sandbox: Option<Sandbox>,
    /// A worker that gives no sign of life for so long is ended.
    pub hang_timeout_ms: Option<u64>,
    /// Descriptor of the slots.
    pub slots: i32,
    /// Descriptor of the counters.
    pub counters: i32,
    /// Descriptor of the worker's end of its channel to main.
    pub orders: i32,
    /// Names of the counters in the order in which the writer of this has them: another binary
    /// may have others.
    pub counts: Vec<String>,
    /// What a worker has changed.
    #[serde(default)]
    pub changed: Changed,
}

/// What a worker has changed since main wrote its handover.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Changed {
    /// The numbers which descriptors have in its table.
    pub descriptors: Option<Descriptors>,
    /// What names of backends stand for now.
    pub addresses: BTreeMap<String, Vec<SocketAddr>>,
}

impl Changed {
    fn apply(self, handover: &mut Handover) {
        if let Some(descriptors) = self.descriptors {
            handover.descriptors = descriptors;
        }
        if self.addresses.is_empty() {
            return;
        }
        let upstreams = handover
            .config
            .routes
            .iter_mut()
            .flat_map(|route| &mut route.to);
        for backend in upstreams.map(|upstream| &mut upstream.backend) {
            let found = backend.name().and_then(|name| self.addresses.get(name));
            if let Some(found) = found {
                backend.set_addresses(found);
            }
        }
    }
}

/// A chain and its key as PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pem {
    /// Where the chain was read, for messages.
    pub name: String,
    /// Where the key was read.
    pub key_name: String,
    /// The certificate chain, PEM, the leaf first.
    pub chain: String,
    /// What the authority says of it (OCSP), DER; empty: nothing is known.
    #[serde(default)]
    pub ocsp: Vec<u8>,
    /// That was read from a file; it is not asked for.
    #[serde(default)]
    pub ocsp_from_file: bool,
    /// The private key, PEM. It passes with the secrets, never as JSON, and is wiped on drop.
    #[serde(skip)]
    pub key: String,
}

/// Whom an origination trusts, and what it shows.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginPem {
    /// Authorities; `None`: any certificate is taken.
    pub roots: Option<String>,
    /// The own certificate and key; `None`: no certificate is shown.
    pub identity: Option<Pem>,
}

/// Numbers of inherited descriptors.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Descriptors {
    /// Listening sockets, each with the number of its route.
    pub listeners: Vec<(i32, u16)>,
    /// The numbers of all routes behind each of them, in the order of the configuration.
    #[serde(default)]
    pub doors: Vec<Vec<u16>>,
    /// Descriptor of the slots.
    pub slots: i32,
    /// Descriptor of the pending memory.
    pub pending: i32,
    /// Descriptor of the counters.
    pub counters: i32,
    /// Descriptor of the table of clients.
    pub clients: i32,
    /// Connections that the table of clients was made for.
    pub clients_for: u32,
    /// Descriptor of the table of backends.
    pub backends: i32,
    /// Sessions of originations, if there are any.
    pub sessions: Option<i32>,
    /// The worker's end of its channel to main.
    pub orders: i32,
    /// The cache of sessions of routes, if there is one.
    #[serde(default)]
    pub session_cache: Option<i32>,
}

impl Descriptors {
    /// The listening sockets, each with the numbers of the routes behind it.
    pub fn doors(&self) -> Vec<(Fd, Vec<u16>)> {
        let listeners = self.listeners.iter().enumerate();
        // A former binary knew of one route for each.
        let door = |n: usize, route: u16| match self.doors.get(n) {
            Some(door) if !door.is_empty() => door.clone(),
            _ => vec![route],
        };
        listeners
            .map(|(n, &(fd, route))| (Fd(fd), door(n, route)))
            .collect()
    }

    /// All of them.
    pub fn all(&self) -> Vec<Fd> {
        let mut all: Vec<Fd> = self.listeners.iter().map(|&(fd, _)| Fd(fd)).collect();
        all.extend(self.sessions.map(Fd));
        all.extend(self.session_cache.map(Fd));
        all.extend(
            [
                self.slots,
                self.pending,
                self.counters,
                self.clients,
                self.backends,
                self.orders,
            ]
            .map(Fd),
        );
        all
    }
}

impl ForKeeper {
    fn of(handover: &Handover) -> io::Result<ForKeeper> {
        let config = &handover.config;
        let user = match &config.process.user {
            Some(user) => {
                let found = process::look_up_user(user, config.process.group.as_deref());
                let User { uid, gid } = found.map_err(io::Error::other)?;
                Some((uid, gid))
            }
            None => None,
        };
        let hang_timeout = config.timeouts.hang_timeout;
        Ok(ForKeeper {
            worker: handover.worker,
            workers: handover.share.workers,
            log: config.log.clone(),
            user,
            sandbox: Some(config.process.sandbox),
            hang_timeout_ms: hang_timeout.map(|timeout| timeout.as_millis() as u64),
            slots: handover.descriptors.slots,
            counters: handover.descriptors.counters,
            orders: handover.descriptors.orders,
            counts: Count::ALL.iter().map(|c| c.name().to_owned()).collect(),
            changed: Changed::default(),
        })
    }

    /// Reads the part for the keeper, and nothing else.
    pub fn read(fd: Fd) -> io::Result<ForKeeper> {
        let [keeper, ..] = parts(fd)?;
        Ok(serde_json::from_slice(&part(fd, keeper)?)?)
    }

    /// Writes it before what else stands in `fd`, which is copied. A worker does so: it can't look
    /// up who it is.
    pub fn write_before(&self, fd: Fd) -> io::Result<Fd> {
        let [_, public, secrets] = parts(fd)?;
        let keeper = serde_json::to_vec(self)?;
        write_parts(&keeper, &part(fd, public)?, &part(fd, secrets)?)
    }
}

impl Handover {
    /// Writes it into a memory file which the worker's keeper inherits. Returns the descriptor.
    pub fn write(&self) -> io::Result<Fd> {
        let keeper = serde_json::to_vec(&ForKeeper::of(self)?)?;
        let public = serde_json::to_vec(self)?;
        write_parts(&keeper, &public, &self.secrets())
    }

    /// Writes it anew with what `fd` has for secrets, which are not read but copied.
    pub fn write_with_secrets_of(&self, fd: Fd) -> io::Result<Fd> {
        let keeper = serde_json::to_vec(&ForKeeper::of(self)?)?;
        let public = serde_json::to_vec(self)?;
        let [.., secrets] = parts(fd)?;
        write_parts(&keeper, &public, &part(fd, secrets)?)
    }

    /// Reads it.
    pub fn read(fd: Fd) -> io::Result<Handover> {
        let [_, _, secrets] = parts(fd)?;
        let mut handover = Handover::read_without_secrets(fd)?;
        handover.set_secrets(&part(fd, secrets)?)?;
        Ok(handover)
    }

    /// Puts in their places what [`Handover::secrets`] gave.
    pub fn set_secrets(&mut self, secrets: &[u8]) -> io::Result<()> {
        let mut rest = secrets;
        let backends = self.backend_tls.iter_mut().flatten();
        let origins = self.origins.iter_mut().chain(backends);
        let own = origins.filter_map(|origin| origin.identity.as_mut());
        for pem in self.certificates.iter_mut().flatten().chain(own) {
            pem.key = String::from_utf8(take(&mut rest)?.to_vec()).map_err(io::Error::other)?;
        }
        self.ticket_keys = take(&mut rest)?.to_vec();
        Ok(())
    }

    /// Reads all but the secrets: keys are empty.
    pub fn read_without_secrets(fd: Fd) -> io::Result<Handover> {
        let [_, public, _] = parts(fd)?;
        let mut handover = serde_json::from_slice(&part(fd, public)?)?;
        ForKeeper::read(fd)?.changed.apply(&mut handover);
        Ok(handover)
    }

    /// Each with its length before it: keys in the order of the certificates, those of
    /// originations, those of routes for their backends, ticket keys.
    pub fn secrets(&self) -> Zeroizing<Vec<u8>> {
        let own = self.origins.iter().chain(self.backend_tls.iter().flatten());
        let own = own.filter_map(|origin| origin.identity.as_ref());
        let keys = self.certificates.iter().flatten().chain(own);
        let all = keys.map(|pem| pem.key.as_bytes());
        secrets(all.chain([self.ticket_keys.as_slice()]).collect())
    }
}

/// A text in a memory file, in the form of a handover: for a process that could not read it.
pub fn write_text(text: &str) -> io::Result<Fd> {
    write_parts(&[], text.as_bytes(), &[])
}

/// What [`write_text`] has written.
pub fn read_text(fd: Fd) -> io::Result<String> {
    let [_, text, _] = parts(fd)?;
    String::from_utf8(part(fd, text)?.to_vec()).map_err(io::Error::other)
}

/// Each with its length before it.
pub fn secrets(all: Vec<&[u8]>) -> Zeroizing<Vec<u8>> {
    // With all its room from the start: a vector that grows leaves copies behind.
    let len = all.iter().map(|secret| 8 + secret.len()).sum();
    let mut bytes = Zeroizing::new(Vec::with_capacity(len));
    for secret in all {
        bytes.extend_from_slice(&(secret.len() as u64).to_le_bytes());
        bytes.extend_from_slice(secret);
    }
    bytes
}

/// Where a part lies in the file.
pub(crate) type Part = std::ops::Range<usize>;

/// Writes the three parts into a new memory file. Fails if a part is larger than 64 MiB, or if the
/// system has no memory.
pub fn write_parts(keeper: &[u8], public: &[u8], secrets: &[u8]) -> io::Result<Fd> {
    let parts = [keeper, public, secrets];
    let len = HEAD_BYTES + parts.iter().map(|part| part.len()).sum::<usize>();
    if parts.iter().any(|part| part.len() > PART_BYTES_MAX) {
        return Err(io::Error::other(
            "configuration or certificates are larger than 64 MiB",
        ));
    }
    let mut file = Mapping::create("dormouse-handover", len.next_multiple_of(PAGE))?;
    let head = [MAGIC, HANDOVER_VERSION]
        .into_iter()
        .chain(parts.iter().map(|part| part.len() as u64))
        .flat_map(u64::to_le_bytes);
    let mut rest = file.bytes_mut();
    for (room, byte) in rest.iter_mut().zip(head) {
        *room = byte;
    }
    rest = rest.get_mut(HEAD_BYTES..).unwrap_or_default();
    for part in parts {
        let (room, behind) = rest.split_at_mut(part.len().min(rest.len()));
        room.copy_from_slice(part);
        rest = behind;
    }
    Ok(file.fd())
}

/// Reads from the head of the file where its three parts lie. Fails if the file is no handover, or
/// one of another version.
pub fn parts(fd: Fd) -> io::Result<[Part; 3]> {
    let head = read_at(fd, 0, HEAD_BYTES)?;
    let word = |n: usize| {
        let bytes = head.get(8 * n..8 * n + 8).unwrap_or_default();
        u64::from_le_bytes(bytes.try_into().unwrap_or_default())
    };
    if word(0) != MAGIC || word(1) != HANDOVER_VERSION {
        return Err(io::Error::other(format!(
            "the handover is of version {}, this build reads {HANDOVER_VERSION}",
            word(1)
        )));
    }
    let mut start = HEAD_BYTES;
    let parts = [2, 3, 4].map(|n| {
        let len = usize::try_from(word(n)).unwrap_or(usize::MAX);
        let part = start..start.saturating_add(len.min(PART_BYTES_MAX));
        start = part.end;
        part
    });
    Ok(parts)
}

/// Reads one part, into memory that is wiped on drop.
pub fn part(fd: Fd, part: Part) -> io::Result<Zeroizing<Vec<u8>>> {
    read_at(fd, part.start, part.len()).map(Zeroizing::new)
}

/// The next of [`secrets`].
pub fn take<'a>(rest: &mut &'a [u8]) -> io::Result<&'a [u8]> {
    let cut_short = || io::Error::other("the secrets of the handover are cut short");
    let (len, behind) = rest.split_at_checked(8).ok_or_else(cut_short)?;
    let len = u64::from_le_bytes(len.try_into().unwrap_or_default());
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let (secret, behind) = behind.split_at_checked(len).ok_or_else(cut_short)?;
    *rest = behind;
    Ok(secret)
}

impl Pem {
    /// The identity that it holds.
    pub fn identity(&self) -> Result<Identity, IdentityError> {
        let mut identity = Identity::from_pem(
            self.chain.as_bytes(),
            self.key.as_bytes(),
            &self.name,
            &self.key_name,
        )?;
        if !self.ocsp.is_empty() {
            // Its time may be over since it was looked at: the certificate is good without it.
            let _ = identity.staple(&self.ocsp, crate::unix_time());
        }
        Ok(identity)
    }
}

impl Drop for Pem {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        self.ticket_keys.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reads_its_own_part() {
        let file = write_parts(b"{}", b"[1,2]", b"secret").expect("a memory file");
        let [keeper, public, secrets] = parts(file).expect("three parts");
        assert_eq!(
            part(file, keeper).expect("for the keeper").as_slice(),
            b"{}"
        );
        assert_eq!(part(file, public).expect("public").as_slice(), b"[1,2]");
        assert_eq!(part(file, secrets).expect("secrets").as_slice(), b"secret");
        file.close();
    }

    #[test]
    fn secrets_that_are_cut_short_are_refused() {
        let mut rest: &[u8] = &[3, 0, 0, 0, 0, 0, 0, 0, b'a', b'b', b'c', 9];
        assert_eq!(take(&mut rest).expect("a secret"), b"abc");
        assert!(take(&mut rest).is_err());
        let mut rest: &[u8] = &[255; 20];
        assert!(take(&mut rest).is_err());
    }
}
