//! Sessions and ticket keys, as stored in tickets, caches and files.

use dormouse_engine::{Session, TicketKeys, fuzzed};

/// A server session, as a decrypted ticket or a cache entry holds it.
pub(crate) fn of_server(data: &[u8]) {
    if fuzzed::is_server_session(data) {
        // The encoding has a fixed end: a byte less or more is invalid.
        assert!(!fuzzed::is_server_session(&data[..data.len() - 1]));
        assert!(!fuzzed::is_server_session(&[data, &[0]].concat()));
    }
}

/// A client session.
pub(crate) fn of_client(data: &[u8]) {
    let Some(session) = Session::from_bytes(data) else {
        return;
    };
    assert_eq!(session.bytes(), data);
    let _ = (session.expires_at_s(), session.is_for_one_use());
    assert!(Session::from_bytes(&data[..data.len() - 1]).is_none());
}

/// Ticket keys from main or a store, sealed or not, and ticket key files of other programs.
pub(crate) fn ticket_keys(data: &[u8]) {
    if let Ok(keys) = TicketKeys::import(data) {
        let exported = keys.export();
        let again = TicketKeys::import(&exported).expect("exported keys");
        assert_eq!(again.export(), exported);
        let _ = (keys.rotates_at_s(), keys.period_s(), keys.since_s());
    }
    assert!(TicketKeys::unseal(data, b"a secret of some length, of the fleet").is_err());
    match TicketKeys::from_file(data, b"") {
        Ok(keys) => assert!(!keys.export().is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
