//! What the other program did and Dormouse does not do: a step, in its own words.

use super::*;

/// A name that begins with `_` has SRV records only.
#[test]
fn a_server_by_srv_records_is_a_step() {
    let text = "listen l\n mode tcp\n bind :443 ssl crt a.pem\n server-template s 3 _web._tcp.test resolvers r\n";
    let page = converted(Program::Haproxy, text);
    assert!(!page.contains("\nto = "), "{page}");
    assert!(steps(&page).contains("does not connect there"), "{page}");
}

#[test]
fn protocols_that_a_bind_does_not_offer_are_a_step() {
    for (alpn, is_step) in [
        ("", true),
        ("alpn http/1.1", true),
        ("alpn h2,http/1.1", false),
    ] {
        let text = format!(
            "frontend f\n mode tcp\n bind :443 ssl crt a.pem {alpn}\n use_backend h if {{ ssl_fc_alpn h2 }}\n default_backend b\nbackend h\n server s 10.0.0.1:1\nbackend b\n server s 10.0.0.2:1\n"
        );
        let page = import(Program::Haproxy, &text).expect("a valid configuration");
        assert_eq!(page.to_do > 0, is_step, "{}", page.text);
    }
}

#[test]
fn a_mode_of_haproxy_that_is_no_forward_is_a_step() {
    for (mode, is_step) in [("tcp", false), ("log", true), ("spop", true)] {
        let text =
            format!("listen l\n mode {mode}\n bind :443 ssl crt a.pem\n server s 10.0.0.1:1\n");
        let page = import(Program::Haproxy, &text).expect("a valid configuration");
        assert_eq!(page.to_do > 0, is_step, "{}", page.text);
    }
}

/// Clients of other networks were accepted with a password.
#[test]
fn networks_of_nginx_of_which_a_password_is_an_alternative_stay_with_it() {
    let of_satisfy = |how: &str| {
        let text = format!(
            "http {{ server {{ listen 443 ssl; ssl_certificate a; ssl_certificate_key b; satisfy {how}; allow 10.0.0.0/8; deny all; auth_basic x; location / {{ proxy_pass http://10.0.0.1; }} }} }}"
        );
        converted(Program::Nginx, &text)
    };
    assert!(of_satisfy("all").contains("allow = "));
    let page = of_satisfy("any");
    assert!(!page.contains("allow = "), "{page}");
    assert!(!page.contains("does not know"), "{page}");
}

/// What is said of a server without connections is said of its check, too.
#[test]
fn a_check_of_a_disabled_server_is_no_riddle() {
    let text = "listen l\n mode tcp\n bind :443 ssl crt a.pem\n server s 10.0.0.1:1 check inter 3s disabled\n";
    let page = converted(Program::Haproxy, text);
    assert!(!page.contains("does not know"), "{page}");
}

#[test]
fn two_backends_of_haproxy_with_one_name_are_a_step() {
    let text = |name: &str| {
        format!(
            "frontend f\n mode tcp\n bind :443 ssl crt a.pem\n default_backend b\nbackend b\n server s 10.0.0.1:1\nbackend {name}\n server s 10.0.0.2:1\n"
        )
    };
    for (name, count) in [("b", 1), ("c", 0)] {
        let page = import(Program::Haproxy, &text(name)).expect("a valid configuration");
        assert_eq!(page.to_do, count, "{}", page.text);
    }
}

#[test]
fn a_frontend_of_quic_alone_is_one_step() {
    let text = "frontend f\n mode http\n bind quic4@:443 ssl crt a.pem alpn h3\n timeout client 1m\n default_backend b\nlisten b\n mode tcp\n bind :444 ssl crt a.pem\n server s 10.0.0.1:1\n";
    let page = import(Program::Haproxy, text).expect("a valid configuration");
    assert_eq!(page.to_do, 1, "{}", page.text);
}

/// What OpenSSL refuses at a higher level, and groups of which none is supported.
#[test]
fn limits_of_cryptography_that_cannot_be_converted_are_steps() {
    let haproxy = |words: &str| {
        let text = format!(
            "listen l\n mode tcp\n bind :443 ssl crt a.pem {words}\n server s 10.0.0.1:1\n"
        );
        import(Program::Haproxy, &text)
            .expect("a valid configuration")
            .to_do
    };
    let nginx = |line: &str| {
        let text = format!(
            "stream {{ server {{ listen 443 ssl; ssl_certificate a; ssl_certificate_key b; proxy_pass 10.0.0.1:1; {line} }} }}"
        );
        import(Program::Nginx, &text)
            .expect("a valid configuration")
            .to_do
    };
    let stunnel = |line: &str| {
        let text = format!("[a]\naccept = 443\nconnect = 80\ncert = a.pem\n{line}\n");
        import(Program::Stunnel, &text)
            .expect("a valid configuration")
            .to_do
    };
    let hitch = |line: &str| {
        let text = format!("frontend = \"[*]:443\"\npem-file = \"a.pem\"\n{line}\n");
        import(Program::Hitch, &text)
            .expect("a valid configuration")
            .to_do
    };
    for level in 0..6 {
        let expected = usize::from(level > 2);
        let list = format!("HIGH:@SECLEVEL={level}");
        assert_eq!(haproxy(&format!("ciphers {list}")), expected, "{level}");
        assert_eq!(nginx(&format!("ssl_ciphers {list};")), expected, "{level}");
        assert_eq!(stunnel(&format!("ciphers = {list}")), expected, "{level}");
        assert_eq!(hitch(&format!("ciphers = \"{list}\"")), expected, "{level}");
    }
    for (groups, expected) in [("secp521r1", 1), ("secp521r1:X25519", 0), ("P-384", 0)] {
        assert_eq!(haproxy(&format!("curves {groups}")), expected, "{groups}");
        assert_eq!(
            nginx(&format!("ssl_ecdh_curve {groups};")),
            expected,
            "{groups}"
        );
        assert_eq!(stunnel(&format!("curves = {groups}")), expected, "{groups}");
        assert_eq!(
            hitch(&format!("ecdh-curve = \"{groups}\"")),
            expected,
            "{groups}"
        );
    }
}

#[test]
fn a_rule_of_haproxy_that_accepts_all_clients_ends_the_rules() {
    let text = "listen l\n mode tcp\n bind :443 ssl crt a.pem\n tcp-request connection accept\n tcp-request connection reject if { src 10.0.0.0/8 }\n server s 10.0.0.1:1\n";
    let page = converted(Program::Haproxy, text);
    assert!(!page.contains("\ndeny = "), "{page}");
}
