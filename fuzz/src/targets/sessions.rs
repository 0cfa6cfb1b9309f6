//! Sessions and ticket keys, as they lie in tickets, caches and files.

use dormouse_engine::{Session, TicketKeys, fuzzed};

/// What a ticket or a cache holds, once it is opened.
pub(crate) fn of_server(data: &[u8]) {
    if fuzzed::is_server_session(data) {
        // It has an end: neither less nor more is one.
        assert!(!fuzzed::is_server_session(&data[..data.len() - 1]));
        assert!(!fuzzed::is_server_session(&[data, &[0]].concat()));
    }
}

/// What a client keeps.
pub(crate) fn of_client(data: &[u8]) {
    let Some(session) = Session::from_bytes(data) else {
        return;
    };
    assert_eq!(session.bytes(), data);
    let _ = (session.expires_at_s(), session.is_for_one_use());
    assert!(Session::from_bytes(&data[..data.len() - 1]).is_none());
}

/// Ticket keys: ours from main or a store, sealed or not, and those of other programs.
pub(crate) fn ticket_keys(data: &[u8]) {
    if let Ok(keys) = TicketKeys::import(data) {
        let exported = keys.export();
        let again = TicketKeys::import(&exported).expect("what was exported");
        assert_eq!(again.export(), exported);
        let _ = (keys.rotates_at_s(), keys.period_s(), keys.since_s());
    }
    assert!(TicketKeys::unseal(data, b"a secret of some length, of the fleet").is_err());
    match TicketKeys::from_file(data, b"") {
        Ok(keys) => assert!(!keys.export().is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
