//! Exported keying material, compared with rustls' own export.

use std::sync::Arc;

use dormouse_engine::stream::{Connection, Event};
use dormouse_engine::{ExportError, HandshakeInfo, HandshakeLimits, ServerContext, ServerSettings};
use dormouse_record::State;
use dormouse_testkit::{Authority, now};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

fn stock_client(version: &'static SupportedProtocolVersion) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    let pem = Authority::shared().certificate_pem();
    roots
        .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    ClientConnection::new(Arc::new(config), "dormouse.test".try_into().unwrap()).unwrap()
}

/// Completes the handshake.
fn run_handshake(client: &mut ClientConnection, server: &ServerContext) -> Box<HandshakeInfo> {
    let mut connection = Connection::server(server, HandshakeLimits::default());
    let (mut state, mut info) = (State::empty(), None);
    for _ in 0..4 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut input = &mut wire[..];
        loop {
            match connection.handle(&mut state, now(), &mut input) {
                Event::InputUsed => break,
                Event::Established(found) => info = Some(found),
                other => panic!("{other:?}"),
            }
        }
        let mut output = connection.output();
        while !output.is_empty() {
            client.read_tls(&mut output).unwrap();
            client.process_new_packets().unwrap();
        }
        let sent = connection.output().len();
        connection.output_sent(sent);
    }
    info.expect("established")
}

fn server() -> ServerContext {
    let leaf = Authority::shared().ecdsa(&["dormouse.test"]);
    let mut settings = ServerSettings::new(vec![leaf.identity()]);
    settings.exporter = true;
    ServerContext::new(settings).unwrap()
}

#[test]
fn both_ends_export_the_same() {
    for version in [&TLS12, &TLS13] {
        let mut client = stock_client(version);
        let exporter = run_handshake(&mut client, &server()).exporter.unwrap();
        for (label, context, len) in [
            (&b"EXPORTER-test"[..], None, 32),
            (b"EXPORTER-test", Some(&b""[..]), 32),
            (b"EXPORTER-test", Some(b"context"), 1),
            (b"EXPORTER-other", None, 1_000),
        ] {
            let mut ours = vec![0; len];
            exporter.export(label, context, &mut ours).unwrap();
            let theirs = client.export_keying_material(vec![0; len], label, context);
            assert_eq!(ours, theirs.unwrap());
        }
    }
}

#[test]
fn invalid_exports_are_refused() {
    for version in [&TLS12, &TLS13] {
        let exporter = run_handshake(&mut stock_client(version), &server())
            .exporter
            .unwrap();
        let export = |label: &[u8], context: Option<&[u8]>, len: usize| {
            exporter.export(label, context, &mut vec![0; len])
        };
        assert_eq!(export(b"a", None, 0), Err(ExportError::Length(0)));
        assert_eq!(export(b"a", None, 8_161), Err(ExportError::Length(8_161)));
        assert_eq!(export(b"a", None, 8_160), Ok(()));
        assert_eq!(export(b"", None, 1), Err(ExportError::Label));
        assert_eq!(export(&[b'a'; 250], None, 1), Err(ExportError::Label));
        assert_eq!(export(b"key expansion", None, 1), Err(ExportError::Label));
        let long = vec![0; 65_536];
        assert_eq!(
            export(b"a", Some(&long), 1),
            Err(ExportError::Context(65_536))
        );
        assert_eq!(export(b"a", Some(&long[1..]), 1), Ok(()));
    }
}
