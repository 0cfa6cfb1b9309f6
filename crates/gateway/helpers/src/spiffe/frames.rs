//! Messages in a stream of gRPC: a byte that says whether the message is compressed, four for its length, and the message.

use zeroize::Zeroizing;

/// Maximum length of a message, the same as that of gRPC's own libraries.
const MESSAGE_LEN_MAX: usize = 4 << 20;

const HEAD_LEN: usize = 5;

/// The message that is not complete.
#[derive(Default)]
pub(crate) struct Frames {
    head: Vec<u8>,
    /// With room for the whole message, so that it does not grow: it may have keys.
    message: Zeroizing<Vec<u8>>,
    len: Option<usize>,
}

impl Frames {
    /// Takes the next bytes, and passes complete messages on until `on_message` returns `false`. Fails if the stream cannot
    /// be understood.
    pub(crate) fn take(
        &mut self,
        mut bytes: &[u8],
        on_message: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<bool, String> {
        loop {
            let len = match self.len {
                Some(len) => len,
                None => {
                    let missing = HEAD_LEN - self.head.len();
                    let (head, rest) = bytes.split_at(missing.min(bytes.len()));
                    self.head.extend_from_slice(head);
                    bytes = rest;
                    let &[is_compressed, a, b, c, d] = &self.head[..] else {
                        return Ok(true);
                    };
                    let len = u32::from_be_bytes([a, b, c, d]) as usize;
                    if is_compressed != 0 {
                        return Err("the agent compresses messages, which was not offered".into());
                    }
                    if len > MESSAGE_LEN_MAX {
                        return Err(format!(
                            "the agent sent a message of {len} bytes; at most {MESSAGE_LEN_MAX} are read"
                        ));
                    }
                    self.message = Zeroizing::new(Vec::with_capacity(len));
                    *self.len.insert(len)
                }
            };
            let missing = len - self.message.len();
            let (part, rest) = bytes.split_at(missing.min(bytes.len()));
            self.message.extend_from_slice(part);
            bytes = rest;
            if self.message.len() < len {
                return Ok(true);
            }
            let message = std::mem::take(&mut self.message);
            self.head.clear();
            self.len = None;
            if !on_message(&message) {
                return Ok(false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(message: &[u8]) -> Vec<u8> {
        let len = (message.len() as u32).to_be_bytes();
        [&[0], &len[..], message].concat()
    }

    #[test]
    fn messages_are_the_same_wherever_the_stream_is_cut() {
        let stream = [frame(b"one"), frame(b""), frame(b"two")].concat();
        for cut in 0..=stream.len() {
            let (mut frames, mut found) = (Frames::default(), Vec::new());
            for part in [&stream[..cut], &stream[cut..]] {
                let mut on_message = |message: &[u8]| {
                    found.push(message.to_vec());
                    true
                };
                assert_eq!(frames.take(part, &mut on_message), Ok(true));
            }
            assert_eq!(found, [&b"one"[..], b"", b"two"], "{cut}");
        }
    }

    #[test]
    fn long_and_compressed_messages_are_refused() {
        let mut none = |_: &[u8]| true;
        for head in [[1, 0, 0, 0, 0], [0, 0xff, 0, 0, 0], [0, 0, 0x40, 0, 1]] {
            assert!(
                Frames::default().take(&head, &mut none).is_err(),
                "{head:?}"
            );
        }
        assert_eq!(
            Frames::default().take(&[0, 0, 0x40, 0, 0], &mut none),
            Ok(true)
        );
    }
}
