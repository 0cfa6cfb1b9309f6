//! Configurations to compare, and the differences that the result of each has to mention.

use std::path::Path;

use super::probe::{Probe, Seen};

/// A configuration of a program.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) program: &'static str,
    pub(super) text: &'static str,
    /// Whether its clients do not speak TLS.
    pub(super) is_plain: bool,
    /// The ports that clients try.
    pub(super) ports: &'static [u16],
    pub(super) differences: &'static [Difference],
}

/// A difference, and what the result says about it.
pub(super) struct Difference {
    pub(super) applies: fn(&Probe, &Seen, &Seen) -> bool,
    pub(super) words: &'static str,
}

/// A client that offers only protocols that are not in `alpn`.
pub(super) const OTHER_PROTOCOLS: Difference = Difference {
    applies: |probe, theirs, ours| {
        let offers = probe
            .tls
            .as_ref()
            .is_some_and(|tls| !tls.protocols.is_empty());
        offers
            && theirs.handshake.contains("ALPN none")
            && ours.handshake.contains("NoApplicationProtocol")
    },
    words: "offers only other",
};

/// A client that begins with a PROXY header without being a proxy, or the reverse.
const HEADERS: Difference = Difference {
    applies: |probe, theirs, ours| probe.with_header && !theirs.is_refused() && ours.is_refused(),
    words: "clients send the PROXY protocol",
};

/// Writes the files that scenarios name.
pub(super) fn files(here: &Path) {
    let map = "a.example a\nb.example b\n";
    std::fs::write(here.join("names.map"), map).expect("written");
    // Names that Dormouse does not know, beside some that it would read.
    let folder = here.join("many");
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in ["a.example", "b.example"] {
        let whole = here.join(format!("{name}.whole.pem"));
        std::fs::copy(whole, folder.join(format!("{name}.bundle"))).expect("copied");
    }
    let leaf = here.join("a.example.both.pem");
    std::fs::copy(leaf, folder.join("leaf-only.pem")).expect("copied");
}

pub(super) const ALL: &[Scenario] = &[
    Scenario {
        name: "names and protocols",
        program: "haproxy",
        is_plain: false,
        ports: &[443, 444],
        differences: &[OTHER_PROTOCOLS],
        text: "
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
frontend f
    bind :443 ssl crt HERE/default.example.whole.pem crt HERE/a.example.whole.pem alpn h2,http/1.1
    use_backend a if { ssl_fc_sni a.example }
    use_backend %[ssl_fc_sni,lower,map(HERE/names.map)]
    default_backend c
frontend strict
    bind :444 ssl crt HERE/a.example.whole.pem crt HERE/b.example.whole.pem strict-sni no-tlsv12
    default_backend c
backend a
    server s 127.0.0.1:8001 send-proxy
backend b
    server s 127.0.0.1:8002 send-proxy-v2
backend c
    server s 127.0.0.1:8003
",
    },
    Scenario {
        name: "client certificates and TLS to the backend",
        program: "haproxy",
        is_plain: false,
        ports: &[443, 444, 445],
        differences: &[],
        text: "
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
listen required
    bind :443 ssl crt HERE/a.example.whole.pem ca-file AUTHORITY verify required
    server s 127.0.0.1:8443 ssl verify required ca-file AUTHORITY verifyhost backend.example sni str(backend.example)
listen optional
    bind :444 ssl crt HERE/a.example.whole.pem ca-file AUTHORITY verify optional
    tcp-request connection expect-proxy layer4 if { src 127.0.0.0/8 }
    server s 127.0.0.1:8001 send-proxy
listen many
    bind :445 ssl crt HERE/many/
    tcp-request connection reject if { src 192.0.2.0/24 }
    server s 127.0.0.1:8002
",
    },
    Scenario {
        name: "pass-through in two stages",
        program: "haproxy",
        is_plain: false,
        ports: &[443],
        differences: &[Difference {
            applies: |_, theirs, ours| {
                theirs.handshake.contains("ALPN none") && ours.handshake.contains("ALPN mqtt")
            },
            words: "which therefore answers them (ALPN)",
        }],
        text: "
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
frontend entry
    bind :443
    tcp-request inspect-delay 200ms
    tcp-request content accept if { req.ssl_hello_type 1 }
    tcp-request content reject
    use_backend grpc if { req.ssl_sni a.example } { req.ssl_alpn mqtt }
    use_backend inner if { req.ssl_sni a.example }
    use_backend outside if { req.ssl_sni -m end .b.example }
    default_backend strict
backend grpc
    server s abns@inner-b send-proxy-v2
backend inner
    server s abns@inner-a send-proxy-v2
backend outside
    server s 127.0.0.1:8443
backend strict
    server s abns@inner-c send-proxy-v2
listen a
    bind abns@inner-a accept-proxy ssl crt HERE/a.example.whole.pem
    server s 127.0.0.1:8001 send-proxy
listen b
    bind abns@inner-b accept-proxy ssl crt HERE/b.example.whole.pem
    server s 127.0.0.1:8002
listen c
    bind abns@inner-c accept-proxy ssl crt HERE/default.example.whole.pem ca-file AUTHORITY verify required
    server s 127.0.0.1:8003
",
    },
    Scenario {
        name: "stream",
        program: "nginx",
        is_plain: false,
        ports: &[443, 444],
        differences: &[OTHER_PROTOCOLS, HEADERS],
        text: "
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off; user root; pid HERE/nginx.pid; error_log stderr; worker_processes 1;
events { }
stream {
    map $ssl_server_name $to { hostnames; a.example 127.0.0.1:8001; *.b.example 127.0.0.1:8002; default 127.0.0.1:8003; }
    server {
        listen 443 ssl;
        ssl_certificate HERE/default.example.chain.pem;
        ssl_certificate_key HERE/default.example.key;
        ssl_protocols TLSv1.2 TLSv1.3;
        ssl_verify_client on;
        ssl_client_certificate AUTHORITY;
        proxy_pass $to;
        proxy_protocol on;
    }
    server {
        listen 444 ssl proxy_protocol;
        set_real_ip_from 127.0.0.0/8;
        ssl_certificate HERE/a.example.chain.pem;
        ssl_certificate_key HERE/a.example.key;
        ssl_protocols TLSv1.3;
        ssl_alpn h2 http/1.1;
        proxy_pass 127.0.0.1:8443;
        proxy_ssl on;
        proxy_ssl_verify on;
        proxy_ssl_trusted_certificate AUTHORITY;
        proxy_ssl_name backend.example;
    }
}
",
    },
    Scenario {
        name: "two stages, and a plain forward",
        program: "nginx",
        is_plain: false,
        ports: &[443],
        differences: &[],
        text: "
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off; user root; pid HERE/nginx.pid; error_log stderr; worker_processes 1;
events { }
stream {
    map $ssl_preread_server_name $to { b.example 127.0.0.1:8443; default 127.0.0.1:9443; }
    server { listen 443; ssl_preread on; proxy_pass $to; }
}
http {
    access_log off;
    server {
        listen 127.0.0.1:9443 ssl;
        server_name a.example;
        ssl_certificate HERE/a.example.chain.pem;
        ssl_certificate_key HERE/a.example.key;
        ssl_protocols TLSv1.2 TLSv1.3;
        location / { proxy_pass http://127.0.0.1:8001; proxy_set_header Host $host; }
    }
}
",
    },
    Scenario {
        name: "frontends",
        program: "hitch",
        is_plain: false,
        ports: &[443, 444, 445],
        differences: &[OTHER_PROTOCOLS],
        text: "
backend = \"[127.0.0.1]:8001\"
workers = 1
user = \"root\"
group = \"root\"
ocsp-dir = \"\"
write-proxy-v2 = on
alpn-protos = \"h2, http/1.1\"
pem-dir = \"HERE/many/\"
pem-dir-glob = \"*.bundle\"
frontend = {
    host = \"*\"
    port = \"443\"
}
frontend = {
    host = \"*\"
    port = \"444\"
    pem-file = \"HERE/a.example.whole.pem\"
    sni-nomatch-abort = on
}
frontend = {
    host = \"*\"
    port = \"445\"
    sni-nomatch-abort = on
    pem-file = \"HERE/default.example.whole.pem\"
    client-verify = required
    client-verify-ca = \"AUTHORITY\"
}
",
    },
    Scenario {
        name: "services",
        program: "stunnel",
        is_plain: false,
        ports: &[443, 444],
        differences: &[],
        text: "foreground = yes
pid = HERE/stunnel.pid
cert = HERE/default.example.whole.pem
socket = l:TCP_NODELAY=1
[tls]
accept = 443
connect = 127.0.0.1:8003
[a]
sni = tls:a.example
connect = 127.0.0.1:8001
cert = HERE/a.example.whole.pem
protocol = proxy
[clients]
accept = 444
connect = 127.0.0.1:8002
verifyChain = yes
CAfile = AUTHORITY
checkHost = client.example
checkHost = other.example
",
    },
    Scenario {
        name: "a client",
        program: "stunnel",
        is_plain: true,
        ports: &[8080],
        differences: &[],
        text: "foreground = yes
pid = HERE/stunnel.pid
[out]
client = yes
accept = 127.0.0.1:8080
connect = 127.0.0.1:8443
verifyChain = yes
CAfile = AUTHORITY
checkHost = backend.example
sni = backend.example
",
    },
];
