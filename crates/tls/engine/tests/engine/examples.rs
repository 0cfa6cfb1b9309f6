//! The examples, connected to each other.

use std::net::{TcpListener, TcpStream};
use std::thread;

// Their `main` functions are not used here.
#[allow(dead_code)]
#[path = "../../examples/client.rs"]
mod client;
#[allow(dead_code)]
#[path = "../../examples/echo_server.rs"]
mod echo_server;

#[test]
fn the_client_receives_its_own_words_back() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || echo_server::serve(&listener).unwrap());
    for words in [&b"hello"[..], &[7; 100_000]] {
        let socket = TcpStream::connect(address).unwrap();
        assert_eq!(client::ask(socket, "localhost", words).unwrap(), words);
    }
}

#[test]
fn a_lost_server_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    drop(listener.accept().unwrap());
    let error = client::ask(socket, "localhost", b"hello").unwrap_err();
    assert!(error.to_string().contains("closed"), "{error}");
}
