//! Settings, each in a small configuration.

use super::super::Program;

/// A setting, in a configuration with `@` in its place.
pub(super) struct Sample {
    pub(super) program: Program,
    pub(super) frame: &'static str,
    pub(super) setting: &'static str,
}

const fn of(program: Program, frame: &'static str, setting: &'static str) -> Sample {
    Sample {
        program,
        frame,
        setting,
    }
}

const fn nginx(frame: &'static str, setting: &'static str) -> Sample {
    of(Program::Nginx, frame, setting)
}

const fn haproxy(frame: &'static str, setting: &'static str) -> Sample {
    of(Program::Haproxy, frame, setting)
}

const fn hitch(setting: &'static str) -> Sample {
    of(
        Program::Hitch,
        "frontend = \"[*]:443\"\npem-file = \"a.pem\"\nbackend = \"[127.0.0.1]:80\"\n@\n",
        setting,
    )
}

const fn stunnel(setting: &'static str) -> Sample {
    of(
        Program::Stunnel,
        "[s]\naccept = 443\nconnect = 80\ncert = a.pem\n@\n",
        setting,
    )
}

const fn stunnel_client(setting: &'static str) -> Sample {
    of(
        Program::Stunnel,
        "[c]\nclient = yes\naccept = 127.0.0.1:80\nconnect = a.example:443\nverifyChain = yes\nCAfile = ca.pem\n@\n",
        setting,
    )
}

/// nginx: the top, a server of `stream`, its `listen`, an upstream, a first stage, `http`, and its location.
const TOP: &str = "@\nstream { server { listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key; proxy_pass 10.0.0.1:80; } }\n";
const SERVER: &str = "stream {\nserver { listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key; proxy_pass 10.0.0.1:80;\n@\n} }\n";
const BARE: &str = "stream {\nserver { listen 443 ssl;\n@\n} }\n";
const VERIFIED: &str = "stream {\nserver { listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key; proxy_pass 10.0.0.1:80; ssl_verify_client on; ssl_client_certificate ca.pem;\n@\n} }\n";
const TO_TLS: &str = "stream {\nserver { listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key; proxy_pass b.example:443; proxy_ssl on; proxy_ssl_verify on; proxy_ssl_trusted_certificate ca.pem;\n@\n} }\n";
const LISTEN: &str = "stream {\nserver { ssl_certificate a.pem; ssl_certificate_key a.key; proxy_pass 10.0.0.1:80;\n@\n} }\n";
const UPSTREAM: &str = "stream {\nserver { listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key; proxy_pass group; } upstream group { server 10.0.0.2:80;\n@\n} }\n";
const STAGE: &str = "stream {\n@\nserver { listen 443; ssl_preread on; proxy_pass $to; } }\n";
const PLAIN: &str = "stream {\nserver { listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key; proxy_pass 10.0.0.1:80; }\n@\n}\n";
const HTTP: &str = "http {\nserver { listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key; location / { proxy_pass http://10.0.0.1; proxy_set_header Host $host; } }\n@\n}\n";
const LOCATION: &str = "http {\nserver { listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key; location / { proxy_pass http://10.0.0.1; proxy_set_header Host $host;\n@\n} } }\n";
const NAMED: &str = "http {\nserver { listen 443 ssl; server_name a.example; ssl_certificate a.pem; ssl_certificate_key a.key; location / { proxy_pass http://10.0.0.1; proxy_set_header Host $host; } }\nserver { listen 443 ssl; ssl_certificate b.pem; ssl_certificate_key b.key; location / { proxy_pass http://10.0.0.2; proxy_set_header Host $host; }\n@\n} }\n";

/// HAProxy: `global`, a bind, a frontend, a backend, the words of a server, and one with TLS.
const GLOBAL: &str =
    "global\n@\nlisten l\n mode tcp\n bind :443 ssl crt a.pem\n server s 10.0.0.1:80\n";
const BIND: &str = "listen l\n mode tcp\n bind :443 ssl crt a.pem @\n server s 10.0.0.1:80\n";
const FRONTEND: &str = "frontend f\n mode tcp\n bind :443 ssl crt a.pem\n@\n default_backend b\nbackend b\n server s 10.0.0.1:80\nbackend c\n server s 10.0.0.2:80\n";
const HELLO: &str = "frontend f\n mode tcp\n@\n default_backend b\nbackend b\n server s 10.0.0.1:443\nbackend c\n server s 10.0.0.2:443\n";
const BACKEND: &str =
    "listen l\n mode tcp\n bind :443 ssl crt a.pem\n server s 10.0.0.1:80 check\n@\n";
const WORDS: &str = "listen l\n mode tcp\n bind :443 ssl crt a.pem\n server s 10.0.0.1:80 @\n";
const TLS_WORDS: &str = "listen l\n mode tcp\n bind :443 ssl crt a.pem\n server s b.example:443 ssl verify required ca-file ca.pem @\n";
const SECTIONS: &str = "listen l\n mode tcp\n bind :443 ssl crt a.pem\n server s 10.0.0.1:80\n@\n";
const REQUESTS: &str = "frontend f\n mode http\n bind :443 ssl crt a.pem\n@\n default_backend b\nbackend b\n mode http\n server s 10.0.0.1:80\n";

pub(super) const SAMPLES: &[Sample] = &[
    nginx(LISTEN, "listen 443 ssl;"),
    nginx(LISTEN, "listen [::]:443 ssl ipv6only=off;"),
    nginx(LISTEN, "listen 10.0.0.1:9000-9002 ssl;"),
    nginx(LISTEN, "listen 443 ssl backlog=1024 so_keepalive=30m::10;"),
    nginx(LISTEN, "listen 443 ssl proxy_protocol;"),
    nginx(
        LISTEN,
        "listen 443 ssl proxy_protocol; set_real_ip_from 10.0.0.0/8;",
    ),
    nginx(LISTEN, "listen unix:/run/tls.sock ssl;"),
    nginx(BARE, "ssl_certificate a.pem; ssl_certificate_key a.key;"),
    nginx(
        BARE,
        "ssl_certificate a.pem; ssl_certificate_key a.key; ssl_stapling_file a.ocsp;",
    ),
    nginx(
        BARE,
        "ssl_certificate $ssl_server_name.pem; ssl_certificate_key $ssl_server_name.key;",
    ),
    nginx(SERVER, "ssl_password_file keys.pass;"),
    nginx(SERVER, "ssl_protocols TLSv1.3;"),
    nginx(SERVER, "ssl_protocols TLSv1 TLSv1.1;"),
    nginx(SERVER, "ssl_ciphers ECDHE-RSA-AES128-GCM-SHA256;"),
    nginx(SERVER, "ssl_ciphers HIGH:!aNULL;"),
    nginx(
        SERVER,
        "ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;",
    ),
    nginx(SERVER, "ssl_ecdh_curve X25519:P-256;"),
    nginx(SERVER, "ssl_alpn h2;"),
    nginx(
        SERVER,
        "ssl_session_tickets off; ssl_session_cache shared:S:10m;",
    ),
    nginx(SERVER, "ssl_session_timeout 1h;"),
    nginx(SERVER, "ssl_session_ticket_key tickets.key;"),
    nginx(SERVER, "ssl_stapling on;"),
    nginx(SERVER, "ssl_early_data on;"),
    nginx(
        SERVER,
        "ssl_verify_client on; ssl_client_certificate ca.pem;",
    ),
    nginx(SERVER, "ssl_verify_client optional_no_ca;"),
    nginx(VERIFIED, "ssl_crl revoked.pem;"),
    nginx(VERIFIED, "ssl_ocsp leaf;"),
    nginx(VERIFIED, "ssl_verify_depth 2;"),
    nginx(SERVER, "allow 10.0.0.0/8; deny all;"),
    nginx(SERVER, "allow 10.0.0.0/8; deny 10.0.0.1; deny all;"),
    nginx(SERVER, "limit_conn zone 5;"),
    nginx(SERVER, "proxy_upload_rate 100k;"),
    nginx(SERVER, "proxy_protocol on;"),
    nginx(SERVER, "proxy_bind 10.0.0.9;"),
    nginx(SERVER, "proxy_timeout 1h;"),
    nginx(SERVER, "proxy_connect_timeout 3s;"),
    nginx(SERVER, "ssl_handshake_timeout 20s;"),
    nginx(SERVER, "proxy_half_close off;"),
    nginx(SERVER, "health_check interval=5 fails=2 passes=3;"),
    nginx(SERVER, "js_access main.access;"),
    nginx(
        SERVER,
        "proxy_ssl on; proxy_ssl_verify on; proxy_ssl_trusted_certificate ca.pem;",
    ),
    nginx(SERVER, "proxy_ssl on;"),
    nginx(TO_TLS, "proxy_ssl_name c.example;"),
    nginx(
        TO_TLS,
        "proxy_ssl_certificate c.pem; proxy_ssl_certificate_key c.key;",
    ),
    nginx(TO_TLS, "proxy_ssl_alpn h2;"),
    nginx(TO_TLS, "proxy_ssl_crl revoked.pem;"),
    nginx(TO_TLS, "proxy_ssl_protocols TLSv1.3;"),
    nginx(
        UPSTREAM,
        "server 10.0.0.1:80 weight=3 max_conns=100 backup;",
    ),
    nginx(
        UPSTREAM,
        "server 10.0.0.1:80 max_fails=2 fail_timeout=30s slow_start=1m;",
    ),
    nginx(UPSTREAM, "least_conn;"),
    nginx(UPSTREAM, "hash $remote_addr consistent;"),
    nginx(UPSTREAM, "random two;"),
    nginx(
        STAGE,
        "map $ssl_preread_server_name $to { a.example 10.0.0.1:443; default 10.0.0.2:443; }",
    ),
    nginx(
        STAGE,
        "map $ssl_preread_server_name $to { ~^a[0-9]+\\.example$ 10.0.0.1:443; default 10.0.0.2:443; }",
    ),
    nginx(
        STAGE,
        "map $ssl_preread_alpn_protocols $to { ~\\bacme-tls/1\\b 10.0.0.1:443; default 10.0.0.2:443; }",
    ),
    nginx(
        STAGE,
        "map $ssl_preread_protocol $to { \"\" 10.0.0.1:22; default 10.0.0.2:443; }",
    ),
    nginx(STAGE, "map $remote_addr $to { default 10.0.0.2:443; }"),
    nginx(
        PLAIN,
        "server { listen 1883; proxy_pass b.example:8883; proxy_ssl on; proxy_ssl_verify on; proxy_ssl_trusted_certificate ca.pem; }",
    ),
    nginx(
        PLAIN,
        "server { listen 1883; proxy_pass b.example:8883; proxy_ssl on; }",
    ),
    nginx(PLAIN, "server { listen 80; proxy_pass 10.0.0.1:80; }"),
    nginx(PLAIN, "server { listen 53 udp; proxy_pass 10.0.0.1:53; }"),
    nginx(TOP, "worker_processes 4;"),
    nginx(TOP, "user www-data;"),
    nginx(TOP, "worker_shutdown_timeout 1m;"),
    nginx(TOP, "error_log /var/log/nginx/error.log;"),
    nginx(TOP, "mail { server { listen 993 ssl; } }"),
    nginx(
        HTTP,
        "server { listen 80; return 301 https://$host$request_uri; }",
    ),
    nginx(
        HTTP,
        "server { listen 80; location /.well-known/acme-challenge/ { root /var/www; } location / { return 301 https://$host$request_uri; } }",
    ),
    nginx(HTTP, "server { listen 80; root /var/www; }"),
    nginx(
        HTTP,
        "server { listen 443 quic; ssl_certificate a.pem; ssl_certificate_key a.key; }",
    ),
    nginx(
        HTTP,
        "server { listen 8443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key; root /var/www; }",
    ),
    nginx(NAMED, "server_name b.example;"),
    nginx(NAMED, "server_name .c.example;"),
    nginx(NAMED, "server_name ~^d[0-9]+\\.example$;"),
    nginx(NAMED, "server_name e.example; ssl_reject_handshake on;"),
    nginx(
        LOCATION,
        "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;",
    ),
    nginx(LOCATION, "proxy_set_header Upgrade $http_upgrade;"),
    nginx(LOCATION, "client_max_body_size 20m;"),
    nginx(LOCATION, "proxy_read_timeout 5m;"),
    nginx(LOCATION, "proxy_buffering off;"),
    haproxy(BIND, "alpn h2,http/1.1"),
    haproxy(BIND, "strict-sni"),
    haproxy(BIND, "default-crt d.pem"),
    haproxy(BIND, "verify required ca-file ca.pem crl-file revoked.pem"),
    haproxy(BIND, "verify optional ca-file ca.pem crt-ignore-err all"),
    haproxy(BIND, "ciphers ECDHE-RSA-AES128-GCM-SHA256"),
    haproxy(BIND, "ciphers HIGH"),
    haproxy(BIND, "curves X25519:P-256"),
    haproxy(BIND, "ssl-min-ver TLSv1.3"),
    haproxy(BIND, "no-tlsv13"),
    haproxy(BIND, "ssl-min-ver TLSv1.0"),
    haproxy(BIND, "no-tls-tickets"),
    haproxy(BIND, "tls-ticket-keys tickets"),
    haproxy(BIND, "accept-proxy"),
    haproxy(BIND, "interface eth0"),
    haproxy(BIND, "allow-0rtt"),
    haproxy(BIND, "maxconn 100"),
    haproxy(FRONTEND, " bind :::444 ssl crt a.pem"),
    haproxy(FRONTEND, " bind 10.0.0.1:9000-9002 ssl crt a.pem"),
    haproxy(FRONTEND, " bind /run/tls.sock ssl crt a.pem"),
    haproxy(FRONTEND, " bind quic4@:443 ssl crt a.pem alpn h3"),
    haproxy(
        FRONTEND,
        " ssl-f-use crt b.pem verify required ca-file ca.pem",
    ),
    haproxy(FRONTEND, " use_backend c if { ssl_fc_sni c.example }"),
    haproxy(
        FRONTEND,
        " use_backend c if { ssl_fc_sni -m end .c.example }",
    ),
    haproxy(FRONTEND, " use_backend c if { ssl_fc_alpn h2 }"),
    haproxy(FRONTEND, " use_backend c if { src 10.0.0.0/8 }"),
    haproxy(
        FRONTEND,
        " tcp-request connection reject if { src 192.0.2.0/24 }",
    ),
    haproxy(
        FRONTEND,
        " tcp-request connection reject if !{ src 10.0.0.0/8 }",
    ),
    haproxy(
        FRONTEND,
        " tcp-request connection expect-proxy layer4 if { src 10.0.0.0/8 }",
    ),
    haproxy(
        FRONTEND,
        " tcp-request content reject unless { ssl_fc_sni a.example }",
    ),
    haproxy(
        FRONTEND,
        " tcp-request connection reject if { sc0_conn_rate gt 20 }",
    ),
    haproxy(
        FRONTEND,
        " filter bwlim-in x default-limit 1m default-period 1s",
    ),
    haproxy(FRONTEND, " timeout client 1h"),
    haproxy(
        HELLO,
        " bind :443\n use_backend c if { req.ssl_sni c.example }",
    ),
    haproxy(
        HELLO,
        " bind :443\n use_backend c if { req.ssl_sni c.example } { req.ssl_alpn h2 }",
    ),
    haproxy(WORDS, "weight 3 maxconn 100 backup"),
    haproxy(WORDS, "check inter 5s rise 2 fall 3"),
    haproxy(WORDS, "send-proxy"),
    haproxy(WORDS, "send-proxy-v2"),
    haproxy(WORDS, "slowstart 30s"),
    haproxy(WORDS, "source 10.0.0.9"),
    haproxy(WORDS, "disabled"),
    haproxy(WORDS, "ssl verify required ca-file ca.pem"),
    haproxy(WORDS, "ssl verify none"),
    haproxy(TLS_WORDS, "sni str(c.example)"),
    haproxy(TLS_WORDS, "crt gateway.pem alpn h2"),
    haproxy(TLS_WORDS, "crl-file revoked.pem"),
    haproxy(BACKEND, " balance leastconn"),
    haproxy(BACKEND, " balance source"),
    haproxy(BACKEND, " balance uri"),
    haproxy(
        BACKEND,
        " option httpchk GET /health\n http-check expect status 200",
    ),
    haproxy(BACKEND, " timeout check 2s"),
    haproxy(BACKEND, " timeout tunnel 1d"),
    haproxy(BACKEND, " stick on src"),
    haproxy(BACKEND, " use-server s if { src 10.0.0.0/8 }"),
    haproxy(
        SECTIONS,
        "listen out\n mode tcp\n bind 127.0.0.1:6380\n server s b.example:6379 ssl verify required ca-file ca.pem",
    ),
    haproxy(
        SECTIONS,
        "listen in\n mode tcp\n bind :80\n server s 10.0.0.1:80",
    ),
    haproxy(
        SECTIONS,
        "listen one\n mode tcp\n bind :444 ssl crt a.pem\n server s abns@name:443",
    ),
    haproxy(SECTIONS, "program agent\n command /usr/bin/agent"),
    haproxy(SECTIONS, ".if defined(X)\n.endif"),
    haproxy(
        REQUESTS,
        " http-request redirect scheme https unless { ssl_fc }\n bind :80",
    ),
    haproxy(REQUESTS, " http-request set-header X-Forwarded-Proto https"),
    haproxy(GLOBAL, " maxconn 20000"),
    haproxy(GLOBAL, " nbthread 4"),
    haproxy(GLOBAL, " user haproxy\n group haproxy"),
    haproxy(GLOBAL, " hard-stop-after 1m"),
    haproxy(GLOBAL, " tune.ssl.lifetime 600"),
    haproxy(GLOBAL, " log /dev/log local0"),
    hitch("frontend = \"[10.0.0.1]:8443+b.pem\""),
    hitch(
        "frontend = {\n host = \"10.0.0.1\"\n port = \"8443\"\n client-verify = required\n client-verify-ca = \"ca.pem\"\n}",
    ),
    hitch(
        "pem-file = {\n cert = \"b.pem\"\n private-key = \"b.key\"\n ocsp-resp-file = \"b.ocsp\"\n}",
    ),
    hitch("pem-dir = \"/etc/hitch/none\""),
    hitch("sni-nomatch-abort = on"),
    hitch("client-verify = required\nclient-verify-ca = \"ca.pem\""),
    hitch("write-proxy-v1 = on"),
    hitch("write-proxy-v2 = on"),
    hitch("proxy-client-cert = on"),
    hitch("proxy-proxy = on"),
    hitch("write-ip = on"),
    hitch("alpn-protos = \"h2, http/1.1\""),
    hitch("tls-protos = TLSv1.3"),
    hitch("ciphers = \"ECDHE-RSA-AES128-GCM-SHA256\""),
    hitch("ciphers = \"EECDH+AESGCM\""),
    hitch("ecdh-curve = \"X25519:prime256v1\""),
    hitch("workers = 4"),
    hitch("backlog = 1000"),
    hitch("keepalive = 3600"),
    hitch("backend-connect-timeout = 30"),
    hitch("ssl-handshake-timeout = 20"),
    hitch("backend-refresh = 60"),
    hitch("user = \"hitch\"\ngroup = \"hitch\""),
    hitch("ocsp-dir = \"\""),
    hitch("ocsp-dir = \"/var/lib/hitch/ocsp\""),
    hitch("syslog = on"),
    hitch("tcp-fastopen = on"),
    hitch("ssl-engine = \"pkcs11\""),
    stunnel("connect = 81\nfailover = rr"),
    stunnel("verifyChain = yes\nCAfile = ca.pem"),
    stunnel("verify = 1\nCApath = /etc/clients"),
    stunnel("verifyChain = yes\nCAfile = ca.pem\ncheckHost = one.example\ncheckHost = two.example"),
    stunnel("verifyChain = yes\nCAfile = ca.pem\nCRLfile = revoked.pem"),
    stunnel("verifyChain = yes\nCAfile = ca.pem\nOCSPaia = yes"),
    stunnel("verifyPeer = yes\nCAfile = peers.pem"),
    stunnel("requireCert = yes"),
    stunnel("PSKsecrets = keys.txt"),
    stunnel("protocol = proxy"),
    stunnel("protocol = pgsql"),
    stunnel("libwrap = yes"),
    stunnel("local = 10.0.0.9"),
    stunnel("sslVersionMin = TLSv1.3"),
    stunnel("options = NO_TLSv1_3"),
    stunnel("ciphers = ECDHE-RSA-AES128-GCM-SHA256"),
    stunnel("ciphers = HIGH"),
    stunnel("curves = X25519:P-256"),
    stunnel("socket = l:TCP_KEEPIDLE=60"),
    stunnel("socket = a:SO_BINDTODEVICE=eth0"),
    stunnel("TIMEOUTidle = 3600"),
    stunnel("TIMEOUTconnect = 5"),
    stunnel("TIMEOUTbusy = 60"),
    stunnel("TIMEOUTclose = 0"),
    stunnel("sessionResume = no"),
    stunnel("redirect = 8080"),
    stunnel("transparent = source"),
    stunnel("[other]\nsni = s:b.example\nconnect = 81\ncert = b.pem"),
    stunnel("[other]\nsni = s:*.b.example\nconnect = 81\ncert = b.pem"),
    stunnel("[mail]\naccept = imaps\nconnect = imap\ncert = b.pem"),
    stunnel("[run]\naccept = 444\nexec = /usr/bin/example\ncert = b.pem"),
    stunnel_client("checkHost = a.example"),
    stunnel_client("checkHost = a.example\ncheckHost = b.example"),
    stunnel_client("checkHost = a.example\nsni = b.example"),
    stunnel_client("CRLfile = revoked.pem"),
    stunnel_client("sessionCacheTimeout = 600"),
    stunnel_client("sslVersion = TLSv1.3"),
    stunnel_client("protocol = smtp"),
    stunnel_client("protocol = smtp\nprotocolUsername = me\nprotocolPassword = x"),
    of(
        Program::Stunnel,
        "@\n",
        "[c]\nclient = yes\naccept = 127.0.0.1:80\nconnect = a.example:443",
    ),
    of(
        Program::Stunnel,
        "[c]\nclient = yes\naccept = 127.0.0.1:80\nconnect = a.example:443\n@\n",
        "verifyChain = yes\nCApath = /etc/ssl/certs",
    ),
    of(
        Program::Stunnel,
        "[c]\nclient = yes\naccept = 127.0.0.1:80\nconnect = a.example:443\n@\n",
        "verifyPeer = yes\nCAfile = server.pem",
    ),
    of(
        Program::Stunnel,
        "@\n[s]\naccept = 443\nconnect = 80\ncert = a.pem\n",
        "setuid = stunnel\nsetgid = stunnel",
    ),
    of(
        Program::Stunnel,
        "@\n[s]\naccept = 443\nconnect = 80\ncert = a.pem\n",
        "debug = 7",
    ),
    of(
        Program::Stunnel,
        "@\n[s]\naccept = 443\nconnect = 80\ncert = a.pem\n",
        "output = /var/log/stunnel.log",
    ),
    of(
        Program::Stunnel,
        "@\n[s]\naccept = 443\nconnect = 80\ncert = a.pem\n",
        "engine = pkcs11",
    ),
];
