//! Reads TLS messages field by field, with bounds checks.

/// The rest of a message. Methods return `None` if it is too short.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads a vector with a one-byte length (RFC 8446 §3.4).
    pub(crate) fn vector8(&mut self) -> Option<&'a [u8]> {
        let [len] = self.array()?;
        self.take(len.into())
    }

    /// Reads a vector with a two-byte length.
    pub(crate) fn vector16(&mut self) -> Option<&'a [u8]> {
        let len = self.u16()?;
        self.take(len.into())
    }

    /// Reads a vector with a three-byte length.
    pub(crate) fn vector24(&mut self) -> Option<&'a [u8]> {
        let [high, middle, low] = self.array()?;
        let len = u32::from_be_bytes([0, high, middle, low]);
        self.take(usize::try_from(len).ok()?)
    }
}
