//! Reads handshake messages: length-prefixed vectors (RFC 8446 §3.4), with bounds checks on every access.

/// Numbers of extensions.
pub(crate) mod hello_extension {
    pub(crate) const SERVER_NAME: u16 = 0;
    pub(crate) const SUPPORTED_GROUPS: u16 = 10;
    pub(crate) const POINT_FORMATS: u16 = 11;
    pub(crate) const SIGNATURE_ALGORITHMS: u16 = 13;
    pub(crate) const ALPN: u16 = 16;
    pub(crate) const EXTENDED_MASTER_SECRET: u16 = 23;
    pub(crate) const SESSION_TICKET: u16 = 35;
    pub(crate) const PRE_SHARED_KEY: u16 = 41;
    pub(crate) const EARLY_DATA: u16 = 42;
    pub(crate) const SUPPORTED_VERSIONS: u16 = 43;
    pub(crate) const PSK_MODES: u16 = 45;
    pub(crate) const KEY_SHARE: u16 = 51;
    pub(crate) const RENEGOTIATION_INFO: u16 = 0xff01;
}

/// The unread rest of a message.
pub(crate) struct MessageReader<'a>(&'a [u8]);

impl<'a> MessageReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Returns all unread bytes.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(*self.take(2)?.first_chunk()?))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(*self.take(4)?.first_chunk()?))
    }

    pub(crate) fn vec_8(&mut self) -> Option<&'a [u8]> {
        let length = self.u8()?;
        self.take(length.into())
    }

    pub(crate) fn vec_16(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(length.into())
    }

    pub(crate) fn vec_24(&mut self) -> Option<&'a [u8]> {
        let [high] = *self.take(1)?.first_chunk()?;
        let low = self.u16()?;
        self.take(usize::from(high) << 16 | usize::from(low))
    }
}
