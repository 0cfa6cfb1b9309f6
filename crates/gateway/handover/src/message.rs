//! JSON messages on a channel.

use dormouse_reactor::Fd;
use dormouse_reactor::socket::{self, Attempt, MESSAGE_MAX, PlainMessage};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use zeroize::Zeroizing;

/// Sends a message. `WouldBlock`: the channel is full; try again later.
pub fn send(channel: Fd, message: &impl Serialize) -> io::Result<Attempt<()>> {
    // Allocated at full size: the message may contain a key, and a growing vector would leave copies.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MESSAGE_MAX));
    serde_json::to_writer(&mut *bytes, message)?;
    socket::send_message(channel, &bytes, &[])
}

/// Receives the next message, if there is one. Fails if the other end is closed, or with `InvalidData` if the message is
/// invalid.
pub fn receive<T: DeserializeOwned>(channel: Fd) -> io::Result<Option<T>> {
    let mut buffer = Zeroizing::new(vec![0; MESSAGE_MAX]);
    let Attempt::Done(message) = socket::receive_plain_message(channel, &mut buffer)? else {
        return Ok(None);
    };
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    match message {
        PlainMessage::Whole { len, .. } => {
            let bytes = buffer.get(..len).unwrap_or_default();
            let read = serde_json::from_slice(bytes);
            // A text that is cut short is not the end of the channel.
            read.map(Some).map_err(|error| invalid(error.to_string()))
        }
        PlainMessage::Invalid { .. } => Err(invalid("not one whole message".to_owned())),
        PlainMessage::End => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
