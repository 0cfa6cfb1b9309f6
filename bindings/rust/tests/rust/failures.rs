//! What a program is told when a connection fails, beside tokio-rustls, and which alert the peer gets.
//!
//! `failures.tsv` has the answers; DORMOUSE_WRITE=1 writes it anew, for FAILURES.md. The peer is tokio-rustls or plain TCP.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use dormouse_testkit::{Authority, Leaf};
use dormouse_tokio::embed::{
    ClientCertificates, ClientContext, ClientSettings, Protocols, ServerContext, ServerSettings,
    Version,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion, version,
};

use crate::pair::{Alpn, NAME, server_name, tcp};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/failures.tsv");
const TLS12: Protocols = Protocols::TLS12;
const TLS13: Protocols = Protocols {
    min: Version::Tls13,
    max: Version::Tls13,
};

/// Settings of one side, for either library.
#[derive(Clone)]
struct Side {
    protocols: Protocols,
    alpn: Alpn<'static>,
    own: Option<Leaf>,
    trusts: &'static Authority,
    /// Server: requires the client's certificate.
    asks: bool,
    /// Offers cipher suites of TLS 1.2 that need an RSA key. A setting of peers.
    needs_rsa: bool,
}

impl Side {
    fn client() -> Side {
        Side {
            protocols: Protocols::ALL,
            alpn: &[],
            own: None,
            trusts: Authority::shared(),
            asks: false,
            needs_rsa: false,
        }
    }

    fn server() -> Side {
        Side {
            own: Some(Authority::shared().ecdsa(&[NAME])),
            ..Side::client()
        }
    }

    fn of(self, protocols: Protocols) -> Side {
        Side { protocols, ..self }
    }

    fn with(self, own: Leaf) -> Side {
        let own = Some(own);
        Side { own, ..self }
    }

    fn asks(self) -> Side {
        let asks = true;
        Side { asks, ..self }
    }

    fn speaks(self, alpn: Alpn<'static>) -> Side {
        Side { alpn, ..self }
    }

    fn alpn(&self) -> Vec<Vec<u8>> {
        let names = self.alpn.iter();
        names.map(|name| name.as_bytes().to_vec()).collect()
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        let pem = self.trusts.certificate_pem();
        let root = CertificateDer::from_pem_slice(pem.as_bytes());
        roots.add(root.expect("PEM")).expect("a root");
        roots.into()
    }

    fn provider(&self) -> Arc<CryptoProvider> {
        let mut provider = aws_lc_rs::default_provider();
        if self.needs_rsa {
            provider.cipher_suites =
                vec![aws_lc_rs::cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256];
        }
        provider.into()
    }

    fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        let all = [
            (Version::Tls12, &version::TLS12),
            (Version::Tls13, &version::TLS13),
        ];
        let newest = match self.needs_rsa {
            true => Version::Tls12,
            false => self.protocols.max,
        };
        let chosen = all.into_iter();
        let chosen = chosen.filter(|(one, _)| *one == newest || *one == self.protocols.min);
        chosen.map(|(_, version)| version).collect()
    }

    fn pem(&self) -> Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        let own = self.own.as_ref()?;
        let chain = CertificateDer::from_pem_slice(own.certificate_pem.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(own.key_pem.as_bytes());
        Some((vec![chain.expect("PEM")], key.expect("PEM")))
    }

    fn rustls_client(&self) -> tokio_rustls::TlsConnector {
        let provider = self.provider();
        let verifier =
            WebPkiServerVerifier::builder_with_provider(self.roots(), Arc::clone(&provider))
                .build()
                .expect("a verifier");
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.versions())
            .expect("versions")
            .with_webpki_verifier(verifier);
        let mut config = match self.pem() {
            Some((chain, key)) => config.with_client_auth_cert(chain, key).expect("a key"),
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = self.alpn();
        Arc::new(config).into()
    }

    fn rustls_server(&self) -> tokio_rustls::TlsAcceptor {
        let provider = self.provider();
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&self.versions())
            .expect("versions");
        let config = match self.asks {
            true => config.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(self.roots(), provider)
                    .build()
                    .expect("a verifier"),
            ),
            false => config.with_no_client_auth(),
        };
        let (chain, key) = self.pem().expect("a server's certificate");
        let mut config = config.with_single_cert(chain, key).expect("a key");
        config.alpn_protocols = self.alpn();
        Arc::new(config).into()
    }

    fn our_client(&self) -> dormouse_tokio::TlsConnector {
        let settings = ClientSettings {
            protocols: self.protocols,
            alpn: self.alpn(),
            identity: self.own.as_ref().map(Leaf::identity),
            ..ClientSettings::new(self.trusts.roots())
        };
        ClientContext::new(settings).expect("a context").into()
    }

    fn our_server(&self) -> dormouse_tokio::TlsAcceptor {
        let own = self.own.iter().map(Leaf::identity);
        let asked = ClientCertificates {
            required: true,
            roots: self.trusts.certificate_pem().into_bytes(),
            ..ClientCertificates::default()
        };
        let settings = ServerSettings {
            protocols: self.protocols,
            alpn: self.alpn(),
            client_certificates: self.asks.then_some(asked),
            ..ServerSettings::new(own.collect())
        };
        ServerContext::new(settings).expect("a context").into()
    }
}

/// What the peer does.
#[derive(Clone)]
enum Peer {
    /// It makes its handshake, and reads.
    Tls(Side),
    /// The same, but before it reads, it sends these bytes around TLS. `true`: its direction then ends.
    Around(Side, &'static [u8], bool),
    /// It makes its handshake, and resets the connection.
    Resets(Side),
    /// It reads something if it is a server, sends these bytes, and closes.
    Plain(&'static [u8]),
    /// It reads something if it is a server, and resets the connection.
    PlainReset,
}

struct Situation {
    name: String,
    is_server: bool,
    subject: Side,
    peer: Peer,
    /// The subject writes after its own end.
    writes_late: bool,
}

trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

impl Situation {
    /// Returns the subject's error, and the peer's alert.
    async fn told(&self, by_us: bool) -> String {
        let (client, server) = tcp().await.expect("loopback");
        let (subject, peer) = match self.is_server {
            true => (server, client),
            false => (client, server),
        };
        let peer = tokio::spawn(attend(self.peer.clone(), peer, !self.is_server));
        let error = tokio::time::timeout(Duration::from_secs(5), self.fail(by_us, subject)).await;
        let error = error.expect("an end in time");
        format!("{}{}", shown(error), peer.await.expect("no panic"))
    }

    async fn fail(&self, by_us: bool, io: TcpStream) -> io::Result<()> {
        let subject = &self.subject;
        let mut stream: Box<dyn Stream> = match (by_us, self.is_server) {
            (true, true) => Box::new(subject.our_server().accept(io).await?),
            (true, false) => Box::new(subject.our_client().connect(NAME, io).await?),
            (false, true) => Box::new(subject.rustls_server().accept(io).await?),
            (false, false) => Box::new(subject.rustls_client().connect(server_name(), io).await?),
        };
        if self.writes_late {
            stream.shutdown().await?;
            return stream.write_all(b"words").await;
        }
        stream.read_to_end(&mut Vec::new()).await.map(drop)
    }
}

async fn attend(peer: Peer, mut io: TcpStream, is_server: bool) -> String {
    let side = match &peer {
        Peer::Tls(side) | Peer::Around(side, ..) | Peer::Resets(side) => side,
        Peer::Plain(_) | Peer::PlainReset => {
            if is_server {
                let first = io.read(&mut [0; 4_096]).await.expect("the first bytes");
                assert_ne!(first, 0);
            }
            match peer {
                Peer::Plain(bytes) => drop(io.write_all(bytes).await),
                _ => io.set_zero_linger().expect("an option"),
            }
            return String::new();
        }
    };
    let made = match is_server {
        true => side.rustls_server().accept(io).await.map(Into::into),
        false => {
            let connecting = side.rustls_client().connect(server_name(), io);
            connecting.await.map(tokio_rustls::TlsStream::from)
        }
    };
    let ended = match made {
        Ok(stream) => after(&peer, stream).await,
        Err(error) => Err(error),
    };
    let error = ended.err().and_then(|error| error.downcast().ok());
    match error {
        Some(tokio_rustls::rustls::Error::AlertReceived(alert)) => {
            format!("; the peer gets {alert:?}")
        }
        _ => String::new(),
    }
}

async fn after(peer: &Peer, mut stream: tokio_rustls::TlsStream<TcpStream>) -> io::Result<()> {
    match peer {
        Peer::Around(_, bytes, ends) => {
            let io = stream.get_mut().0;
            io.write_all(bytes).await?;
            if *ends {
                io.shutdown().await?;
            }
        }
        Peer::Resets(_) => {
            // Nothing of the handshake is on its way any more.
            tokio::time::sleep(Duration::from_millis(50)).await;
            return stream.get_ref().0.set_zero_linger();
        }
        _ => {}
    }
    stream.read_to_end(&mut Vec::new()).await.map(drop)
}

/// The error's kind and text, without the time.
fn shown(result: io::Result<()>) -> String {
    let Err(error) = result else {
        return "no error".to_owned();
    };
    let mut text = error.to_string();
    if let Some((before, rest)) = text.split_once("the time is ") {
        let end = rest.find([';', ')']).map_or(rest.len(), |end| end + 1);
        text = format!("{before}{}", rest[end..].trim_start());
        text = text.replace(" (;", ";");
    }
    let words = text.split(' ').map(|word| {
        let digits = word.bytes().filter(u8::is_ascii_digit).count();
        match (digits > 8, word.starts_with('(')) {
            (true, true) => "(N",
            (true, false) => "N",
            _ => word,
        }
    });
    let text = words.collect::<Vec<_>>().join(" ");
    format!("{:?}: {text}", error.kind())
}

#[derive(Default)]
struct List(Vec<Situation>);

impl List {
    fn add(&mut self, name: &str, is_server: bool, subject: Side, peer: Peer) {
        self.0.push(Situation {
            writes_late: name.starts_with("a write after"),
            name: name.to_owned(),
            is_server,
            subject,
            peer,
        });
    }
}

fn certificates(list: &mut List) {
    let ours = Authority::shared();
    let stranger: &'static Authority = Box::leak(Box::new(Authority::new("a stranger")));
    let (client, server) = (Side::client, Side::server);
    for (name, leaf) in [
        ("of an unknown authority", stranger.ecdsa(&[NAME])),
        ("expired", ours.expired(&[NAME])),
        ("not valid yet", ours.not_yet_valid(&[NAME])),
        ("for another name", ours.ecdsa(&["other.test"])),
    ] {
        let verb = if name == "expired" { "has" } else { "is" };
        let name = format!("client: the certificate {verb} {name}");
        list.add(&name, false, client(), Peer::Tls(server().with(leaf)));
    }
    let strange = || stranger.ecdsa(&["client.test"]);
    for (name, only) in [("TLSv1.2", TLS12), ("TLSv1.3", TLS13)] {
        let requires = format!("client without the certificate that the server requires, {name}");
        let asking = Peer::Tls(server().asks());
        list.add(&requires, false, client().of(only), asking.clone());
        let untrusted = format!("client whose certificate the server does not trust, {name}");
        list.add(&untrusted, false, client().of(only).with(strange()), asking);
        let asks = server().of(only).asks();
        let none = format!("server: the client has no certificate, {name}");
        list.add(&none, true, asks.clone(), Peer::Tls(client()));
        let unknown =
            format!("server: the client's certificate is of an unknown authority, {name}");
        list.add(&unknown, true, asks, Peer::Tls(client().with(strange())));
        let distrusts = Side {
            trusts: stranger,
            ..client()
        };
        let distrusted = format!("server: the client does not trust the certificate, {name}");
        list.add(&distrusted, true, server().of(only), Peer::Tls(distrusts));
    }
}

fn handshakes(list: &mut List) {
    let (client, server) = (Side::client, Side::server);
    let rsa = |side: Side| Side {
        needs_rsa: true,
        ..side
    };
    let old = || client().of(TLS12);
    list.add(
        "client: no common protocol version",
        false,
        old(),
        Peer::Tls(server().of(TLS13)),
    );
    list.add(
        "client: no common cipher suite",
        false,
        old(),
        Peer::Tls(rsa(server())),
    );
    let (one, two): (Alpn<'static>, Alpn<'static>) = (&["one"], &["two"]);
    let others = Peer::Tls(server().speaks(two));
    list.add(
        "client: no common application protocol",
        false,
        client().speaks(one),
        others,
    );
    let greeting = Peer::Plain(b"220 ready\r\n");
    list.add(
        "client: the server answers in plaintext",
        false,
        client(),
        greeting,
    );
    let closes = Peer::Plain(b"");
    list.add(
        "client: the server closes during the handshake",
        false,
        client(),
        closes.clone(),
    );
    let resets = "client: the server resets the connection during the handshake";
    list.add(resets, false, client(), Peer::PlainReset);
    list.add(
        "server: no common protocol version",
        true,
        server().of(TLS13),
        Peer::Tls(old()),
    );
    list.add(
        "server: no common cipher suite",
        true,
        server(),
        Peer::Tls(rsa(client())),
    );
    let others = Peer::Tls(client().speaks(two));
    list.add(
        "server: no common application protocol",
        true,
        server().speaks(one),
        others,
    );
    let http = Peer::Plain(b"GET / HTTP/1.1\r\n\r\n");
    list.add("server: the client sends plain HTTP", true, server(), http);
    let foreign = Peer::Plain(&[b'U'; 32]);
    list.add(
        "server: the client sends other bytes",
        true,
        server(),
        foreign,
    );
    list.add(
        "server: the client closes during the handshake",
        true,
        server(),
        closes,
    );
    let resets = "server: the client resets the connection during the handshake";
    list.add(resets, true, server(), Peer::PlainReset);
}

fn established(list: &mut List) {
    let (client, server) = (Side::client, Side::server);
    let forged = b"\x17\x03\x03\x00\x20 thirty-two bytes of somebody else";
    let long = b"\x17\x03\x03\x70\x00";
    for (name, bytes, ends) in [
        ("a forged record arrives", &forged[..37], false),
        ("a record that is too long arrives", long, false),
        ("the connection ends within a record", &forged[..9], true),
        ("the connection ends without close_notify", b"", true),
    ] {
        list.add(name, false, client(), Peer::Around(server(), bytes, ends));
    }
    list.add(
        "the connection is reset",
        false,
        client(),
        Peer::Resets(server()),
    );
    list.add(
        "a write after shutdown()",
        false,
        client(),
        Peer::Tls(server()),
    );
}

#[tokio::test]
async fn what_programs_are_told_is_what_the_table_says() {
    let mut lines = Vec::new();
    let mut list = List::default();
    certificates(&mut list);
    handshakes(&mut list);
    established(&mut list);
    for situation in list.0 {
        let (theirs, ours) = (situation.told(false).await, situation.told(true).await);
        lines.push(format!("{}\t{theirs}\t{ours}\n", situation.name));
    }
    let table = lines.concat();
    if std::env::var_os("DORMOUSE_WRITE").is_some() {
        std::fs::write(TABLE, &table).expect("written");
    }
    let expected = std::fs::read_to_string(TABLE).expect("the table");
    assert_eq!(table, expected);
}
