//! Words in capitals: stunnel, nginx and hitch ignore the case of most values, HAProxy of none.

use super::*;

fn lines(page: &str, wanted: &[&str]) {
    for line in wanted {
        assert!(page.lines().any(|one| one == *line), "{line} in:\n{page}");
    }
}

#[test]
fn values_of_stunnel() {
    let text = "[s]
accept = 443
connect = 80
connect = 81
cert = a.pem
failover = RR
sessionResume = No
protocol = Proxy
requireCert = Yes
libwrap = YES
";
    let page = import(Program::Stunnel, text).expect("a valid configuration");
    let wanted = [
        "to = [\"127.0.0.1:80\", \"127.0.0.1:81\"]",
        "tickets = 0",
        "proxy_protocol = \"v1\"",
    ];
    lines(&page.text, &wanted);
    assert_reported(&page.text, &[], &["(line 9)", "(line 10)"]);
    assert_eq!(page.to_do, 2, "{}", page.text);
}

#[test]
fn values_of_nginx() {
    let text = "stream {
 server { listen 443 ssl; proxy_pass 10.0.0.1:80; ssl_certificate a.pem; ssl_certificate_key a.key;
  ssl_verify_client ON; ssl_client_certificate ca.pem; ssl_protocols tlsv1.3; ssl_session_tickets Off;
  proxy_ssl On; proxy_ssl_verify ON; proxy_ssl_crl revoked.pem; proxy_ssl_trusted_certificate ca.pem; }
}
http {
 server { listen 444 ssl; ssl_certificate a.pem; ssl_certificate_key a.key;
  location / { proxy_pass HTTPS://10.0.0.1; proxy_set_header Host $host; proxy_ssl_trusted_certificate ca.pem; } }
 server { listen 444 ssl; server_name b.test; ssl_reject_handshake ON; }
}
";
    let page = converted(Program::Nginx, text);
    let wanted = [
        "client_certificates = \"required\"",
        "min_version = \"1.3\"",
        "tickets = 0",
        "to = \"10.0.0.1:443\"",
    ];
    lines(&page, &wanted);
    assert_eq!(page.matches("backend_tls = true").count(), 2, "{page}");
    assert!(page.contains("backend_crl = ["), "{page}");
    assert_reported(&page, &[], &["(line 9)"]);
}

/// Several lines of versions add to each other.
#[test]
fn versions_of_nginx_in_two_lines() {
    let text = "stream { server { listen 443 ssl; proxy_pass 10.0.0.1:80;
 ssl_protocols TLSv1.3; ssl_protocols TLSv1.2; } }";
    let page = converted(Program::Nginx, text);
    assert!(!page.contains("_version"), "{page}");
}

#[test]
fn switches_of_hitch() {
    let refuses = |value: &str| {
        let text =
            format!("frontend = \"[*]:443\"\npem-file = \"a.pem\"\nsni-nomatch-abort = {value}\n");
        converted(Program::Hitch, &text).contains("unknown_name = \"refuse-named\"")
    };
    for value in ["On", "YES", "y", "T"] {
        assert!(refuses(value), "{value}");
    }
    assert!(!refuses("Off"));
}

/// hitch separates settings by any space.
#[test]
fn two_settings_of_hitch_in_one_line() {
    let text = "frontend = \"[*]:443\" pem-file = \"a.pem\"
sni-nomatch-abort = on client-verify = required client-verify-ca = \"ca.pem\"
";
    let page = converted(Program::Hitch, text);
    let wanted = [
        "unknown_name = \"refuse-named\"",
        "client_certificates = \"required\"",
        "client_ca = \"ca.pem\"",
    ];
    lines(&page, &wanted);
}
