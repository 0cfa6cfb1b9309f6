//! Configurations with the syntax of HAProxy 3, which Debian 12's version does not know.

use super::scenarios::{Difference, OTHER_PROTOCOLS, Scenario};

/// A client that did not show the certificate that the site demanded.
const UNVERIFIED: Difference = Difference {
    applies: |_, theirs, ours| theirs.is_refused() && !ours.is_refused(),
    words: "clients that ask for these names had to be verified",
};

pub(super) const ALL: &[Scenario] = &[
    Scenario {
        name: "certificates of stores, of frontends and by default",
        program: HAPROXY_3,
        is_plain: false,
        ports: &[443, 444, 445, 446, 447, 448],
        differences: &[OTHER_PROTOCOLS],
        text: "
global
    ocsp-update.mindelay 3600
    ssl-default-bind-options ssl-min-ver TLSv1.2
crt-store sites
    crt-base HERE
    key-base HERE
    load crt a.example.chain.pem key a.example.key ocsp-update off alias a
    load crt \"b.example.chain.pem\" key \"b.example.key\" alias \"b\"
crt-store
    load crt HERE/default.example.chain.pem key HERE/default.example.key alias default
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
frontend many
    bind :443 ssl crt @sites/a default-crt @/default alpn h2,http/1.1 label many
    use_backend a if { ssl_fc_sni a.example }
    default_backend c
frontend strict
    bind :444 ssl strict-sni
    ssl-f-use crt @sites/a
    ssl-f-use crt \"@sites/b\"
    default_backend b
frontend cancelled
    bind :445 ssl strict-sni no-strict-sni alpn h2 no-alpn force-tlsv13 crt @sites/b
    default_backend c
frontend verified
    bind :446 ssl crt @sites/b ca-file AUTHORITY verify required
    default_backend s
frontend first
    bind :447 ssl default-crt @/default crt @sites/a default-crt @sites/b
    default_backend b
frontend both
    bind :448 ssl crt @sites/b
    ssl-f-use crt @/default
    default_backend b
backend a
    server s 127.0.0.1:8001 send-proxy
backend b
    server s 127.0.0.1:8002 send-proxy-v2 init-state fully-up
backend c
    server s 127.0.0.1:8003
backend s
    server s 127.0.0.1:8443 ssl verify required ca-file AUTHORITY verifyhost backend.example sni str(backend.example)
",
    },
    Scenario {
        name: "a certificate with demands of its own",
        program: HAPROXY_3,
        is_plain: false,
        ports: &[443],
        differences: &[UNVERIFIED],
        text: "
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
frontend f
    bind :443 ssl
    ssl-f-use crt HERE/default.example.whole.pem
    ssl-f-use crt HERE/a.example.whole.pem verify required ca-file AUTHORITY
    default_backend c
backend c
    server s 127.0.0.1:8003
",
    },
    Scenario {
        name: "QUIC beside TCP",
        program: HAPROXY_3,
        is_plain: false,
        ports: &[443],
        differences: &[OTHER_PROTOCOLS],
        text: "
global
    limited-quic
    tune.quic.retry-threshold 100
defaults
    mode http
    timeout connect 5s
    timeout client 1h
    timeout server 1h
frontend f
    bind :443 ssl crt HERE/a.example.whole.pem alpn http/1.1
    bind quic4@:443 ssl crt HERE/a.example.whole.pem alpn h3 quic-cc-algo newreno
    http-after-response add-header alt-svc 'h3=\":443\"; ma=60'
    default_backend c
backend c
    server s 127.0.0.1:8003
",
    },
    Scenario {
        name: "rules before and after the ClientHello",
        program: HAPROXY_3,
        is_plain: false,
        ports: &[443],
        differences: &[],
        text: "
defaults names
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
frontend f from names
    bind :443
    tcp-request connection reject if { src 192.0.2.0/24 }
    tcp-request inspect-delay 200ms
    tcp-request content accept if { req.ssl_hello_type 1 }
    tcp-request content reject
    use_backend inner if { req.ssl_sni -i a.example }
    use_backend outside if { req.ssl_sni -m end .b.example }
    default_backend inner
backend inner from names
    server s unix@HERE/inner.sock send-proxy-v2
backend outside from names
    server s 127.0.0.1:8443
frontend inner from names
    bind unix@HERE/inner.sock accept-proxy ssl
    ssl-f-use crt HERE/default.example.whole.pem
    ssl-f-use crt HERE/a.example.whole.pem
    default_backend c
backend c from names
    server s 127.0.0.1:8003 send-proxy
",
    },
];

/// The program in scenarios.
pub(super) const HAPROXY_3: &str = "haproxy-3";
