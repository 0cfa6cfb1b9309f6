//! Conditions of HAProxy: a test that Dormouse does not have is never taken for one that it has.

use super::*;

fn of_frontend(lines: &str) -> ImportedConfig {
    let text = format!(
        "frontend f\n bind :443\n acl tls req.ssl_hello_type 1\n{lines}
backend legacy\n server s 10.0.0.1:1\nbackend main\n server s 10.0.0.2:1\n"
    );
    import(Program::Haproxy, &text).expect("a valid configuration")
}

/// Clients of other versions would reach another backend than before.
#[test]
fn versions_of_tls_choose_no_backend() {
    let page = of_frontend(" use_backend legacy if { req.ssl_ver lt 3.3 }\n default_backend main");
    assert_reported(&page.text, &["to = \"10.0.0.2:1\""], &["(line 4)"]);
    let page = of_frontend(" use_backend main if { req_ssl_ver gt 0 }");
    assert_reported(&page.text, &["to = \"10.0.0.2:1\""], &[]);
    assert_eq!(page.to_do, 0, "{}", page.text);
}

/// These refused some clients, or all.
#[test]
fn refusals_by_the_client_hello_are_things_to_do() {
    for (rules, to_do) in [
        ("accept if { req.ssl_ver ge 3.3 }\n reject", 1),
        ("reject if { req.ssl_ver lt 3.3 }", 1),
        ("reject if { req.ssl_ver 3:3.1 }", 1),
        ("reject if { ssl_fc false }", 1),
        ("reject", 1),
        ("reject if tls", 1),
        ("reject if !!tls", 1),
        ("reject if !tls", 0),
        ("reject unless { req.ssl_hello_type 1 }", 0),
        ("accept if tls\n reject", 0),
        ("accept if !tls\n reject", 1),
        ("accept if tls { req.ssl_sni a.test }\n reject", 1),
    ] {
        let rules = rules.replace("\n ", "\n tcp-request content ");
        let page = of_frontend(&format!(
            " tcp-request content {rules}\n default_backend main"
        ));
        assert_eq!(page.to_do, to_do, "{rules}: {}", page.text);
    }
}

/// Without them, another value is compared.
#[test]
fn converters_are_not_cut_off() {
    let page = of_frontend(
        " tcp-request connection reject if { src,ipmask(24) 192.0.2.0 }
 use_backend legacy if { req.ssl_sni,field(1,.) admin }
 use_backend legacy if { req.ssl_sni,lower a.test }
 default_backend main",
    );
    assert_reported(
        &page.text,
        &["server_names = [\"a.test\"]"],
        &["(line 4)", "(line 5)"],
    );
    assert!(!page.text.contains("\ndeny"), "{}", page.text);
}

/// A limit of a rate has another form in Dormouse than other rules.
#[test]
fn a_name_with_the_letters_of_a_rate_is_no_rate() {
    for (condition, is_rate) in [
        ("if !{ ssl_c_s_dn(o) -m str Corporate }", false),
        ("if !{ ssl_c_s_dn(o) -m str conn_cur }", false),
        ("if { ssl_c_i_dn -f /etc/integrated_rate }", false),
        ("if { sc0_conn_rate gt 9 } or !{ ssl_c_used }", false),
        ("if corporate", false),
        ("if { sc0_conn_rate gt 9 }", true),
        ("if { sc_http_req_rate(0) gt 9 }", true),
        ("if { src,table_conn_rate(t) gt 9 }", true),
        ("if { sc0_conn_rate gt 9 } or { sc0_conn_cur gt 9 }", true),
        ("if busy", true),
    ] {
        let text = format!(
            "listen l\n bind :443 ssl crt a.pem\n acl busy sc0_conn_rate gt 9\n acl corporate ssl_c_s_dn(o) Corporate
 tcp-request content reject {condition}\n server a 10.0.0.1:80\n"
        );
        let page = import(Program::Haproxy, &text).expect("a valid configuration");
        let is_said = page.text.contains("-- set `");
        assert_eq!(
            (page.to_do, is_said),
            (1, is_rate),
            "{condition}: {}",
            page.text
        );
    }
}

/// In HAProxy and stunnel the first rule counts, and a wildcard stands for several labels.
#[test]
fn earlier_rules_for_more_names_are_things_to_do() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let map = folder.path().join("map");
    std::fs::write(&map, "www.a.test main\n").expect("written");
    let map = format!("%[req.ssl_sni,lower,map({})]", map.display());
    for (second, to_do) in [
        ("main if { req.ssl_sni www.A.test }", 1),
        ("main if { req.ssl_sni x.y.a.test }", 1),
        ("main if { req.ssl_sni -m end .b.a.test }", 1),
        ("main if { req.ssl_sni www.b.test }", 0),
        ("legacy if { req.ssl_sni www.a.test }", 0),
        (&map, 1),
    ] {
        let page = of_frontend(&format!(
            " use_backend legacy if {{ req.ssl_sni -m end .a.test }}\n use_backend {second}"
        ));
        assert_eq!(page.to_do, to_do, "{second}: {}", page.text);
    }
    let protocol = "main if { req.ssl_sni a.test } { req.ssl_alpn h2 }";
    for (first, second, to_do) in [
        ("legacy if { req.ssl_sni A.test }", protocol, 1),
        (protocol, "legacy if { req.ssl_sni A.test }", 0),
    ] {
        let page = of_frontend(&format!(" use_backend {first}\n use_backend {second}"));
        assert_eq!(page.to_do, to_do, "{second}: {}", page.text);
    }
    for (second, to_do) in [("www.A.test", 1), ("*.b.a.test", 1), ("www.b.test", 0)] {
        let service = |name: &str, sni: &str| {
            format!("[{name}]\nsni = tls:{sni}\nconnect = 8{name}\ncert = a.pem\n")
        };
        let text = format!(
            "[tls]\naccept = 443\nconnect = 80\ncert = a.pem\n{}{}",
            service("1", "*.a.test"),
            service("2", second)
        );
        let page = import(Program::Stunnel, &text).expect("a valid configuration");
        assert_eq!(page.to_do, to_do, "{second}: {}", page.text);
        assert_reported(
            &page.text,
            &["sni = tls:*.a.test -- converted, but `*`"],
            &[],
        );
    }
}

/// Clients that begin with a header of a proxy would fail.
#[test]
fn headers_of_proxies_are_things_to_do() {
    for (bind, rule) in [
        ("", "tcp-request connection expect-proxy layer4"),
        (
            "",
            "tcp-request connection expect-proxy layer4 unless { src 10.0.0.1 }",
        ),
        ("accept-proxy", ""),
        ("accept-netscaler-cip 0x1", ""),
    ] {
        let text =
            format!("listen l\n bind :443 ssl crt a.pem {bind}\n {rule}\n server a 10.0.0.1:80\n");
        let page = import(Program::Haproxy, &text).expect("a valid configuration");
        assert_eq!(page.to_do, 1, "{}", page.text);
    }
}
