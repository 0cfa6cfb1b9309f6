//! The protocol of Redis and Valkey (RESP 2): the few commands that are needed, and bounded replies,
//! because the server may send anything. A client library would add some fifteen crates and its own TLS,
//! and would bound neither the size of replies nor the time of a whole exchange.

use crate::transport::Transport;
use dormouse_config::StoreAddress;
use std::io::{self, Read, Write};
use std::time::Duration;

/// Maximum length of a line: a status or an error.
const LINE_MAX: usize = 1024;
/// Maximum length of a value.
const VALUE_MAX: usize = 16 << 10;
/// Maximum number of elements in a list.
const ELEMENTS_MAX: usize = 16;

/// Why a command failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The connection failed, or the reply is not RESP.
    Wire(io::Error),
    /// The store answered with an error.
    Refused(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Wire(error)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Status(String),
    Error(String),
    Number(i64),
    Value(Option<Vec<u8>>),
    /// The number of elements, whose values do not matter. `None`: the transaction was aborted.
    List(Option<usize>),
}

/// A connection to the store.
pub(super) struct Store {
    transport: Transport,
}

impl Store {
    /// Logs in and selects the database that the address names.
    pub(super) fn open(transport: Transport, address: &StoreAddress) -> Result<Store, Failure> {
        let mut store = Store { transport };
        match (&address.user, &address.password) {
            (Some(user), Some(password)) => store.status(&["AUTH", user, password])?,
            (None, Some(password)) => store.status(&["AUTH", password])?,
            (_, None) => {}
        }
        if address.database != 0 {
            store.status(&["SELECT", &address.database.to_string()])?;
        }
        Ok(store)
    }

    pub(super) fn set_deadline(&mut self, after: Duration) {
        self.transport.set_deadline(after);
    }

    /// Makes [`Store::replace`] fail if another client changes the value from now on.
    pub(super) fn watch(&mut self, key: &str) -> Result<(), Failure> {
        self.status(&["WATCH", key])
    }

    /// Cancels [`Store::watch`].
    pub(super) fn unwatch(&mut self) -> Result<(), Failure> {
        self.status(&["UNWATCH"])
    }

    pub(super) fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, Failure> {
        match self.ask(&[b"GET", key.as_bytes()])? {
            Reply::Value(value) => Ok(value),
            other => Err(unexpected(&other)),
        }
    }

    /// Sets the value with a lifetime of `ttl_s`, unless it has changed since [`Store::watch`].
    pub(super) fn replace(&mut self, key: &str, value: &[u8], ttl_s: u64) -> Result<bool, Failure> {
        self.status(&["MULTI"])?;
        let ttl = ttl_s.to_string();
        let set: [&[u8]; 5] = [b"SET", key.as_bytes(), value, b"EX", ttl.as_bytes()];
        match self.ask(&set)? {
            Reply::Status(word) if word == "QUEUED" => {}
            other => return Err(unexpected(&other)),
        }
        match self.ask(&[b"EXEC"])? {
            Reply::List(done) => Ok(done.is_some()),
            Reply::Value(None) => Ok(false),
            other => Err(unexpected(&other)),
        }
    }

    fn status(&mut self, words: &[&str]) -> Result<(), Failure> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        match self.ask(&words)? {
            Reply::Status(_) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&mut self, words: &[&[u8]]) -> Result<Reply, Failure> {
        self.transport.write_all(&command(words))?;
        self.transport.flush()?;
        match reply(&mut self.transport)? {
            Reply::Error(words) => Err(Failure::Refused(
                dormouse_printable::line(&words).to_string(),
            )),
            reply => Ok(reply),
        }
    }
}

fn unexpected(_: &Reply) -> Failure {
    Failure::Wire(malformed())
}

fn malformed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the server is neither Redis nor Valkey",
    )
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Reads one reply. The error is the store's error reply, or why the bytes are not RESP.
pub(crate) fn understand(from: &mut impl Read) -> Result<(), String> {
    match reply(from) {
        Ok(Reply::Error(words)) | Err(Failure::Refused(words)) => Err(words),
        Err(Failure::Wire(error)) => Err(error.to_string()),
        Ok(_) => Ok(()),
    }
}

fn reply(from: &mut impl Read) -> Result<Reply, Failure> {
    let line = line(from)?;
    let (kind, rest) = line.split_at_checked(1).ok_or_else(malformed)?;
    match kind {
        "+" => Ok(Reply::Status(rest.to_owned())),
        "-" => Ok(Reply::Error(rest.to_owned())),
        ":" => Ok(Reply::Number(rest.parse().map_err(|_| malformed())?)),
        "$" => value(from, rest),
        "*" => list(from, rest),
        _ => Err(malformed().into()),
    }
}

fn value(from: &mut impl Read, len: &str) -> Result<Reply, Failure> {
    if len == "-1" {
        return Ok(Reply::Value(None));
    }
    let len: usize = len.parse().map_err(|_| malformed())?;
    if len > VALUE_MAX {
        return Err(Failure::Wire(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the store's value has {len} bytes; ticket keys have at most {VALUE_MAX}"),
        )));
    }
    let mut bytes = vec![0; len + 2];
    from.read_exact(&mut bytes)?;
    if !bytes.ends_with(b"\r\n") {
        return Err(malformed().into());
    }
    bytes.truncate(len);
    Ok(Reply::Value(Some(bytes)))
}

/// Reads and discards the elements. An error among them is the error of the whole list.
fn list(from: &mut impl Read, len: &str) -> Result<Reply, Failure> {
    if len == "-1" {
        return Ok(Reply::List(None));
    }
    let len: usize = len.parse().map_err(|_| malformed())?;
    if len > ELEMENTS_MAX {
        return Err(malformed().into());
    }
    for _ in 0..len {
        let line = line(from)?;
        match line.split_at_checked(1).ok_or_else(malformed)? {
            ("-", words) => return Ok(Reply::Error(words.to_owned())),
            ("+" | ":", _) => {}
            ("$", len) => drop(value(from, len)?),
            _ => return Err(malformed().into()),
        }
    }
    Ok(Reply::List(Some(len)))
}

fn line(from: &mut impl Read) -> Result<String, Failure> {
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\r\n") {
        if line.len() > LINE_MAX {
            return Err(malformed().into());
        }
        from.read_exact(&mut byte)?;
        line.extend_from_slice(&byte);
    }
    line.truncate(line.len() - 2);
    let printable = |byte: &u8| (b' '..=b'~').contains(byte);
    if !line.iter().all(printable) {
        return Err(malformed().into());
    }
    String::from_utf8(line).map_err(|_| malformed().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Result<Reply, Failure> {
        reply(&mut &*bytes)
    }

    #[test]
    fn replies_are_read() {
        for (bytes, expected) in [
            (&b"+OK\r\n"[..], Reply::Status("OK".into())),
            (b"-NOAUTH x\r\n", Reply::Error("NOAUTH x".into())),
            (b":-12\r\n", Reply::Number(-12)),
            (b"$-1\r\n", Reply::Value(None)),
            (b"$3\r\na\r\n\r\n", Reply::Value(Some(b"a\r\n".to_vec()))),
            (b"*-1\r\n", Reply::List(None)),
            (b"*2\r\n+OK\r\n$1\r\nx\r\n", Reply::List(Some(2))),
            (b"*1\r\n-OOM x\r\n", Reply::Error("OOM x".into())),
        ] {
            assert_eq!(read(bytes).expect("a reply"), expected);
        }
        assert_eq!(command(&[b"GET", b"k"]), b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
    }

    #[test]
    fn oversized_and_foreign_replies_are_rejected() {
        let long = [b"+".as_slice(), &[b'x'; 2000], b"\r\n"].concat();
        for bytes in [
            &b"$999999999\r\n"[..],
            b"*1000\r\n",
            b"HTTP/1.1 400 Bad Request\r\n",
            b"$3\r\nabcde",
            b"+\x1b[2J\r\n",
            &long,
            b"",
        ] {
            assert!(matches!(read(bytes), Err(Failure::Wire(_))), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }
}
