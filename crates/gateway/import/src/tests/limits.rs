//! Limits, names that may not resolve, and keys in tokens: each has an option here, or is named with what to do.

use super::*;

/// Returns the lines of a page that are options, without comments.
fn options(page: &str) -> Vec<String> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let lines = lines.filter_map(|line| line.split(" #").next());
    lines.map(|line| line.trim().to_owned()).collect()
}

fn assert_options(page: &str, expected: &[&str]) {
    let options = options(page);
    for one in expected {
        assert!(
            options.iter().any(|line| line == one),
            "{one} is missing:\n{page}"
        );
    }
}

#[test]
fn limits_of_haproxy_are_those_of_the_program_and_of_its_routes() {
    let text = "global
 maxconn 20000
 maxsslconn 15000
 maxconnrate 500
defaults
 mode tcp
 maxconn 9000
frontend a
 bind :443 ssl crt a.pem maxconn 700
 maxconn 800
 rate-limit sessions 50
 default_backend a
backend a
 fullconn 100
 server one 10.0.0.1:80 maxconn 30
frontend b
 bind :444 ssl crt a.pem
 rate-limit sessions 0
 default_backend a
";
    let page = converted(Program::Haproxy, text);
    assert_options(
        &page,
        &[
            "max_connections = 15000",
            "route_max_connections = 700",
            "route_handshakes_per_second = 50",
            "route_max_connections = 9000",
        ],
    );
    assert!(page.contains("max_connections = 30"), "{page}");
    assert_eq!(
        page.matches("route_handshakes_per_second =").count(),
        1,
        "{page}"
    );
    // Said: there is no limit on the rate of all routes, and connections are closed instead of queued.
    let lost = ["line 4: maxconnrate 500", "line 14: fullconn 100"];
    assert_reported(&page, &lost, &[]);
    assert!(page.contains("closed here instead of queued"), "{page}");
}

#[test]
fn an_origination_has_the_limit_of_connections_and_says_what_it_lacks() {
    let text = "listen out
 mode tcp
 bind 127.0.0.1:6380
 maxconn 40
 rate-limit sessions 5
 server s b.example:6379 ssl verify required ca-file ca.pem
";
    let page = converted(Program::Haproxy, text);
    assert_options(&page, &["route_max_connections = 40"]);
    assert!(
        !options(&page)
            .iter()
            .any(|line| line.starts_with("route_handshakes")),
        "{page}"
    );
    assert!(
        page.contains("an [[originate]] does not have this"),
        "{page}"
    );
}

#[test]
fn a_name_that_haproxy_did_not_need_at_its_start_is_lazy() {
    let page = |way: &str| {
        let text = format!(
            "frontend a\n mode tcp\n bind :443 ssl crt a.pem\n default_backend a\n\
             backend a\n mode tcp\n server one app.example:80 resolvers dns {way}\n\
             resolvers dns\n nameserver one 10.0.0.53:53\n"
        );
        converted(Program::Haproxy, &text)
    };
    for way in [
        "init-addr none",
        "init-addr last,libc,none",
        "init-addr libc,10.0.0.9",
    ] {
        let page = page(way);
        assert_options(&page, &["resolve = \"lazy\""]);
        assert!(page.contains("/etc/resolv.conf"), "{page}");
        assert_eq!(
            page.contains("no address stands in for it"),
            way.contains("10.0.0.9"),
            "{page}"
        );
    }
    for way in ["", "init-addr last,libc"] {
        assert!(
            !options(&page(way))
                .iter()
                .any(|line| line.starts_with("resolve")),
            "{way}"
        );
    }
}

#[test]
fn limits_of_nginx_count_clients_or_a_route() {
    let page = |key: &str| {
        let text = format!(
            "stream {{ limit_conn_zone {key} zone=z:1m; server {{ listen 443 ssl; ssl_certificate a.pem; \
             ssl_certificate_key a.key; limit_conn z 20; proxy_pass 10.0.0.1:80; }} }}\n"
        );
        converted(Program::Nginx, &text)
    };
    for key in ["$binary_remote_addr", "$remote_addr", "${remote_addr}"] {
        assert_options(&page(key), &["connections_per_client = 20"]);
    }
    for key in ["$server_port", "$server_addr", "${server_name}"] {
        assert_options(&page(key), &["route_max_connections = 20"]);
    }
    let page = page("$ssl_preread_server_name");
    assert!(
        page.contains("this did not count the connections of each client"),
        "{page}"
    );
}

const URI: &str = "pkcs11:token=web;object=site";

#[test]
fn a_key_in_a_token_stays_there() {
    let stunnel = |service: &str| {
        let text = format!(
            "engine = pkcs11\nengineCtrl = MODULE_PATH:/usr/lib/p11.so\nengineCtrl = PIN:1234\n[s]\naccept = 443\nconnect = 80\n{service}\n"
        );
        converted(Program::Stunnel, &text)
    };
    let page = stunnel(&format!("cert = a.pem\nkey = {URI}"));
    let key = format!("key = \"{URI}?module-path=/usr/lib/p11.so\"");
    assert!(page.contains(&key), "{page}");
    assert!(page.contains("add pin-source=/FILE to the URI"), "{page}");
    assert!(page.contains("set `pkcs11_user`"), "{page}");
    // The certificate has to be a file.
    for service in [
        format!("cert = {URI}"),
        format!("cert = {URI}\nkey = {URI}"),
        "cert = a.pem\nengineId = pkcs11\nkey = 01".to_owned(),
    ] {
        let page = stunnel(&service);
        assert!(page.contains("export its certificate to a"), "{page}");
    }

    let nginx = |cert: &str, key: &str| {
        let text = format!(
            "stream {{ server {{ listen 443 ssl; ssl_certificate {cert}; ssl_certificate_key \"{key}\"; proxy_pass 10.0.0.1:80; }} }}\n"
        );
        converted(Program::Nginx, &text)
    };
    for key in [format!("engine:pkcs11:{URI}"), format!("store:{URI}")] {
        let page = nginx("a.pem", &key);
        assert!(page.contains(&format!("key = \"{URI}\"")), "{page}");
        assert!(page.contains("add ?module-path=/LIBRARY.so"), "{page}");
    }
    for (cert, key) in [
        ("a.pem", "engine:pkcs11:slot_0-id_01"),
        ("\"store:pkcs11:object=c\"", "store:pkcs11:object=c"),
    ] {
        let page = nginx(cert, key);
        assert!(page.contains("export its certificate to a"), "{page}");
    }

    let hitch = "frontend = \"[*]:443\"\nbackend = \"[127.0.0.1]:80\"\npem-file = \"a.pem\"\nssl-engine = \"pkcs11\"\n";
    let haproxy = "global\n ssl-engine pkcs11\nfrontend a\n mode tcp\n bind :443 ssl crt a.pem\n default_backend a\n\
                   backend a\n mode tcp\n server one 10.0.0.1:80\n";
    for (program, text) in [(Program::Hitch, hitch), (Program::Haproxy, haproxy)] {
        let page = converted(program, text);
        assert!(
            page.contains("for a key in a PKCS #11 token, export"),
            "{page}"
        );
        let other = converted(program, &text.replace("pkcs11", "padlock"));
        assert!(!other.contains("export its certificate"), "{other}");
        assert!(other.contains("list them in `certificates`"), "{other}");
    }
}
