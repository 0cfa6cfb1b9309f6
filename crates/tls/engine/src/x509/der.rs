//! The part of DER (X.690) that OCSP, revocation lists and the search for a chain need: reads elements one after the
//! other, and writes them.

use x509_parser::prelude::FromDer as _;
use x509_parser::time::ASN1Time;

/// The type of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag(u8);

impl Tag {
    pub(crate) const BOOLEAN: Tag = Tag(0x01);
    pub(crate) const INTEGER: Tag = Tag(0x02);
    pub(crate) const BITS: Tag = Tag(0x03);
    pub(crate) const OCTETS: Tag = Tag(0x04);
    pub(crate) const NULL: Tag = Tag(0x05);
    pub(crate) const OID: Tag = Tag(0x06);
    pub(crate) const ENUMERATED: Tag = Tag(0x0a);
    pub(crate) const UTC_TIME: Tag = Tag(0x17);
    pub(crate) const GENERALIZED_TIME: Tag = Tag(0x18);
    pub(crate) const SEQUENCE: Tag = Tag(0x30);
    pub(crate) const CONTEXT_0: Tag = Tag(0x80);
    pub(crate) const CONTEXT_0_CONSTRUCTED: Tag = Tag(0xa0);
    pub(crate) const CONTEXT_1_CONSTRUCTED: Tag = Tag(0xa1);
    pub(crate) const CONTEXT_3_CONSTRUCTED: Tag = Tag(0xa3);

    /// Returns the tag's number, without its class.
    pub(crate) fn number(self) -> u8 {
        self.0 & 0x1f
    }
}

/// A sequence of unread elements. Methods return `None` for unexpected input and then consume nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// Returns a reader for exactly one element.
    pub(crate) fn whole(bytes: &'a [u8]) -> Option<Der<'a>> {
        let der = Der(bytes);
        let (_, _, rest) = der.split()?;
        rest.is_empty().then_some(der)
    }

    /// Divides bytes into their first element and the rest.
    pub(crate) fn first(bytes: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let (_, _, rest) = Der(bytes).split()?;
        bytes.split_at_checked(bytes.len() - rest.len())
    }

    /// Returns a reader for the elements within another one.
    pub(crate) fn contents(bytes: &'a [u8]) -> Der<'a> {
        Der(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next element's tag and content.
    pub(crate) fn any(&mut self) -> Option<(Tag, &'a [u8])> {
        let (tag, content, rest) = self.split()?;
        self.0 = rest;
        Some((tag, content))
    }

    /// Returns the content of the next element, which must have this tag.
    pub(crate) fn expect(&mut self, tag: Tag) -> Option<&'a [u8]> {
        let (found, content, rest) = self.split()?;
        (found == tag).then(|| {
            self.0 = rest;
            content
        })
    }

    /// Returns the next element with its tag and length.
    pub(crate) fn element(&mut self, tag: Tag) -> Option<&'a [u8]> {
        let before = self.0;
        self.expect(tag)?;
        before.get(..before.len() - self.0.len())
    }

    /// Returns the next element, a UTCTime or GeneralizedTime, in seconds of Unix time.
    pub(crate) fn time(&mut self) -> Option<i64> {
        let element = match self.element(Tag::UTC_TIME) {
            Some(element) => element,
            None => self.element(Tag::GENERALIZED_TIME)?,
        };
        seconds(element)
    }

    /// Returns the elements within the next one.
    pub(crate) fn enter(&mut self, tag: Tag) -> Option<Der<'a>> {
        self.expect(tag).map(Der)
    }

    /// Skips the next element if it has this tag.
    pub(crate) fn skip(&mut self, tag: Tag) {
        let _ = self.expect(tag);
    }

    /// Returns tag, content, and the remaining bytes.
    fn split(&self) -> Option<(Tag, &'a [u8], &'a [u8])> {
        let [tag, first, rest @ ..] = self.0 else {
            return None;
        };
        // Tags of more than one byte and indefinite lengths do not occur.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (len, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let len = bytes
                    .iter()
                    .fold(0_u32, |len, byte| len << 8 | u32::from(*byte));
                (usize::try_from(len).ok()?, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(len)?;
        Some((Tag(*tag), content, rest))
    }
}

/// Returns a time in seconds of Unix time.
pub(crate) fn seconds(element: &[u8]) -> Option<i64> {
    let (_, time) = ASN1Time::from_der(element).ok()?;
    Some(time.timestamp())
}

/// Encodes an element.
pub(crate) fn tagged(tag: Tag, content: &[u8]) -> Vec<u8> {
    let mut element = vec![tag.0];
    // The shortest encoding of the length.
    match content.len().to_be_bytes() {
        [0, 0, 0, 0, 0, 0, 0, len @ 0..0x80] => element.push(len),
        [0, 0, 0, 0, 0, 0, 0, len] => element.extend([0x81, len]),
        [0, 0, 0, 0, 0, 0, high, low] => element.extend([0x82, high, low]),
        [.., a, b, c, d] => element.extend([0x84, a, b, c, d]),
    }
    element.extend_from_slice(content);
    element
}

pub(crate) fn octets(content: &[u8]) -> Vec<u8> {
    tagged(Tag::OCTETS, content)
}

pub(crate) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    tagged(Tag::SEQUENCE, &parts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn encoded_elements_are_decoded_without_panics(
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
        ) {
            let element = sequence(&[&octets(&bytes), &tagged(Tag::NULL, &[])]);
            let mut read = Der::whole(&element).and_then(|mut d| d.enter(Tag::SEQUENCE)).expect("a DER element");
            prop_assert_eq!(read.expect(Tag::OCTETS), Some(&bytes[..]));
            prop_assert!(read.expect(Tag::OCTETS).is_none());
            prop_assert_eq!(read.any(), Some((Tag::NULL, &[][..])));
            prop_assert!(read.is_empty());
            let mut hostile = Der(&bytes);
            while hostile.any().is_some() {}
        }
    }
}
