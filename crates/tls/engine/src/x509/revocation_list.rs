//! Revocation lists (RFC 5280 §5): which of several is the newest, which certificates they are for, and which have expired.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use rustls_pki_types::{CertificateRevocationListDer, UnixTime};
use x509_parser::oid_registry::OID_X509_EXT_ISSUER_DISTRIBUTION_POINT;
use x509_parser::prelude::{FromDer as _, X509Extension};
use x509_parser::revocation_list::CertificateRevocationList;

use crate::failure::utc;
use crate::x509::der::{Der, Tag};
use crate::x509::outline::{Extension, Outline, extensions_in, id};

/// The parts of a revocation list (RFC 5280 §5.1) without its entries, which may be many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListOutline<'a> {
    /// The content of the issuer's name.
    issuer: &'a [u8],
    edition: Edition<'a>,
    /// The issuing distribution point, if there is one.
    point: Option<&'a [u8]>,
    /// What identifies the issuer's key: an authority may have two for a time, each with its lists.
    authority_key: Option<&'a [u8]>,
}

/// The place of a list among those of its issuer: the newer one is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Edition<'a> {
    /// When it was made (thisUpdate), in seconds of Unix time.
    made_at_s: i64,
    /// Its number (§5.2.3), without zeros in front: two lists may be made within a second.
    number: &'a [u8],
}

impl Ord for Edition<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = |one: &Self| (one.made_at_s, one.number.len());
        order(self)
            .cmp(&order(other))
            .then_with(|| self.number.cmp(other.number))
    }
}

impl PartialOrd for Edition<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<'a> ListOutline<'a> {
    /// Reads a list, DER. `None`: it is none.
    pub(crate) fn read(list: &'a [u8]) -> Option<ListOutline<'a>> {
        let mut list = Der::whole(list)?
            .enter(Tag::SEQUENCE)?
            .enter(Tag::SEQUENCE)?;
        list.skip(Tag::INTEGER); // its version
        list.expect(Tag::SEQUENCE)?; // the algorithm of the signature
        let issuer = list.expect(Tag::SEQUENCE)?;
        let made_at_s = list.time()?;
        let _ = list.time(); // nextUpdate
        list.skip(Tag::SEQUENCE); // the entries
        let extensions: Vec<Extension<'a>> =
            extensions_in(list.enter(Tag::CONTEXT_0_CONSTRUCTED)).collect();
        let value = |id| {
            let found = extensions.iter().find(|extension| extension.id == id);
            found.map(|extension| extension.value)
        };
        let number =
            value(id::LIST_NUMBER).and_then(|value| Der::contents(value).expect(Tag::INTEGER));
        let number = number.unwrap_or_default();
        let zeros = number.iter().take_while(|byte| **byte == 0).count();
        Some(ListOutline {
            issuer,
            edition: Edition {
                made_at_s,
                number: number.get(zeros..).unwrap_or_default(),
            },
            point: value(id::ISSUING_POINT),
            authority_key: value(id::AUTHORITY_KEY),
        })
    }

    /// Whether they are of the same edition of the same list.
    fn is_same_edition(&self, other: &ListOutline<'_>) -> bool {
        self.edition == other.edition
            && self.issuer == other.issuer
            && self.point == other.point
            && self.authority_key == other.authority_key
    }

    /// Whether it is only for the certificates that name one of its distribution points (§5.2.5).
    fn is_for_a_point(&self) -> bool {
        let point = self
            .point
            .and_then(|point| Der::whole(point)?.enter(Tag::SEQUENCE));
        point.is_some_and(|mut point| point.expect(Tag::CONTEXT_0_CONSTRUCTED).is_some())
    }
}

/// Returns the issuer of a list and the serial numbers on it, up to the first entry that is invalid.
pub(crate) fn entries(list: &[u8]) -> (&[u8], impl Iterator<Item = &[u8]>) {
    let parts = || {
        let mut list = Der::whole(list)?
            .enter(Tag::SEQUENCE)?
            .enter(Tag::SEQUENCE)?;
        list.skip(Tag::INTEGER); // its version
        list.expect(Tag::SEQUENCE)?; // the algorithm of the signature
        let issuer = list.expect(Tag::SEQUENCE)?;
        list.time()?;
        let _ = list.time(); // nextUpdate
        Some((issuer, list.enter(Tag::SEQUENCE)))
    };
    let (issuer, mut entries) = parts().unwrap_or_default();
    let serials = std::iter::from_fn(move || {
        let mut entry = entries.as_mut()?.enter(Tag::SEQUENCE)?;
        entry.expect(Tag::INTEGER)
    });
    (issuer, serials)
}

/// Returns the problem of a list that cannot be used, of which only the beginning is read.
pub(crate) fn problem(list: &[u8]) -> Option<&'static str> {
    let beginning = || Der::whole(list)?.enter(Tag::SEQUENCE)?.enter(Tag::SEQUENCE);
    let Some(mut beginning) = beginning().filter(|_| ListOutline::read(list).is_some()) else {
        return Some("the section is not a revocation list: its DER is invalid");
    };
    // Version 2 is the number 1; version 1 has none (RFC 5280 §5.1.2.1).
    (beginning.expect(Tag::INTEGER) != Some(&[1])).then_some(
        "a revocation list of version 1, which has no extensions; create it again in version 2: add crl_extensions \
         to the [ca] section of openssl.cnf",
    )
}

/// A revocation list with its place, for errors.
pub(crate) type FoundList = (String, CertificateRevocationListDer<'static>);

/// Maximum number of keys of one issuer whose lists are used.
const KEYS_MAX: usize = 4;

/// Returns the lists with the newest first: the library uses the first list that covers a certificate, and a directory may
/// hold the lists of earlier days, too, in which a certificate is not revoked yet. The error is about lists of which the
/// library would use one, although only another one revokes a certificate.
pub(crate) fn in_order(mut lists: Vec<FoundList>) -> Result<Vec<FoundList>, String> {
    fn edition((_, list): &FoundList) -> Option<Edition<'_>> {
        ListOutline::read(list).map(|outline| outline.edition)
    }
    lists.sort_by(|one, other| edition(other).cmp(&edition(one)));
    let outlines: Vec<_> = outlines(&lists).collect();
    for (at, (place, outline, list)) in outlines.iter().enumerate() {
        let same_time = outlines.iter().skip(at + 1);
        let mut same_time = same_time.take_while(|(_, other, _)| other.edition == outline.edition);
        let contradiction =
            same_time.find(|(_, other, der)| other.is_same_edition(outline) && der != list);
        if let Some((other, ..)) = contradiction {
            return Err(format!(
                "{place}: {other} has the same issuer, time and number, and other content; keep the newer one of the two"
            ));
        }
    }
    let (divided, whole): (Vec<_>, Vec<_>) = outlines
        .iter()
        .partition(|(_, outline, _)| outline.is_for_a_point());
    let whole: HashMap<&[u8], &str> = whole
        .iter()
        .map(|(place, outline, _)| (outline.issuer, *place))
        .collect();
    for (place, outline, _) in divided {
        if let Some(other) = whole.get(outline.issuer) {
            return Err(format!(
                "{place}: the list is for one distribution point, and {other}, of the same issuer, is for all; remove \
                 one of the two"
            ));
        }
    }
    Ok(lists)
}

/// Returns the lists in several orders if an issuer has changed its key: each of its keys has its lists in front once. The
/// library goes by the issuer's name, and gives up if the first list is not signed with the right key.
pub(crate) fn by_key(lists: &[FoundList]) -> Vec<Vec<&FoundList>> {
    let mut keys: HashMap<&[u8], Vec<Option<&[u8]>>> = HashMap::new();
    for (_, outline, _) in outlines(lists) {
        let of_issuer = keys.entry(outline.issuer).or_default();
        if !of_issuer.contains(&outline.authority_key) {
            of_issuer.push(outline.authority_key);
        }
    }
    let orders = keys.values().map(Vec::len).max().unwrap_or(1);
    let order = |turn: usize| {
        let place = |(_, list): &&FoundList| {
            let outline = ListOutline::read(list)?;
            let of_issuer = keys.get(outline.issuer)?;
            let mut of_issuer_turned = of_issuer.iter().cycle().skip(turn % of_issuer.len());
            of_issuer_turned.position(|key| *key == outline.authority_key)
        };
        let mut ordered: Vec<&FoundList> = lists.iter().collect();
        ordered.sort_by_cached_key(place);
        ordered
    };
    (0..orders.min(KEYS_MAX)).map(order).collect()
}

fn outlines(lists: &[FoundList]) -> impl Iterator<Item = (&str, ListOutline<'_>, &[u8])> {
    lists
        .iter()
        .filter_map(|(place, list)| Some((place.as_str(), ListOutline::read(list)?, list.as_ref())))
}

/// The issuers (contents of their names) whose lists are divided: each list is for some distribution points. The library
/// takes any of them for a certificate that names no distribution point.
#[derive(Debug)]
pub(crate) struct DividedIssuers(HashSet<Box<[u8]>>);

impl DividedIssuers {
    pub(crate) fn of(lists: &[FoundList]) -> DividedIssuers {
        let divided = outlines(lists).filter(|(_, outline, _)| outline.is_for_a_point());
        DividedIssuers(
            divided
                .map(|(_, outline, _)| outline.issuer.into())
                .collect(),
        )
    }

    /// Whether a certificate needs a list, and is in none of the parts.
    pub(crate) fn has_no_list_for(&self, certificate: &Outline<'_>) -> bool {
        self.0.contains(certificate.issuer)
            // No list is about a root, which names itself as its issuer.
            && !certificate.is_self_issued()
            && certificate.extension(id::REVOCATION_LISTS).is_none()
    }
}

/// Returns a warning for each list that has expired at `now`, unless there is a newer one, and for each that begins
/// later. `peers` are those with certificates of an expired list's issuer, which are refused. Each list has the name of its
/// file.
pub(crate) fn untimely<'a>(
    lists: impl Iterator<Item = (&'a str, CertificateRevocationListDer<'a>)>,
    peers: &str,
    now: UnixTime,
) -> Vec<String> {
    let lists: Vec<_> = lists.collect();
    let mut newest: HashMap<Vec<u8>, (Edition<'_>, Option<String>)> = HashMap::new();
    for (name, der) in &lists {
        let Some(outline) = ListOutline::read(der) else {
            continue;
        };
        let Ok((_, list)) = CertificateRevocationList::from_der(der) else {
            continue;
        };
        let known = newest
            .entry(scope(&list))
            .or_insert((outline.edition, None));
        if known.0 <= outline.edition {
            *known = (outline.edition, warning(name, &list, peers, now));
        }
    }
    let mut warnings: Vec<String> = newest
        .into_values()
        .filter_map(|(_, warning)| warning)
        .collect();
    warnings.sort();
    warnings
}

/// Returns what distinguishes a list from others of its issuer: the issuing distribution point.
fn scope(list: &CertificateRevocationList<'_>) -> Vec<u8> {
    let is_scope =
        |extension: &&X509Extension<'_>| extension.oid == OID_X509_EXT_ISSUER_DISTRIBUTION_POINT;
    let scope = list.extensions().iter().find(is_scope);
    let scope = scope.map_or(&[][..], |extension| extension.value);
    [list.issuer().as_raw(), scope].concat()
}

/// Returns the warning for a list that is not valid at `now`.
fn warning(
    name: &str,
    list: &CertificateRevocationList<'_>,
    peers: &str,
    now: UnixTime,
) -> Option<String> {
    let seconds = |s: i64| u64::try_from(s).unwrap_or_default();
    let begins_s = seconds(list.last_update().timestamp());
    if now.as_secs() < begins_s {
        return Some(format!(
            "{name}: the revocation list of {} is not valid before {}; it is used all the same, but a clock is wrong",
            list.issuer(),
            utc(begins_s)
        ));
    }
    let ends_s = seconds(list.next_update()?.timestamp());
    (ends_s < now.as_secs()).then(|| {
        format!(
            "{name}: the revocation list of {} expired at {}; {peers} with certificates from this issuer are refused until a newer list is installed",
            list.issuer(),
            utc(ends_s)
        )
    })
}
