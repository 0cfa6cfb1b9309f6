//! The certificates of a handover in its file: each once, whatever routes have it, in binary form.
//!
//! One part is the table: the number of routes; for each of them the number of its certificates and their places in the
//! list that follows; that list, with the digest and the length of each certificate. All numbers have 8 bytes. The other part
//! has the certificates themselves, one after the other.
//!
//! A worker reads the table, knows by the digests what it has already parsed, and reads the rest one by one.

use crate::parts;
use crate::pem::{Pem, PemContents};
use dormouse_reactor::Fd;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use zeroize::Zeroizing;

/// Length of a number in the table.
const NUMBER: usize = 8;
/// Length of an entry of the table: digest and length.
const ENTRY: usize = 32 + NUMBER;

/// The table and the certificates, as they are written.
pub struct Packed {
    /// The table.
    pub table: Vec<u8>,
    /// The certificates with their private keys.
    pub certificates: Zeroizing<Vec<u8>>,
}

impl Packed {
    /// Packs the certificates of all routes.
    pub fn of(routes: &[Vec<Pem>]) -> Packed {
        let mut places: HashMap<[u8; 32], u64> = HashMap::new();
        let mut distinct: Vec<(&Pem, [&[u8]; 6])> = Vec::new();
        let mut table = Vec::new();
        let mut add = |number: u64| table.extend_from_slice(&number.to_le_bytes());
        add(routes.len() as u64);
        for pems in routes {
            add(pems.len() as u64);
            for pem in pems {
                let place = places.entry(pem.digest()).or_insert_with(|| {
                    distinct.push((pem, pem.fields()));
                    distinct.len() as u64 - 1
                });
                add(*place);
            }
        }
        add(distinct.len() as u64);
        let len = |fields: &[&[u8]; 6]| fields.iter().map(|field| NUMBER + field.len()).sum();
        let lens = distinct.iter().map(|(_, fields)| -> usize { len(fields) });
        // Allocated at full size: a growing vector would leave copies of secrets.
        let mut certificates = Zeroizing::new(Vec::with_capacity(lens.sum()));
        for (pem, fields) in &distinct {
            table.extend_from_slice(&pem.digest());
            let len: usize = len(fields);
            table.extend_from_slice(&(len as u64).to_le_bytes());
            for field in fields {
                certificates.extend_from_slice(&(field.len() as u64).to_le_bytes());
                certificates.extend_from_slice(field);
            }
        }
        Packed {
            table,
            certificates,
        }
    }
}

/// The certificates in the file of a handover.
pub struct Stored {
    file: Fd,
    /// Places in `all`, by route.
    routes: Vec<Vec<u32>>,
    all: Vec<StoredCertificate>,
}

/// A certificate in the file of a handover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredCertificate {
    /// The digest of its contents ([`Pem::digest`]).
    pub digest: [u8; 32],
    /// Its place in the file.
    range: Range<usize>,
}

impl Stored {
    /// Reads the table in the file of a handover.
    pub fn locate(file: Fd) -> io::Result<Stored> {
        let [_, _, _, table, certificates] = parts::locate(file)?;
        Stored::parse(file, &parts::read(file, table)?, certificates)
    }

    fn parse(file: Fd, table: &[u8], certificates: Range<usize>) -> io::Result<Stored> {
        // Main's own files for other purposes have none.
        if table.is_empty() {
            let (routes, all) = (Vec::new(), Vec::new());
            return Ok(Stored { file, routes, all });
        }
        let mut rest = table;
        let count = number(&mut rest)?;
        let mut routes = Vec::new();
        for _ in 0..count {
            let count = number(&mut rest)?;
            // The table itself bounds what is allocated.
            let mut places = Vec::with_capacity(count.min(rest.len() / NUMBER));
            for _ in 0..count {
                places.push(u32::try_from(number(&mut rest)?).map_err(io::Error::other)?);
            }
            routes.push(places);
        }
        let count = number(&mut rest)?;
        let mut all = Vec::with_capacity(count.min(rest.len() / ENTRY));
        let mut start = certificates.start;
        for _ in 0..count {
            let (digest, behind) = rest.split_first_chunk().ok_or_else(malformed)?;
            rest = behind;
            let end = start.saturating_add(number(&mut rest)?);
            if end > certificates.end {
                return Err(malformed());
            }
            all.push(StoredCertificate {
                digest: *digest,
                range: start..end,
            });
            start = end;
        }
        let places = routes.iter().flatten();
        let is_sound = |place: &u32| (*place as usize) < all.len();
        match rest.is_empty() && places.into_iter().all(is_sound) {
            true => Ok(Stored { file, routes, all }),
            false => Err(malformed()),
        }
    }

    /// The number of a route's certificates.
    pub fn count(&self, route: usize) -> usize {
        self.routes.get(route).map_or(0, Vec::len)
    }

    /// One of a route's certificates.
    pub fn of_route(&self, route: usize, n: usize) -> Option<&StoredCertificate> {
        let place = self.routes.get(route)?.get(n)?;
        self.all.get(*place as usize)
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

    /// Reads all certificates of all routes.
    pub fn read_all(&self) -> io::Result<Vec<Vec<Pem>>> {
        let all: io::Result<Vec<Pem>> = self.all.iter().map(|one| self.read(one)).collect();
        let all = all?;
        let of_route = |places: &Vec<u32>| {
            let found = places.iter().filter_map(|&place| all.get(place as usize));
            found.cloned().collect()
        };
        Ok(self.routes.iter().map(of_route).collect())
    }
}

fn number(rest: &mut &[u8]) -> io::Result<usize> {
    let (bytes, behind) = rest.split_first_chunk().ok_or_else(malformed)?;
    *rest = behind;
    usize::try_from(u64::from_le_bytes(*bytes)).map_err(io::Error::other)
}

fn malformed() -> io::Error {
    io::Error::other("the certificates of the handover are malformed")
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn file(packed: &Packed) -> Fd {
        let parts = [&[], &[], &[], &packed.table[..], &packed.certificates];
        parts::write_all(parts).expect("a memory file")
    }

    #[test]
    fn certificates_are_stored_once_and_read_one_by_one() {
        let (a, b, c) = (pem("a"), pem("b"), pem("c"));
        let routes = [vec![a.clone(), b.clone()], vec![], vec![b, c, pem("a")]];
        let packed = Packed::of(&routes);
        let file = file(&packed);
        let stored = Stored::locate(file).expect("a table");
        assert_eq!(stored.all.len(), 3);
        assert_eq!([0, 1, 2, 3].map(|n| stored.count(n)), [2, 0, 3, 0]);
        assert!(stored.read_all().expect("certificates") == routes);
        let one = stored.of_route(2, 2).expect("the last one");
        assert_eq!(one.digest, a.digest());
        assert!(stored.read(one).expect("a certificate") == a);
        assert!(stored.of_route(2, 3).is_none());
        file.close();
    }

    #[test]
    fn a_damaged_table_is_refused() {
        let packed = Packed::of(&[vec![pem("a"), pem("b")]]);
        let certificates = 0..packed.certificates.len();
        let parse = |table: &[u8]| Stored::parse(Fd::NONE, table, certificates.clone()).is_ok();
        assert!(parse(&packed.table));
        for len in 1..packed.table.len() {
            assert!(!parse(&packed.table[..len]), "{len}");
        }
        assert!(!parse(&[&packed.table[..], b"x"].concat()));
        for at in (0..packed.table.len()).step_by(NUMBER) {
            let mut table = packed.table.clone();
            table[at..at + NUMBER].fill(255);
            let is_digest = at >= 5 * NUMBER && (at - 5 * NUMBER) % ENTRY < 32;
            assert_eq!(parse(&table), is_digest, "{at}");
        }
    }
}
