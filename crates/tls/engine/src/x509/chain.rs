//! What is wrong with a chain beyond the server's own certificate: issuers that have expired or end first, certificates
//! that belong to nobody, and those that are there twice.
//!
//! Clients differ in what they make of such a chain: some find another way to an authority, others refuse. Nobody sees
//! it on the server.

use std::collections::{HashMap, HashSet};
use std::fmt;

use rustls_pki_types::CertificateDer;

use crate::failure::utc;
use crate::x509::outline::{Outline, name_as_text};

const DAY_S: u64 = 86_400;
/// Remaining validity below which a warning is due.
const SOON_S: u64 = 14 * DAY_S;

/// A problem with the dates of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DateProblem {
    /// It has expired.
    Expired {
        /// Its last second of validity, in Unix time.
        not_after_s: u64,
    },
    /// It is not valid yet.
    NotYetValid {
        /// Its first second of validity, in Unix time.
        not_before_s: u64,
    },
    /// It expires within two weeks.
    ExpiresSoon {
        /// Days that are left, the last of them in part.
        days: u64,
    },
}

impl DateProblem {
    pub(crate) fn of(not_before_s: u64, not_after_s: u64, now_s: u64) -> Option<DateProblem> {
        if now_s > not_after_s {
            return Some(DateProblem::Expired { not_after_s });
        }
        if now_s < not_before_s {
            return Some(DateProblem::NotYetValid { not_before_s });
        }
        let left_s = not_after_s - now_s;
        (left_s < SOON_S).then(|| DateProblem::ExpiresSoon {
            days: left_s.div_ceil(DAY_S),
        })
    }
}

impl fmt::Display for DateProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { not_after_s } => write!(f, "expired at {}", utc(*not_after_s)),
            Self::NotYetValid { not_before_s } => {
                write!(f, "is not valid before {}", utc(*not_before_s))
            }
            Self::ExpiresSoon { days } => write!(f, "expires within {days} days"),
        }
    }
}

/// A problem with a certificate of a chain that is not the first one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IssuerProblem {
    /// Its dates.
    Dates(DateProblem),
    /// It is there twice.
    Duplicate {
        /// The place of the other one, from 1.
        of: usize,
    },
    /// It has issued no certificate of the chain.
    Unrelated,
}

/// Returns the problems at `now_s`, each with the place of its certificate, from 1, and with its subject.
pub(crate) fn problems(
    chain: &[CertificateDer<'_>],
    now_s: u64,
) -> Vec<(usize, String, IssuerProblem)> {
    let outlines = chain.iter().map(|one| Outline::read(one));
    let outlines = outlines.collect::<Option<Vec<_>>>().unwrap_or_default();
    let issuers = issuers_of_first(&outlines);
    let mut places: HashMap<&[u8], usize> = HashMap::new();
    let mut problems = Vec::new();
    for (at, (certificate, outline)) in chain.iter().zip(&outlines).enumerate() {
        let place = at + 1;
        let earlier = *places.entry(certificate.as_ref()).or_insert(place);
        let problem = if earlier < place {
            Some(IssuerProblem::Duplicate { of: earlier })
        } else if !issuers.contains(outline.subject) {
            Some(IssuerProblem::Unrelated)
        } else {
            let dates = DateProblem::of(outline.not_before_s, outline.not_after_s, now_s);
            dates.map(IssuerProblem::Dates)
        };
        // The first one is the server's own.
        if let Some(problem) = problem.filter(|_| at > 0) {
            problems.push((place, subject(outline), problem));
        }
    }
    problems
}

/// The names of all that have issued the first certificate, directly or not.
fn issuers_of_first<'a>(chain: &[Outline<'a>]) -> HashSet<&'a [u8]> {
    let mut by_subject: HashMap<&[u8], Vec<&[u8]>> = HashMap::new();
    for one in chain {
        by_subject.entry(one.subject).or_default().push(one.issuer);
    }
    let mut issuers = HashSet::new();
    let mut next: Vec<&[u8]> = chain.first().map(|one| one.issuer).into_iter().collect();
    while let Some(name) = next.pop() {
        if issuers.insert(name) {
            next.extend(by_subject.get(name).into_iter().flatten());
        }
    }
    issuers
}

/// A subject as one line of text.
fn subject(outline: &Outline<'_>) -> String {
    const LENGTH_MAX: usize = 200;
    let name = name_as_text(outline.subject);
    dormouse_printable::line_up_to(&name, LENGTH_MAX).to_string()
}

/// Returns the last second in which all certificates of a chain are valid, in Unix time.
pub(crate) fn not_after_s(chain: &[CertificateDer<'_>]) -> u64 {
    let outlines = chain.iter().filter_map(|one| Outline::read(one));
    outlines
        .map(|one| one.not_after_s)
        .min()
        .unwrap_or_default()
}
