//! Revocation lists (RFC 5280 §5): which of several is the newest, and which have expired.

use std::collections::HashMap;

use rustls_pki_types::{CertificateRevocationListDer, UnixTime};
use x509_parser::oid_registry::OID_X509_EXT_ISSUER_DISTRIBUTION_POINT;
use x509_parser::prelude::{FromDer as _, X509Extension};
use x509_parser::revocation_list::CertificateRevocationList;

use crate::failure::utc;
use crate::x509::der::{Der, Tag};

/// Returns the problem of a list that cannot be used, of which only the beginning is read.
pub(crate) fn problem(list: &[u8]) -> Option<&'static str> {
    let beginning = || Der::whole(list)?.enter(Tag::SEQUENCE)?.enter(Tag::SEQUENCE);
    let Some(mut beginning) = beginning().filter(|_| made_at_s(list).is_some()) else {
        return Some("the section is not a revocation list: its DER is invalid");
    };
    // Version 2 is the number 1; version 1 has none (RFC 5280 §5.1.2.1).
    (beginning.expect(Tag::INTEGER) != Some(&[1])).then_some(
        "a revocation list of version 1, which has no extensions; create it again in version 2: add crl_extensions \
         to the [ca] section of openssl.cnf",
    )
}

/// Returns when a revocation list was made, in seconds of Unix time (thisUpdate, RFC 5280 §5.1.2.4). Of the list, which
/// may be long, only its beginning is read.
pub(crate) fn made_at_s(list: &[u8]) -> Option<i64> {
    let mut list = Der::whole(list)?
        .enter(Tag::SEQUENCE)?
        .enter(Tag::SEQUENCE)?;
    // Version, signature algorithm, issuer.
    list.skip(Tag::INTEGER);
    list.expect(Tag::SEQUENCE)?;
    list.expect(Tag::SEQUENCE)?;
    list.time()
}

/// Returns a warning for each list that has expired at `now`, unless there is a newer one; clients of its issuer are
/// refused. Each list has the name of its file.
pub(crate) fn expired<'a>(
    lists: impl Iterator<Item = (&'a str, CertificateRevocationListDer<'a>)>,
    now: UnixTime,
) -> Vec<String> {
    let mut ends: HashMap<Vec<u8>, (i64, Option<String>)> = HashMap::new();
    for (name, der) in lists {
        let Ok((_, list)) = CertificateRevocationList::from_der(&der) else {
            continue;
        };
        let newest = ends.entry(scope(&list)).or_insert((i64::MIN, None));
        if newest.0 < list.last_update().timestamp() {
            *newest = (list.last_update().timestamp(), end(name, &list, now));
        }
    }
    let mut warnings: Vec<String> = ends.into_values().filter_map(|(_, end)| end).collect();
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

/// Returns the warning for a list that has expired at `now`.
fn end(name: &str, list: &CertificateRevocationList<'_>, now: UnixTime) -> Option<String> {
    let ends_s = u64::try_from(list.next_update()?.timestamp()).ok()?;
    (ends_s < now.as_secs()).then(|| {
        format!(
            "{name}: the revocation list of {} expired at {}; clients with certificates from this issuer are refused until a newer list is installed",
            list.issuer(),
            utc(ends_s)
        )
    })
}
