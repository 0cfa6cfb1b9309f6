//! A TCP proxy on pingora: TLS to the client, plain TCP to the backend, one thread.
//!
//! `pingora-tcp-proxy BUFFER-BYTES PORT BACKENDPORT CERT KEY`

#![forbid(unsafe_code)]

use async_trait::async_trait;
use pingora_core::apps::ServerApp;
use pingora_core::listeners::Listeners;
use pingora_core::protocols::Stream;
use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{Server, ShutdownWatch};
use pingora_core::services::listening::Service;
use std::error::Error;
use std::sync::Arc;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::TcpStream;

/// Settings of every connection.
struct Proxy {
    backend: String,
    buffer_bytes: usize,
}

#[async_trait]
impl ServerApp for Proxy {
    /// Forwards one connection. An error ends only this connection.
    async fn process_new(
        self: &Arc<Self>,
        mut client: Stream,
        _shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let mut backend = TcpStream::connect(&self.backend).await.ok()?;
        backend.set_nodelay(true).ok()?;
        let bytes = self.buffer_bytes;
        let _ = copy_bidirectional_with_sizes(&mut client, &mut backend, bytes, bytes).await;
        None
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [buffer_bytes, port, backend_port, cert, key] = arguments.as_slice() else {
        return Err("usage: pingora-tcp-proxy BUFFER-BYTES PORT BACKENDPORT CERT KEY".into());
    };
    let conf = ServerConf { threads: 1, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let proxy = Proxy {
        backend: format!("127.0.0.1:{backend_port}"),
        buffer_bytes: buffer_bytes.parse()?,
    };
    let listeners = Listeners::tls(&format!("127.0.0.1:{port}"), cert, key)?;
    server.add_service(Service::with_listeners("proxy".into(), listeners, proxy));
    server.run_forever()
}
