//! A TLS client that sends one line and prints the reply:
//! `cargo run --example client -- 127.0.0.1:8443 localhost "hello"`
//!
//! It accepts any certificate, as a test with a self-signed certificate needs. Real clients use other `Roots`.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use dormouse_engine::stream::{Connection, End, Event};
use dormouse_engine::{ClientContext, ClientSettings, HandshakeLimits, Roots, UnixTime};
use dormouse_record::State;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, name, words] = arguments.as_slice() else {
        return Err("usage: client ADDRESS NAME WORDS".into());
    };
    let answer = ask(TcpStream::connect(address)?, name, words.as_bytes())?;
    println!("{}", String::from_utf8_lossy(&answer));
    Ok(())
}

/// Sends `words`, closes our direction, and returns everything that the server sends until it closes.
pub(crate) fn ask(
    mut socket: TcpStream,
    name: &str,
    words: &[u8],
) -> Result<Vec<u8>, Box<dyn Error>> {
    let context = ClientContext::new(ClientSettings::new(Roots::Insecure))?;
    let mut state = State::empty();
    let mut connection = Connection::client(&context, name, HandshakeLimits::default())?;
    let mut answer = Vec::new();
    let mut buffer = [0; 16_384];
    let mut count = 0;
    loop {
        let mut input = &mut buffer[..count];
        let mut established = false;
        let end = loop {
            match connection.handle(&mut state, UnixTime::now(), &mut input) {
                Event::InputUsed => break None,
                Event::Established(_) => established = true,
                Event::Data(bytes) => answer.extend_from_slice(bytes),
                Event::Ticket(_) => {}
                Event::Ended(end) => break Some(end),
            }
        };
        if established {
            connection.send(&mut state, words)?;
            connection.close(&mut state);
        }
        socket.write_all(connection.output())?;
        connection.output_sent(connection.output().len());
        match end {
            None => {}
            Some(End::Closed) => return Ok(answer),
            Some(end) => return Err(end.into()),
        }
        count = socket.read(&mut buffer)?;
        if count == 0 {
            return Err(connection.handle_eof(&state).into());
        }
    }
}
