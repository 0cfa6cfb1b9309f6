//! Messages as JSON, one to a message of a channel.

use dormouse_reactor::Fd;
use dormouse_reactor::socket::{self, Attempt, MESSAGE_MAX};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use zeroize::Zeroizing;

/// Sends a message. `WouldBlock`: the other end is not reading, try again later.
pub fn send(channel: Fd, message: &impl Serialize) -> io::Result<Attempt<()>> {
    // With all its room from the start: there may be a key in it, and a vector that grows leaves
    // copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MESSAGE_MAX));
    serde_json::to_writer(&mut *bytes, message)?;
    socket::send_message(channel, &bytes, &[])
}

/// The next message, if there is one. An error: the other end is gone, or makes no sense.
pub fn receive<T: DeserializeOwned>(channel: Fd) -> io::Result<Option<T>> {
    let mut buffer = Zeroizing::new(vec![0; MESSAGE_MAX]);
    let Attempt::Done(words) = socket::receive_plain_message(channel, &mut buffer)? else {
        return Ok(None);
    };
    match buffer.get(..words.len) {
        None | Some([]) => Err(io::ErrorKind::UnexpectedEof.into()),
        Some(bytes) => Ok(Some(serde_json::from_slice(bytes)?)),
    }
}
