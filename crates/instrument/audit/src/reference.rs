//! Reference for CPU times: the bare cost of a handshake on this machine.

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use aws_lc_rs::agreement::{self, EphemeralPrivateKey, UnparsedPublicKey};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, RSA_PSS_SHA256,
};
use dormouse_engine::{
    ClientContext, ClientSettings, Handshake, HandshakeLimits, Identity, Progress, Roots,
    ServerContext, ServerSettings, UnixTime,
};
use dormouse_reactor::process;

use crate::model::{Reference, USUAL_KEY};

/// Time for which each operation is repeated.
const SPAN: Duration = Duration::from_millis(40);
/// Number of TCP connections to make.
const CONNECTIONS: u32 = 200;

pub(crate) const ED25519: &str = "Ed25519";

impl Reference {
    /// CPU time that a connection with a full handshake needs with this key: the handshake of `dormouse` includes a
    /// signature on P-256.
    pub(crate) fn needed_us(&self) -> f64 {
        let signature_us = if self.key == USUAL_KEY {
            0.0
        } else {
            self.signature_us
        };
        self.handshake_us + signature_us + self.tcp_us
    }
}

/// Measures the reference for the key kind of the server's certificate; for the usual kind if it is another one.
pub(crate) fn measure(key: Option<&str>) -> Result<Reference, String> {
    let is_known = |key: &&str| rsa(key).is_some() || *key == ED25519 || ecdsa(key).is_some();
    let key = key.filter(is_known).unwrap_or(USUAL_KEY);
    Ok(Reference {
        key: key.to_owned(),
        signature_us: signature_us(key)?,
        exchange_us: exchange_us()?,
        handshake_us: handshake_us()?,
        tcp_us: tcp_us().unwrap_or(0.0),
    })
}

/// Returns the CPU microseconds of one call, after a few warm-up calls.
fn repeated(mut work: impl FnMut() -> Result<(), String>) -> Result<f64, String> {
    for _ in 0..3 {
        work()?;
    }
    let (began, before) = (Instant::now(), process::thread_cpu_ns());
    let mut count = 0_u32;
    while began.elapsed() < SPAN {
        work()?;
        count += 1;
    }
    let spent = process::thread_cpu_ns().saturating_sub(before);
    Ok(spent as f64 / 1e3 / f64::from(count.max(1)))
}

/// Measures a signature with this kind of key in microseconds of CPU time.
pub(crate) fn signature_us(key: &str) -> Result<f64, String> {
    let random = SystemRandom::new();
    let words = |_| "the library refused to sign".to_owned();
    let message = [0x5a; 130];
    if let Some(size) = rsa(key) {
        let pair = RsaKeyPair::generate(size).map_err(words)?;
        let mut out = vec![0; pair.public_modulus_len()];
        return repeated(|| {
            pair.sign(&RSA_PSS_SHA256, &random, &message, &mut out)
                .map_err(words)
        });
    }
    if key == ED25519 {
        let pair = Ed25519KeyPair::generate().map_err(words)?;
        return repeated(|| {
            black_box(pair.sign(&message));
            Ok(())
        });
    }
    let kind = ecdsa(key).ok_or_else(|| format!("no reference for a key of the kind {key}"))?;
    let pair = EcdsaKeyPair::generate(kind).map_err(words)?;
    repeated(|| pair.sign(&random, &message).map(drop).map_err(words))
}

/// Returns the size of an RSA key, if such a key is made in little time; one of 8,192 bits takes half a minute.
fn rsa(key: &str) -> Option<KeySize> {
    match key {
        "RSA 2048" => Some(KeySize::Rsa2048),
        "RSA 3072" => Some(KeySize::Rsa3072),
        "RSA 4096" => Some(KeySize::Rsa4096),
        _ => None,
    }
}

fn ecdsa(key: &str) -> Option<&'static EcdsaSigningAlgorithm> {
    match key {
        USUAL_KEY => Some(&ECDSA_P256_SHA256_ASN1_SIGNING),
        "ECDSA 384" => Some(&ECDSA_P384_SHA384_ASN1_SIGNING),
        "ECDSA 521" => Some(&ECDSA_P521_SHA512_ASN1_SIGNING),
        _ => None,
    }
}

/// Generates a key pair and computes the shared secret with the peer's key.
fn exchange_us() -> Result<f64, String> {
    let words = |_| "the library refused a key exchange".to_owned();
    let random = SystemRandom::new();
    let make = || EphemeralPrivateKey::generate(&agreement::X25519, &random).map_err(words);
    let other = make()?.compute_public_key().map_err(words)?;
    repeated(|| {
        let own = make()?;
        black_box(own.compute_public_key().map_err(words)?);
        let other = UnparsedPublicKey::new(&agreement::X25519, other.as_ref());
        agreement::agree_ephemeral(own, other, (), |secret| {
            black_box(secret);
            Ok(())
        })
        .map_err(|()| "the key exchange failed".to_owned())
    })
}

/// Runs complete handshakes in memory and counts the server's side.
fn handshake_us() -> Result<f64, String> {
    let identity = Identity::self_signed("localhost").map_err(|error| error.to_string())?;
    let server =
        ServerContext::new(ServerSettings::new(vec![identity])).map_err(|e| e.to_string())?;
    let mut settings = ClientSettings::new(Roots::Insecure);
    settings.resumption = None;
    settings
        .groups
        .retain(|group| *group != dormouse_engine::Group::X25519MlKem768);
    let client = ClientContext::new(settings).map_err(|error| error.to_string())?;
    let (began, mut spent_ns, mut count) = (Instant::now(), 0, 0_u32);
    while began.elapsed() < SPAN * 2 || count < 3 {
        spent_ns += one_handshake(&server, &client)?;
        count += 1;
    }
    Ok(spent_ns as f64 / 1e3 / f64::from(count))
}

fn one_handshake(server: &ServerContext, client: &ClientContext) -> Result<u64, String> {
    let limits = HandshakeLimits::default();
    let mut client = Handshake::client(client, "localhost", limits).map_err(|e| e.to_string())?;
    let mut server = Handshake::server(server, limits);
    let mut spent_ns = 0;
    let mut to_client = Vec::new();
    for _ in 0..8 {
        client
            .handle_input(UnixTime::now(), &to_client)
            .map_err(|e| e.to_string())?;
        let to_server = client.output().to_vec();
        client.output_sent(to_server.len());
        let before = process::thread_cpu_ns();
        let progress = server
            .handle_input(UnixTime::now(), &to_server)
            .map_err(|e| e.to_string())?;
        spent_ns += process::thread_cpu_ns().saturating_sub(before);
        to_client = server.output().to_vec();
        server.output_sent(to_client.len());
        if progress == Progress::Established {
            return Ok(spent_ns);
        }
    }
    Err("a handshake in memory did not complete".into())
}

/// Opens TCP connections over loopback that carry a handshake's bytes. Both ends are in this thread, so half of the
/// time is the server's.
fn tcp_us() -> std::io::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut bytes = [0; 1500];
    let before = process::thread_cpu_ns();
    for _ in 0..CONNECTIONS {
        let mut client = TcpStream::connect(address)?;
        let (mut server, _) = listener.accept()?;
        client.write_all(&bytes[..300])?;
        server.read_exact(&mut bytes[..300])?;
        server.write_all(&bytes[..1200])?;
        client.read_exact(&mut bytes[..1200])?;
    }
    let spent = process::thread_cpu_ns().saturating_sub(before);
    Ok(spent as f64 / 1e3 / f64::from(CONNECTIONS) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_needs_the_signature_of_its_key() {
        let needed_us = |key: &str, signature_us| {
            let reference = Reference {
                key: key.into(),
                signature_us,
                exchange_us: 40.0,
                handshake_us: 150.0,
                tcp_us: 30.0,
            };
            reference.needed_us()
        };
        assert_eq!(needed_us("ECDSA 256", 20.0), 180.0);
        assert_eq!(needed_us("RSA 2048", 600.0), 780.0);
    }

    #[test]
    fn every_kind_of_key_is_measured() {
        for key in ["ECDSA 256", "ECDSA 384", "ECDSA 521", "Ed25519", "RSA 2048"] {
            assert!(signature_us(key).unwrap() > 1.0, "{key}");
        }
        for unknown in ["algorithm 1.2.3", "RSA 1024", "RSA 8192"] {
            assert_eq!(measure(Some(unknown)).unwrap().key, USUAL_KEY);
        }
        assert_eq!(measure(Some("RSA 3072")).unwrap().key, "RSA 3072");
        let reference = measure(None).unwrap();
        assert!(
            reference.handshake_us > reference.exchange_us,
            "{reference:?}"
        );
        assert!(reference.tcp_us > 1.0);
    }
}
