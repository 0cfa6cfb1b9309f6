//! Variants of the corpus, by somebody who did not write the converters: each was once less strict than its source, or
//! lost a line.

use super::*;

fn stream(body: &str) -> String {
    format!(
        "stream {{ server {{ listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key; proxy_pass 10.0.0.1:80; {body} }} }}"
    )
}

fn http(around: &str, body: &str) -> String {
    format!(
        "http {{ {around} server {{ listen 443 ssl; server_name a.test; ssl_certificate a.pem; ssl_certificate_key a.key; {body}
         location / {{ proxy_pass http://10.0.0.1; proxy_set_header Host $host; }} }} }}"
    )
}

/// `listen` with these words of the bind, lines and words of the server.
fn listen(bind: &str, lines: &str, server: &str) -> String {
    let lines = lines.replace("; ", "\n ");
    format!("listen l\n bind :443 ssl crt a.pem {bind}\n {lines}\n server s 10.0.0.1:80 {server}\n")
}

fn hitch(lines: &str) -> String {
    format!("frontend = \"[*]:443\"\nbackend = \"[127.0.0.1]:80\"\npem-file = \"a.pem\"\n{lines}\n")
}

fn stunnel(lines: &str) -> String {
    format!("[s]\naccept = 443\nconnect = 80\ncert = a.pem\nCAfile = ca.pem\n{lines}\n")
}

fn client(lines: &str) -> String {
    format!(
        "[c]\nclient = yes\naccept = 127.0.0.1:1\nconnect = b.test:2\nCAfile = ca.pem\ncheckHost = b.test\n{lines}\n"
    )
}

/// Asserts that each text has a step that quotes these words.
fn are_steps(program: Program, rows: impl IntoIterator<Item = (String, &'static str)>) {
    for (text, words) in rows {
        let page = import(program, &text).expect("a valid configuration");
        assert!(
            steps(&page.text).contains(words),
            "{words}\n{text}\n{}",
            page.text
        );
    }
}

/// Asserts that each text becomes a result with this line, and nothing is left to do.
fn have_lines(program: Program, rows: impl IntoIterator<Item = (String, &'static str)>) {
    for (text, line) in rows {
        let page = import(program, &text).expect("a valid configuration");
        assert!(
            page.text.lines().any(|one| one == line),
            "{line}\n{text}\n{}",
            page.text
        );
        assert_eq!(page.to_do, 0, "{text}\n{}", page.text);
    }
}

/// A value that the other program does not know either is not the absence of a demand.
#[test]
fn a_value_that_nobody_knows_is_a_step() {
    let verifies = "ssl_client_certificate ca.pem; ssl_verify_client";
    are_steps(
        Program::Nginx,
        ["required", "$v"]
            .map(|word| (stream(&format!("{verifies} {word};")), "ssl_verify_client")),
    );
    let rows = [
        "client-verify = REQUIRED",
        "client-verify = 'required'",
        "sni-nomatch-abort = sure",
        "write-proxy-v2 = sure",
        "private-key = \"a.key\"",
    ];
    are_steps(
        Program::Hitch,
        rows.map(|row| (hitch(row), row.split(' ').next().expect("a key"))),
    );
    let rows = [
        "verify = two",
        "verifyChain = on",
        "verifyPeer = 1",
        "client = true",
        "sslVersionMin = TLSv9",
    ];
    are_steps(Program::Stunnel, rows.map(|row| (stunnel(row), row)));
    are_steps(
        Program::Stunnel,
        [(client("verifyChain = true"), "verifyChain = true")],
    );
}

/// What only some versions, signatures or lengths of chains were allowed to.
#[test]
fn fewer_clients_and_backends_than_here_are_steps() {
    let verified = "proxy_ssl on; proxy_ssl_verify on; proxy_ssl_trusted_certificate b.pem;";
    let to_backend = |more: &str| stream(&format!("{verified} {more}"));
    are_steps(
        Program::Nginx,
        [
            (
                to_backend("proxy_ssl_protocols TLSv1.3;"),
                "proxy_ssl_protocols",
            ),
            (
                to_backend("proxy_ssl_conf_command MinProtocol TLSv1.3;"),
                "MinProtocol",
            ),
            (stream("ssl_conf_command Protocol -TLSv1.2;"), "Protocol"),
            (
                stream("ssl_conf_command ClientSignatureAlgorithms ed25519;"),
                "ClientSig",
            ),
            (stream("ssl_verify_depth 0;"), "ssl_verify_depth"),
            (stream("limit_conn z $n;"), "limit_conn"),
        ],
    );
    let originate = |more: &str| {
        format!(
            "stream {{ server {{ listen 127.0.0.1:1; proxy_pass b.test:2; {verified} {more} }} }}"
        )
    };
    have_lines(
        Program::Nginx,
        [
            (
                to_backend("proxy_ssl_protocols TLSv1.2 TLSv1.3;"),
                "backend_tls = true",
            ),
            (
                originate("proxy_ssl_protocols TLSv1.3;"),
                "min_version = \"1.3\"",
            ),
            (
                stream("ssl_conf_command Curves P-384;"),
                "groups = [\"secp384r1\"]",
            ),
        ],
    );
}

#[test]
fn fewer_clients_and_servers_of_haproxy_than_here_are_steps() {
    let verified = "ssl verify required ca-file b.pem";
    are_steps(
        Program::Haproxy,
        [
            (
                listen("", "", &format!("{verified} ssl-min-ver TLSv1.3")),
                "ssl-min-ver",
            ),
            (
                listen("", "", &format!("{verified} force-tlsv13")),
                "force-tlsv13",
            ),
            (
                listen(
                    "verify required ca-file c.pem client-sigalgs ed25519",
                    "",
                    "",
                ),
                "client-sigalgs",
            ),
            (
                listen("generate-certificates ca-sign-file s.pem", "", ""),
                "generate-certificates",
            ),
            (listen("no-tlsv12 no-tlsv13", "", ""), "no-tlsv12"),
            (listen("", "", "socks4 10.0.0.9:1080"), "socks4"),
            (listen("", "", "namespace blue"), "namespace"),
            (
                format!("global\n ssl-security-level 3\n{}", listen("", "", "")),
                "ssl-security-level",
            ),
        ],
    );
    // Servers without TLS need no version of it.
    let defaults = "global\n ssl-default-server-options ssl-min-ver TLSv1.3\n";
    have_lines(
        Program::Haproxy,
        [
            (
                format!("{defaults}{}", listen("", "", "")),
                "to = \"10.0.0.1:80\"",
            ),
            (
                format!(
                    "{defaults}listen l\n mode tcp\n bind 127.0.0.1:1\n server s b.test:2 {verified} verifyhost b.test\n"
                ),
                "min_version = \"1.3\"",
            ),
        ],
    );
}

#[test]
fn what_stunnel_limits_and_other_servers_of_nginx_are_steps() {
    are_steps(
        Program::Stunnel,
        [
            (stunnel("securityLevel = 3"), "securityLevel"),
            (
                stunnel("config = MinProtocol:TLSv1.3\nconfig = VerifyMode:Require"),
                "MinProtocol",
            ),
            (stunnel("transparent = destination"), "transparent"),
            (
                "cert = a.pem\nconnect = 80\nverifyChain = yes\n".to_owned(),
                "inetd mode",
            ),
        ],
    );
    are_steps(
        Program::Nginx,
        [(
            "mail { server { listen 993 ssl; protocol imap; } }".to_owned(),
            "keep nginx for these servers",
        )],
    );
}

/// Rules that refused clients by a rate are no less rules than those about networks.
#[test]
fn actions_on_connections_of_haproxy_are_steps_unless_they_are_harmless() {
    let rule = |rest: &str| listen("", &format!("tcp-request {rest}"), "");
    are_steps(
        Program::Haproxy,
        [
            (
                rule("connection reject if { sc0_conn_rate gt 10 }"),
                "handshakes_per_client",
            ),
            (
                rule("connection reject if { src_conn_cur ge 10 }"),
                "connections_per_client",
            ),
            (
                rule("connection expect-netscaler-cip layer4 if { src 10.0.0.1 }"),
                "expect-netscaler-cip",
            ),
            (rule("content switch-mode http if HTTP"), "switch-mode"),
            (
                rule("content do-resolve(sess.dst,dns) ssl_fc_sni"),
                "do-resolve",
            ),
            (rule("content use-service lua.x"), "use-service"),
        ],
    );
    have_lines(
        Program::Haproxy,
        [
            (rule("connection track-sc0 src"), "to = \"10.0.0.1:80\""),
            (rule("content set-var(sess.x) src"), "to = \"10.0.0.1:80\""),
        ],
    );
    // Rules about connections have no meaning in a backend that inherits them.
    let text = "defaults a\n mode tcp\n tcp-request connection reject if { src 10.0.0.0/8 }
frontend f from a\n bind :443 ssl crt a.pem\n default_backend b\nbackend b from a\n server s 10.0.0.1:80\n";
    have_lines(
        Program::Haproxy,
        [(text.to_owned(), "deny = [\"10.0.0.0/8\"]")],
    );
}

/// nginx compared an address that a request names.
#[test]
fn networks_are_not_those_of_connections_if_a_header_names_the_client() {
    let rules = "allow 192.0.2.0/24; deny all;";
    let (proxies, header) = (
        "set_real_ip_from 10.0.0.1;",
        "real_ip_header X-Forwarded-For;",
    );
    let is_step = "nginx compared the address";
    are_steps(
        Program::Nginx,
        [
            (http(&format!("{proxies} {header}"), rules), is_step),
            // X-Real-IP is nginx's default.
            (
                http("", &format!("{proxies} {rules}"))
                    .replace("443 ssl", "443 ssl proxy_protocol"),
                is_step,
            ),
        ],
    );
    let header = "real_ip_header proxy_protocol;";
    let text = http("", &format!("{proxies} {header} {rules}"))
        .replace("443 ssl", "443 ssl proxy_protocol");
    let page = converted(Program::Nginx, &text);
    assert!(!page.contains(is_step), "{page}");
}

/// Of what a converted part uses, nothing may be called unused.
#[test]
fn what_is_used_is_never_called_unused() {
    let backend = |lines: &str| {
        format!(
            "frontend f\n bind :443 ssl crt a.pem\n default_backend b\nbackend b\n frobnicate yes\n {lines}\n"
        )
    };
    are_steps(
        Program::Haproxy,
        [
            (backend("server-template s 3 10.0.0.1:80"), "frobnicate"),
            (backend("server-template s 3 10.0.0.1:80 frob"), "frob --"),
            (backend("dispatch 10.0.0.1:80"), "frobnicate"),
            (backend(""), "frobnicate"),
            (
                format!("defaults\n option frobnicate\n{}", listen("", "", "")),
                "option frobnicate",
            ),
        ],
    );
    let (around, group) = (
        "ssl_frobnicate on;",
        "upstream u { server 10.0.0.1:1 frob=1; }",
    );
    are_steps(
        Program::Nginx,
        [
            (http(around, ""), "ssl_frobnicate"),
            (
                stream("").replace("stream {", &format!("stream {{ {around}")),
                "ssl_frobnicate",
            ),
            (
                stream("")
                    .replace("10.0.0.1:80", "u")
                    .replace("stream {", &format!("stream {{ {group}")),
                "frob=1",
            ),
        ],
    );
    // Each line adds to the ones before it.
    let text = format!(
        "global\n ssl-default-bind-options no-tlsv12\n ssl-default-bind-options strict-sni\n{}",
        listen("", "", "")
    );
    have_lines(
        Program::Haproxy,
        [
            (text.clone(), "min_version = \"1.3\""),
            (text, "unknown_name = \"refuse\""),
        ],
    );
}

#[test]
fn certificates_for_some_names_only_are_steps_where_other_names_were_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let list = folder.path().join("list");
    let with = |line: &str, bind: &str| {
        std::fs::write(&list, line).expect("written");
        listen(&format!("crt-list {} {bind}", list.display()), "", "")
    };
    let is_step = |line: &str, bind: &str| {
        let page = import(Program::Haproxy, &with(line, bind)).expect("a valid configuration");
        page.to_do > 0
    };
    assert!(is_step("b.pem a.test\n", "strict-sni"));
    assert!(!is_step("b.pem a.test\n", ""));
    assert!(is_step("b.pem [ssl-min-ver TLSv1.3]\n", ""));
    assert!(is_step("b.pem [no-tlsv12]\n", ""));
    assert!(!is_step("b.pem [ssl-min-ver TLSv1.2 alpn h2]\n", ""));
}

#[test]
fn a_default_server_counts_for_the_servers_after_it() {
    let text = "listen l\n bind :443 ssl crt a.pem\n default-server ssl verify required ca-file b.pem\n server s 10.0.0.1:443
 default-server no-ssl\n server t 10.0.0.2:80\n";
    let page = converted(Program::Haproxy, text);
    assert!(
        page.contains("backend_tls = true") && page.contains("differ in ssl"),
        "{page}"
    );
}

/// HAProxy then reads requests, whatever the frontend's mode is.
#[test]
fn a_backend_in_mode_http_keeps_haproxy() {
    let text = "frontend f\n mode tcp\n bind :443 ssl crt a.pem\n default_backend b
backend b\n mode http\n http-request deny if { path /x }\n server s 10.0.0.1:80\n";
    are_steps(
        Program::Haproxy,
        [(text.to_owned(), "HAProxy stays behind")],
    );
}

/// In double quotes, a variable needs no braces.
#[test]
fn variables_of_the_environment_are_steps() {
    for text in [
        listen("", "", "").replace("a.pem", "\"$CERT\""),
        listen("", "", "").replace("10.0.0.1", "\"${HOST}\""),
        listen("verify \"$VERIFY\" ca-file c.pem", "", ""),
        listen("", "tcp-request connection reject if { src \"$NET\" }", ""),
    ] {
        are_steps(Program::Haproxy, [(text, "variable of the environment")]);
    }
    let page = converted(
        Program::Haproxy,
        &listen("", "", "").replace("a.pem", "'$CERT'"),
    );
    assert!(page.contains("certificates = \"$CERT\""), "{page}");
}

#[test]
fn a_service_for_names_of_an_address_that_dormouse_lacks_keeps_its_settings() {
    let text = "[s]\naccept = /run/x\nconnect = 80\ncert = a.pem
[t]\nsni = s:t.test\nconnect = 81\ncert = t.pem\nverifyChain = yes\nCAfile = ca.pem\n";
    let page = converted(Program::Stunnel, text);
    assert!(
        page.contains("client_certificates = \"required\""),
        "{page}"
    );
    assert!(!page.contains("does not exist"), "{page}");
}

/// On the address without it, a client could name another address with a header, or would be refused without one.
#[test]
fn a_header_is_read_only_on_the_addresses_that_expect_one() {
    let two =
        "listen 444 ssl proxy_protocol; set_real_ip_from 10.0.0.0/8; allow 192.0.2.0/24; deny all;";
    let page = converted(Program::Nginx, &stream(two));
    let (first, second) = page
        .split_once("listen = \"0.0.0.0:444\"")
        .expect("a route of its own");
    assert!(!first.contains("accept_proxy_from"), "{page}");
    assert!(
        second.contains("accept_proxy_from = [\"10.0.0.0/8\"]"),
        "{page}"
    );
    assert_eq!(
        page.matches("allow = [\"192.0.2.0/24\"]").count(),
        2,
        "{page}"
    );
}

/// Parts that would be missing as a whole, with what they demand of clients.
#[test]
fn a_part_that_no_address_leads_to_is_a_step() {
    let second = "[t]\nsni = nobody:t.test\nconnect = 81\ncert = t.pem\nverifyChain = yes\nCAfile = ca.pem\n";
    are_steps(
        Program::Stunnel,
        [(format!("{}{second}", stunnel("")), "does not exist")],
    );
    let nameless = "server { listen 443 ssl; server_name \"\"; ssl_certificate a.pem; ssl_certificate_key a.key; return 444; } }";
    let text = http("", "").trim_end_matches([' ', '}']).to_owned();
    are_steps(
        Program::Nginx,
        [(
            format!("{text} }} }} {nameless}"),
            "without a `Host` header",
        )],
    );
}
