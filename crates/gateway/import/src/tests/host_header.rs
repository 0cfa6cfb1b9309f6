//! nginx chooses a server by the `Host` header, and sets the one that the backend gets; Dormouse does neither.

use super::*;

/// Clients would choose among the backend's virtual hosts, and honest ones reach another than before.
#[test]
fn a_host_header_that_nginx_has_set_is_a_thing_to_do() {
    let to_do = |header: &str| {
        let text = format!(
            "http {{ server {{ listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key;
             location / {{ proxy_pass http://app; {header} }} }} }}"
        );
        let page = import(Program::Nginx, &text).expect("a valid configuration");
        assert!(page.text.contains("to = \"app:80\""), "{}", page.text);
        page.to_do
    };
    for header in [
        "",
        "proxy_set_header Upgrade $http_upgrade;",
        "proxy_set_header host intranet.example;",
        "proxy_set_header Host $hostname;",
        "proxy_set_header Host $server_name;",
        "proxy_set_header Host \"\";",
    ] {
        assert_eq!(to_do(header), 1, "{header}");
    }
    for header in [
        "proxy_set_header Host $host;",
        "proxy_set_header HOST $Http_Host;",
        "proxy_set_header Host ${host}:$server_port;",
    ] {
        assert_eq!(to_do(header), 0, "{header}");
    }
}

/// nginx chose another server by them.
#[test]
fn names_of_other_servers_in_a_host_header_are_reported() {
    let text = "http {
 server { listen 443 ssl default_server; ssl_certificate a.pem; ssl_certificate_key a.key;
  location / { proxy_pass http://10.0.0.1; proxy_set_header Host $host; } }
 server { listen 443 ssl; server_name b.test; ssl_certificate b.pem; ssl_certificate_key b.key;
  location / { proxy_pass http://10.0.0.2; proxy_set_header Host $host; } }
}
";
    let page = import(Program::Nginx, text).expect("a valid configuration");
    let said = "proxy_set_header Host $host -- nginx chose among its servers";
    for line in [3, 5] {
        assert_reported(&page.text, &[&format!("line {line}: {said}")], &[]);
    }
    assert_eq!((page.to_do, page.left_out), (0, 4), "{}", page.text);
    // With addresses of their own, there is no choice.
    let page = converted(Program::Nginx, &text.replace("443 ssl;", "444 ssl;"));
    assert!(!page.contains("nginx chose"), "{page}");
}

/// Around nginx, clients would reach what it protects with a password.
#[test]
fn backends_that_nginx_protects_in_another_server_are_things_to_do() {
    let text = "http {
 server { listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key;
  location / { proxy_pass http://app; proxy_set_header Host $host; } }
 server { listen 443 ssl; server_name b.test; ssl_certificate b.pem; ssl_certificate_key b.key;
  auth_basic x; location /x { proxy_pass http://app/y; proxy_set_header Host $host; } }
}
";
    let said = |text: &str| {
        let page = converted(Program::Nginx, text);
        page.matches("with other rules for clients").count()
    };
    assert_eq!(said(text), 1);
    assert_eq!(said(&text.replace("app/y", "other/y")), 0);
    assert_eq!(said(&text.replacen("443", "444", 1)), 0);
}

/// nginx then changed the responses.
#[test]
fn nginx_stays_for_redirects_that_it_changes() {
    for (redirect, stays) in [("default", false), ("http://a/ https://b/", true)] {
        let text = format!(
            "http {{ server {{ listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key;
             location / {{ proxy_pass http://app; proxy_redirect {redirect}; }} }} }}"
        );
        let page = converted(Program::Nginx, &text);
        assert_eq!(page.contains("nginx stays behind"), stays, "{page}");
    }
}

/// nginx answers 421 if a client asks for one server's name in TLS and for another's, which verifies clients, in the
/// `Host` header; and it applies that server's `allow` and `deny`.
#[test]
fn backends_that_certain_clients_and_others_share_are_things_to_do() {
    let to_do = |rules: &str, second_listen: &str, second_to: &str, second_rules: &str| {
        let server = |listen: &str, name: &str, rules: &str, to: &str| {
            format!(
                "server {{ listen {listen} ssl; server_name {name}; ssl_certificate a.pem; ssl_certificate_key a.key;
                 {rules} location / {{ proxy_pass http://{to}; proxy_set_header Host $host; }} }}\n"
            )
        };
        let first = server("443 ssl; listen [::]:443", "a.test", rules, "10.0.0.1");
        let second = server(second_listen, "b.test", second_rules, second_to);
        let text = format!("http {{ {first} {second} }}");
        let page = import(Program::Nginx, &text).expect("a valid configuration");
        let said = page.text.matches("with other rules for clients").count();
        assert_eq!(said, page.to_do, "{}", page.text);
        page.to_do
    };
    let verifies = "ssl_verify_client on; ssl_client_certificate ca.pem;";
    for rules in [
        verifies,
        "allow 10.0.0.0/8; deny all;",
        "deny 192.0.2.0/24;",
    ] {
        assert_eq!(to_do(rules, "*:443", "10.0.0.1", ""), 1, "{rules}");
        assert_eq!(to_do(rules, "443", "10.0.0.2", ""), 0, "{rules}");
        assert_eq!(to_do(rules, "443", "10.0.0.1", rules), 0, "{rules}");
        // No header leads from one address to the servers of another.
        assert_eq!(to_do(rules, "8443", "10.0.0.1", ""), 0, "{rules}");
    }
}

/// It still applies them itself.
#[test]
fn rules_of_servers_that_stay_with_nginx_are_not_things_to_do() {
    let server = |name: &str, rules: &str| {
        format!(
            "server {{ listen 443 ssl; server_name {name}; ssl_certificate a.pem; ssl_certificate_key a.key;
             {rules} root /x; }}\n"
        )
    };
    let (first, second) = (
        server("a.test", "allow 10.0.0.0/8; deny all;"),
        server("b.test", ""),
    );
    let page = converted(Program::Nginx, &format!("http {{ {first} {second} }}"));
    assert!(!page.contains("with other rules for clients"), "{page}");
}
