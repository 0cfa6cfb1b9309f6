//! JSON messages on a channel.

use dormouse_reactor::Fd;
use dormouse_reactor::socket::{self, Attempt, MESSAGE_MAX};
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

/// Receives the next message, if there is one. Fails if the other end is closed, or the message is
/// invalid.
pub fn receive<T: DeserializeOwned>(channel: Fd) -> io::Result<Option<T>> {
    let mut buffer = Zeroizing::new(vec![0; MESSAGE_MAX]);
    let Attempt::Done(message) = socket::receive_plain_message(channel, &mut buffer)? else {
        return Ok(None);
    };
    match buffer.get(..message.len) {
        None | Some([]) => Err(io::ErrorKind::UnexpectedEof.into()),
        Some(bytes) => Ok(Some(serde_json::from_slice(bytes)?)),
    }
}
