//! The examples that the programs ship or document, and what becomes of them. That the result is
//! right is asked of the program itself: it must load.

use super::*;
use dormouse_gateway::config::{self, Machine, Purpose, Section};

/// What an import makes of this, which must be a configuration without mistakes.
fn import(program: Program, text: &str) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    import_in(program, text, folder.path())
}

fn import_in(program: Program, text: &str, folder: &Path) -> String {
    let draft = draft_of(program, text, &folder.join("there.conf"));
    assert!(!draft.is_empty(), "nothing was found");
    let toml = draft.render("there.conf");
    let file = folder.join("dormouse.toml");
    std::fs::write(&file, &toml).expect("a file in the test's folder");
    let machine = Machine::read();
    if let Err(mistakes) = config::load(Some(&file), Section::Route, &[], &machine, Purpose::Check)
    {
        panic!("{mistakes}\n{toml}");
    }
    toml
}

/// `want` stand there as lines of their own.
fn has(toml: &str, want: &[&str]) {
    for line in want {
        assert!(
            toml.lines().any(|there| there == *line),
            "no line {line:?} in\n{toml}"
        );
    }
}

/// /usr/share/doc/hitch/examples/hitch.conf.example, and a `pem-file`, without which hitch does not
/// start either.
const HITCH_EXAMPLE: &str = r#"
frontend = {
    host = "*"
    port = "443"
}
backend = "[127.0.0.1]:6086"    # 6086 is the default Varnish PROXY port.
workers = 4                     # number of CPU cores

daemon = on

# We strongly recommend you create a separate non-privileged hitch
# user and group
user = "hitch"
group = "hitch"

# Enable to let clients negotiate HTTP/2 with ALPN. (default off)
alpn-protos = "h2, http/1.1"

# run Varnish as backend over PROXY; varnishd -a :80 -a localhost:6086,PROXY ..
write-proxy-v2 = on             # Write PROXY header
pem-file = "/etc/hitch/testcert.pem"
"#;

#[test]
fn hitch_as_shipped() {
    let toml = import(Program::Hitch, HITCH_EXAMPLE);
    has(
        &toml,
        &[
            "workers = 4",
            "[[route]]",
            "listen = \":443\"",
            "to = \"127.0.0.1:6086\"",
            "alpn = [\"h2\", \"http/1.1\"]",
            "proxy_protocol = \"v2\"",
            "certificates = [{ cert = \"/etc/hitch/testcert.pem\", key = \"/etc/hitch/testcert.pem\" }]",
            "user = \"hitch\"",
            "group = \"hitch\"",
        ],
    );
}

#[test]
fn hitch_with_all_its_forms() {
    let toml = import(
        Program::Hitch,
        "frontend = \"[::1]:8443+/one.pem\"\nfrontend = { host = \"10.0.0.1\" port = \"8444\"\n\
         pem-file = { cert = \"/two.crt\" private-key = \"/two.key\" } }\n\
         backend = \"/run/app # not a comment.sock\"\ntls-protos = TLSv1.2 TLSv1.3\nkeepalive = 3600\n\
         ciphers = \"EECDH+AESGCM\"\nsni-nomatch-abort = on\nno such thing\n",
    );
    has(
        &toml,
        &[
            "listen = [\"[::1]:8443\", \"10.0.0.1:8444\"]",
            "to = \"unix:/run/app # not a comment.sock\"",
            "certificates = [{ cert = \"/two.crt\", key = \"/two.key\" }, { cert = \"/one.pem\", key = \"/one.pem\" }]",
            "keepalive_idle = \"3600s\"",
            "min_version = \"1.2\"",
            "# line 9: no such thing -- not understood",
        ],
    );
}

/// Parts of stunnel.conf-sample: its client services as they are, its server services uncommented.
const STUNNEL_SAMPLE: &str = "\
; Sample stunnel configuration file for Unix by Michal Trojnara 1998-2023
setuid = stunnel4
setgid = stunnel4
pid = /var/run/stunnel.pid
foreground = yes
[gmail-pop3]
client = yes
accept = 127.0.0.1:1110
connect = 127.0.0.1:995
verifyChain = yes
CApath = /etc/ssl/certs
checkHost = pop.gmail.com
OCSPaia = yes

[imaps]
accept  = 993
connect = 143
cert = /etc/stunnel/stunnel.pem

[https]
accept  = 443
connect = 80
cert = /etc/stunnel/stunnel.pem
TIMEOUTclose = 0

[shell]
accept = 1337
exec = /bin/sh
execArgs = sh -i
PSKsecrets = /etc/stunnel/secrets.txt

[mysql]
cert = /etc/stunnel/stunnel.pem
accept = 3307
connect = /run/mysqld/mysqld.sock
";

#[test]
fn stunnel_as_shipped() {
    let toml = import(Program::Stunnel, STUNNEL_SAMPLE);
    has(
        &toml,
        &[
            "# [gmail-pop3]",
            "[[originate]]",
            "listen = \"127.0.0.1:1110\"",
            "ca = \"system\"",
            "server_name = \"pop.gmail.com\"",
            "listen = \":993\"",
            "to = \"127.0.0.1:143\"",
            "truncation = \"close\"",
            "to = \"unix:/run/mysqld/mysqld.sock\"",
            "# line 27: [shell] -- it has no `connect` (exec is not done here)",
        ],
    );
    assert_eq!(toml.matches("[[route]]").count(), 3, "{toml}");
}

/// A client that verifies nobody stays one, and says so.
#[test]
fn stunnel_without_verification() {
    let toml = import(
        Program::Stunnel,
        "sslVersionMin = TLSv1.3\n[x]\nclient = yes\naccept = 8025\nconnect = 127.0.0.1:465\n\
         connect = ::1:466\nprotocol = smtp\n",
    );
    has(
        &toml,
        &[
            "to = [\"127.0.0.1:465\", \"[::1]:466\"]",
            "insecure = true",
            "min_version = \"1.3\"",
            "# line 7: protocol = smtp -- no counterpart",
        ],
    );
}

/// As the documentation of ngx_stream_ssl_module and ngx_stream_upstream_module show it.
#[test]
fn nginx_stream_as_documented() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let conf = folder.path().join("conf.d");
    std::fs::create_dir(&conf).expect("a folder");
    std::fs::write(
        conf.join("a.conf"),
        "upstream backend { hash $remote_addr consistent;\n server 127.0.0.1:12345 weight=5;\n\
         server 127.0.0.1:12346 max_fails=3 fail_timeout=30s;\n server unix:/tmp/backend3;\n\
         server 127.0.0.1:12347 backup; server 127.0.0.1:12348 down; }\n",
    )
    .expect("a file");
    let text = "worker_processes auto;\nstream {\n    include conf.d/*.conf;\n    include missing.conf;\n\
        server {\n        listen              22345 ssl;\n        listen 127.0.0.1:12346;\n\
        ssl_protocols       TLSv1 TLSv1.1 TLSv1.2 TLSv1.3;\n        ssl_ciphers         AES128-SHA:ECDHE-RSA-AES128-GCM-SHA256;\n\
        ssl_certificate     /usr/local/nginx/conf/cert.pem;\n        ssl_certificate_key /usr/local/nginx/conf/cert.key;\n\
        ssl_session_cache   shared:SSL:10m;\n        proxy_connect_timeout 1s;\n        proxy_timeout 3s;\n\
        proxy_protocol on;\n        allow 10.0.0.0/8; deny all;\n        proxy_pass backend;\n    }\n}\n";
    let toml = import_in(Program::Nginx, text, folder.path());
    has(
        &toml,
        &[
            "listen = \"0.0.0.0:22345\"",
            "to = [{ address = \"127.0.0.1:12345\", weight = 5 }, \"127.0.0.1:12346\", \"unix:/tmp/backend3\", { address = \"127.0.0.1:12347\", backup = true }]",
            "balance = \"client-hash\"",
            "backend_pause = \"30s\"",
            "min_version = \"1.2\"",
            "allow = [\"10.0.0.0/8\"]",
            "proxy_protocol = \"v1\"",
            "idle_timeout = \"3s\"",
            "backend_connect_timeout = \"1s\"",
            "certificates = [{ cert = \"/usr/local/nginx/conf/cert.pem\", key = \"/usr/local/nginx/conf/cert.key\" }]",
        ],
    );
    assert!(toml.contains("missing.conf -- could not be read"), "{toml}");
}

/// Debian's sites-available/default with its TLS lines uncommented, and a proxy as in the guide.
#[test]
fn nginx_http() {
    let toml = import(
        Program::Nginx,
        "user www-data;\nhttp {\n server {\n  listen 443 ssl default_server;\n  listen [::]:443 ssl default_server;\n\
         # a comment; with { braces }\n  ssl_certificate /etc/ssl/certs/ssl-cert-snakeoil.pem;\n\
         ssl_certificate_key \"/etc/ssl/private/ssl-cert-snakeoil.key\";\n  server_name _;\n\
         location / {\n   proxy_set_header Host ${host};\n   proxy_pass http://localhost:8000/app/;\n  }\n }\n\
         server { listen 80; return 301 https://$host$request_uri; }\n}\n",
    );
    has(
        &toml,
        &[
            "listen = [\"0.0.0.0:443\", \"[::]:443\"]",
            "to = \"localhost:8000\"",
            "# line 10: location / -- stays with nginx, or the server behind",
        ],
    );
    assert_eq!(toml.matches("[[route]]").count(), 1, "{toml}");
}

/// Debian's haproxy.cfg, with a frontend as the management guide shows it.
#[test]
fn haproxy_as_shipped() {
    let toml = import(
        Program::Haproxy,
        "global\n\tlog /dev/log\tlocal0\n\tchroot /var/lib/haproxy\n\tstats socket /run/haproxy/admin.sock mode 660 level admin\n\
         \tuser haproxy\n\tdaemon\n\tcrt-base /etc/ssl/private\n        ssl-default-bind-options ssl-min-ver TLSv1.2 no-tls-tickets\n\n\
         defaults\n\tlog\tglobal\n\tmode\thttp\n        timeout connect 5000\n        timeout client  50000\n        timeout server  50000\n\n\
         frontend www\n    bind *:443 ssl crt site.pem alpn h2,http/1.1 ssl-min-ver TLSv1.2  # TLS\n    bind :80\n    default_backend app\n\n\
         backend app\n    balance leastconn\n    server s1 127.0.0.1:8001 check weight 10 maxconn 500\n    server s2 127.0.0.1:8002 check backup send-proxy-v2\n\n\
         listen tls\n    mode tcp\n    bind :::8443,127.0.0.1:8444 ssl crt /etc/a.pem crt /etc/b.pem\n    server s unix@/run/app.sock\n",
    );
    has(
        &toml,
        &[
            "tickets = 0",
            "backend_connect_timeout = \"5000ms\"",
            "idle_timeout = \"50000ms\"",
            "listen = \"0.0.0.0:443\"",
            "alpn = [\"h2\", \"http/1.1\"]",
            "certificates = [{ cert = \"/etc/ssl/private/site.pem\", key = \"/etc/ssl/private/site.pem\" }]",
            "to = [{ address = \"127.0.0.1:8001\", weight = 10, max_connections = 500 }, { address = \"127.0.0.1:8002\", backup = true }]",
            "balance = \"least-connections\"",
            "proxy_protocol = \"v2\"",
            "listen = [\"[::]:8443\", \"127.0.0.1:8444\"]",
            "to = \"unix:/run/app.sock\"",
        ],
    );
}

/// Nothing that somebody wrote into another program's file may break ours.
#[test]
fn what_is_quoted_stays_quoted() {
    let toml = import(
        Program::Hitch,
        "frontend = \"[*]:443\"\nbackend = \"[127.0.0.1]:80\"\npem-file = \"/a\\b\u{1}.pem\"\nbad \r line\u{7}\n",
    );
    assert!(toml.contains(r#"cert = "/a\\b\u0001.pem""#), "{toml}");
}

#[test]
fn a_file_without_tls_gives_nothing() {
    let empty = |program, text: &str| draft_of(program, text, Path::new("x")).is_empty();
    assert!(empty(Program::Nginx, "http { server { listen 80; } }"));
    assert!(empty(Program::Nginx, "}}}{{{;;\"'\\"));
    assert!(empty(Program::Haproxy, "frontend x\n bind :80\n"));
    assert!(empty(Program::Stunnel, "[x]\nexec = /bin/sh\n"));
    assert!(empty(Program::Hitch, "workers = 4\n}\n{"));
}
