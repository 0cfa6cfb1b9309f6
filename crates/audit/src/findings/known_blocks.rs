//! Known malloc block sizes: those that a common TLS library allocates for each connection.

/// Block sizes of OpenSSL 3.0 on 64-bit Linux, including malloc's header, as seen in its malloc calls.
const OPENSSL_3_0: [(u64, &str); 3] = [
    (CONNECTION, "OpenSSL's SSL object"),
    (SESSION, "OpenSSL's session"),
    (976, "OpenSSL's cipher context"),
];
const CONNECTION: u64 = 7_616;
const SESSION: u64 = 944;

/// The TLS library of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Library {
    /// `libssl.so.3`.
    OpenSsl3,
    #[default]
    Other,
}

impl Library {
    /// Recognises the library by its mapped file.
    pub(super) fn of(file: Option<&str>) -> Self {
        match file {
            Some(file) if file.starts_with("libssl.so.3") => Self::OpenSsl3,
            _ => Self::Other,
        }
    }

    /// Returns what a malloc block of this size holds.
    pub(super) fn block(self, bytes: u64) -> Option<&'static str> {
        let known = OPENSSL_3_0.iter().find(|(size, _)| *size == bytes);
        known
            .filter(|_| self == Self::OpenSsl3)
            .map(|known| known.1)
    }

    /// Whether a malloc block of this size holds a connection.
    pub(super) fn is_connection(self, bytes: u64) -> bool {
        self == Self::OpenSsl3 && bytes == CONNECTION
    }

    /// Whether a malloc block of this size holds a session.
    pub(super) fn is_session(self, bytes: u64) -> bool {
        self == Self::OpenSsl3 && bytes == SESSION
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_known_for_their_library_alone() {
        let library = Library::of(Some("libssl.so.3"));
        assert_eq!(library.block(944), Some("OpenSSL's session"));
        assert!(library.is_session(944) && !library.is_session(976));
        assert_eq!(library.block(945), None);
        assert_eq!(Library::of(Some("libssl.so.1.1")).block(944), None);
        assert_eq!(Library::of(None).block(944), None);
    }
}
