//! The part of a certificate that decides its place in a chain: whose it is, who issued it, and until when.
//!
//! Every certificate of a chain must have it. Only the server's own certificate is parsed in full: clients look at the
//! others, and many a root that is in use today breaks rules that a full parser knows.

use crate::x509::der::{Der, Tag};

/// Names and dates of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outline<'a> {
    /// The issuer's name, DER.
    pub(crate) issuer: &'a [u8],
    /// Its own name, DER.
    pub(crate) subject: &'a [u8],
    /// Its first second, in Unix time.
    pub(crate) not_before_s: u64,
    /// Its last second.
    pub(crate) not_after_s: u64,
}

impl Outline<'_> {
    /// Reads a certificate, DER. `None`: it is none.
    pub(crate) fn of(certificate: &[u8]) -> Option<Outline<'_>> {
        let mut outer = Der::whole(certificate)?.enter(Tag::SEQUENCE)?;
        let mut inner = outer.enter(Tag::SEQUENCE)?;
        // The signature's algorithm, and the signature.
        outer.expect(Tag::SEQUENCE)?;
        outer.expect(Tag::BITS)?;
        // Version 1 is left out.
        inner.skip(Tag::CONTEXT_0_CONSTRUCTED);
        inner.expect(Tag::INTEGER)?;
        inner.expect(Tag::SEQUENCE)?;
        let issuer = inner.element(Tag::SEQUENCE)?;
        let mut validity = inner.enter(Tag::SEQUENCE)?;
        let positive = |s: i64| u64::try_from(s).unwrap_or(0);
        let (not_before_s, not_after_s) = (validity.time()?, validity.time()?);
        let subject = inner.element(Tag::SEQUENCE)?;
        // The key.
        inner.expect(Tag::SEQUENCE)?;
        Some(Outline {
            issuer,
            subject,
            not_before_s: positive(not_before_s),
            not_after_s: positive(not_after_s),
        })
    }
}
