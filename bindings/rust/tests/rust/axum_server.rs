//! axum 0.8: `axum::serve` with a listener of the program, HTTP and a WebSocket.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::ws::WebSocketUpgrade;
use axum::routing::{any, get};
use dormouse_tokio::TlsAcceptor;
use dormouse_tokio::embed::Protocols;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;

use crate::pair::{NAME, Stream, acceptor, rustls_connector, server_name};

/// What a program writes to serve TLS.
struct TlsListener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for TlsListener {
    type Io = Stream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Stream, SocketAddr) {
        loop {
            let Ok((tcp, address)) = self.tcp.accept().await else {
                continue;
            };
            if let Ok(stream) = self.acceptor.accept(tcp).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

async fn echo(upgrade: WebSocketUpgrade) -> axum::response::Response {
    upgrade.on_upgrade(|mut socket| async move {
        while let Some(Ok(message)) = socket.recv().await {
            if socket.send(message).await.is_err() {
                break;
            }
        }
    })
}

async fn serve() -> SocketAddr {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let router = Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/echo", any(echo));
    let acceptor = acceptor(&["http/1.1"], Protocols::ALL);
    let listener = TlsListener { tcp, acceptor };
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

async fn client(address: SocketAddr) -> tokio_rustls::client::TlsStream<TcpStream> {
    let tcp = TcpStream::connect(address).await.unwrap();
    let connecting = rustls_connector(&["http/1.1"]).connect(server_name(), tcp);
    connecting.await.unwrap()
}

// library: axum 0.8 | works | `axum::serve` with a `Listener` of the program
#[tokio::test]
async fn a_page() {
    let mut client = client(serve().await).await;
    let request = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    // hyper ends the connection with close_notify: there is no UnexpectedEof.
    client.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200") && response.ends_with("hello"));
}

#[tokio::test]
async fn a_websocket() {
    let client = client(serve().await).await;
    let url = format!("wss://{NAME}/echo");
    let (mut socket, _) = tokio_tungstenite::client_async(url, client).await.unwrap();
    for len in [0, 100, 70_000] {
        let sent = Message::binary(vec![1; len]);
        socket.send(sent.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), sent);
    }
    socket.close(None).await.unwrap();
    while socket.next().await.is_some_and(|message| message.is_ok()) {}
}
