//! MQTT's first packet.

use dormouse_dataplane::mqtt::client_id;

/// The id is a part of the packet, and more bytes behind the packet change nothing.
pub(crate) fn run(data: &[u8]) {
    let Some(id) = client_id(data) else {
        return;
    };
    assert!(!id.is_empty() && data.windows(id.len()).any(|part| part == id));
    assert_eq!(client_id(&[data, b"more"].concat()), Some(id));
}
