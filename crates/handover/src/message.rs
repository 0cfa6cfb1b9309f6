//! Messages as JSON, one to a message of a channel.

use dormouse_reactor::socket::{self, Attempt, MESSAGE_MAX};
use dormouse_reactor::{Fd, OnExec};
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
    let Attempt::Done(message) = socket::receive_message(channel, &mut buffer, OnExec::Close)?
    else {
        return Ok(None);
    };
    message.descriptors.iter().for_each(|fd| fd.close());
    match buffer.get(..message.len) {
        None | Some([]) => Err(io::ErrorKind::UnexpectedEof.into()),
        Some(bytes) => Ok(Some(serde_json::from_slice(bytes)?)),
    }
}
