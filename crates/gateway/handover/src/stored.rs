//! The routes of a handover in its file, with their certificates and revocation lists: each by itself, so that a worker reads
//! only what it does not know yet.
//!
//! One part is the table. It has the number of routes, and for each of them its digest, the length of its text, the place of
//! its own certificate for backends (plus one; 0: none), the number of its other certificates and their places in the list that
//! follows; that list, with the digest and the length of each certificate; and the same of each revocation list. All numbers
//! have 8 bytes. The second part has the certificates with their keys, the third the texts of routes (JSON) and of lists (PEM),
//! one after the other. A certificate or list is there once, whatever routes have it.
//!
//! The digest of a route covers everything that it depends on: its text, the digests of its certificates and lists, and the
//! options of the program that each route inherits ([`RouteDefaults`](dormouse_config::RouteDefaults)).

use crate::lists::RevocationList;
use crate::parts;
use crate::pem::{ClientTrust, OriginPem, Pem, PemContents};
use dormouse_config::Route;
use dormouse_reactor::Fd;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use zeroize::Zeroizing;

/// Length of a number in the table.
const NUMBER: usize = 8;
/// SHA-256.
pub type Digest = [u8; 32];

/// A route as main has it.
#[derive(Clone, Copy, Serialize)]
pub struct RouteToStore<'a> {
    /// The name in logs and metrics.
    pub name: &'a str,
    /// Its options.
    pub route: &'a Route,
    /// Trust settings for client certificates.
    pub clients: Option<&'a ClientTrust>,
    /// Trust and own certificate for backends, with `backend_tls`.
    pub backend_tls: Option<&'a OriginPem>,
    /// Its certificates. They pass in a part of their own.
    #[serde(skip)]
    pub certificates: &'a [Pem],
}

/// A route as another process reads it, without the texts of its revocation lists.
#[derive(PartialEq, Deserialize)]
pub struct StoredRoute {
    /// The name in logs and metrics.
    pub name: String,
    /// Its options.
    pub route: Route,
    /// Trust settings for client certificates.
    pub clients: Option<ClientTrust>,
    /// Trust and own certificate for backends, with `backend_tls`.
    pub backend_tls: Option<OriginPem>,
}

/// The three parts, as they are written.
#[derive(Default)]
pub struct Packed {
    /// The table.
    pub table: Vec<u8>,
    /// The certificates with their private keys.
    pub certificates: Zeroizing<Vec<u8>>,
    /// The routes and the revocation lists.
    pub texts: Vec<u8>,
}

/// What is packed once, in the order in which it came.
struct Distinct<T> {
    places: HashMap<Digest, u64>,
    all: Vec<T>,
}

impl<T> Distinct<T> {
    fn new() -> Distinct<T> {
        let (places, all) = (HashMap::new(), Vec::new());
        Distinct { places, all }
    }

    fn place(&mut self, digest: Digest, one: T) -> u64 {
        *self.places.entry(digest).or_insert_with(|| {
            self.all.push(one);
            self.all.len() as u64 - 1
        })
    }
}

impl Packed {
    /// Packs the routes, and the revocation lists of originations. `defaults`: the options that each route inherits.
    ///
    /// # Errors
    /// A path is not text.
    pub fn of<'a>(
        defaults: &[u8],
        routes: impl IntoIterator<Item = RouteToStore<'a>>,
        lists: impl IntoIterator<Item = &'a RevocationList>,
    ) -> io::Result<Packed> {
        let mut pems = Distinct::new();
        let mut crls = Distinct::new();
        let (mut rows, mut texts) = (Vec::new(), Vec::new());
        let mut count = 0;
        for one in routes {
            count += 1;
            let own = one.backend_tls.and_then(|pem| pem.identity.as_ref());
            let all = own.into_iter().chain(one.certificates);
            let digests: Vec<Digest> = all.clone().map(Pem::digest).collect();
            let text = serde_json::to_vec(&one)?;
            rows.extend_from_slice(&dormouse_engine::digest(&[
                defaults,
                &text,
                digests.as_flattened(),
            ]));
            let mut places = all.map(|pem| pems.place(pem.digest(), pem));
            let own = own.and_then(|_| places.next()).map_or(0, |place| place + 1);
            let places: Vec<u64> = places.collect();
            let numbers = [text.len() as u64, own, places.len() as u64];
            rows.extend(numbers.into_iter().chain(places).flat_map(u64::to_le_bytes));
            texts.extend_from_slice(&text);
            for list in one.lists() {
                crls.place(list.digest(), list);
            }
        }
        for list in lists {
            crls.place(list.digest(), list);
        }
        let mut table = Vec::from(u64::to_le_bytes(count));
        table.append(&mut rows);
        let certificates = pack_certificates(&pems.all, &mut table);
        table.extend_from_slice(&(crls.all.len() as u64).to_le_bytes());
        for list in crls.all {
            table.extend_from_slice(&list.digest());
            table.extend_from_slice(&(list.pem().len() as u64).to_le_bytes());
            texts.extend_from_slice(list.pem().as_bytes());
        }
        Ok(Packed {
            table,
            certificates,
            texts,
        })
    }
}

impl<'a> RouteToStore<'a> {
    fn lists(self) -> impl Iterator<Item = &'a RevocationList> {
        let of_clients = self.clients.map(|trust| &trust.crls);
        let of_backends = self.backend_tls.map(|pem| &pem.revocation.crls);
        of_clients.into_iter().chain(of_backends).flatten()
    }
}

fn pack_certificates(all: &[&Pem], table: &mut Vec<u8>) -> Zeroizing<Vec<u8>> {
    let len = |pem: &&Pem| -> usize {
        let fields = pem.fields();
        fields.iter().map(|field| NUMBER + field.len()).sum()
    };
    // Allocated at full size: a growing vector would leave copies of secrets.
    let mut bytes = Zeroizing::new(Vec::with_capacity(all.iter().map(len).sum()));
    table.extend_from_slice(&(all.len() as u64).to_le_bytes());
    for pem in all {
        table.extend_from_slice(&pem.digest());
        table.extend_from_slice(&(len(pem) as u64).to_le_bytes());
        for field in pem.fields() {
            bytes.extend_from_slice(&(field.len() as u64).to_le_bytes());
            bytes.extend_from_slice(field);
        }
    }
    bytes
}

/// The routes in the file of a handover, with their certificates and lists.
pub struct Stored {
    file: Fd,
    routes: Vec<Row>,
    /// Places in `certificates`, of all routes.
    places: Vec<u32>,
    certificates: Vec<StoredCertificate>,
    lists: HashMap<Digest, Range<usize>>,
}

/// A route in the table.
struct Row {
    digest: Digest,
    text: Range<usize>,
    /// The place of its own certificate for backends.
    own: Option<u32>,
    /// The range in [`Stored::places`].
    certificates: Range<usize>,
}

/// A certificate in the file of a handover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredCertificate {
    /// The digest of its contents ([`Pem::digest`]).
    pub digest: Digest,
    /// Its place in the file.
    range: Range<usize>,
}

impl Stored {
    /// Reads the table in the file of a handover.
    pub fn locate(file: Fd) -> io::Result<Stored> {
        let [_, _, _, table, certificates, texts] = parts::locate(file)?;
        Stored::parse(file, &parts::read(file, table)?, certificates, texts)
    }

    /// `certificates`, `texts`: the other parts.
    fn parse(
        file: Fd,
        table: &[u8],
        certificates: Range<usize>,
        mut texts: Range<usize>,
    ) -> io::Result<Stored> {
        let mut stored = Stored {
            file,
            routes: Vec::new(),
            places: Vec::new(),
            certificates: Vec::new(),
            lists: HashMap::new(),
        };
        // Main's own files for other purposes have none.
        if table.is_empty() {
            return Ok(stored);
        }
        let mut rest = table;
        for _ in 0..number(&mut rest)? {
            let (digest, text) = entry(&mut rest, &mut texts)?;
            let own = number(&mut rest)?.checked_sub(1);
            let own = own.map(u32::try_from).transpose();
            let first = stored.places.len();
            // The table itself bounds what is allocated.
            for _ in 0..number(&mut rest)? {
                let place = u32::try_from(number(&mut rest)?).map_err(io::Error::other)?;
                stored.places.push(place);
            }
            stored.routes.push(Row {
                digest,
                text,
                own: own.map_err(io::Error::other)?,
                certificates: first..stored.places.len(),
            });
        }
        let mut left = certificates;
        for _ in 0..number(&mut rest)? {
            let (digest, range) = entry(&mut rest, &mut left)?;
            stored
                .certificates
                .push(StoredCertificate { digest, range });
        }
        for _ in 0..number(&mut rest)? {
            let (digest, range) = entry(&mut rest, &mut texts)?;
            stored.lists.insert(digest, range);
        }
        let own = stored.routes.iter().filter_map(|row| row.own.as_ref());
        let is_sound = |place: &u32| (*place as usize) < stored.certificates.len();
        match rest.is_empty() && stored.places.iter().chain(own).all(is_sound) {
            true => Ok(stored),
            false => Err(malformed()),
        }
    }

    /// The number of routes.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// The number of certificates of all routes, each as often as routes have it.
    pub fn certificates(&self) -> usize {
        self.places.len()
    }

    /// The digest of everything that a route depends on.
    pub fn digest(&self, route: usize) -> Option<Digest> {
        self.routes.get(route).map(|row| row.digest)
    }

    /// One of a route's certificates, except its own for backends.
    pub fn certificate(&self, route: usize, n: usize) -> Option<&StoredCertificate> {
        let range = self.routes.get(route)?.certificates.clone();
        let place = self.places.get(range)?.get(n)?;
        self.certificates.get(*place as usize)
    }

    /// The length of a route's text.
    pub fn text_len(&self, route: usize) -> usize {
        self.routes.get(route).map_or(0, |row| row.text.len())
    }

    /// Reads a route from the file.
    pub fn route(&self, route: usize) -> io::Result<StoredRoute> {
        let row = self.routes.get(route).ok_or_else(malformed)?;
        let text = parts::read(self.file, row.text.clone())?;
        let mut read: StoredRoute = serde_json::from_slice(&text)?;
        let own = row.own.and_then(|own| self.certificates.get(own as usize));
        if let (Some(pem), Some(own)) = (&mut read.backend_tls, own) {
            pem.identity = Some(self.read(own)?);
        }
        Ok(read)
    }

    /// Reads a certificate with its key from the file.
    pub fn read(&self, one: &StoredCertificate) -> io::Result<Pem> {
        let bytes = parts::read(self.file, one.range.clone())?;
        let mut rest = bytes.as_slice();
        let mut fields: [&[u8]; 6] = [&[]; 6];
        for field in &mut fields {
            *field = parts::take_secret(&mut rest)?;
        }
        match rest.is_empty() {
            true => PemContents::of_fields(fields).map(Pem::from),
            false => Err(malformed()),
        }
    }

    /// Reads the texts of these revocation lists from the file.
    pub fn read_lists<'a>(
        &self,
        lists: impl IntoIterator<Item = &'a mut RevocationList>,
    ) -> io::Result<()> {
        for list in lists {
            let range = self.lists.get(&list.digest()).ok_or_else(malformed)?;
            let text = parts::read(self.file, range.clone())?.to_vec();
            list.set_pem(String::from_utf8(text).map_err(io::Error::other)?);
        }
        Ok(())
    }

    /// Reads all routes, each with its certificates.
    pub fn read_all(&self) -> io::Result<Vec<(StoredRoute, Vec<Pem>)>> {
        let all = self.certificates.iter().map(|one| self.read(one));
        let all: Vec<Pem> = all.collect::<io::Result<_>>()?;
        let of_row = |(n, row): (usize, &Row)| {
            let mut route = self.route(n)?;
            let clients = route.clients.iter_mut().flat_map(|trust| &mut trust.crls);
            let backends = route.backend_tls.iter_mut();
            let backends = backends.flat_map(|pem| &mut pem.revocation.crls);
            self.read_lists(clients.chain(backends))?;
            let places = self.places.get(row.certificates.clone());
            let found = places.into_iter().flatten();
            let found = found.filter_map(|&place| all.get(place as usize));
            Ok((route, found.cloned().collect()))
        };
        self.routes.iter().enumerate().map(of_row).collect()
    }
}

/// Reads an entry of the table. Its bytes are the first ones of `left`.
fn entry(rest: &mut &[u8], left: &mut Range<usize>) -> io::Result<(Digest, Range<usize>)> {
    let (digest, behind) = rest.split_first_chunk().ok_or_else(malformed)?;
    *rest = behind;
    let end = left.start.saturating_add(number(rest)?);
    if end > left.end {
        return Err(malformed());
    }
    let range = left.start..end;
    left.start = end;
    Ok((*digest, range))
}

fn number(rest: &mut &[u8]) -> io::Result<usize> {
    let (bytes, behind) = rest.split_first_chunk().ok_or_else(malformed)?;
    *rest = behind;
    usize::try_from(u64::from_le_bytes(*bytes)).map_err(io::Error::other)
}

fn malformed() -> io::Error {
    io::Error::other("the routes of the handover are malformed")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Length of an entry of the table: digest and length.
    const ENTRY: usize = 32 + NUMBER;
    use crate::pem::Revocation;
    use dormouse_config::{self as config, Flag, Machine, Section};

    fn pem(name: &str) -> Pem {
        Pem::from(PemContents {
            name: name.to_owned(),
            key_name: format!("{name}.key"),
            chain: format!("chain of {name}"),
            ocsp: vec![0, 255],
            ocsp_from_file: name == "b",
            is_pushed: name == "c",
            key: format!("key of {name}"),
        })
    }

    fn route() -> Route {
        let flags = [
            ("listen", "127.0.0.1:8443"),
            ("to", "echo:"),
            ("self-signed", "x"),
        ];
        let flags = flags.map(|(name, value)| Flag::new(name, value));
        let loaded = config::load(None, Section::Route, &flags, &Machine::read()).expect("valid");
        loaded.config.routes[0].clone()
    }

    fn list(name: &str) -> RevocationList {
        RevocationList::new(format!("{name}.crl"), format!("list of {name}"))
    }

    fn trust(own: &str) -> OriginPem {
        OriginPem {
            roots: Some("roots".to_owned()),
            revocation: Revocation {
                crls: vec![list("a")],
                ocsp_required: false,
            },
            identity: Some(pem(own)),
        }
    }

    fn clients() -> ClientTrust {
        ClientTrust {
            required: true,
            roots: "roots".to_owned(),
            crls: vec![list("b"), list("a")],
            allow: Vec::new(),
        }
    }

    /// Routes with these certificates. The first one has client certificates, the last one TLS to its backends.
    fn pack(defaults: &[u8], route: &Route, certificates: &[Vec<Pem>]) -> Packed {
        let (clients, own) = (clients(), trust("b"));
        let last = certificates.len() - 1;
        let names: Vec<String> = (0..=last).map(|n| n.to_string()).collect();
        let routes = certificates
            .iter()
            .enumerate()
            .map(|(n, certificates)| RouteToStore {
                name: &names[n],
                route,
                clients: (n == 0).then_some(&clients),
                backend_tls: (n == last).then_some(&own),
                certificates,
            });
        Packed::of(defaults, routes, [&list("c")]).expect("text")
    }

    fn open(packed: &Packed) -> Stored {
        let Packed {
            table,
            certificates,
            texts,
        } = packed;
        let file = parts::write_all([&[], &[], &[], table, certificates, texts]);
        Stored::locate(file.expect("a memory file")).expect("a table")
    }

    #[test]
    fn everything_is_stored_once_and_read_one_by_one() {
        let (a, b, c) = (pem("a"), pem("b"), pem("c"));
        let certificates = [
            vec![a.clone(), b.clone()],
            vec![],
            vec![b.clone(), c, pem("a")],
        ];
        let route = route();
        let stored = open(&pack(b"", &route, &certificates));
        assert_eq!((stored.len(), stored.certificates()), (3, 5));
        assert_eq!((stored.certificates.len(), stored.lists.len()), (3, 3));
        for ((read, pems), (n, given)) in
            (stored.read_all().expect("routes").into_iter()).zip(certificates.iter().enumerate())
        {
            assert!(read.route == route && pems == *given && read.name == n.to_string());
            assert!(read.clients == (n == 0).then(clients));
            assert!(read.backend_tls == (n == 2).then(|| trust("b")));
        }
        let one = stored.certificate(2, 2).expect("the last one");
        assert_eq!(one.digest, a.digest());
        assert!(stored.read(one).expect("a certificate") == a);
        assert!(stored.certificate(2, 3).is_none());
        let mut read = stored.route(0).expect("a route").clients.expect("trust");
        assert!(read.crls[1].pem().is_empty(), "it is read when needed");
        stored.read_lists(&mut read.crls).expect("lists");
        assert_eq!(read.crls[1].pem(), list("a").pem());
        assert!(stored.read_lists([&mut list("d")]).is_err());
        stored.file.close();
    }

    #[test]
    fn a_digest_covers_what_its_route_depends_on_and_nothing_else() {
        let digests = |defaults: &[u8], route: &Route, certificates: &[Vec<Pem>]| {
            let stored = open(&pack(defaults, route, certificates));
            stored.file.close();
            [0, 1].map(|n| stored.digest(n).expect("a route"))
        };
        let route = route();
        let mut certificates = [vec![pem("a")], vec![pem("b")]];
        let first = digests(b"defaults", &route, &certificates);
        assert_eq!(digests(b"defaults", &route, &certificates), first);
        certificates[1][0].change(|pem| pem.key.push('2'));
        let other = digests(b"defaults", &route, &certificates);
        assert!(other[0] == first[0] && other[1] != first[1]);
        let changed = |all: [Digest; 2]| all[0] != other[0] && all[1] != other[1];
        assert!(changed(digests(b"others", &route, &certificates)));
        let mut route = route;
        route.half_close = !route.half_close;
        assert!(changed(digests(b"defaults", &route, &certificates)));
    }

    #[test]
    fn a_damaged_table_is_refused() {
        let packed = pack(b"", &route(), &[vec![pem("a"), pem("b")]]);
        let (certificates, texts) = (0..packed.certificates.len(), 0..packed.texts.len());
        let parse = |table: &[u8]| {
            let parsed = Stored::parse(Fd::NONE, table, certificates.clone(), texts.clone());
            parsed.is_ok()
        };
        assert!(parse(&packed.table));
        for len in 1..packed.table.len() {
            assert!(!parse(&packed.table[..len]), "{len}");
        }
        assert!(!parse(&[&packed.table[..], b"x"].concat()));
        // The count of routes; the route; its own certificate, the others; two certificates; three lists.
        let row = NUMBER..2 * NUMBER + 32 + 4 * NUMBER;
        let certificates = row.end + NUMBER..row.end + NUMBER + 2 * ENTRY;
        let lists = certificates.end + NUMBER..certificates.end + NUMBER + 3 * ENTRY;
        assert_eq!(lists.end, packed.table.len());
        for at in (0..packed.table.len()).step_by(NUMBER) {
            let mut table = packed.table.clone();
            table[at..at + NUMBER].fill(255);
            let is_digest = [&row, &certificates, &lists]
                .into_iter()
                .any(|entries| entries.contains(&at) && (at - entries.start) % ENTRY < 32);
            let is_digest = is_digest && !(row.start + 32..row.end).contains(&at);
            assert_eq!(parse(&table), is_digest, "{at}");
        }
    }
}
