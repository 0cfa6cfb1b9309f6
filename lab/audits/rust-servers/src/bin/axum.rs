//! axum behind axum-server, which serves TLS with tokio-rustls: PORT CERTIFICATE KEY.

use std::net::SocketAddr;

use axum::{Router, routing::get};
use axum_server::tls_rustls::RustlsConfig;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [port, certificate, key] = &words[..] else { return Err("usage: axum PORT CERTIFICATE KEY".into()) };
    let config = RustlsConfig::from_pem_file(certificate, key).await?;
    let app = Router::new().route("/", get(|| async { "hello" }));
    let address = SocketAddr::from(([127, 0, 0, 1], port.parse()?));
    axum_server::bind_rustls(address, config).serve(app.into_make_service()).await?;
    Ok(())
}
