//! The result accepts no client that the other program refused, and sends none elsewhere, without a
//! word.

use super::*;

/// With one address for all, a client of one frontend would reach the other's rules.
#[test]
fn parts_that_stay_behind_have_addresses_of_their_own() {
    let addresses = |program, text: &str| {
        let page = converted(program, text);
        let found = page.lines().filter_map(|line| line.strip_prefix("to = "));
        found.map(str::to_owned).collect::<Vec<_>>()
    };
    let haproxy = "defaults
 mode http
frontend public
 bind :443 ssl crt a.pem
 bind :444 ssl crt a.pem
 http-request deny if { path /admin }
frontend admin
 bind :8443 ssl crt a.pem verify required ca-file ca.pem
 http-request set-header x y
";
    let (first, second) = ("\"127.0.0.1:8080\"", "\"127.0.0.1:8081\"");
    assert_eq!(addresses(Program::Haproxy, haproxy), [first, first, second]);
    let server = |listen: &str, name: &str, more: &str| {
        format!(
            "server {{ {listen} server_name {name}; ssl_certificate a.pem; ssl_certificate_key a.key; {more} root /x; }}\n"
        )
    };
    let nginx = |second_listen: &str, more: &str| {
        let one = server("listen 443 ssl; listen [::]:443 ssl;", "a.test", "");
        let other = server(second_listen, "b.test", more);
        addresses(Program::Nginx, &format!("http {{ {one} {other} }}"))
    };
    assert_eq!(nginx("listen 443 ssl;", ""), [first, first]);
    assert_eq!(nginx("listen 8443 ssl;", ""), [first, second]);
    let verifies = "ssl_verify_client on; ssl_client_certificate ca.pem;";
    assert_eq!(nginx("listen 443 ssl;", verifies), [first, second]);
}

/// In nginx the exact name wins, whichever server is the default.
#[test]
fn names_of_the_default_server_are_not_left_to_a_wildcard() {
    let text = "stream {
 server { listen 443 ssl; server_name www.a.test; server_name other.test .b.test; ssl_verify_client on; ssl_client_certificate ca.pem; proxy_pass 10.0.0.1:1; }
 server { listen 443 ssl; server_name *.a.test; proxy_pass 10.0.0.2:1; }
}
";
    let page = converted(Program::Nginx, text);
    let (before, _) = page
        .split_once("server_names = [\"*.a.test\"]")
        .expect("the wildcard");
    assert!(before.contains("server_names = [\"www.a.test\"]"), "{page}");
    assert_eq!(
        page.matches("client_certificates = \"required\"").count(),
        2,
        "{page}"
    );
    // All `server_name` lines of a server count.
    let text = text.replace(
        "listen 443 ssl; server_name www",
        "listen 443 ssl; listen 444 ssl; server_name www",
    );
    let other = "server { listen 444 ssl default_server; proxy_pass 10.0.0.3:1; }\n}\n";
    let text = text
        .trim_end()
        .strip_suffix('}')
        .expect("the end")
        .to_owned()
        + other;
    let page = converted(Program::Nginx, &text);
    let all = "server_names = [\"www.a.test\", \"other.test\", \"b.test\", \"*.b.test\"]";
    assert!(page.contains(all), "{page}");
}

/// Maps and headers of all servers, and names in braces, count too.
#[test]
fn facts_about_tls_around_the_servers_of_nginx_are_things_to_do() {
    let with = |around: &str, inside: &str| {
        let text = format!(
            "http {{ {around} server {{ listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key;
             root /x; {inside} }} }}"
        );
        let page = converted(Program::Nginx, &text);
        page.contains("nginx has no TLS facts")
    };
    assert!(with("map $ssl_client_s_dn $ok { default 0; }", ""));
    assert!(with("", "add_header x ${scheme};"));
    assert!(!with("log_format x $ssl_cipher;", ""));
}

/// Without these, clients that HAProxy refused would be accepted.
#[test]
fn refusals_of_haproxy_are_things_to_do() {
    let of_rules = |rules: &str| {
        let text = format!("listen l\n bind :443 ssl crt a.pem\n{rules}\n server a 10.0.0.1:80\n");
        import(Program::Haproxy, &text).expect("a valid configuration")
    };
    let reject = |rest: &str| of_rules(&format!(" tcp-request content reject {rest}"));
    for rest in ["unless { ssl_c_used }", "if !{ ssl_fc_sni -i a.test }"] {
        let page = reject(rest);
        assert_reported(&page.text, &[], &["(line 3)"]);
    }
    let accept = " tcp-request content accept if { ssl_fc_sni -i a.test }\n";
    let page = of_rules(&format!("{accept} tcp-request content reject"));
    assert_reported(&page.text, &[], &["(line 4)"]);
    let page = of_rules(
        " tcp-request content accept if { req.ssl_hello_type 1 }\n tcp-request content reject",
    );
    assert_eq!(page.to_do, 0, "{}", page.text);
}

#[test]
fn the_order_of_backends_by_name_is_not_lost_silently() {
    let of_order = |first: &str, second: &str| {
        let text = format!(
            "frontend f\n bind :443 ssl crt a.pem\n use_backend a if {{ {first} }}\n use_backend b if {{ {second} }}
backend a\n server s 10.0.0.1:1\nbackend b\n server s 10.0.0.2:1\n"
        );
        import(Program::Haproxy, &text).expect("a valid configuration")
    };
    let (end, exact) = ("ssl_fc_sni -m end .a.test", "ssl_fc_sni www.a.test");
    assert_reported(&of_order(end, exact).text, &[], &["(line 4)"]);
    assert_eq!(of_order(exact, end).to_do, 0);
}

#[test]
fn options_of_a_certificate_and_unknown_words_of_a_bind_are_reported() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    let list = "a.pem\nb.pem [verify required ca-file ca.pem] b.test\nc.pem [alpn h2]\n";
    std::fs::write(at("list"), list).expect("written");
    let text = format!(
        "listen l\n bind :443 ssl crt-list {} frobnicate no-sslv3\n server a 10.0.0.1:80\n",
        at("list").display()
    );
    let page = converted(Program::Haproxy, &text);
    assert_reported(&page, &["frobnicate", "list:3: c.pem alpn h2"], &["list:2"]);
    assert!(page.contains("no-sslv3 -- TLS 1.2 is the oldest"), "{page}");
}

#[test]
fn options_of_stunnel_that_switch_versions_off_are_converted() {
    let text = "[s]\naccept = 443\nconnect = 80\ncert = a.pem\noptions = NO_SSLv3\n";
    for (option, version) in [
        ("NO_TLSv1_2", "min_version = \"1.3\""),
        ("NO_TLSv1_3", "max_version = \"1.2\""),
        ("no_tlsv1_2", "min_version = \"1.3\""),
        ("NO_TLSv1.2", "min_version = \"1.3\""),
        // A minimum does not end it.
        (
            "NO_TLSv1_2\nsslVersionMin = TLSv1.2",
            "min_version = \"1.3\"",
        ),
    ] {
        let page = converted(Program::Stunnel, &format!("{text}options = {option}\n"));
        assert!(page.contains(version), "{page}");
    }
    // The case of keys and values does not matter.
    for line in ["SSLVERSIONMIN = TLSv1.3", "sslVersionMin = tlsv1.3"] {
        let page = converted(Program::Stunnel, &format!("{text}{line}\n"));
        assert!(page.contains("min_version = \"1.3\""), "{page}");
    }
}

#[test]
fn certificates_of_a_frontend_of_hitch_replace_those_of_all() {
    let certificates = |own: &str| {
        let text = format!(
            "pem-file = \"all.pem\"\nfrontend = {{\n port = \"1\"\n pem-file = \"own.pem\"\n {own}\n}}\n"
        );
        let page = converted(Program::Hitch, &text);
        page.contains("certificates = [\"own.pem\", \"all.pem\"]")
    };
    assert!(!certificates(""));
    assert!(certificates("match-global-certs = on"));
}

#[test]
fn a_higher_security_level_of_stunnel_is_a_remark() {
    let page = |level: &str| {
        let text = "[s]\naccept = 443\nconnect = 80\ncert = a.pem\nsecurityLevel = ";
        converted(Program::Stunnel, &format!("{text}{level}\n"))
    };
    assert!(
        page("2").contains("reach level 2 in any case"),
        "{}",
        page("2")
    );
    let higher = page("3");
    assert!(
        higher.contains("securityLevel = 3") && higher.contains("level 2"),
        "{higher}"
    );
}

/// stunnel does not mind the case of `yes`. Only a later `requireCert = no` makes a certificate optional.
#[test]
fn clients_of_stunnel_need_a_certificate_as_before() {
    let how = |lines: &str| {
        let text =
            format!("[s]\naccept = 443\nconnect = 80\ncert = a.pem\nCAfile = ca.pem\n{lines}\n");
        let page = converted(Program::Stunnel, &text);
        let found = page
            .lines()
            .find_map(|line| line.strip_prefix("client_certificates = "));
        found.unwrap_or("none").trim_matches('"').to_owned()
    };
    assert_eq!(how("verifyChain = YES"), "required");
    assert_eq!(how("verifyChain = yes\nrequireCert = no"), "optional");
    assert_eq!(how("requireCert = no\nverifyChain = yes"), "required");
    // Each line changes what the lines before it have set.
    assert_eq!(how("verify = 1\nrequireCert = yes"), "required");
    assert_eq!(how("requireCert = no\nverify = 2"), "required");
    assert_eq!(how("verifyChain = yes\nverify = 1"), "optional");
    assert_eq!(how("verify = 2\nverifyChain = no"), "none");
}

/// Without these checks, peers that were refused would be accepted. stunnel makes none of them without `verifyChain`
/// or `verifyPeer`.
#[test]
fn checks_of_stunnel_that_dormouse_does_not_make_are_things_to_do() {
    let with = |lines: &str| {
        let text = format!(
            "[s]\naccept = 443\nconnect = a.test:80\ncert = a.pem\nCAfile = ca.pem\n{lines}"
        );
        import(Program::Stunnel, &text).expect("a valid configuration")
    };
    for client in ["", "client = yes\n"] {
        for check in [
            "OCSPaia = yes",
            "OCSP = http://ocsp.test",
            "CRLfile = revoked.pem",
        ] {
            let page = with(&format!("verifyChain = yes\n{check}\n{client}"));
            let is_converted = check.starts_with("CRL");
            assert_eq!(page.to_do, usize::from(!is_converted), "{}", page.text);
            let page = with(&format!("{check}\n{client}"));
            assert_eq!(page.to_do, 0, "{}", page.text);
            assert!(page.text.contains("it had no effect"), "{}", page.text);
        }
    }
    assert_eq!(with("verifyChain = yes\nOCSPaia = no\n").to_do, 0);
    assert_eq!(with("PSKsecrets = keys\n").to_do, 1);
}

/// A revoked certificate was refused.
#[test]
fn revocation_lists_for_backends_are_converted() {
    let haproxy = "listen l
 bind :443 ssl crt a.pem
 server a 10.0.0.1:443 ssl verify required ca-file ca.pem crl-file revoked.pem
";
    let page = import(Program::Haproxy, haproxy).expect("a valid configuration");
    let wanted = "backend_crl = [\"/etc/there/revoked.pem\"]";
    assert!(
        page.text.contains("revoked.pem\"]") && page.to_do == 0,
        "{wanted}: {}",
        page.text
    );
    let differ = format!("{haproxy} server b 10.0.0.2:443 ssl verify required ca-file ca.pem\n");
    let differ = import(Program::Haproxy, &differ).expect("a valid configuration");
    assert_reported(&differ.text, &["differ in crl-file"], &[]);
    let unverified = haproxy.replace("required", "none");
    let page = import(Program::Haproxy, &unverified).expect("a valid configuration");
    let why = "crl-file revoked.pem -- no certificate was verified";
    assert_reported(&page.text, &[why], &[]);
    let nginx = |verify: &str| {
        let text = format!("stream {{ server {{ listen 443 ssl; proxy_pass 10.0.0.1:443; ssl_certificate a.pem; ssl_certificate_key a.key;
 proxy_ssl on; proxy_ssl_trusted_certificate ca.pem; proxy_ssl_verify {verify};
 proxy_ssl_crl revoked.pem;
}} }}
");
        import(Program::Nginx, &text).expect("a valid configuration")
    };
    let on = nginx("on");
    assert!(
        on.text.contains("backend_crl = [") && on.to_do == 0,
        "{}",
        on.text
    );
    assert_eq!(nginx("off").to_do, 0);
    assert!(!nginx("off").text.contains("backend_crl"));
}

/// nginx asks the authority about each client.
#[test]
fn ocsp_for_clients_of_nginx_is_a_thing_to_do() {
    let to_do = |more: &str| {
        let text = format!("stream {{ server {{ listen 443 ssl; proxy_pass 10.0.0.1:80; ssl_certificate a.pem; ssl_certificate_key a.key;
 ssl_ocsp leaf; ssl_client_certificate ca.pem; {more}
}} }}
");
        let page = import(Program::Nginx, &text).expect("a valid configuration");
        page.to_do
    };
    assert_eq!(to_do("ssl_verify_client on;"), 1);
    assert_eq!(to_do(""), 0);
}

/// The other programs accept lists with an item twice, Dormouse does not.
#[test]
fn lists_have_each_item_once() {
    let hitch = "pem-file = \"a.pem\"
frontend = \"[*]:8443\"
backend = \"[127.0.0.1]:80\"
alpn-protos = \"h2, h2\"
ecdh-curve = \"X25519:x25519\"
";
    let nginx = "stream { server { listen 443 ssl; proxy_pass 10.0.0.1:80; ssl_certificate a.pem; ssl_certificate_key a.key;
 allow 10.0.0.0/8; allow 10.0.0.0/8; deny 192.0.2.1; deny 192.0.2.1; deny all;
} }
";
    let stunnel = "[a]
client = yes
accept = 127.0.0.1:1
connect = a.example:443
connect = a.example:443
verifyChain = yes
CAfile = ca.pem
checkHost = a.example
";
    for (program, text) in [
        (Program::Hitch, hitch),
        (Program::Nginx, nginx),
        (Program::Stunnel, stunnel),
    ] {
        let page = import(program, text).expect("a valid configuration");
        assert_eq!((page.to_do, errors(&page.text)), (0, 0), "{}", page.text);
    }
}

/// A `defaults` section that names another begins with its lines.
#[test]
fn defaults_of_haproxy_inherit() {
    let text = "defaults one
 mode http
 http-request deny unless { ssl_c_used }
defaults two from one
 timeout client 9s
frontend f from two
 bind :443 ssl crt a.pem
 default_backend b
backend b
 server s 10.0.0.1:80
";
    let page = converted(Program::Haproxy, text);
    assert!(
        page.contains("HAProxy stays behind") && page.contains("has no TLS facts"),
        "{page}"
    );
}

#[test]
fn commands_to_openssl_are_converted_or_reported() {
    let text = "stream { server { listen 443 ssl; proxy_pass 10.0.0.1:80; ssl_certificate a.pem; ssl_certificate_key a.key;
 ssl_conf_command MinProtocol TLSv1.3;
 ssl_conf_command Options PrioritizeChaCha;
} }
";
    let page = converted(Program::Nginx, text);
    assert!(page.contains("min_version = \"1.3\""), "{page}");
    assert_reported(&page, &["line 3: ssl_conf_command Options"], &[]);
}

/// `*.a.test` in a map is a wildcard only with `hostnames`.
#[test]
fn a_map_without_hostnames_has_no_wildcards() {
    let of_map = |more: &str| {
        let text = format!(
            "stream {{ map $ssl_preread_server_name $up {{ {more} *.a.test 10.0.0.1:1; b.test 10.0.0.1:1;
 \"\" 10.0.0.3:1; default 10.0.0.2:1; }}
 server {{ listen 443; ssl_preread on; proxy_pass $up; }} }}"
        );
        converted(Program::Nginx, &text)
    };
    let page = of_map("");
    assert!(page.contains("server_names = [\"b.test\"]"), "{page}");
    assert_reported(&page, &["without `hostnames`"], &[]);
    assert!(of_map("hostnames;").contains("[\"*.a.test\", \"b.test\"]"));
}

/// Clients that send no name may have gone nowhere, so the default is no place for them.
#[test]
fn a_target_for_clients_without_a_name_is_a_step() {
    for (by, entries, is_step) in [
        (
            "ssl_preread_server_name",
            "\"\" 10.0.0.3:1; default 10.0.0.2:1;",
            true,
        ),
        (
            "ssl_preread_server_name",
            "\"\" 10.0.0.3:1; b.test 10.0.0.2:1;",
            true,
        ),
        (
            "ssl_preread_server_name",
            "\"\" 10.0.0.2:1; default 10.0.0.2:1;",
            false,
        ),
        (
            "ssl_preread_alpn_protocols",
            "'' 10.0.0.3:1; default 10.0.0.2:1;",
            true,
        ),
    ] {
        let text = format!(
            "stream {{ map ${by} $up {{ a.test 10.0.0.1:1; {entries} }}
 server {{ listen 443; ssl_preread on; proxy_pass $up; }} }}"
        );
        let page = import(Program::Nginx, &text).expect("a valid configuration");
        assert_eq!(page.to_do, usize::from(is_step), "{}", page.text);
    }
}

/// `allow` and `deny` around the servers are one list, which a server's own replaces.
#[test]
fn networks_around_the_servers_of_nginx_are_replaced_together() {
    let text = "stream { allow 10.0.0.0/8; deny all;
 server { listen 443 ssl; ssl_certificate a; ssl_certificate_key b; proxy_pass 10.0.0.1:80; }
 server { listen 444 ssl; ssl_certificate a; ssl_certificate_key b; proxy_pass 10.0.0.1:80; allow 192.0.2.1; } }";
    let page = import(Program::Nginx, text).expect("a valid configuration");
    assert_eq!(page.to_do, 0, "{}", page.text);
    assert_eq!(page.text.matches("allow = ").count(), 1, "{}", page.text);
}

/// nginx accepts clients of both files.
#[test]
fn a_second_file_of_authorities_of_nginx_is_reported() {
    let text = "stream { server { listen 443 ssl; proxy_pass 10.0.0.1:80; ssl_verify_client on;
 ssl_client_certificate a.pem;
 ssl_trusted_certificate b.pem;
} }
";
    let reported = |text: &str| {
        let page = converted(Program::Nginx, text);
        page.contains("line 3: ssl_trusted_certificate")
    };
    assert!(reported(text));
    assert!(!reported(&text.replace("b.pem", "a.pem")));
}

#[test]
fn haproxy_stays_for_everything_that_it_does_with_requests() {
    for line in [
        "reqdeny ^Secret:",
        "rspdel ^Server:",
        "option originalto",
        "option forwarded",
    ] {
        let text = format!(
            "listen l\n mode http\n bind :443 ssl crt a.pem\n {line}\n server a 10.0.0.1:80\n"
        );
        let page = converted(Program::Haproxy, &text);
        assert!(page.contains("HAProxy stays behind"), "{page}");
    }
}

/// Which branch applies depends on the machine on which HAProxy starts.
#[test]
fn conditional_blocks_of_haproxy_are_things_to_do() {
    let text = "listen l
 bind :443 ssl crt a.pem
.if defined(OPEN)
.else
 tcp-request connection reject if { src 10.0.0.0/8 }
.endif
 server a 10.0.0.1:80
";
    let page = import(Program::Haproxy, text).expect("a valid configuration");
    assert_reported(&page.text, &[], &["(line 3)"]);
    assert_eq!((page.to_do, page.left_out), (1, 0), "{}", page.text);
    // Above the first section, too.
    let above = format!(
        ".if defined(OPEN)\nglobal\n maxconn 100\n.endif\n{}",
        text.replace(".if", ".elif")
    );
    let page = import(Program::Haproxy, &above).expect("a valid configuration");
    assert_reported(&page.text, &["max_connections = 100"], &["(line 1)"]);
}

/// HAProxy and hitch then continue without a protocol, Dormouse refuses the client.
#[test]
fn clients_that_offer_other_protocols_are_reported() {
    let haproxy = |bind: &str, more: &str| {
        let text =
            format!("listen l\n bind :443 ssl crt a.pem {bind}\n{more} server a 10.0.0.1:80\n");
        converted(Program::Haproxy, &text)
    };
    let hitch = "pem-file = \"a.pem\"\nfrontend = \"[*]:443\"\nalpn-protos = \"h2, http/1.1\"\n";
    let hitch = converted(Program::Hitch, hitch);
    for (page, has_alpn) in [
        (haproxy("alpn mqtt", ""), true),
        (haproxy("", ""), false),
        (
            haproxy("alpn http/1.1", " mode http\n option forwardfor\n"),
            true,
        ),
        // Then nothing is left of it.
        (haproxy("alpn h2,http/1.1", " mode http\n"), false),
        (hitch, true),
    ] {
        assert_eq!(page.contains("\nalpn = "), has_alpn, "{page}");
        assert_eq!(page.contains("offers only other"), has_alpn, "{page}");
    }
}

#[test]
fn haproxys_limits_of_bandwidth_are_reported_with_the_option_that_limits_it() {
    for (filter, says) in [
        ("bwlim-in", "bytes_per_client"),
        ("bwlim-out", "bytes_per_client"),
        ("trace", "no equivalent"),
    ] {
        let text = format!(
            "listen l\n bind :443 ssl crt a.pem\n filter {filter} x default-limit 1m default-period 1s\n \
             server a 10.0.0.1:80\n"
        );
        let page = converted(Program::Haproxy, &text);
        assert_eq!(
            page.contains("no equivalent"),
            says == "no equivalent",
            "{page}"
        );
        assert!(page.contains(says), "{page}");
    }
}

/// A parameter of `listen` before nginx 1.25.1, a directive of the server or around it since.
#[test]
fn http2_of_nginx_is_reported() {
    for (around, parameter, inside) in [
        ("", "http2", ""),
        ("", "", "http2 on;"),
        ("http2 on;", "", ""),
    ] {
        let text = format!(
            "http {{ {around} server {{ listen 443 ssl {parameter}; {inside} ssl_certificate a.pem;
             ssl_certificate_key a.key; location / {{ proxy_pass http://10.0.0.1; proxy_set_header Host $host; }} }} }}"
        );
        let page = import(Program::Nginx, &text).expect("a valid configuration");
        assert_eq!(
            page.text.matches("unencrypted HTTP/2").count(),
            1,
            "{}",
            page.text
        );
        assert_eq!((page.to_do, page.left_out), (0, 2), "{}", page.text);
    }
}

/// In nginx, one `listen … ssl` makes all servers of its address speak TLS; `proxy_protocol` likewise.
#[test]
fn parameters_of_an_address_of_nginx_apply_to_all_its_servers() {
    let text = "http {
 set_real_ip_from 10.0.0.0/8;
 server { listen *:443 ssl proxy_protocol; server_name a.test; ssl_certificate a.pem; ssl_certificate_key a.key;
  location / { proxy_pass http://10.0.0.1; proxy_set_header Host $host; } }
 server { listen 443; server_name b.test; ssl_certificate b.pem; ssl_certificate_key b.key;
  location / { proxy_pass http://10.0.0.2; proxy_set_header Host $host; } }
 server { listen 80; server_name c.test; location / { proxy_pass http://10.0.0.3; } }
}
";
    let page = import(Program::Nginx, text).expect("a valid configuration");
    assert_reported(&page.text, &["server_names = [\"b.test\"]"], &[]);
    assert_eq!(
        page.text.matches("accept_proxy_from = ").count(),
        2,
        "{}",
        page.text
    );
    assert_eq!(page.to_do, 1, "{}", page.text);
    assert!(
        page.text
            .contains("c.test on 0.0.0.0:80: it does not use TLS"),
        "{}",
        page.text
    );
}

/// A directive that applies to all servers may protect them, also if nobody here knows it.
#[test]
fn nginx_stays_for_what_it_does_for_all_servers() {
    let to_do = |around: &str| {
        let text = format!(
            "http {{ {around} server {{ listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key;
             location / {{ proxy_pass http://10.0.0.1; proxy_set_header Host $host; }} }} }}"
        );
        let page = import(Program::Nginx, &text).expect("a valid configuration");
        page.to_do
    };
    for around in [
        "modsecurity on;",
        "limit_conn a 10;",
        "access_by_lua_file a.lua;",
        "gzip on;",
    ] {
        assert_eq!(to_do(around), 1, "{around}");
    }
    for around in [
        "",
        "gzip off; sendfile on; keepalive_timeout 65; types_hash_max_size 2048;",
    ] {
        assert_eq!(to_do(around), 0, "{around}");
    }
}

/// stunnel accepts peers of both, and connects from its own address.
#[test]
fn settings_of_a_client_of_stunnel_that_are_dropped_are_reported() {
    let text = "[mail]
client = yes
accept = 127.0.0.1:1143
connect = mail.test:993
verifyChain = yes
checkHost = mail.test
CAfile = ca.pem
CApath = /etc/more
local = 10.0.0.9
";
    let page = converted(Program::Stunnel, text);
    assert_reported(&page, &["line 8: CApath", "line 9: local"], &[]);
}

/// The operating system's authorities are more than those of a private folder.
#[test]
fn a_private_folder_of_authorities_of_stunnel_is_to_do() {
    for (folder, to_do) in [("/etc/ssl/certs", 0), ("/etc/private-ca", 1)] {
        let text = format!(
            "[mail]\nclient = yes\naccept = 127.0.0.1:1143\nconnect = mail.test:993\n\
             verifyChain = yes\ncheckHost = mail.test\nCApath = {folder}\n"
        );
        let page = import(Program::Stunnel, &text).expect("a valid configuration");
        assert_eq!(page.to_do, to_do, "{}", page.text);
    }
}
