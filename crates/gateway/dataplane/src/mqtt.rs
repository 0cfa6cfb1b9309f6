//! The client id in MQTT's CONNECT packet (MQTT 5 and 3.1.1, §3.1; 3.1), the first that a client sends.

/// The packet's first byte: its type, and flags that are zero.
const CONNECT: u8 = 0x10;
/// Maximum number of bytes of a length (§1.5.5).
const LENGTH_BYTES_MAX: u32 = 4;
/// Set in the level by bridges of mosquitto.
const BRIDGE: u8 = 0x80;

/// Returns the client id, if these bytes begin with a CONNECT packet and have all of the id. An empty one is none: the
/// server chooses it.
pub fn client_id(bytes: &[u8]) -> Option<&[u8]> {
    let mut header = Fields(bytes);
    if header.byte()? != CONNECT {
        return None;
    }
    let len = header.length()?;
    // The payload may go on behind these bytes: a will, a user name, a password.
    let Fields(rest) = header;
    let mut packet = Fields(rest.get(..len).unwrap_or(rest));
    let (protocol, level) = (packet.text()?, packet.byte()? & !BRIDGE);
    if !matches!((protocol, level), (b"MQTT", 4 | 5) | (b"MQIsdp", 3)) {
        return None;
    }
    packet.byte()?; // flags
    packet.take(2)?; // keep alive
    if level == 5 {
        let properties = packet.length()?;
        packet.take(properties)?;
    }
    packet.text().filter(|id| !id.is_empty())
}

/// The bytes that were not read yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    /// A variable byte integer (§1.5.5).
    fn length(&mut self) -> Option<usize> {
        let mut value = 0;
        for at in 0..LENGTH_BYTES_MAX {
            let byte = self.byte()?;
            value |= usize::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Bytes after their length.
    fn text(&mut self) -> Option<&'a [u8]> {
        let len = <[u8; 2]>::try_from(self.take(2)?).ok()?;
        self.take(u16::from_be_bytes(len).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &[u8] = b"\x10\x13\0\x06MQIsdp\x03\x02\0\x3c\0\x05alpha";
    const USUAL: &[u8] = b"\x10\x11\0\x04MQTT\x04\x02\0\x3c\0\x05alpha";
    const NEW: &[u8] = b"\x10\x17\0\x04MQTT\x05\x02\0\x3c\x05\x11\0\0\0\x0a\0\x05alpha";

    #[test]
    fn the_client_id_is_found_in_every_version() {
        for packet in [OLD, USUAL, NEW] {
            assert_eq!(client_id(packet), Some(&b"alpha"[..]));
            for at in 0..packet.len() {
                assert_eq!(client_id(&packet[..at]), None, "{at} bytes");
            }
            let followed = [packet, b"\x82\x01\0"].concat();
            assert_eq!(client_id(&followed), Some(&b"alpha"[..]));
        }
        let bridge = [&USUAL[..8], &[0x84], &USUAL[9..]].concat();
        assert_eq!(client_id(&bridge), Some(&b"alpha"[..]));
    }

    #[test]
    fn anything_else_has_none() {
        let empty = b"\x10\x0c\0\x04MQTT\x04\x02\0\x3c\0\0";
        let outside = b"\x10\x0c\0\x04MQTT\x04\x02\0\x3c\0\x05alpha";
        let long_length = b"\x10\xff\xff\xff\xff\x01\0\x04MQTT\x04\x02\0\x3c\0\x05alpha";
        let other_level = b"\x10\x11\0\x04MQTT\x06\x02\0\x3c\0\x05alpha";
        for packet in [
            &empty[..],
            outside,
            long_length,
            other_level,
            b"GET / HTTP/1.1\r\n",
        ] {
            assert_eq!(client_id(packet), None, "{packet:?}");
        }
    }
}
