//! Actix Web with rustls: PORT CERTIFICATE KEY.

use actix_web::{App, HttpServer, get};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

#[get("/")]
async fn index() -> &'static str {
    "hello"
}

#[actix_web::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [port, certificate, key] = &words[..] else { return Err("usage: actix PORT CERTIFICATE KEY".into()) };
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    HttpServer::new(|| App::new().service(index)).bind_rustls_0_23(("127.0.0.1", port.parse()?), config)?.run().await?;
    Ok(())
}
