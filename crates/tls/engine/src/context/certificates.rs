//! The certificates of a server's context, by the names that they have.
//!
//! A server may have tens of thousands, and renew one of them while it serves. So each is prepared once for all contexts
//! ([`OfferedIdentity`]), a context's certificates are added a few at a time ([`Certificates`]), and those of a context that
//! is no longer used are released a few at a time ([`RetiredCertificates`]). The names are in one table without an allocation
//! for each.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::RangeInclusive;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::server::ClientHello;
use rustls::sign::CertifiedKey;
use rustls_pki_types::ServerName;

use crate::call_scope::{self, in_scope};
use crate::client_hello::first_flight;
use crate::context::choose_identity::ChooseIdentity;
use crate::failure::NoCertificate;
use crate::sessions::client_session::digest;
use crate::sessions::refusal::{NAMES_LEN, ServerResumption};
use crate::x509::facts::CertificateFacts;
use crate::x509::identity::{Algorithms, Identity, Stapled};

/// What happens if a client sends no server name, or one that no certificate covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownName {
    /// The first certificate that the client can use.
    #[default]
    Default,
    /// The alert unrecognized_name (RFC 6066 §3); missing_extension without a name
    /// (RFC 8446 §9.2).
    Refuse,
    /// The alert unrecognized_name for a name that no certificate covers; the first certificate for a client that
    /// sends none.
    RefuseNamed,
}

/// A certificate with its key, prepared once for all contexts. Cloning it is cheap.
#[derive(Clone)]
pub struct OfferedIdentity(Arc<OfferedCertificate>);

impl OfferedIdentity {
    /// Prepares an identity.
    pub fn new(identity: &Identity) -> OfferedIdentity {
        OfferedIdentity(Arc::new(OfferedCertificate::new(identity)))
    }

    /// Whether a stapled OCSP response is shown with it.
    pub fn is_stapled(&self) -> bool {
        self.0.stapled.is_some()
    }

    /// Its names, in lower case.
    pub fn names(&self) -> &[String] {
        &self.0.names
    }
}

impl fmt::Debug for OfferedIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OfferedIdentity")
            .field(&self.0.names)
            .finish()
    }
}

/// A certificate, with and without its stapled OCSP response.
pub(super) struct OfferedCertificate {
    bare: Arc<CertifiedKey>,
    stapled: Option<Stapled>,
    algorithms: Arc<Algorithms>,
    fingerprint: [u8; 32],
    /// First and last second of validity, in Unix time.
    validity_s: RangeInclusive<u64>,
    /// In lower case, sorted.
    names: Vec<String>,
    names_digest: [u8; NAMES_LEN],
    /// Whether its key is elsewhere.
    is_deferred: bool,
}

impl OfferedCertificate {
    pub(super) fn new(identity: &Identity) -> OfferedCertificate {
        let names = identity.names().iter();
        let mut names: Vec<String> = names.map(|name| name.to_ascii_lowercase()).collect();
        names.sort();
        let parts: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
        let names_digest = digest(&parts).first_chunk().copied().unwrap_or_default();
        OfferedCertificate {
            bare: identity.certified_key(),
            stapled: identity.stapled(),
            algorithms: identity.algorithms(),
            fingerprint: identity.fingerprint(),
            validity_s: identity.begins_at_s()..=identity.expires_at_s(),
            names,
            names_digest,
            is_deferred: identity.has_deferred_key(),
        }
    }

    /// Returns the certificate as it is presented now, if the client accepts its signature. `name` is that of the session.
    pub(super) fn fitting(
        &self,
        name: &str,
        schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        let signer = self.bare.key.choose_scheme(schemes)?;
        in_scope(|facts: &mut CertificateFacts| {
            facts.signature = Some(signer.scheme());
            facts.algorithms = Some(Arc::clone(&self.algorithms));
            facts.fingerprint = Some(self.fingerprint);
        });
        self.bind_session(name);
        Some(self.now())
    }

    /// Returns the certificate for a client that cannot use it: given any certificate, rustls sends the right
    /// alert.
    pub(super) fn unfitting(&self, name: &str) -> Arc<CertifiedKey> {
        self.bind_session(name);
        Arc::clone(&self.bare)
    }

    /// Binds the session of the current connection to this certificate. If the certificate covers the requested
    /// name, the name is enough. Otherwise the client accepted the certificate for another reason, so its session
    /// belongs to the names that the certificate has.
    ///
    /// Without this, a client whose connection is diverted to another address of this server, or to another
    /// machine with the same ticket keys, would resume there, although it would refuse that certificate.
    fn bind_session(&self, name: &str) {
        let names = match self.covers(name) {
            true => [0; NAMES_LEN],
            false => self.names_digest,
        };
        in_scope(|resumption: &mut ServerResumption| resumption.certificate_names = names);
    }

    /// Whether the certificate covers this name; a wildcard stands for one label (RFC 6125 §6.4.3).
    fn covers(&self, name: &str) -> bool {
        // In every handshake: a certificate may have thousands of names.
        let wildcard = || "*.".bytes().chain(parent(name).bytes());
        let exact = |own: &String| own.as_str().cmp(name);
        self.names.binary_search_by(exact).is_ok()
            || self
                .names
                .binary_search_by(|own| own.bytes().cmp(wildcard()))
                .is_ok()
    }

    /// Returns the certificate as it is presented now: stapled while the OCSP response is valid.
    fn now(&self) -> Arc<CertifiedKey> {
        let now_s = call_scope::now().map_or(u64::MAX, |now| now.as_secs());
        match &self.stapled {
            Some(stapled) if now_s < stapled.until_s => Arc::clone(&stapled.certified),
            _ => Arc::clone(&self.bare),
        }
    }
}

/// The certificates of a context, in the order of preference.
pub struct Certificates {
    all: Vec<Arc<OfferedCertificate>>,
    names: Names,
    /// Whether the key of a certificate is elsewhere.
    pub(super) has_deferred_key: bool,
    pub(super) unknown_name: UnknownName,
    /// In lower case.
    pub(super) awaited: HashSet<String>,
    /// Consulted before the other certificates.
    pub(super) chooser: Option<Arc<dyn ChooseIdentity>>,
}

impl Default for Certificates {
    fn default() -> Certificates {
        Certificates::new()
    }
}

impl Certificates {
    /// Creates a list without certificates.
    pub fn new() -> Certificates {
        Certificates {
            all: Vec::new(),
            names: Names::default(),
            has_deferred_key: false,
            unknown_name: UnknownName::Default,
            awaited: HashSet::new(),
            chooser: None,
        }
    }

    /// Adds a certificate, behind all others. The first is the default for clients that send no server name, or one that no
    /// certificate covers.
    pub fn add(&mut self, identity: &OfferedIdentity) {
        let OfferedIdentity(offered) = identity;
        for place in 0..offered.names.len() {
            self.names.add(&self.all, offered, place);
        }
        self.has_deferred_key |= offered.is_deferred;
        self.all.push(Arc::clone(offered));
    }

    /// Returns the number of certificates.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is no certificate.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the SHA-256 digest of each certificate, and its names in lower case.
    pub(super) fn described(&self) -> impl Iterator<Item = ([u8; 32], &[String])> {
        let all = self.all.iter();
        all.map(|one| (one.fingerprint, one.names.as_slice()))
    }

    /// The kind of the first certificate's key, if there is one, and whether one is elsewhere.
    pub(super) fn key_kind(&self) -> (Option<u8>, bool) {
        let first = self.all.first();
        let algorithm = first.map(|one| one.bare.key.algorithm().into());
        (algorithm, self.has_deferred_key)
    }

    /// Returns a host name that a certificate covers, or an invalid name if there is none.
    pub(super) fn own_name(&self) -> String {
        let names = self.all.iter().flat_map(|one| &one.names);
        let hosts = names.filter(|name| name.parse::<std::net::IpAddr>().is_err());
        let good = |name: &String| ServerName::try_from(name.as_str()).is_ok();
        let mut hosts = hosts
            .map(|name| name.replacen('*', "warm-up", 1))
            .filter(good);
        hosts.next().unwrap_or_else(|| "warm-up.invalid".to_owned())
    }

    pub(super) fn get(&self, index: usize) -> Option<&OfferedCertificate> {
        self.all.get(index).map(|one| &**one)
    }

    /// Returns candidates in order of preference: certificates for this name, then all others, the default first. Of
    /// both, those that are not valid now are last: a renewed certificate may have another file than the expired one.
    pub(super) fn candidates<'a>(
        &'a self,
        name: &'a str,
        now_s: u64,
    ) -> impl Iterator<Item = &'a OfferedCertificate> + use<'a> {
        let all = if self.refuses(name) {
            0
        } else {
            self.all.len()
        };
        let for_name = self.timely_first(self.for_name(name), now_s);
        for_name.chain(self.timely_first(0..all, now_s))
    }

    fn timely_first(
        &self,
        indices: impl Iterator<Item = usize> + Clone,
        now_s: u64,
    ) -> impl Iterator<Item = &OfferedCertificate> {
        let all = indices.filter_map(|index| self.get(index));
        let is_timely = move |one: &&OfferedCertificate| one.validity_s.contains(&now_s);
        let rest = all.clone().filter(move |one| !is_timely(one));
        all.filter(is_timely).chain(rest)
    }

    /// Certificates for exactly this name, then wildcards for it (one label, RFC 6125 §6.4.3).
    pub(super) fn for_name<'a>(
        &'a self,
        name: &'a str,
    ) -> impl Iterator<Item = usize> + Clone + use<'a> {
        let exact = self.names.find(&self.all, Kind::Exact, name);
        exact.chain(self.names.find(&self.all, Kind::Wildcard, parent(name)))
    }

    /// Returns the reason for presenting no certificate, if there is one.
    pub(super) fn no_certificate(&self, name: &str) -> Option<NoCertificate> {
        // A certificate covers it.
        if self.for_name(name).next().is_some() {
            return None;
        }
        let is_awaited = || {
            let wildcard = format!("*.{}", parent(name));
            self.awaited.contains(name) || self.awaited.contains(&wildcard)
        };
        if self.all.is_empty() || is_awaited() {
            return Some(NoCertificate::Awaited);
        }
        self.refuses(name).then_some(NoCertificate::UnknownName)
    }

    /// Returns whether a client whose name no certificate covers is refused; the name is empty if it sends none.
    fn refuses(&self, name: &str) -> bool {
        match self.unknown_name {
            UnknownName::Default => false,
            UnknownName::Refuse => true,
            UnknownName::RefuseNamed => !name.is_empty(),
        }
    }

    /// Returns the identity that the caller's hook chooses.
    pub(super) fn chosen(&self, hello: &ClientHello<'_>, name: Option<String>) -> Option<Identity> {
        let chooser = self.chooser.as_ref()?;
        chooser.choose_identity(&first_flight::ClientHello {
            server_name: name,
            alpn: (hello.alpn().into_iter().flatten())
                .map(<[u8]>::to_vec)
                .collect(),
        })
    }
}

/// Returns the name without its first label, which a wildcard stands for.
fn parent(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, parent)| parent)
}

/// What a name of a certificate stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Exact,
    /// One label more. The name is the part after `*.`.
    Wildcard,
}

fn kind_of(name: &str) -> (Kind, &str) {
    match name.strip_prefix("*.") {
        Some(parent) => (Kind::Wildcard, parent),
        None => (Kind::Exact, name),
    }
}

/// The names of all certificates: a hash table whose entries are in one vector, in the order in which they were added, and
/// refer to each other by their places there.
#[derive(Default)]
struct Names {
    entries: Vec<NameEntry>,
    /// The first and the last entry of each bucket. Their number is a power of two.
    buckets: Vec<[u32; 2]>,
    hasher: RandomState,
}

struct NameEntry {
    hash: u32,
    /// Place of the certificate.
    certificate: u32,
    /// Place of the name in the certificate.
    name: u32,
    /// The next entry of the bucket.
    next: u32,
}

/// No entry.
const NONE: u32 = u32::MAX;
const BUCKETS_MIN: usize = 16;

impl Names {
    /// Adds the name at `place` of a certificate, which comes after `all`.
    fn add(&mut self, all: &[Arc<OfferedCertificate>], offered: &OfferedCertificate, place: usize) {
        let name = offered.names.get(place).map_or("", String::as_str);
        if self.entries.len() >= self.buckets.len() {
            self.grow();
        }
        let entry = NameEntry {
            hash: self.hash(kind_of(name)),
            certificate: all.len() as u32,
            name: place as u32,
            next: NONE,
        };
        self.entries.push(entry);
        self.link(self.entries.len() - 1);
    }

    /// Doubles the number of buckets. No name is hashed again.
    fn grow(&mut self) {
        let count = (self.buckets.len() * 2).max(BUCKETS_MIN);
        self.buckets.clear();
        self.buckets.resize(count, [NONE; 2]);
        (0..self.entries.len()).for_each(|at| self.link(at));
    }

    /// Appends an entry to its bucket.
    fn link(&mut self, at: usize) {
        let number = at as u32;
        let Some(entry) = self.entries.get_mut(at) else {
            unreachable!("entry {at} is one of the table");
        };
        entry.next = NONE;
        let bucket = entry.hash as usize & (self.buckets.len() - 1);
        let Some([first, last]) = self.buckets.get_mut(bucket) else {
            unreachable!("bucket {bucket} is one of the table");
        };
        let former = std::mem::replace(last, number);
        match self.entries.get_mut(former as usize) {
            Some(former) => former.next = number,
            None => *first = number,
        }
    }

    /// Returns the places of the certificates that have this name, in order.
    fn find<'a>(
        &'a self,
        all: &'a [Arc<OfferedCertificate>],
        kind: Kind,
        name: &'a str,
    ) -> impl Iterator<Item = usize> + Clone + use<'a> {
        let hash = self.hash((kind, name));
        let bucket = hash as usize & self.buckets.len().wrapping_sub(1);
        let first = self.buckets.get(bucket).map_or(NONE, |[first, _]| *first);
        let entry = |at: u32| self.entries.get(at as usize);
        let chain = std::iter::successors(entry(first), move |one| entry(one.next));
        let is_it = move |one: &&NameEntry| {
            let certificate = all.get(one.certificate as usize);
            let own = certificate.and_then(|found| found.names.get(one.name as usize));
            one.hash == hash && own.is_some_and(|own| kind_of(own) == (kind, name))
        };
        chain.filter(is_it).map(|one| one.certificate as usize)
    }

    fn hash(&self, name: (Kind, &str)) -> u32 {
        self.hasher.hash_one(name) as u32
    }
}

/// The certificates of a context that is no longer used for new connections. They are released a few at a time, because
/// there may be tens of thousands.
pub struct RetiredCertificates(pub(super) Arc<Certificates>);

impl RetiredCertificates {
    /// Whether some can be released: no handshake in flight uses the context.
    pub fn is_unused(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Releases up to `count` certificates. Returns how many were released; fewer than `count`: that was the last one.
    pub fn release(&mut self, count: usize) -> usize {
        let Some(unused) = Arc::get_mut(&mut self.0) else {
            return 0;
        };
        let before = unused.all.len();
        unused.all.truncate(before.saturating_sub(count));
        before - unused.all.len()
    }
}
