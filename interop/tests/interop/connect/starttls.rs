//! `dormouse connect` with servers that begin without TLS (`starttls`): real servers, plain clients of each protocol, a
//! server that refuses, and plaintext that somebody inserts.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use dormouse_interop::originator::{Originator, Settings};
use dormouse_interop::scene::{PLAIN_PORT, unused_host};
use dormouse_interop::{tools, wait};

use crate::audit::starttls::{StarttlsServer, dovecot, postfix, postgres, prosody, slapd};
use crate::backends::starttls::{python, run};

fn connect(protocol: &str, server: SocketAddr, lines: &str) -> Originator {
    let settings = Settings::new(&[server]).line(&format!("starttls = \"{protocol}\"\n{lines}"));
    Originator::start(&settings)
}

fn before(protocol: &str, server: &StarttlsServer) -> Originator {
    connect(protocol, server.address, "")
}

/// The client gets a greeting of ours, and finds out from the server's answers that TLS protects them. With a warm
/// connection, too.
#[test]
fn smtplib_without_tls_reaches_postfix() {
    let Some(server) = postfix() else { return };
    for lines in ["", "warm = 1"] {
        let connect = connect("smtp", server.address, lines);
        if !lines.is_empty() {
            wait::until_true("a warm connection", || connect.handshakes().0 > 0);
        }
        let script = "import smtplib, sys
client = smtplib.SMTP(timeout=20)
assert client.connect(sys.argv[1], int(sys.argv[2])) == (220, b'localhost ESMTP')
code, said = client.ehlo()
assert code == 250 and b'SIZE' in said and b'STARTTLS' not in said, said
assert client.noop()[0] == 250
client.quit()
";
        python(script, connect.address);
    }
}

#[test]
fn imaplib_and_poplib_without_tls_reach_dovecot() {
    for (protocol, script) in [
        (
            "imap",
            "import imaplib, sys
client = imaplib.IMAP4(sys.argv[1], int(sys.argv[2]), timeout=20)
assert client.welcome == b'* OK localhost ready', client.welcome
assert 'IMAP4REV1' in client.capabilities and 'STARTTLS' not in client.capabilities
assert client.noop()[0] == 'OK'
client.logout()
",
        ),
        (
            "pop3",
            "import poplib, sys
client = poplib.POP3(sys.argv[1], int(sys.argv[2]), timeout=20)
assert client.getwelcome() == b'+OK localhost ready', client.getwelcome()
capabilities = client.capa()
assert 'SASL' in capabilities and 'STLS' not in capabilities, capabilities
client.quit()
",
        ),
    ] {
        let Some(server) = dovecot(protocol) else {
            return;
        };
        python(script, before(protocol, &server).address);
    }
}

/// The server accepts no plain connection. A client may ask for TLS, as it does without settings.
#[test]
fn psql_without_tls_reaches_postgres() {
    let Some(server) = postgres("hostssl all all all trust\n") else {
        return;
    };
    for lines in ["", "warm = 1"] {
        let connect = connect("postgres", server.address, lines);
        let (host, port) = (connect.address.ip(), connect.address.port());
        for mode in ["disable", "prefer"] {
            let mut command = Command::new("psql");
            let query = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
            command.args(["-Atc", query]).arg(format!(
                "hostaddr={host} port={port} user=postgres sslmode={mode} connect_timeout=20"
            ));
            assert_eq!(run(&mut command, ""), "t\n", "{mode}");
        }
    }
}

/// A request to cancel is a connection of its own, which begins with the request.
#[test]
fn a_query_of_psql_without_tls_can_be_cancelled() {
    let Some(server) = postgres("hostssl all all all trust\n") else {
        return;
    };
    let connect = before("postgres", &server);
    let (host, port) = (connect.address.ip(), connect.address.port());
    let psql = Command::new("psql")
        .args(["-Atc", "select pg_sleep(600)"])
        .arg(format!(
            "hostaddr={host} port={port} user=postgres sslmode=disable"
        ))
        .stderr(Stdio::piped())
        .spawn()
        .expect("psql starts");
    wait::until_true("a handshake", || connect.handshakes().0 > 0);
    // Before the query has begun, the signal ends psql without a message.
    std::thread::sleep(Duration::from_secs(1));
    let pid = rustix::process::Pid::from_child(&psql);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let output = psql.wait_with_output().expect("its end");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("canceling statement due to user request"),
        "{error}"
    );
}

/// A client may send its first bytes one by one, also those of a request, and leave before they are complete.
#[test]
fn the_first_message_of_a_client_of_postgres_may_be_divided() {
    let Some(server) = postgres("hostssl all all all trust\n") else {
        return;
    };
    let connect = before("postgres", &server);
    let request = [0, 0, 0, 8, 4, 210, 22, 47];
    let mut left = connect.client().tcp;
    left.write_all(&request[..5]).expect("a write");
    drop(left);
    let mut tcp = connect.client().tcp;
    tcp.set_nodelay(true).expect("a socket");
    let mut answer = [0];
    for _ in 0..2 {
        for byte in request {
            tcp.write_all(&[byte]).expect("a write");
            std::thread::sleep(Duration::from_millis(5));
        }
        tcp.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"N");
    }
    for byte in b"\0\0\0\x17\0\x03\0\0user\0postgres\0\0" {
        tcp.write_all(&[*byte]).expect("a write");
    }
    tcp.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"R", "AuthenticationOk");
}

#[test]
fn ldapsearch_without_tls_reaches_slapd() {
    let Some(server) = slapd().filter(|_| tools::present(&["ldapsearch"])) else {
        return;
    };
    let connect = before("ldap", &server);
    let mut command = Command::new("ldapsearch");
    command
        .args(["-x", "-H", &format!("ldap://{}", connect.address)])
        .args(["-s", "base", "-b", "", "objectClass"]);
    let said = run(&mut command, "");
    assert!(said.contains("result: 0 Success"), "{said}");
    assert_eq!(connect.handshakes(), (1, 0));
}

/// The server offers ways to log in only over TLS.
#[test]
fn an_xmpp_stream_without_tls_reaches_prosody() {
    let Some(server) = prosody() else { return };
    let connect = before("xmpp", &server);
    let mut tcp = connect.client().tcp;
    tcp.write_all(b"<?xml version='1.0'?><stream:stream to='localhost' version='1.0' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>")
        .expect("a write");
    let mut said = String::new();
    let mut reader = BufReader::new(tcp);
    while !said.contains("</stream:features>") {
        let mut piece = Vec::new();
        let n = reader.read_until(b'>', &mut piece).expect("a read");
        assert!(n > 0, "{said}\n{}", connect.process.log());
        said.push_str(&String::from_utf8_lossy(&piece));
    }
    assert!(
        said.contains("<mechanisms") && !said.contains("<starttls"),
        "{said}"
    );
}

/// A server of SMTP that answers STARTTLS with these bytes. Returns everything that it is told.
fn server(answer: &'static [u8]) -> (SocketAddr, JoinHandle<String>) {
    let listener = TcpListener::bind(SocketAddr::new(unused_host(), PLAIN_PORT)).expect("bound");
    let address = listener.local_addr().expect("its address");
    let told = std::thread::spawn(move || {
        let (mut tcp, _) = listener.accept().expect("a connection");
        tcp.write_all(b"220 mx.example ESMTP\r\n").expect("a write");
        let mut told = String::new();
        let mut reader = BufReader::new(tcp.try_clone().expect("a second handle"));
        for answer in [&b"250-mx.example\r\n250 STARTTLS\r\n"[..], answer] {
            reader.read_line(&mut told).expect("a line");
            tcp.write_all(answer).expect("a write");
        }
        let _ = reader.read_to_string(&mut told);
        told
    });
    (address, told)
}

/// The client is reset, and the server gets nothing of what the client has said.
#[test]
fn a_server_that_does_not_consent_gets_no_plaintext() {
    for (answer, reason) in [
        (&b"454 4.7.0 not today\r\n"[..], "454 4.7.0 not today"),
        // Somebody on the way may have inserted them (CVE-2021-23222).
        (
            b"220 go ahead\r\n250 injected\r\n",
            "plaintext behind its consent",
        ),
    ] {
        let (address, told) = server(answer);
        let connect = connect("smtp", address, "");
        let mut tcp: TcpStream = connect.client().tcp;
        tcp.write_all(b"EHLO secret\r\nMAIL FROM:<a@b.example>\r\n")
            .expect("a write");
        let mut received = Vec::new();
        let end = tcp.read_to_end(&mut received);
        assert!(end.is_err() && received.is_empty(), "{end:?} {received:?}");
        wait::until_true("the answer in the log", || {
            let lines = connect
                .process
                .lines_with("TLS connection to server failed");
            lines.iter().any(|line| line.contains(reason))
        });
        let told = told.join().expect("the server ends");
        assert_eq!(told, "EHLO [127.0.0.1]\r\nSTARTTLS\r\n");
    }
}
