//! What the other program served, and nobody does when it stops; and what it did not serve.

use super::*;

#[test]
fn servers_of_other_modules_of_nginx_are_things_to_do() {
    let text = "mail { server { listen 993 ssl; protocol imap; } }
rtmp {
 server { listen 1935; }
}
stream {
 server { listen 8883 ssl; ssl_certificate a.pem; ssl_certificate_key a.key; proxy_pass 10.0.0.1:1883; }
 server { listen unix:/run/x.sock; proxy_pass 10.0.0.1:1883; }
}
http {
 server { listen unix:/run/y.sock; return 301 https://$host$request_uri; }
}
";
    let page = import(Program::Nginx, text).expect("a valid configuration");
    assert_reported(
        &page.text,
        &[],
        &[
            "line 1: mail …",
            "line 2: rtmp …",
            "line 7: server …",
            "line 10: server …",
        ],
    );
    assert_eq!(page.to_do, 4, "{}", page.text);
    assert!(!page.text.contains("\nredirect"), "{}", page.text);
}

/// Only the socket stays with nginx.
#[test]
fn redirects_of_nginx_on_a_socket_are_things_to_do() {
    let text = "stream {
 server { listen 8883 ssl; ssl_certificate a.pem; ssl_certificate_key a.key; proxy_pass 10.0.0.1:1883; }
}
http {
 server { listen 80; listen unix:/run/y.sock; return 301 https://$host$request_uri; }
}
";
    let page = import(Program::Nginx, text).expect("a valid configuration");
    let said = "listen unix:/run/y.sock -- redirects to https on a unix socket";
    assert_reported(&page.text, &[said], &[]);
    assert_eq!(page.to_do, 1, "{}", page.text);
    assert!(
        page.text.contains("\nredirect = \"0.0.0.0:80\"\n"),
        "{}",
        page.text
    );
    // The other server of the address keeps nginx there.
    let text = text.replace("http {", "http {\n server { listen 80; root /x; }");
    let page = import(Program::Nginx, &text).expect("a valid configuration");
    let said = "redirects to https on an address where another server does not";
    assert_reported(&page.text, &[said, "does not use TLS"], &[]);
    assert_eq!(page.to_do, 2, "{}", page.text);
    assert!(!page.text.contains("\nredirect"), "{}", page.text);
}

#[test]
fn other_services_of_haproxy_are_things_to_do() {
    let text = "listen l
 bind :443 ssl crt a.pem
 server a 10.0.0.1:80
log-forward syslog
 dgram-bind :514
program helper
 command /usr/bin/helper
";
    let page = import(Program::Haproxy, text).expect("a valid configuration");
    assert_reported(&page.text, &[], &["(line 4)", "(line 6)"]);
    assert_eq!(page.to_do, 2, "{}", page.text);
}

#[test]
fn a_disabled_part_of_haproxy_serves_nobody() {
    let text = "frontend f
 bind :443 ssl crt a.pem
 use_backend off if { ssl_fc_sni off.test }
 default_backend on
frontend internal
 bind :444 ssl crt a.pem
 bind :81
 disabled
 default_backend on
backend off
 disabled
 server s 10.0.0.1:1
backend on
 disabled
 enabled
 server s 10.0.0.2:1
";
    let page = import(Program::Haproxy, text).expect("a valid configuration");
    let said = "line 5: frontend internal … (lines 5-9, 8 settings) -- it is disabled";
    assert_reported(&page.text, &[said], &["(line 11)"]);
    assert_eq!((page.to_do, page.left_out), (1, 1), "{}", page.text);
    assert!(!page.text.contains(":444"), "{}", page.text);
}

/// Only these addresses stay with HAProxy.
#[test]
fn redirects_of_haproxy_on_a_socket_are_things_to_do() {
    let text = |bind: &str| {
        format!(
            "listen l\n bind :443 ssl crt a.pem\n server a 10.0.0.1:80\nfrontend f\n mode http\n bind {bind}\n \
             http-request redirect scheme https code 301\n"
        )
    };
    let page = import(Program::Haproxy, &text(":80,/run/x.sock")).expect("a valid configuration");
    let set = "\nredirect = \"0.0.0.0:80\"\n";
    assert_reported(&page.text, &[set, "not on /run/x.sock: keep HAProxy"], &[]);
    assert_eq!(page.to_do, 1, "{}", page.text);
    let page = import(Program::Haproxy, &text("unix@/run/x.sock,:80-81")).expect("a valid one");
    assert_eq!(page.to_do, 1, "{}", page.text);
    let both = "\nredirect = [\"0.0.0.0:80\", \"0.0.0.0:81\"]\n";
    assert!(page.text.contains(both), "{}", page.text);
}

/// FastCGI is no stream of bytes to pass on.
#[test]
fn haproxy_stays_for_fastcgi() {
    let text = "listen l\n mode http\n bind :443 ssl crt a.pem\n use-fcgi-app php\n server a 10.0.0.1:9000 proto fcgi\n";
    let page = converted(Program::Haproxy, text);
    assert!(page.contains("HAProxy stays behind"), "{page}");
}
