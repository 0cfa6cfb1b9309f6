//! Examples that the programs ship or document, and their results: `examples/NAME` becomes
//! `examples/NAME.toml`. `DORMOUSE_BLESS=1 cargo test -p dormouse-import` rewrites the results. The
//! checks of `dormouse check` verify them.

use super::*;
use dormouse_config::{self as config, Machine};
use proptest::prelude::*;

mod conditions;
mod corpus;
mod files;
mod host_header;
mod letters;
mod limits;
mod losses;
mod outside;
mod remarks;
mod served;
mod shared;
mod strictness;
mod tables;
mod variants;

const EXAMPLES: [(Program, &str); 9] = [
    (Program::Hitch, "hitch-shipped.conf"),
    (Program::Hitch, "hitch-all.conf"),
    (Program::Stunnel, "stunnel-shipped.conf"),
    (Program::Stunnel, "stunnel-all.conf"),
    (Program::Nginx, "nginx-stream.conf"),
    (Program::Nginx, "nginx-preread.conf"),
    (Program::Nginx, "nginx-http.conf"),
    (Program::Haproxy, "haproxy-shipped.cfg"),
    (Program::Haproxy, "haproxy-names.cfg"),
];

/// Converts a text as if it were in /etc/there.
fn import(program: Program, text: &str) -> Result<ImportedConfig, ImportError> {
    let file = Path::new("/etc/there/there.conf");
    let mut page = whole(program, text, file)?;
    page.text = without_places(&page.text);
    Ok(page)
}

fn whole(program: Program, text: &str, file: &Path) -> Result<ImportedConfig, ImportError> {
    let draft = parse(program, text, &Position::new("there.conf"), file)?;
    Ok(draft.finish("there.conf"))
}

/// Removes the comments behind options, which name the lines that they come from.
fn without_places(page: &str) -> String {
    let without = |line: &str| match line.rsplit_once("  # ") {
        Some((option, _)) if !line.starts_with('#') => format!("{option}\n"),
        _ => format!("{line}\n"),
    };
    page.lines().map(without).collect()
}

/// Returns the result of a valid file.
fn converted(program: Program, text: &str) -> String {
    import(program, text).expect("a valid configuration").text
}

/// Returns the number of errors that `dormouse check` would report.
fn errors(page: &str) -> usize {
    config::judge(page, Path::new("dormouse.toml"), &Machine::read()).errors()
}

#[test]
fn examples_have_their_results() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    for (program, name) in EXAMPLES {
        let text = std::fs::read_to_string(folder.join(name)).expect("an example");
        let there = Path::new("/etc/there/there.conf");
        let page = whole(program, &text, there).expect("a valid configuration");
        let golden = folder.join(format!("{name}.toml"));
        if std::env::var_os("DORMOUSE_BLESS").is_some() {
            std::fs::write(&golden, &page.text).expect("a file written");
        }
        let want = std::fs::read_to_string(&golden).unwrap_or_default();
        for (n, (said, want)) in page.text.lines().zip(want.lines()).enumerate() {
            assert_eq!(said, want, "{name}.toml, line {}", n + 1);
        }
        assert_eq!(
            page.text.len(),
            want.len(),
            "{name}.toml: one has more lines"
        );
        // Whatever is left to do keeps the result from running, and nothing else does.
        assert_eq!(
            page.to_do > 0,
            errors(&page.text) > 0,
            "{name}: {}",
            page.text
        );
    }
}

/// Quotes of the file in comments: no control character breaks the TOML, no line feed begins a new
/// line.
#[test]
fn quotes_cannot_end_their_comment() {
    for hostile in ["\u{1}", "\u{7f}", "\u{1b}[2J", "\u{9b}", "\u{202e}"] {
        let text = format!(
            "listen l\n  bind 127.0.0.1:{hostile}4 ssl crt a.pem\n  server s 127.0.0.1:1\n  what{hostile} ever\n"
        );
        let page = converted(Program::Haproxy, &text);
        assert!(page.contains("127.0.0.1:\\"), "{page}");
        assert!(!page.contains(hostile), "{page:?}");
        let said = config::judge(&page, Path::new("dormouse.toml"), &Machine::read());
        assert!(!said.render(false).contains("TOML"), "{page}");
    }
}

/// No text in another program's file can break the result.
#[test]
fn quoted_text_stays_quoted() {
    let text = "frontend = \"[*]:8443\"\nbackend = \"[127.0.0.1]:80\"\npem-file = \"/a\\b\u{1}.pem\"\nbad \r line\u{7}\n";
    let page = converted(Program::Hitch, text);
    assert!(
        page.contains(r#"certificates = "/a\\b\u0001.pem""#),
        "{page}"
    );
    // The line without a value is a step to do.
    assert_eq!(errors(&page), 1, "{page}");
}

/// Asserts that the result says these things, and that these places (`(line 6)`) are steps to do. Without the steps,
/// clients that were refused would be accepted.
fn assert_reported(page: &str, reported: &[&str], to_do: &[&str]) {
    for line in reported {
        assert!(page.contains(line), "{line} is missing in:\n{page}");
    }
    let steps = steps(page);
    for place in to_do {
        let place = match place.strip_prefix('(') {
            Some(line) => format!("{}:", line.trim_end_matches(')')),
            None => (*place).to_owned(),
        };
        let is_it = |step: &&str| step.contains(&place);
        assert!(
            steps.lines().any(|step| is_it(&step)),
            "{place} is missing in:\n{page}"
        );
    }
}

/// Returns the items of `todo`, one a line.
fn steps(page: &str) -> String {
    let Some((_, rest)) = page.split_once("\ntodo = ") else {
        return String::new();
    };
    let end = if rest.starts_with('[') { "\n]" } else { "\n" };
    rest.split_once(end)
        .map_or("", |(steps, _)| steps)
        .to_owned()
}

/// Every line of HAProxy that has a meaning for TLS or TCP is converted or reported, in backends, too.
#[test]
fn no_line_of_haproxy_is_lost_silently() {
    let text = "global
 frobnicate on
frontend f
 bind :8883 ssl crt a.pem
 option frobnicate
 tcp-request content reject if { src 192.0.2.0/24 }
 default_backend b
backend b
 stick-table type ip size 1m expire 30m
 stick on src
 tcp-request content reject if { src 198.51.100.0/24 }
 source 10.0.0.9
 server a 10.0.0.1:1883
";
    let page = converted(Program::Haproxy, text);
    let reported = [
        "line 2: frobnicate on",
        "line 5: option frobnicate",
        "line 9: stick-table",
        "line 10: stick on src",
        "line 12: source",
    ];
    assert_reported(&page, &reported, &["(line 6)", "(line 11)"]);
}

/// A table of MQTT's client ids keeps a client with its server, as a hash of the server name does.
#[test]
fn affinity_of_haproxy_by_what_clients_send() {
    let with = |line: &str| {
        let text = format!(
            "listen l\n bind :8883 ssl crt a.pem\n balance leastconn\n {line}\n server a 10.0.0.1:1883\n server b 10.0.0.2:1883\n"
        );
        converted(Program::Haproxy, &text)
    };
    let sample = "req.payload(0,0),mqtt_field_value(connect,client_identifier)";
    for line in [
        format!("stick on {sample}"),
        format!("stick match {sample}"),
        format!("balance hash {sample}"),
    ] {
        let page = with(&line);
        assert!(page.contains("balance = \"mqtt-client-id\""), "{page}");
        assert!(page.contains("backend_connect = \"first-data\""), "{page}");
    }
    let page = with("balance hash ssl_fc_sni,lower");
    assert!(page.contains("balance = \"sni-hash\""), "{page}");
    let page = with("stick on src");
    assert!(page.contains("balance = \"least-connections\""), "{page}");
}

/// A route has one setting for all its backends. HAProxy's servers may differ, and then some would not understand Dormouse.
#[test]
fn servers_of_haproxy_that_differ_are_things_to_do() {
    let of_servers = |servers: &str| {
        let text = format!("listen l\n bind :8883 ssl crt a.pem\n{servers}");
        converted(Program::Haproxy, &text)
    };
    for (second, differs_in) in [
        ("ssl verify required", Some("differ in ssl, verify,")),
        ("send-proxy", Some("differ in send-proxy,")),
        ("check", None),
        ("weight 3 maxconn 9 backup", None),
    ] {
        let page = of_servers(&format!(
            " server a 10.0.0.1:1\n server b 10.0.0.2:1 {second}\n"
        ));
        match differs_in {
            Some(words) => {
                let steps = steps(&page);
                assert!(steps.contains(words) && steps.contains("line 4:"), "{page}");
            }
            None => assert_eq!(steps(&page), "", "{page}"),
        }
        assert!(!page.contains("\nbackend_tls"), "{page}");
        assert!(!page.contains("\nproxy_protocol"), "{page}");
    }
    let page = of_servers(
        " default-server ssl verify required send-proxy check\n server a 10.0.0.1:1\n \
         server b 10.0.0.2:1 no-check\n server c 10.0.0.3:1 no-ssl no-send-proxy\n",
    );
    assert!(
        page.contains("servers a and c differ in ssl, send-proxy,"),
        "{page}"
    );
    assert!(page.contains("b has no `check`"), "{page}");
    assert!(page.contains("\nbackend_tls = true"), "{page}");
}

/// HAProxy would encrypt the client's TLS once more.
#[test]
fn tls_to_servers_of_a_passed_through_frontend_is_reported() {
    let text = "listen l
 bind :443
 mode tcp
 tcp-request content accept if { req.ssl_hello_type 1 }
 use-server a if { req.ssl_sni a.example }
 server a 10.0.0.1:443 ssl verify none
";
    let page = converted(Program::Haproxy, text);
    assert!(page.contains("pass_through"), "{page}");
    assert_reported(&page, &[], &["(line 6)"]);
}

/// Linux sends IPv4 clients to a listener of `::`, unless it is for IPv6 only or another has the IPv4 address.
#[test]
fn listeners_of_both_families_stay_so() {
    let haproxy = |binds: &str| {
        let binds = binds
            .replace("bind ", "\n bind ")
            .replace(" ssl", " ssl crt x.pem");
        let text = format!(
            "frontend a\n mode tcp{binds}\n default_backend b\nbackend b\n server s 10.0.0.1:80\n"
        );
        (Program::Haproxy, text)
    };
    let stunnel = |accept: &str| {
        let text = format!("[a]\naccept = {accept}\nconnect = 80\ncert = x.pem\n");
        (Program::Stunnel, text)
    };
    for ((program, text), listens) in [
        (haproxy("bind :::443 ssl"), &[":443"][..]),
        (haproxy("bind [::]:443 v4v6 ssl"), &[":443"]),
        (haproxy("bind :::443 v6only ssl"), &["[::]:443"]),
        (
            haproxy("bind *:443 ssl bind :::443 ssl"),
            &["0.0.0.0:443", "[::]:443"],
        ),
        (
            haproxy("bind *:444 ssl bind ipv6@*:443 ssl"),
            &["0.0.0.0:444", ":443"],
        ),
        (stunnel(":::443"), &[":443"]),
        (stunnel("443"), &["0.0.0.0:443"]),
    ] {
        let page = converted(program, &text);
        let found = page
            .lines()
            .filter_map(|line| line.strip_prefix("listen = "));
        let found: Vec<_> = found.map(|one| one.trim_matches('"')).collect();
        assert_eq!(found, listens, "{text}");
    }
}

#[test]
fn a_service_of_stunnel_without_a_counterpart_is_a_thing_to_do() {
    let text = "[a]
accept = 443
exec = /bin/cat
[b]
client = yes
accept = 80
connect = b.example:443
verifyPeer = yes
CAfile = pinned.pem
";
    let page = import(Program::Stunnel, text).expect("a valid configuration");
    assert_eq!(page.to_do, 2, "{}", page.text);
}

/// A client of stunnel takes its servers in turn with `failover = rr`, Dormouse in the order of the file.
#[test]
fn a_client_of_stunnel_that_takes_servers_in_turn_is_reported() {
    let text = "[s]\nclient = yes\naccept = 127.0.0.1:80\nconnect = a.example:443\nconnect = b.example:443\n\
                verifyChain = yes\nfailover = rr\n";
    let page = converted(Program::Stunnel, text);
    assert_reported(&page, &["line 7: failover = rr"], &[]);
    let page = converted(Program::Stunnel, &text.replace("rr", "prio"));
    assert!(
        page.contains("failover = prio -- this is the default"),
        "{page}"
    );
}

#[test]
fn a_certificate_that_stunnel_requires_without_verifying_it_is_reported() {
    let text = "[s]\naccept = 443\nconnect = 80\ncert = a.pem\nrequireCert = yes\n";
    let page = converted(Program::Stunnel, text);
    assert_reported(&page, &["line 5: requireCert = yes"], &[]);
    let verified = format!("{text}verifyChain = yes\nCAfile = ca.pem\n");
    let page = converted(Program::Stunnel, &verified);
    assert!(!page.contains("requireCert"), "{page}");
}

#[test]
fn no_directive_of_nginx_is_lost_silently() {
    let text = "frobnicate on;
stream {
 proxy_upload_rate 100k;
 frobnicate on;
 js_access main.check;
 server {
  listen 8883 ssl; ssl_certificate a.pem; ssl_certificate_key a.key; proxy_pass 10.0.0.1:1883;
  frobnicate on;
  js_access main.check;
 }
 server { listen 53 udp; proxy_pass 10.0.0.1:53; }
}
http {
 server {
  listen 443 quic; listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key;
  location / { proxy_pass http://10.0.0.1:80; }
 }
}
";
    let page = converted(Program::Nginx, text);
    let reported = [
        "line 1: frobnicate",
        "line 3: proxy_upload_rate",
        "line 4: frobnicate",
        "line 8: frobnicate",
        "line 15: listen 443 quic",
    ];
    let to_do = ["(line 5)", "(line 9)", "(line 11)"];
    assert_reported(&page, &reported, &to_do);
}

#[test]
fn half_close_of_nginx_is_converted() {
    let text = |lines: &str| {
        format!("stream {{ server {{ listen 8883 ssl; proxy_pass 10.0.0.1:1883; {lines} }} }}")
    };
    let off = "half_close = false";
    for (lines, is_off) in [
        ("proxy_half_close off;", true),
        ("proxy_half_close on;", false),
        ("proxy_half_close off; proxy_ssl on;", false),
    ] {
        let page = converted(Program::Nginx, &text(lines));
        assert_eq!(page.contains(off), is_off, "{page}");
        assert!(!page.contains("no equivalent"), "{page}");
    }
}

/// The first rule that matches decides in HAProxy and nginx; `deny` in Dormouse.
#[test]
fn rules_that_accept_before_others_refuse_are_not_lost() {
    let haproxy = |rules: &str| {
        let text =
            format!("listen l\n bind :8883 ssl crt a.pem\n{rules}\n server a 10.0.0.1:1883\n");
        converted(Program::Haproxy, &text)
    };
    let nginx = |rules: &str| {
        let text = format!(
            "stream {{ server {{ listen 8883 ssl; ssl_certificate a.pem; ssl_certificate_key a.key;
             proxy_pass 10.0.0.1:1883; {rules} }} }}"
        );
        converted(Program::Nginx, &text)
    };
    let accept = " tcp-request connection accept if { src 10.0.0.1 }\n tcp-request connection";
    for (page, is_to_do) in [
        (
            haproxy(&format!("{accept} reject if {{ src 10.0.0.0/8 }}")),
            true,
        ),
        (
            haproxy(&format!("{accept} reject if {{ src 11.0.0.0/8 }}")),
            false,
        ),
        (nginx("allow 10.0.0.1; deny 10.0.0.0/8; allow all;"), true),
        (nginx("allow 10.0.0.0/8; deny 10.9.0.0/16; deny all;"), true),
        (nginx("allow 10.0.0.1; deny 11.0.0.0/8; deny all;"), false),
    ] {
        assert_eq!(
            page.contains("accept some of these clients"),
            is_to_do,
            "{page}"
        );
    }
    let page = haproxy(&format!("{accept} reject if !{{ src 11.0.0.0/8 }}"));
    assert!(
        page.contains("allow = [\"10.0.0.1\", \"11.0.0.0/8\"]"),
        "{page}"
    );
}

/// Without these, clients reach another backend than before.
#[test]
fn other_choices_of_a_backend_are_things_to_do() {
    let text = "frontend f\n bind :443\n tcp-request inspect-delay 5s
 use_backend mail if { req.ssl_sni -m reg ^mail[0-9]+ }\n default_backend web
backend mail\n server a 10.0.0.1:443\nbackend web\n server b 10.0.0.2:443\n";
    let page = converted(Program::Haproxy, text);
    assert_reported(&page, &[], &["(line 4)"]);
    let text = "stream {
 server { listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key; proxy_pass 10.0.0.1:1; }
 server { listen 443 ssl; server_name ~^x; ssl_certificate a.pem; ssl_certificate_key a.key; proxy_pass 10.0.0.2:1; }
 server { listen 443 ssl; server_name a.example ~^y; ssl_certificate a.pem; ssl_certificate_key a.key; proxy_pass 10.0.0.3:1; }
}
";
    let page = converted(Program::Nginx, text);
    assert_reported(&page, &[], &["(line 3)", "(line 4)"]);
}

#[test]
fn no_line_of_hitch_is_lost_silently() {
    let text = "pem-file = \"a.pem\"
frontend = {
 port = \"8443\"
 frobnicate = on
}
frobnicate = on
";
    let page = converted(Program::Hitch, text);
    let reported = ["line 4: frobnicate", "line 6: frobnicate"];
    assert_reported(&page, &reported, &[]);
    // The backend is hitch's default.
    assert!(page.contains("to = \"127.0.0.1:8000\""), "{page}");
}

/// A list with keywords cannot be converted; the list for the other version is.
#[test]
fn one_list_of_suites_is_converted_without_the_other() {
    let text = "pem-file = \"a.pem\"
frontend = \"[*]:8443\"
ciphers = \"EECDH+AESGCM\"
ciphersuites = \"TLS_AES_256_GCM_SHA384\"
";
    let page = converted(Program::Hitch, text);
    assert_reported(&page, &["line 3: ciphers"], &[]);
    let suites = page.lines().find(|line| line.starts_with("suites"));
    let suites = suites.expect("the suites of TLS 1.3 are set");
    assert!(suites.contains("TLS_AES_256") && !suites.contains("TLS_AES_128"));
    assert!(suites.contains("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"));
}

/// 12 hours is stunnel's default.
#[test]
fn each_service_keeps_its_own_times() {
    let text = "cert = a.pem
TIMEOUTconnect = 7
[short]
accept = 1001
connect = 2001
TIMEOUTidle = 600
[long]
accept = 1002
connect = 2002
";
    let page = converted(Program::Stunnel, text);
    let (program, routes) = page.split_once("[[route]]").expect("two routes");
    let (short, long) = routes.split_once("[[route]]").expect("two routes");
    assert!(program.contains("\nidle_timeout = \"12h\""), "{page}");
    assert!(
        program.contains("backend_connect_timeout = \"7s\""),
        "{page}"
    );
    assert!(short.contains("route_idle_timeout = \"10m\""), "{page}");
    assert!(!long.contains("route_idle_timeout"), "{page}");
    assert_reported(&page, &[], &[]);
    let (one, _) = text.split_once("[long]").expect("two services");
    let page = converted(Program::Stunnel, one);
    assert!(page.contains("\nidle_timeout = \"10m\""), "{page}");
}

#[test]
fn frontends_and_backends_of_haproxy_keep_their_own_times() {
    let text = "defaults
 mode tcp
 timeout connect 5s
frontend a
 bind :443 ssl crt a.pem
 timeout client 1h
 default_backend a
backend a
 timeout server 2h
 server one 10.0.0.1:80
frontend b
 bind :444 ssl crt a.pem
 default_backend b
backend b
 timeout connect 1s
 timeout tunnel 0
 timeout server 1m
 server one 10.0.0.2:80
frontend c
 bind :445 ssl crt a.pem
 default_backend c
backend c
 server one 10.0.0.3:80
";
    let page = converted(Program::Haproxy, text);
    let parts: Vec<&str> = page.split("[[route]]").collect();
    let times = |part: &str| -> Vec<String> {
        let lines = part.lines().filter(|line| !line.starts_with('#'));
        lines
            .filter_map(|line| line.split('#').next())
            .filter(|line| line.contains("_timeout"))
            .map(|line| line.trim().to_owned())
            .collect()
    };
    let times: Vec<Vec<String>> = parts.into_iter().map(times).collect();
    let expected = [
        vec!["idle_timeout = \"2h\"", "backend_connect_timeout = \"5s\""],
        vec![],
        vec![
            "route_idle_timeout = \"off\"",
            "route_backend_connect_timeout = \"1s\"",
        ],
        vec!["route_idle_timeout = \"off\""],
    ];
    assert_eq!(times, expected, "{page}");
}

#[test]
fn servers_of_nginx_keep_their_own_times() {
    let server = |port: u16, more: &str| {
        format!(
            "server {{ listen {port} ssl; ssl_certificate a.pem; ssl_certificate_key a.key; {more} proxy_pass 10.0.0.1:80; }}\n"
        )
    };
    let text = |second: &str| {
        format!(
            "stream {{\nproxy_connect_timeout 3s;\n{}{}}}\n",
            server(443, "proxy_timeout 1h;"),
            server(444, second)
        )
    };
    let page = converted(Program::Nginx, &text(""));
    assert!(
        page.contains("\nbackend_connect_timeout = \"3s\""),
        "{page}"
    );
    assert!(page.contains("\nidle_timeout = \"1h\""), "{page}");
    assert!(page.contains("\nroute_idle_timeout = \"10m\""), "{page}");
    let page = converted(Program::Nginx, &text("proxy_timeout 1h;"));
    assert!(page.contains("\nidle_timeout = \"1h\""), "{page}");
    assert!(!page.contains("route_idle_timeout"), "{page}");
}

/// Without a route of its own, a refused name would reach the server for all other names.
#[test]
fn names_that_nginx_refuses_are_things_to_do_if_another_server_would_get_them() {
    let server = |more: &str| {
        format!(
            "server {{ listen 443 ssl {more} ssl_certificate a.pem; ssl_certificate_key a.key; }}\n"
        )
    };
    let other = server("default_server; server_name a.test; proxy_pass 10.0.0.1:80;");
    let refusing = server("; server_name b.test; ssl_reject_handshake on;");
    let text = format!("stream {{\n{other}{refusing}}}\n");
    let page = import(Program::Nginx, &text).expect("a valid configuration");
    assert_reported(&page.text, &[], &["(line 3)"]);
    // Nobody gets them here.
    let refusing = server("default_server; ssl_reject_handshake on;");
    let other = server("; server_name a.test; proxy_pass 10.0.0.1:80;");
    let text = format!("stream {{\n{other}{refusing}}}\n");
    let page = import(Program::Nginx, &text).expect("a valid configuration");
    assert_eq!(page.to_do, 0, "{}", page.text);
    assert!(page.text.contains("are refused anyway"), "{}", page.text);
}

#[test]
fn the_end_of_a_name_matches_the_whole_name_too_unless_it_begins_with_a_dot() {
    let names = |condition: &str| {
        let text = format!(
            "frontend f\n mode tcp\n bind :443\n tcp-request inspect-delay 5s\n \
             use_backend b if {{ {condition} }}\n default_backend c\n\
             backend b\n server s 10.0.0.1:443\nbackend c\n server s 10.0.0.2:443\n"
        );
        let page = converted(Program::Haproxy, &text);
        assert_reported(&page, &["line 5: use_backend b if"], &[]);
        let names = page.lines().find(|line| line.starts_with("server_names"));
        names.expect("names").to_owned()
    };
    let both = "server_names = [\"a.test\", \"*.a.test\"]";
    assert_eq!(names("req.ssl_sni -m end a.test"), both);
    assert_eq!(names("req.ssl_sni -m dom a.test"), both);
    let below = "server_names = [\"*.a.test\"]";
    assert_eq!(names("req.ssl_sni -m end .a.test"), below);
    assert_eq!(names("req_ssl_sni_end .a.test"), below);
}

#[test]
fn a_file_without_tls_gives_nothing() {
    let empty = |program, text: &str| {
        let draft = parse(program, text, &Position::new("x"), Path::new("x"));
        draft.expect("a valid configuration").is_empty()
    };
    assert!(empty(Program::Nginx, "http { server { listen 80; } }"));
    assert!(empty(Program::Haproxy, "frontend x\n bind :80\n"));
    assert!(empty(Program::Stunnel, "; nothing\n"));
    assert!(empty(Program::Hitch, "workers = 4\n"));
}

/// Returns pieces of all examples, to shuffle: the result must be TOML that says what it lacks.
fn piece() -> impl Strategy<Value = String> {
    let examples = [
        include_str!("../examples/hitch-all.conf"),
        include_str!("../examples/stunnel-all.conf"),
        include_str!("../examples/nginx-stream.conf"),
        include_str!("../examples/nginx-preread.conf"),
        include_str!("../examples/nginx-http.conf"),
        include_str!("../examples/haproxy-shipped.cfg"),
        include_str!("../examples/haproxy-names.cfg"),
    ];
    let lines: Vec<String> = examples
        .iter()
        .flat_map(|text| text.lines())
        .map(str::to_owned)
        .collect();
    let odd = [
        "{",
        "}",
        ";",
        "\"",
        "[x]",
        "=",
        "\\",
        "0",
        "-1",
        "ä",
        "99999999999999999999",
    ];
    let odd: Vec<String> = odd.iter().map(|text| (*text).to_owned()).collect();
    prop_oneof![20 => proptest::sample::select(lines), 1 => proptest::sample::select(odd), 1 => any::<String>()]
}

proptest! {
    #[test]
    fn every_result_is_toml(pieces in proptest::collection::vec(piece(), 0..40)) {
        let text = pieces.join("\n");
        for program in [Program::Hitch, Program::Stunnel, Program::Nginx, Program::Haproxy] {
            if let Ok(page) = import(program, &text) {
                prop_assert!(errors(&page.text) == 0 || page.to_do > 0, "{}", page.text);
                prop_assert!(!page.text.contains("this is not TOML"), "{}", page.text);
            }
        }
    }
}
