//! A TLS server that echoes what it receives: `cargo run --example echo_server -- 127.0.0.1:8443`
//!
//! One thread per connection. Between two reads, a quiet connection consists only of its `State`.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use dormouse_engine::stream::{Connection, End, Event};
use dormouse_engine::{HandshakeLimits, Identity, ServerContext, ServerSettings, UnixTime};
use dormouse_record::State;

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:8443"))?;
    println!("listening on {}", listener.local_addr()?);
    serve(&listener)
}

/// Serves every client that connects.
pub(crate) fn serve(listener: &TcpListener) -> Result<(), Box<dyn Error>> {
    let identity = Identity::self_signed("localhost")?;
    let context = ServerContext::new(ServerSettings::new(vec![identity]))?;
    for socket in listener.incoming() {
        let Ok(mut socket) = socket else {
            // That client has gone, or descriptors are short for a moment.
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        let context = context.clone();
        thread::spawn(move || match echo(&mut socket, &context) {
            Ok(()) => println!("the client closed"),
            Err(error) => println!("{error}"),
        });
    }
    Ok(())
}

fn echo(socket: &mut TcpStream, context: &ServerContext) -> Result<(), Box<dyn Error>> {
    let mut state = State::empty();
    let mut connection = Connection::server(context, HandshakeLimits::default());
    let mut buffer = [0; 16_384];
    loop {
        let count = socket.read(&mut buffer)?;
        if count == 0 {
            return Err(connection.handle_eof(&state).into());
        }
        let (plaintext, end) = open(&mut connection, &mut state, &mut buffer[..count]);
        // After an alert nothing more is sealed.
        if !plaintext.is_empty() && !state.closed() {
            connection.send(&mut state, &plaintext)?;
        }
        if let Some(End::Closed) = end {
            connection.close(&mut state);
        }
        send_output(&mut connection, socket)?;
        match end {
            None if connection.is_at_rest() => connection = Connection::default(),
            None => {}
            Some(End::Closed) => return Ok(()),
            Some(end) => return Err(end.into()),
        }
    }
}

/// Opens received bytes. Returns their plaintext, and the end if the client has ended.
fn open(
    connection: &mut Connection,
    state: &mut State,
    mut received: &mut [u8],
) -> (Vec<u8>, Option<End>) {
    let mut plaintext = Vec::new();
    loop {
        match connection.handle(state, UnixTime::now(), &mut received) {
            Event::InputUsed => return (plaintext, None),
            Event::Established(info) => println!("{} with {}", info.protocol, info.suite),
            Event::Data(bytes) => plaintext.extend_from_slice(bytes),
            Event::Ticket(_) => {}
            Event::Ended(end) => return (plaintext, Some(end)),
        }
    }
}

fn send_output(connection: &mut Connection, socket: &mut TcpStream) -> std::io::Result<()> {
    socket.write_all(connection.output())?;
    connection.output_sent(connection.output().len());
    Ok(())
}
