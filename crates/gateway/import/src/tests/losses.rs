//! Lines that were once lost: each with what stands in the result now.

use super::*;

fn of(program: Program, text: &str) -> ImportedConfig {
    import(program, text).expect("a valid configuration")
}

/// Asserts that the result has these lines, and steps with these words.
fn has(page: &ImportedConfig, lines: &[&str], to_do: &[&str]) {
    for line in lines {
        assert!(
            page.text.lines().any(|one| one == *line),
            "{line} is missing in:\n{}",
            page.text
        );
    }
    let steps = steps(&page.text);
    for words in to_do {
        assert!(
            steps.contains(words),
            "{words} is missing in:\n{}",
            page.text
        );
    }
}

const STREAM: &str = "ssl_certificate a.pem; ssl_certificate_key a.key;";

/// Once the target is known, the backend gets TLS and the header, as before.
#[test]
fn a_computed_target_of_nginx_keeps_what_is_behind_it() {
    for target in [
        "$backend",
        "${backend}",
        "$ssl_server_name:443",
        "10.0.0.1:$remote_port",
    ] {
        let text = format!(
            "stream {{ js_set $backend main.backend; server {{ listen 443 ssl; {STREAM} proxy_pass {target};
             proxy_ssl on; proxy_ssl_verify on; proxy_ssl_trusted_certificate ca.pem; proxy_ssl_name b.test;
             proxy_protocol on; }} }}"
        );
        let page = of(Program::Nginx, &text);
        let lines = [
            "backend_tls = true",
            "backend_ca = \"/etc/there/ca.pem\"",
            "backend_name = \"b.test\"",
            "proxy_protocol = \"v1\"",
        ];
        has(&page, &lines, &["this target is computed"]);
        assert!(!page.text.contains("\nto = "), "{}", page.text);
    }
}

#[test]
fn braces_around_a_variable_of_nginx_do_not_matter() {
    for target in ["$to", "${to}"] {
        let text = format!(
            "stream {{ map $ssl_preread_server_name $to {{ a.test 10.0.0.1:1; default 10.0.0.2:1; }}
             server {{ listen 443; ssl_preread on; proxy_pass {target}; }} }}"
        );
        let page = of(Program::Nginx, &text);
        has(&page, &["to = \"10.0.0.1:1\"", "to = \"10.0.0.2:1\""], &[]);
        assert_eq!(page.to_do, 0, "{}", page.text);
    }
    let text =
        "stream { map $ssl_preread_alpn_protocols $port { ~\\bacme-tls/1\\b 10443; default 8443; }
     server { listen 443; ssl_preread on; proxy_pass 10.0.0.1:$port; } }";
    has(
        &of(Program::Nginx, text),
        &["to = \"10.0.0.1:10443\"", "to = \"10.0.0.1:8443\""],
        &[],
    );
}

#[test]
fn a_range_of_ports_is_all_of_them() {
    let nginx = format!(
        "stream {{ server {{ listen 127.0.0.1:4000-4002 ssl; {STREAM} proxy_pass 10.0.0.1:1; }} }}"
    );
    let listen = "listen = [\"127.0.0.1:4000\", \"127.0.0.1:4001\", \"127.0.0.1:4002\"]";
    has(&of(Program::Nginx, &nginx), &[listen], &[]);
    let haproxy = "listen l\n bind 127.0.0.1:4000-4002 ssl crt a.pem\n server s 10.0.0.1:1\n";
    has(&of(Program::Haproxy, haproxy), &[listen], &[]);
    // A server without a port gets that of the client's connection.
    let page = of(
        Program::Haproxy,
        &haproxy.replace("10.0.0.1:1", "10.0.0.1:+100"),
    );
    has(
        &page,
        &["to = \"10.0.0.1:4100\"", "to = \"10.0.0.1:4102\""],
        &[],
    );
    let text = haproxy.replace("4000-4002", "1-60000");
    has(
        &of(Program::Haproxy, &text),
        &[],
        &["up to 200 ports in a range"],
    );
}

#[test]
fn code_in_nginx_conf_is_read_over() {
    let text = format!(
        "http {{ init_by_lua_block {{ local x = \"}}\" -- }}\n local y = [[ }} ]] local z = {{ {{}} }} }}
         server {{ listen 443 ssl; {STREAM} location / {{ content_by_lua_block {{ ngx.say('{{') }} }} }} }}"
    );
    let page = of(Program::Nginx, &text);
    assert!(page.text.contains("nginx stays behind"), "{}", page.text);
    let fault = import(
        Program::Nginx,
        "http {\n init_by_lua_block {\n local x = \"}\"\n",
    )
    .map(|page| page.text);
    assert!(
        fault
            .expect_err("no end")
            .to_string()
            .contains("there.conf:2")
    );
}

/// Dormouse has no connections to itself.
#[test]
fn two_stages_of_one_program_become_one_route() {
    let nginx = "stream {
 map $ssl_preread_server_name $to { vpn.test 10.0.0.9:1194; default 127.0.0.1:8443; }
 server { listen 443; ssl_preread on; proxy_pass $to; proxy_protocol on; allow 10.0.0.0/8; deny all; }
}
http {
 server { listen 8443 ssl proxy_protocol; set_real_ip_from 127.0.0.1; server_name www.test; ssl_certificate a.pem; ssl_certificate_key a.key;
  ssl_verify_client on; ssl_client_certificate ca.pem; location / { proxy_pass http://10.0.0.1; proxy_set_header Host $host; } }
}
";
    let page = of(Program::Nginx, nginx);
    assert_eq!((page.to_do, errors(&page.text)), (0, 0), "{}", page.text);
    assert_eq!(page.text.matches("[[route]]").count(), 2, "{}", page.text);
    assert_eq!(
        page.text.matches("allow = [\"10.0.0.0/8\"]").count(),
        2,
        "{}",
        page.text
    );
    has(
        &page,
        &["to = \"10.0.0.1:80\"", "client_certificates = \"required\""],
        &[],
    );
    assert!(
        !page.text.contains("to = \"127.0.0.1:8443\""),
        "{}",
        page.text
    );
    // Without the header, the second stage takes the first for its client.
    let text = nginx
        .replace("proxy_protocol on;", "")
        .replace("ssl proxy_protocol;", "ssl; deny 192.0.2.1;");
    has(
        &of(Program::Nginx, &text),
        &[],
        &["these rules saw the first stage as the client"],
    );
    let haproxy = "frontend entry
 mode tcp
 bind :443
 use_backend a if { req.ssl_sni a.test }
 use_backend b if { req.ssl_sni b.test }
backend a
 server s abns@a send-proxy-v2
backend b
 server s /run/b.sock send-proxy-v2
listen inner-a
 bind abns@a accept-proxy ssl crt a.pem strict-sni
 server s 10.0.0.1:1
listen inner-b
 bind /run/b.sock accept-proxy ssl crt b.pem verify required ca-file ca.pem
 server s 10.0.0.2:1
";
    let page = of(Program::Haproxy, haproxy);
    assert_eq!((page.to_do, errors(&page.text)), (0, 0), "{}", page.text);
    let (_, second) = page
        .text
        .split_once("server_names = [\"b.test\"]")
        .expect("the second name");
    assert!(
        second.contains("client_certificates = \"required\"") && second.contains("b.pem"),
        "{}",
        page.text
    );
}

#[test]
fn newer_certificates_of_haproxy_are_kept() {
    let text = "crt-store web
 crt-base /certs
 key-base /keys
 load crt a.pem key a.key alias site
 load crt b.pem acme le domains \"b.example.com\"
acme le
 directory https://acme.test/directory
 contact ann@example.com
frontend f
 bind :443 ssl default-crt d.pem crt @web/site
 bind :444 ssl crt @web/b.pem
 ssl-f-use crt e.pem verify required ca-file ca.pem
 default_backend b
backend b
 server s 10.0.0.1:1
";
    let page = of(Program::Haproxy, text);
    let certificates =
        "certificates = [\"d.pem\", { cert = \"/certs/a.pem\", key = \"/keys/a.key\" }, \"e.pem\"]";
    let lines = [
        certificates,
        "acme = [\"b.example.com\"]",
        "acme_server = \"https://acme.test/directory\"",
        "acme_email = \"ann@example.com\"",
    ];
    has(
        &page,
        &lines,
        &[
            "clients that ask for these names had to be verified",
            "acme_terms_agreed",
        ],
    );
}

#[test]
fn abstract_sockets_of_haproxy_are_no_hosts() {
    let text = "listen l\n bind :443 ssl crt a.pem\n server s abns@name:443 send-proxy\n";
    let page = of(Program::Haproxy, text);
    has(
        &page,
        &["proxy_protocol = \"v1\""],
        &["line 3: server s abns@name:443 -- Dormouse does not connect there"],
    );
    assert!(!page.text.contains("name:443\""), "{}", page.text);
}

/// It may have been for plain connections.
#[test]
fn a_plain_bind_beside_a_rule_on_the_client_hello_is_a_step() {
    let text = "frontend f\n mode tcp\n bind :443 ssl crt a.pem\n bind :1883\n use_backend b if { req.ssl_sni a.test }\n default_backend b\nbackend b\n server s 10.0.0.1:1\n";
    has(
        &of(Program::Haproxy, text),
        &[],
        &["line 4: bind :1883 -- connections that do not begin with TLS"],
    );
    let page = of(
        Program::Haproxy,
        &text.replace(" bind :443 ssl crt a.pem\n", ""),
    );
    assert_eq!(page.to_do, 0, "{}", page.text);
    assert!(
        page.text
            .contains("line 3: bind :1883 -- connections that do not begin with TLS"),
        "{}",
        page.text
    );
}

#[test]
fn listeners_of_quic_are_steps() {
    let haproxy = "frontend f\n mode http\n bind :443 ssl crt a.pem\n bind quic4@:443 ssl crt a.pem alpn h3\n http-response set-header alt-svc h3\n default_backend b\nbackend b\n mode http\n server s 10.0.0.1:1\n";
    let nginx = format!(
        "http {{ server {{ listen 443 ssl; listen 443 quic; {STREAM} location / {{ proxy_pass http://10.0.0.1; proxy_set_header Host $host; }} }} }}"
    );
    for (program, text) in [(Program::Haproxy, haproxy), (Program::Nginx, &nginx)] {
        let page = of(program, text);
        has(
            &page,
            &["listen = \"0.0.0.0:443\""],
            &["this is a QUIC listener, and Dormouse has no QUIC: delete it"],
        );
        assert_eq!(
            (page.to_do, page.text.matches("[[route]]").count()),
            (1, 1),
            "{}",
            page.text
        );
    }
}

/// Clients that ask for the name but offer other protocols go on to the later rules.
#[test]
fn a_rule_about_name_and_protocol_refuses_nobody() {
    let text = "frontend f\n mode tcp\n bind :443\n use_backend grpc if { req.ssl_sni a.test } { req.ssl_alpn h2 }\n default_backend web\nbackend grpc\n server s 10.0.0.1:1\nbackend web\n server s 10.0.0.2:1\n";
    let page = of(Program::Haproxy, text);
    let routes: Vec<&str> = page.text.split("[[route]]").skip(1).collect();
    assert_eq!(routes.len(), 3, "{}", page.text);
    assert!(
        routes[0].contains("10.0.0.1:1")
            && routes[0].contains("a.test")
            && routes[0].contains("h2")
    );
    assert!(
        routes[1].contains("10.0.0.2:1")
            && routes[1].contains("a.test")
            && !routes[1].contains("\nalpn")
    );
    assert!(routes[2].contains("10.0.0.2:1") && !routes[2].contains("a.test"));
    // A rule about protocols alone counts for the names of later rules, too.
    let text = text.replace(
        "{ req.ssl_sni a.test } { req.ssl_alpn h2 }",
        "{ req.ssl_alpn acme-tls/1 }\n use_backend web if { req.ssl_sni b.test }",
    );
    let page = of(Program::Haproxy, &text);
    let both = page.text.split("[[route]]").any(|one| {
        one.contains("acme-tls/1") && one.contains("b.test") && one.contains("10.0.0.1:1")
    });
    assert!(both, "{}", page.text);
}

#[test]
fn a_backend_whose_servers_are_disabled_keeps_its_settings() {
    let text = "listen l\n bind :443 ssl crt a.pem\n server s 10.0.0.1:1 ssl verify required ca-file ca.pem send-proxy-v2 disabled\n";
    let page = of(Program::Haproxy, text);
    has(
        &page,
        &[
            "backend_tls = true",
            "backend_ca = \"ca.pem\"",
            "proxy_protocol = \"v2\"",
        ],
        &["no server of it gets connections"],
    );
}

/// Dormouse knows a file by its name, HAProxy and hitch read each.
#[test]
fn directories_of_certificates_lose_no_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    let write = |name: &str| std::fs::write(at(name), "").expect("written");
    let haproxy = || {
        let text = format!(
            "listen l\n bind :443 ssl crt {}/\n server s 10.0.0.1:1\n",
            folder.path().display()
        );
        of(Program::Haproxy, &text).text
    };
    let hitch = |glob: &str| {
        let text = format!(
            "frontend = \"[*]:443\"\npem-dir = \"{}\"\npem-dir-glob = \"{glob}\"\n",
            folder.path().display()
        );
        of(Program::Hitch, &text)
    };
    write("a.pem");
    write("b.crt");
    let whole = format!("certificates = \"{}/\"", folder.path().display());
    assert!(haproxy().contains(&whole), "{}", haproxy());
    write("c.bundle");
    let page = haproxy();
    for name in ["a.pem", "b.crt", "c.bundle"] {
        assert!(page.contains(&format!("/{name}\"")), "{page}");
    }
    let page = hitch("*.bundle");
    assert!(
        page.text.contains("c.bundle\"") && !page.text.contains("/a.pem"),
        "{}",
        page.text
    );
    assert_eq!((page.to_do, errors(&page.text)), (0, 0), "{}", page.text);
    has(
        &hitch("*.none"),
        &[],
        &["no file in this directory matches"],
    );
}

#[test]
fn clients_of_hitch_without_a_name_are_served() {
    let page = of(
        Program::Hitch,
        "frontend = \"[*]:443\"\npem-file = \"a.pem\"\nsni-nomatch-abort = on\n",
    );
    has(&page, &["unknown_name = \"refuse-named\""], &[]);
}

#[test]
fn pre_shared_keys_of_stunnel_are_steps() {
    let server = "[s]\naccept = 443\nconnect = 80\ncert = a.pem\nPSKsecrets = keys\n";
    let client =
        "[c]\nclient = yes\naccept = 127.0.0.1:1\nconnect = a.test:443\nPSKsecrets = keys\n";
    has(
        &of(Program::Stunnel, server),
        &[],
        &["line 5: PSKsecrets = keys"],
    );
    let page = of(Program::Stunnel, client);
    has(&page, &[], &["line 5: PSKsecrets = keys"]);
    assert!(!page.text.contains("insecure"), "{}", page.text);
}

#[test]
fn every_name_of_a_server_of_stunnel_counts() {
    let text = "[c]\nclient = yes\naccept = 127.0.0.1:1\nconnect = a.test:443\nverifyChain = yes\nCAfile = ca.pem\ncheckHost = a.test\n";
    assert_eq!(of(Program::Stunnel, text).to_do, 0);
    for more in ["checkHost = b.test", "sni = c.test", "checkIP = 192.0.2.1"] {
        let page = of(Program::Stunnel, &format!("{text}{more}\n"));
        has(
            &page,
            &["server_name = \"a.test\""],
            &[&format!("line 8: {more}")],
        );
    }
    assert_eq!(
        of(Program::Stunnel, &format!("{text}sni = A.test\n")).to_do,
        0
    );
}

#[test]
fn keepalive_and_names_of_services_of_stunnel_are_converted() {
    let text = "socket = l:TCP_KEEPIDLE=60\nsocket = r:TCP_KEEPINTVL=10\nsocket = l:TCP_KEEPCNT=5\n[s]\naccept = imaps\nconnect = localhost:imap2\ncert = a.pem\n[t]\naccept = nosuchservice\nconnect = 80\ncert = a.pem\n";
    let lines = [
        "keepalive_idle = \"60s\"",
        "keepalive_interval = \"10s\"",
        "keepalive_count = 5",
        "listen = \"0.0.0.0:993\"",
        "to = \"localhost:143\"",
    ];
    has(
        &of(Program::Stunnel, text),
        &lines,
        &["line 9: accept = nosuchservice"],
    );
}

/// A gateway that only connects with TLS, as for devices and databases.
#[test]
fn plain_listeners_with_tls_to_their_servers_become_originations() {
    let nginx = "stream { server { listen 127.0.0.1:1883; proxy_pass a.test:8883; proxy_ssl on; proxy_ssl_certificate c.pem; proxy_ssl_certificate_key c.key; VERIFY } }";
    let page = of(
        Program::Nginx,
        &nginx.replace(
            "VERIFY",
            "proxy_ssl_verify on; proxy_ssl_trusted_certificate ca.pem; proxy_ssl_name b.test;",
        ),
    );
    let lines = [
        "[[originate]]",
        "listen = \"127.0.0.1:1883\"",
        "to = \"a.test:8883\"",
        "ca = \"/etc/there/ca.pem\"",
        "server_name = \"b.test\"",
    ];
    has(&page, &lines, &[]);
    assert_eq!((page.to_do, errors(&page.text)), (0, 0), "{}", page.text);
    let page = of(Program::Nginx, &nginx.replace("VERIFY", ""));
    has(&page, &["insecure = true"], &[]);
    assert!(page.text.contains("verification was off"), "{}", page.text);
    let haproxy = "listen l\n mode tcp\n bind 127.0.0.1:6380\n server s a.test:6379 ssl verify required ca-file ca.pem sni str(a.test)\n";
    let page = of(Program::Haproxy, haproxy);
    has(
        &page,
        &[
            "[[originate]]",
            "to = \"a.test:6379\"",
            "ca = \"ca.pem\"",
            "server_name = \"a.test\"",
        ],
        &[],
    );
    assert_eq!((page.to_do, errors(&page.text)), (0, 0), "{}", page.text);
}

/// Headers that nginx set, which the backend may trust.
#[test]
fn headers_about_the_client_are_steps_of_a_plain_forward() {
    let text = format!(
        "http {{ server {{ listen 443 ssl; {STREAM} location / {{ proxy_pass http://10.0.0.1; proxy_set_header Host $host;\n proxy_set_header X-Real-IP $remote_addr;\n }} }} }}"
    );
    let page = of(Program::Nginx, &text);
    has(
        &page,
        &["to = \"10.0.0.1:80\""],
        &[
            "line 2: proxy_set_header X-Real-IP $remote_addr -- here the backend gets this header as the client sends it",
        ],
    );
    assert!(
        page.text.contains("converted as a plain forward"),
        "{}",
        page.text
    );
    let other = text.replace("X-Real-IP $remote_addr", "X-Secret 1");
    assert!(
        of(Program::Nginx, &other)
            .text
            .contains("nginx stays behind")
    );
}

/// What no converter knows is a step by itself, wherever it stands.
#[test]
fn unknown_settings_are_steps() {
    for (program, text) in [
        (Program::Nginx, format!("stream {{ frobnicate on; server {{ listen 443 ssl frobnicate; {STREAM} proxy_pass 10.0.0.1:1; frobnicate x; }} }} frobnicate 1;")),
        (Program::Haproxy, "global\n frobnicate 1\nlisten l\n bind :443 ssl crt a.pem frobnicate\n frobnicate x\n server s 10.0.0.1:1 frobnicate\n".to_owned()),
        (Program::Hitch, "frobnicate = 1\nfrontend = {\n port = \"443\"\n frobnicate = 2\n}\npem-file = {\n cert = \"a\"\n frobnicate = 3\n}\nfrobnicate\n".to_owned()),
        (Program::Stunnel, "frobnicated = 1\n[s]\naccept = 443\nconnect = 80\ncert = a.pem\nfrobnicate = 2\nfrobnicate\nsocket = frobnicate\n".to_owned()),
    ] {
        let page = of(program, &text);
        let said = steps(&page.text).matches("frobnicate").count();
        let in_comments = page.text.lines().filter(|line| line.starts_with('#')).map(|line| line.matches("frobnicate").count()).sum::<usize>();
        assert!(said >= 3 && said + in_comments >= 4, "{said} {in_comments}: {}", page.text);
    }
}

/// The text of another program's file is no variable of Dormouse's environment.
#[test]
fn braces_behind_a_dollar_stay_as_they_are() {
    let text = "[s]\naccept = 443\nconnect = 80\ncert = /etc/${HOME}/a.pem\n";
    let page = of(Program::Stunnel, text);
    assert!(
        page.text.contains("\"/etc/$${HOME}/a.pem\""),
        "{}",
        page.text
    );
    assert_eq!(errors(&page.text), 0, "{}", page.text);
}

/// `ocsp-update` and the like are words of HAProxy 3.
#[test]
fn words_of_haproxy_3() {
    let text = "
acme le
    directory https://acme.test/directory
    challenge dns-01
    provider-name p
    acme-vars a=b
crt-store s
    load crt a.crt key a.key ocsp-update on issuer a.issuer sctl a.sctl alias a
    load crt b.crt acme le domains b.test alias b
defaults
    mode tcp
frontend f
    bind :443 ssl crt @s/a label x quic-socket connection alpn h2 no-alpn
    default_backend b
frontend g
    bind :444 ssl
    ssl-f-use crt @s/b
    default_backend b
backend b
    server s 10.0.0.1:80 check port 21 pool-conn-name a idle-ping 3s init-state down no-agent-check strict-maxconn
";
    let page = of(Program::Haproxy, text);
    assert!(!page.text.contains("does not know"), "{}", page.text);
    assert!(!page.text.contains("alpn = "), "{}", page.text);
    let wanted = [
        "acme = [\"b.test\"]\n",
        "sctl a.sctl -- timestamps",
        "port 21 -- checks connect to the backend's own address",
    ];
    for words in wanted {
        assert!(page.text.contains(words), "{words}: {}", page.text);
    }
}

/// Only what FIPS 140 approves was allowed.
#[test]
fn fips_of_stunnel_is_a_step() {
    let text = "fips = yes\n[a]\naccept = 443\nconnect = 80\ncert = a.pem\n";
    let page = of(Program::Stunnel, text);
    assert_eq!(page.to_do, 1, "{}", page.text);
    let page = of(Program::Stunnel, &text.replace("yes", "no"));
    assert_eq!(page.to_do, 0, "{}", page.text);
}

/// The first certificate of a bind is for clients without a name, too, also if `default-crt` follows it.
#[test]
fn default_certificates_of_haproxy() {
    for (words, order) in [
        (
            "crt a default-crt b crt c default-crt d",
            ["a", "b", "d", "c"],
        ),
        (
            "default-crt b crt a default-crt d crt c",
            ["b", "d", "a", "c"],
        ),
    ] {
        let text = format!("listen l\n mode tcp\n bind :443 ssl {words}\n server s 10.0.0.1:80\n");
        let page = of(Program::Haproxy, &text);
        let wanted = format!("certificates = {order:?}");
        assert!(page.text.contains(&wanted), "{wanted}: {}", page.text);
    }
    let text = "listen l\n mode tcp\n bind :443 ssl\n bind :444 ssl crt d\n ssl-f-use crt a\n ssl-f-use crt b\n ssl-f-use crt c\n server s 10.0.0.1:80\n";
    let page = of(Program::Haproxy, text);
    for order in ["[\"c\", \"b\", \"a\"]", "[\"d\", \"c\", \"b\", \"a\"]"] {
        assert!(page.text.contains(order), "{order}: {}", page.text);
    }
}

/// One option stands for all redirects: what differs is said, and no client is led to the wrong port.
#[test]
fn redirects_that_differ_are_named() {
    let server = |port: &str, then: &str| {
        format!("server {{ listen {port}; return {then}$host$request_uri; }}")
    };
    let of_tls = "server { listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key; \
                  location / { proxy_pass http://10.0.0.1; proxy_set_header Host $host; } }";
    let text = format!(
        "http {{ {of_tls} {} {} server {{ listen 83; return 301 https://$host:8443$request_uri; }} }}",
        server("81", "301 https://"),
        server("82", "308 https://"),
    );
    let page = of(Program::Nginx, &text);
    has(&page, &[], &["lead to one port"]);
    assert!(
        page.text
            .contains("redirect = [\"0.0.0.0:81\", \"0.0.0.0:82\"]"),
        "{}",
        page.text
    );
    assert!(!page.text.contains("redirect_port"), "{}", page.text);
    assert!(
        page.text.contains("all redirects have one status"),
        "{}",
        page.text
    );
}

/// Dormouse has one limit for each client. A smaller one that is lost is said.
#[test]
fn the_smaller_of_two_limits_is_named() {
    let zone = "limit_conn_zone $binary_remote_addr zone=a:1m;";
    for (first, second) in [(5, 50), (50, 5)] {
        let text = format!(
            "stream {{ {zone} server {{ listen 1 ssl; {STREAM} proxy_pass 10.0.0.1:1; limit_conn a {first}; }} \
             server {{ listen 2 ssl; {STREAM} proxy_pass 10.0.0.1:1; limit_conn a {second}; }} }}"
        );
        let page = of(Program::Nginx, &text);
        assert!(
            page.text.contains("connections_per_client = 50"),
            "{}",
            page.text
        );
        let said =
            "limit_conn a 5 -- all routes share one `connections_per_client`: the largest is used";
        assert!(page.text.contains(said), "{}", page.text);
    }
}

/// Dormouse has one set of ticket keys, for instance, and nginx one for each server: the one that is lost is named, and why.
#[test]
fn options_of_the_program_that_differ_by_server_are_named() {
    let server = |port: u16, more: &str| {
        format!(
            "server {{ listen {port} ssl so_keepalive={port}s::; {STREAM} proxy_pass 10.0.0.1:1; {more} }}"
        )
    };
    let text = format!(
        "stream {{ {} {} {} }}",
        server(
            11,
            "ssl_session_ticket_key one.key; ssl_session_timeout 5m;"
        ),
        server(
            12,
            "ssl_session_ticket_key two.key; ssl_session_timeout 1h;"
        ),
        server(12, "ssl_session_timeout 1h;"),
    );
    let page = of(Program::Nginx, &text);
    for (name, lost) in [
        ("ticket_keys", "one.key"),
        ("ticket_lifetime", "5m"),
        ("keepalive_idle", "11s"),
    ] {
        let said = format!("all routes share one `{name}`: ");
        let line = page.text.lines().find(|line| line.contains(&said));
        let line = line.unwrap_or_else(|| panic!("{name}: {}", page.text));
        assert!(line.contains(lost) && line.ends_with(" is lost"), "{line}");
    }
    assert!(!page.text.contains("does not know"), "{}", page.text);
}
