//! The message of every mistake. `messages.txt` has them, so that a diff shows every change of what
//! users see. `DORMOUSE_BLESS=1 cargo test -p dormouse-config` rewrites the file.

use std::fmt::Write as _;

use super::*;

/// A route without mistakes, to append to an option of the program.
const ROUTE: &str = "[[route]]\nlisten = \":8443\"\nto = \"echo:\"\nself_signed = \"localhost\"\n";

/// Mistakes in options of the program.
const PROCESS: &[&str] = &[
    "max_conections = 100",
    "handshake = 1",
    "colour = 'red'",
    "listen = ':1'",
    "lisen = ':1'",
    "[limits]\nworkers = 3",
    "workers = 0",
    "workers = 'two'",
    "workers = -1",
    "workers = 1.5",
    "workers = true",
    "workers = 99999999999999999999",
    "workers = 0xFFFF_FFFF_FFFF_FFFF_FFFF",
    "backlog = '12'",
    "max_connections = 1_000_000\nworkers = 2",
    "handshake_timeout = 10",
    "handshake_timeout = '10 parsecs'",
    "handshake_timeout = '1.5s'",
    "handshake_timeout = '-1s'",
    "handshake_timeout = 'off'",
    "handshake_timeout = '99999999999999999999s'",
    "idle_timeout = '1ms'",
    "idle_timeout = 1979-05-27",
    "pending_memory = '64 mb x'",
    "pending_memory = 12",
    "pending_memory = -12",
    "pending_memory = true",
    "pending_per_connection = '2 MiB'\npending_memory = '1 MiB'",
    "workers = 1024\npending_memory = '64 MiB'",
    "memory = '64 MiB'\nmax_connections = 5000",
    "memory = '33 MiB'",
    "memory = 'much'",
    "kernel_memory = true",
    "workers = 9\npending_memory = '1 MiB'",
    "keepalive_idle = '1500ms'",
    "user_timeout = '30s'",
    "resolve = 'lazy'\nresolve_every = 'off'",
    "resolve_ttl_min = '2m'\nresolve_ttl_max = '1m'",
    "resolve_every = 'off'\nresolve_ttl_max = '1m'",
    "burst_per_client = '1 MiB'",
    "bytes_per_client = '2 MiB'\nmax_bytes_per_second = '1 MiB'",
    "bytes_per_client = '1k'",
    "backlog = 9999",
    "ticket_lifetime = '1d'",
    "ticket_keys = 'redis://store'",
    "ticket_keys = ['memory', 'file:x']",
    "ticket_keys = 'http://store'",
    "ticket_keys = 'redis://secret@store'",
    "ticket_secret_file = 'x'",
    "session_cache = '1 MiB'\nticket_keys = 'file:x'\nticket_secret_file = 'y'",
    "redirect_port = 8443",
    "group = 'dormouse'",
    "recheck = 'established'\n[[route]]\nlisten = ':8444'\nto = 'echo:'\nself_signed = 'localhost'\naccept_proxy_from = ['10.0.0.0/8']\ndeny = ['192.0.2.0/24']",
    "recheck = 'established'\nconnection_log = '/var/log/x'\nconnection_log_one_in = 10\n[[route]]\nlisten = ':8444'\nto = 'echo:'\nself_signed = 'localhost'\naccept_proxy_from = ['10.0.0.0/8']\ndeny = ['192.0.2.0/24']",
    "log_handshakes = true\nlog_level = 'warn'",
    "keepalive_idle = 'off'\nkeepalive_count = 3",
    "connection_log = 7",
    "connection_log = 'syslog:here'",
    "connection_log = 'stdout'",
    "log_to = '/var/log/x'",
    "log_to = 'syslog://loghost:514'",
    "syslog_facility = 'kern'",
    "syslog_facility = 'local0'",
    "connection_log_format = 'xml'",
    "connection_log_one_in = 10",
    "redirect = ':8443'",
    "redirect = [':8080', '127.0.0.1:8080']",
    "redirect = 80",
    "redirect = ':8080'\nredirect_status = 302",
    "redirect = ':8080'\nredirect_port = 0",
    "ticket_store_ca = 'x'",
    "ticket_store_certificates = [{ cert = 'a', key = 'b' }, { cert = 'c', key = 'd' }]",
    "ticket_store_certificates = { cert = 'a', key = 'pkcs11:object=a?module-path=/m.so' }",
    "[[route]]\nlisten = ':1024'\nto = 'echo:'\ncertificates = [{ cert = 'a', key = 'pkcs11:object=a' }, { cert = 'b', key = 'pkcs11:object=b?module-path=/m.so&pin-value=1' }, { cert = 'c', key = 'pkcs11:object=c?module-path=/m.so', passphrase = 'p' }]\n",
    "session_cache = '1 MiB'\nticket_keys = 'file:x'\ntickets = 0",
    "session_cache = '1k'",
    "log_handshakes = 'true'",
    "log_level = 'inof'",
    "log_level = 3",
    "log_format = 'xml'",
    "admin = ''",
    "admin = 5",
    "admin = '192.0.2.1:9901'",
    "admin = '127.0.0.1:0'",
    "admin = ':9901'",
    "admin = 'edge.example:9901'",
    "admin = '127.0.0.1:9901'",
    "admin = '127.0.0.1:9901'\nmetrics = '127.0.0.1:9902'",
    "metrics = 'edge.example:9901'",
    "metrics = '127.0.0.1'",
    "metrics = '127.0.0.1:0'",
    "metrics = 9901",
    "metrics = ':8443'",
    "metrics = ':9901'\nredirect = '127.0.0.1:9901'",
    "admin = '/run/a.sock'\n[[originate]]\nlisten = 'unix:/run/a.sock'\nto = '10.0.0.1:443'",
    "[[originate]]\nlisten = ['unix:/run/b.sock', 'unix:/run/b.sock']\nto = '10.0.0.1:443'",
    "sandbox = 'yes'",
    "todo = 'line 12: ssl_ocsp on'",
    "todo = ['line 12: ssl_ocsp on', '', 'line 14: ssl_crl a.pem']",
    "workers = 2\nworkers = 3",
    "workers = ",
    "workers = auto",
    "log_level = debug",
    "admin = /run/x",
    "workers 2",
    "log_level = \"info",
    "= 3",
    "\tlog_format\t= 'ä\u{7}x'",
];

/// Mistakes of routes.
const ROUTES: &[&str] = &[
    "",
    "# only a comment\n",
    "[route]\nlisten = ':8443'\nto = 'echo:'\nself_signed = 'localhost'\n",
    "[[routes]]\nlisten = ':8443'\n",
    "[[route]]\nlisten = ':8443'\nto = '10.0.0.1:80'\nself_signed = 'x'\nsource_addresses = ['auto', '10.0.0.2', '10.0.0.2', '::1', '10.0.0.2:80']\n",
    "[[route]]\nlisten = ':8443'\nto = '10.0.0.1:80'\nself_signed = 'x'\nsource_addresses = ['auto', '10.0.0.2', '10.0.0.2', '::1']\n",
    "[[route]]\nlisten = ':8443'\nto = 'unix:/run/x'\nself_signed = 'x'\nsource_addresses = '10.0.0.2'\n",
    "route = 3\n",
    "route = [3]\n",
    "[[route]]\n",
    "[[route]]\r\n\tlistne\t= ':8443'\r\nto = 'echo:'\r\nself_signed = 'x'\r\n",
    "[[route]]\nlisten = []\nto = 'echo:'\ncertificates = []\n",
    "[[route]]\nlisten = ['127.0.0.1', 'localhost:https', '::1:443', '[::1]', '300.1.1.1:80', ':0', ':70000', 'a_b!:80']\nto = 'http://a/'\nself_signed = 'a b'\n",
    "[[route]]\nlisten = ['missing.example:80', 'nowhere:80', 'https://x/y', '443', '[::x]:1', 'unix:/x', 'x:', 7]\nto = ':80'\nself_signed = 5\n",
    "[[route]]\nlisten = ':1024'\nto = '127.0.0.1:80, a.example:81'\nself_signed = 'x'\n",
    "[[route]]\nlisten = ':1024'\nto = '0.0.0.0:80'\ncertificates = [{ cert = 'a' }, { crt = 'a', key = 'b' }, 'x']\n",
    "[[route]]\nlisten = ':1024'\nto = '/run/x'\ncertificates = [{ cert = 'a', key = 'b' }, { cert = 'a', key = 'b' }]\n",
    "[[route]]\nlisten = ':1024'\nto = 'unix:'\nself_signed = 'x'\ntruncation = 'abrot'\nalpn = ['h2', 'h2']\nmin_version = 1.3\nmax_version = '1.2'\n",
    "[[route]]\nlisten = ':1024'\nto = 'unix:/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'\nself_signed = 'x'\nmax_version = '1.4'\n",
    "[[route]]\nlisten = [':8443', '127.0.0.1:8443']\nto = 'localhost:8443'\nself_signed = 'x'\ncertificates = []\n[[route]]\nlisten = ':8443'\nto = 'echo:'\ncert = 'a'\nworkers = 3\n",
    "[[route]]\nlisten = '127.0.0.1:443'\nto = 'echo:'\nself_signed = 'x'\nlog_levl = 'x'\nbanana = 1\ntruncatoin = 'x'\nmax_version = 1.2\n",
    "[[route]]\nlisten = [':8443', ':8444', '[::1]:8443', ':8444']\nto = '[::1]:8444'\nself_signed = 'x'\n",
    "[[route]]\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\nclient_certificates = 'required'\n",
    "[[route]]\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\nclient_ca = 'a'\nclient_crl = 'b'\n",
    "[[route]]\nlisten = ':1024'\nto = '10.0.0.7:80'\nself_signed = 'x'\nbackend_crl = 'b'\nbackend_ocsp = 'requird'\n",
    "[[originate]]\nlisten = '127.0.0.1:1024'\nto = '10.0.0.7:443'\ncrl = ['a', 'a']\ninsecure = true\n",
    "[[originate]]\nlisten = '127.0.0.1:1024'\nto = '10.0.0.7:443'\ncrl = []\ninsecure = true\nocsp = 'required'\n",
    "[[route]]\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\nserver_names = ['10.0.0.1', 'a b', 'a.example', 'A.example']\nunknown_name = 'refuze'\n",
    "[[route]]\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\n[[route]]\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\n",
    "[[route]]\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\nserver_names = ['a.example', '*.example']\n[[route]]\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\nserver_names = ['A.example']\naccept_proxy_from = '10.0.0.0/8'\n",
    "[[route]]\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\nalpn = ['h2', 'mqtt']\n[[route]]\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\nalpn = 'h2'\n",
    "[[route]]\nlisten = ':1024'\nto = 'echo:'\npass_through = true\nself_signed = 'x'\nclient_certificates = 'required'\n",
    "[[route]]\nlisten = ':1024'\nto = 'localhost:80'\nself_signed = 'x'\nbackend_tls = true\nhalf_close = false\n",
    "[[route]]\nlisten = ':1024'\nto = 'localhost:80'\nself_signed = 'x'\nbackend_connect = 'first-data'\nbalance = 'sni-hash'\n",
    "[[route]]\nlisten = ':1024'\nto = 'localhost:80'\nself_signed = 'x'\nbalance = 'mqtt-client-id'\n",
    "[[route]]\nlisten = ':1024'\nto = 'localhost:80'\npass_through = true\nbalance = 'mqtt-client-id'\n",
    "[[route]]\nlisten = ':1024'\nto = 'localhost:80'\nself_signed = 'x'\nbackend_connect = 'first-data'\nbalance = 'client-hash'\naccept_proxy_from = ['127.0.0.1']\n",
    "[[route]]\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\nclient_allow = 'cn=a'\n",
    "[[route]]\nlisten = ':1024'\nto = 'echo:'\ncertificates = 'spiffe:'\n",
    "spiffe_agent = 'unix:agent.sock'\nspiffe_user = 'x'\n[[route]]\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\n",
    "spiffe_agent = 'unix:///run/a.sock'\n[[route]]\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\n",
    "spiffe_user = 'x'\n[[route]]\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\n",
    "spiffe_agent = 'unix:/run/a.sock'\n[[route]]\nlisten = ':1024'\nto = 'echo:'\ncertificates = ['spiffe://A.example/x', { cert = 'spiffe:', key = 'a.key' }]\nclient_certificates = 'required'\nclient_ca = 'spiffe://a.example/x'\n",
    "spiffe_agent = 'unix:/run/a.sock'\n[[route]]\nlisten = ':1024'\nto = 'echo:'\ncertificates = 'spiffe:'\nclient_certificates = 'required'\nclient_ca = 'spiffe://a.example'\nclient_allow = ['cn=a', 'uri=spiffe://a.example*', 'uri=spiffe://a.example/*']\n",
    "spiffe_agent = 'unix:/run/a.sock'\n[[route]]\nlisten = ':1024'\nto = '10.0.0.1:1'\nself_signed = 'x'\nbackend_tls = true\nbackend_ca = 'spiffe://a.example'\nbackend_ocsp = 'required'\n",
    "[[route]]\nlisten = ':1024'\nto = '10.0.0.1:1'\nself_signed = 'x'\nbackend_tls = true\nbackend_ids = 'spiffe://a.example/db'\n",
    "spiffe_agent = 'unix:/run/a.sock'\n[[originate]]\nlisten = '127.0.0.1:1024'\nto = '10.0.0.7:443'\nca = 'spiffe://a.example'\nserver_ids = ['spiffe://b.example/db', 'db', 'spiffe://a.example*']\n",
    "spiffe_agent = 'unix:/run/a.sock'\n[[originate]]\nlisten = '127.0.0.1:1024'\nto = '10.0.0.7:443'\nca = 'spiffe://a.example'\ninsecure = true\nserver_ids = 'spiffe://b.example/db'\n",
    "[[route]]\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\nclient_certificates = 'optional'\nclient_ca = 'a'\nclient_allow = 'cn=a'\n",
    "[[route]]\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\nclient_certificates = 'required'\nclient_ca = 'a'\nclient_allow = ['alice', 'cn=', 'cm=a', 'dns=a b', 'dns=10.0.0.1', 'uri=a', 'uri=spiffe://*/x', 'uri=spiffe://x/**', 'sha256=12:34']\n",
    "acme_server = 'http://ca.example'\nacme_email = 'me'\nacme_eab_id = 'x'\n[[route]]\nlisten = ':1024'\nto = 'echo:'\nacme = ['a.example', 'A.example']\n",
    "[[route]]\nlisten = ':1024'\nto = 'echo:'\nacme = ['a.example', '*.example', '::1', 'localhost', 'a_b.example']\n",
    "acme_terms_agreed = true\n[[route]]\nlisten = ':1024'\nto = 'echo:'\nserver_names = '*.Müller.example'\nacme = 'müller.example'\n",
    "acme_terms_agreed = true\nacme_certificates = [{ cert = 'a', key = 'b' }, { cert = 'c', key = 'd' }]\n[[route]]\nlisten = ':1024'\nto = 'echo:'\nacme = ['a.example']\n",
    "acme_terms_agreed = true\nacme_challenge = 'http-01'\n[[route]]\nlisten = ':1024'\nto = 'echo:'\nacme = ['a.example']\n",
    "acme_terms_agreed = true\nacme_challenge = 'dns-01'\nacme_dns_hook = 'hook'\nacme_dns_key_file = 'k'\n[[route]]\nlisten = ':1024'\nto = 'echo:'\nacme = '*.a.example'\n",
    "acme_terms_agreed = true\nacme_challenge = 'dns-01'\nacme_dns_hook = '/bin/hook'\nacme_dns_server = '::1'\n[[route]]\nlisten = ':1024'\nto = 'echo:'\nacme = '*.a.example'\n",
    "acme_terms_agreed = true\nacme_challenge = 'dns-01'\n[[route]]\nlisten = ':1024'\nto = 'echo:'\nacme = '*.a.example'\n",
    "acme_terms_agreed = true\nacme_dns_server = 'ns.example'\nacme_dns_wait = '1s'\n[[route]]\nlisten = ':1024'\nto = 'echo:'\nacme = 'a.example'\n",
    "acme_terms_agreed = true\nacme_dns_server = '::1'\nacme_dns_key_file = 'k'\n[[route]]\nlisten = ':1024'\nto = 'echo:'\nserver_names = ['x.a.example', 'b.example']\nacme = ['*.a.example', '*.c.example']\n",
    "acme_server = 'https://ca.example/dir'\n[[route]]\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\n",
    "acme_terms_agreed = true\nacme_server = 'https://ca example/dir'\n[[route]]\nlisten = ':1024'\nto = 'echo:'\nacme = 'a.example'\n",
    "acme_terms_agreed = true\n[[route]]\nlisten = ':1024'\nto = 'echo:'\nserver_names = ['a.example', '*.b.example']\nacme = ['a.example', 'x.b.example', 'b.example', 'x.y.b.example']\n",
    "[[route]]\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\nallow = ['10.1.0.0/16', '10.0.0.0/8', '192.0.2.7', '::1']\ndeny = ['10.1.0.0/16', '192.0.2.0/24', '0.0.0.0/32']\n",
    "[[route]]\nlisten = ':1024'\nto = '10.0.0.1:80'\nself_signed = 'x'\nalpn = 'h2, http/1.1'\n",
    "acme_terms_agreed = true\n[[route]]\nlisten = ':1024'\nto = '10.0.0.1:80'\nbackend_tls = true\nacme = 'a.example'\nstarttls = 'imap'\n",
    "[[route]]\nlisten = ':1024'\nto = '10.0.0.1:80'\npass_through = true\nstarttls = 'mysql'\n",
    "[[route]]\nlisten = ':1024'\nto = '10.0.0.1:80'\npass_through = true\nstarttls = 'smtp'\n",
    "[[route]]\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\nserver_names = 'a.example'\nstarttls = 'xmpp'\n[[route]]\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\nserver_names = 'b.example'\n",
    "[[route]]\nlisten = ':1024'\nto = '10.0.0.1:80'\nself_signed = 'x'\ncheck = 'tls'\n",
    "[[route]]\nlisten = ':1024'\nto = '10.0.0.1:443'\nself_signed = 'x'\nbackend_tls = true\nalpn = ['h2', 'http/1.1']\nbackend_alpn = ['h2', 'http/1.1']\n",
    "[[route]]\nlisten = ':1024'\nto = '10.0.0.1:443'\nself_signed = 'x'\nbackend_tls = true\nalpn = ['h2', 'http/1.1']\nbackend_alpn = 'h2'\n",
    "[[route]]\nlisten = ':1024'\nto = '10.0.0.1:443'\nself_signed = 'x'\nbackend_tls = true\nalpn = ['h2', 'http/1.1']\n",
    "[[route]]\nlisten = ':1024'\nto = ['localhost:443', 'www.example.com:443', '127.0.0.1:443']\nself_signed = 'x'\nbackend_tls = true\ncheck = 'tls'\n",
    "[[route]]\nlisten = ':1024'\nto = '10.0.0.1:80'\nself_signed = 'x'\ncheck_every = '5s'\ncheck_status = '200'\nbackend_truncation = 'close'\nbackend_name = 'x'\n",
    "[[route]]\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\ncheck = 'connect'\nbalance = 'client-hash'\nbackend_connect = 'first-data'\nhalf_close = false\ntruncation = 'close'\n",
    "[[route]]\nlisten = ':1024'\nto = '10.0.0.1:80'\nself_signed = 'x'\ngroups = 'X25519MLKEM768'\n",
    "[[route]]\nlisten = ':1024'\nto = '10.0.0.1:80'\nself_signed = 'x'\nprofile = 'modern'\nsuites = ['TLS_AES_128_GCM_SHA256', 'TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256']\n",
    "[[route]]\nlisten = ':1024'\nto = '10.0.0.1:80'\nself_signed = '-x'\nbackend_tls = true\nbackend_name = '300.1.1.1'\n",
    "[[originate]]\nlisten = '127.0.0.1:1025'\nto = ['127.0.0.1:1025', '0.0.0.0:443']\n",
    "[[originate]]\nlisten = ':1025'\nto = '127.0.0.1:1025'\nresume_age = '1500ms'\nserver_name = 'x-.example'\n",
    "[[originate]]\nlisten = ':1025'\nto = '10.0.0.1:443'\nresume_uses = 0\nsession_file = 'x'\n",
    "[[route]]\nlisten = ':1024'\nto = '10.0.0.1:80'\nself_signed = 'x'\nproxy_protocol = 'v2-certificate'\n",
    "[[route]]\nlisten = ':1024'\nto = '10.0.0.1:80'\nself_signed = 'x'\ncheck = 'POST /'\nproxy_protocol = 'v3'\n",
    "[[route]]\nname = 'shop'\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\n[[route]]\nname = 'shop'\nlisten = ':1025'\nto = 'echo:'\nself_signed = 'x'\n",
    "[[route]]\nname = 'originate-1'\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\n[[originate]]\nlisten = ':1025'\nto = '10.0.0.1:443'\n",
    "[[route]]\nname = '2nd shop'\nlisten = ':1024'\nto = 'echo:'\nself_signed = 'x'\n[[route]]\nname = 7\nlisten = ':1025'\nto = 'echo:'\nself_signed = 'x'\n",
    "admin = '/run/app.sock'\n[[route]]\nlisten = ':1024'\nto = 'unix:/run/app.sock'\nself_signed = 'x'\n",
];

/// Mistakes of syntax and of meaning at once: all of them are reported.
const BROKEN: &[&str] =
    &["wokers = 2\nlog_level = info\nbacklog = 0\n[[route]]\nlisten = ':1'\nto\n"];

#[test]
fn every_mistake_has_its_message() {
    let process = PROCESS.iter().map(|line| format!("{line}\n{ROUTE}"));
    let others = ROUTES.iter().chain(BROKEN).map(|text| (*text).to_owned());
    let mut messages = String::new();
    for text in process.chain(others) {
        let answer = match load_text(&text) {
            Ok(loaded) => loaded.warnings,
            Err(mistakes) => mistakes,
        };
        assert!(
            !answer.list.is_empty(),
            "no mistake was reported in:\n{text}"
        );
        let shown = text
            .strip_suffix(ROUTE)
            .unwrap_or(&text)
            .replace('\r', "\\r");
        let _ = write!(
            messages,
            "──── {}\n{answer}\n\n",
            shown.trim_end().replace('\n', "\n     ")
        );
    }
    compare(include_str!("messages.txt"), &messages);
}

fn compare(expected: &str, messages: &str) {
    if std::env::var_os("DORMOUSE_BLESS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/messages.txt");
        std::fs::write(path, messages).expect("a file written");
        return;
    }
    for (number, (expected, messages)) in expected.lines().zip(messages.lines()).enumerate() {
        assert_eq!(messages, expected, "line {} of messages.txt", number + 1);
    }
    assert_eq!(messages.len(), expected.len(), "one of them is longer");
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = "wokers = 2\nbacklog = 0\nlog_level = 3\n\n[[route]]\nlisten = 'x'\nto = 'y'\n";
    let mistakes = load_text(text).expect_err("mistakes in every option");
    let lines: Vec<usize> = mistakes
        .list
        .iter()
        .filter_map(|mistake| match mistake.source {
            Source::Line { line, .. } => Some(line),
            _ => None,
        })
        .collect();
    assert_eq!(
        lines,
        [1, 2, 3, 5, 6, 7],
        "the certificate is missing in line 5"
    );
    assert_eq!(mistakes.errors(), 6);
}

#[test]
fn unreadable_options_are_not_compared() {
    // The default of the first listener does not collide with the second, and the first certificate
    // is not missing.
    let text = "[[route]]\nlisten = 7\nto = 'echo:'\ncertificates = 7\n\
                [[route]]\nlisten = '127.0.0.1:8443'\nto = 'echo:'\nself_signed = 'x'\n";
    assert_eq!(
        load_text(text).expect_err("7 is not an address").list.len(),
        2
    );
}

#[test]
fn a_long_list_of_mistakes_is_cut_short() {
    let mut text = String::new();
    for number in 0..100 {
        let _ = writeln!(text, "banana{number} = 1");
    }
    let message = errors_of(&text);
    assert!(message.ends_with("and 61 more"), "{message}");
}

/// An invalid configuration is refused, however many options in it have no effect.
#[test]
fn warnings_do_not_hide_an_error() {
    let mut text = String::new();
    for port in (2000..2200).chain([2000]) {
        let _ = writeln!(
            text,
            "[[route]]\nlisten = '127.0.0.1:{port}'\nto = '10.0.0.1:80'\nself_signed = 'x'\n\
             check_every = '5s'\ncheck_timeout = '1s'\ncheck_rise = 2"
        );
    }
    let mistakes = load_text(&text).expect_err("two listeners have the same address");
    assert_eq!(mistakes.list.len(), 1, "{mistakes}");
    assert!(
        mistakes
            .to_string()
            .contains("two routes on 127.0.0.1:2000"),
        "{mistakes}"
    );
}

#[test]
fn a_long_line_is_cut_around_its_caret() {
    let text = format!("log_level = '{}'\n{ROUTE}", "ä".repeat(300));
    let message = errors_of(&text);
    let lines: Vec<&str> = message.lines().collect();
    let caret = lines.iter().position(|line| line.contains('^'));
    let caret = caret.expect("there is one");
    let column = |line: usize, c: char| lines[line].chars().position(|one| one == c);
    assert_eq!(
        column(caret, '^').map(|first| first + 1),
        column(caret - 1, 'ä'),
        "it begins at the quote: {message}"
    );
    assert!(
        (80..=140).contains(&lines[caret].len()),
        "the line is cut to what a terminal shows: {message}"
    );
}

#[test]
fn colours_are_optional() {
    let mistakes = load_text("wokers = 1\n").expect_err("misspelt");
    assert!(!mistakes.render(false).contains('\x1b'));
    assert!(
        mistakes
            .render(true)
            .starts_with("\x1b[1m\x1b[91merror\x1b[0m")
    );
}

/// Messages go to logs, too.
#[test]
fn passwords_of_stores_are_not_shown() {
    let text = format!(
        "ticket_keys = ['redis://:hunter2@a', \"rediss://me:hunter2@b\", 'redis://c']\n{ROUTE}"
    );
    let shown = errors_of(&text);
    assert!(!shown.contains("hunter2"), "{shown}");
    let line = "['redis://:*******@a', \"rediss://me:*******@b\", 'redis://c']";
    assert!(shown.contains(line), "{shown}");
    // Written wrongly, too.
    for url in [
        "redis://hunter2@a:1",
        "redis://me:hun\"ter2@b:0",
        "redis://me:it's-hunter2@b:0",
    ] {
        let shown = errors_of(&format!("ticket_keys = '{url}'\n{ROUTE}"));
        assert!(!shown.contains("ter2"), "{shown}");
    }
}

/// Building the TLS contexts of an invalid configuration fails because of a mistake that is
/// reported with its line.
#[test]
fn a_failure_of_the_whole_is_reported_only_if_nothing_else_is_wrong() {
    let load = |text: &str| {
        let whole = |_: &Config| {
            vec![Finding {
                place: Place::Whole,
                severity: Severity::Error,
                blame: Blame::Configuration,
                what: "no certificate".to_owned(),
                help: None,
            }]
        };
        let loaded = Loader {
            examine: &whole,
            ..loader(text, &machine())
        }
        .load();
        loaded.expect_err("a failure").list.len()
    };
    assert_eq!(load("[[route]]\nlisten = ':8443'\nto = 'echo:'\n"), 1);
    assert_eq!(load(ROUTE), 1);
}

/// Text from the file can't control the terminal that shows it: U+009B begins an escape sequence as
/// ESC does.
#[test]
fn control_characters_of_a_file_are_escaped() {
    for hostile in ["\u{1b}[2J", "\u{9b}2J", "\u{85}", "\u{202e}", "\u{7f}"] {
        let text = format!("workers = '{hostile}'\n{hostile} = 3\n\"{hostile}\" = 1\n{ROUTE}");
        let shown = errors_of(&text);
        assert!(!shown.contains(hostile), "{shown:?}");
    }
}
