//! Options of a route.

use crate::option::group::option_groups;
use crate::values::acme_name::AcmeName;
use crate::values::choices::{
    BackendDown, Balance, ClientAsk, ConnectTime, NameUnknown, ProxyProtocol, StapledOcsp,
    Starttls, TlsGroup, TlsProfile, TlsSuite, TlsVersion, Truncation,
};
use crate::values::client_match::ClientMatch;
use crate::values::endpoints::Listen;
use crate::values::network::Network;
use crate::values::pem_files::{Ca, CertificateFiles, ClientCa};
use crate::values::probe::{Probe, StatusCodes};
use crate::values::quantities::ByteSize;
use crate::values::route_name::RouteName;
use crate::values::route_timeout::{Inherited, RouteTimeout};
use crate::values::server_name::ServerName;
use crate::values::source_address::SourceAddress;
use crate::values::spiffe::SpiffeRule;
use crate::values::upstream::Upstream;
use std::path::PathBuf;
use std::time::Duration;

option_groups! {
    /// A route: the addresses it listens on, the certificates it serves, and the backends that get
    /// the plaintext. Written as `[[route]]`, once per route.
    Route, "Routes", each at reload {
        /// Name of the route in metrics, logs and `status`. `none`: the route's number in the file,
        /// starting at 1. No two routes may have the same name.
        name: Option<RouteName> = default "none", like "\"shop\"";

        /// Addresses to listen on: `HOST:PORT`, `[IPv6]:PORT`, or `:PORT` for all addresses of the
        /// machine, IPv4 and IPv6. A name is looked up at startup and at each reload. `[::]:PORT`
        /// takes IPv6 only.
        listen: Vec<Listen> = required "127.0.0.1:8443";

        /// Backends to send the plaintext to: `HOST:PORT`, `unix:PATH`, or `echo:`, which sends
        /// back what it receives, for tests and measurements. A name is looked up at startup and
        /// again later (`resolve_every`); each of its IPv4 addresses, eight at most, is a separate
        /// backend (each of its IPv6 addresses if the machine reaches none of IPv4). Of several
        /// backends, each may be a table with `weight` (1 to 1000), `backup` (used only while no
        /// other backend can be) and `max_connections`. If connecting to a backend fails, the next
        /// one is tried, and the client notices nothing.
        to: Vec<Upstream> = required "127.0.0.1:8080";

        /// How to choose a backend. `round-robin`: in turn, by weight. `least-connections`: the
        /// fewest connections relative to the weight, over all workers. `client-hash`: the same
        /// client address goes to the same backend, and when a backend fails only its clients move.
        /// `sni-hash`: the same for the server name that the client sends (SNI). `mqtt-client-id`: the same
        /// for the client id in MQTT's CONNECT, which must be whole in the client's first TLS record; it needs
        /// `backend_connect = "first-data"`. Clients without a name or an id get backends in turn.
        balance: Balance = default "round-robin", like "\"least-connections\"";

        /// Failed connects in a row after which a backend is marked down, and skipped if there are others.
        backend_failures: u32 = default "3", "1" ..= "1000";

        /// How long a failed backend is skipped. Then one connection tries it, while the others
        /// go elsewhere until the result is known. If all backends are marked down, or there is only one, all are tried.
        backend_pause: Duration = default "10s", "100ms" ..= "1h";

        /// Time over which a recovered backend grows from a small share of the connections to its
        /// full share.
        slow_start: Option<Duration> = default "off", "1s" ..= "1h";

        /// What the client sees when no backend can be reached. `alert`: the fatal alert
        /// internal_error. `reset`: a TCP reset without an alert. `close`: close_notify, which a
        /// client cannot distinguish from an empty answer. With `pass_through` the connection is
        /// reset in any case.
        backend_down: BackendDown = default "alert", like "\"reset\"";

        /// When to connect to a backend: `at-once`, after the client's handshake, or `first-data`,
        /// when the client sends its first data. With `first-data` a silent client costs no
        /// connection to a backend. Only for protocols in which the client speaks first.
        backend_connect: ConnectTime = default "at-once", like "\"first-data\"";

        /// Use TLS to the backends, too. Their certificates are verified, and sessions are resumed.
        backend_tls: bool = default "false",
            costs "each connection counts as two: two slots, four descriptors",
            like "true";

        /// Authorities that may sign the backends' certificates: a PEM file (or the certificate
        /// itself, if it is self-signed), or `system` for those that the operating system trusts. Or a trust
        /// domain, `spiffe://example.org`, whose authorities `spiffe_agent` keeps current: then `backend_ids`
        /// takes the place of the name in the certificate.
        backend_ca: Ca = default "system", like "\"internal-ca.pem\"";

        /// SPIFFE ids of the backends, of the trust domain in `backend_ca`; `*` at the end stands for any rest.
        /// A backend's certificate must have one of them.
        backend_ids: Vec<SpiffeRule> = default "", like "\"spiffe://example.org/shop\"";

        /// Revocation lists for the backends' certificates, in PEM: files, or directories, all files of
        /// which are read. With any list, every issuer in a backend's chain needs a current one.
        /// `reload_certificates` reloads changed files; sessions of the backends are then dropped.
        backend_crl: Vec<PathBuf> = default "",
            costs "four to seven times the files' size in each worker, and 14 times while they are replaced, which `memory` includes",
            like "\"internal-ca.crl\"";

        /// Whether a backend must staple a valid OCSP response. `optional`: it need not, but a valid
        /// response that says "revoked" refuses it. `required`: a backend without a valid response that
        /// says "good" is refused.
        backend_ocsp: StapledOcsp = default "optional";

        /// Server name to send to the backends and to expect in their certificates. `none`: the
        /// host of each backend in `to`.
        backend_name: Option<String> = default "none", like "\"app.internal\"";

        /// Client certificate and key for backends that request one, as PEM files; or one of `spiffe_agent`,
        /// as in `certificates`.
        backend_certificates: Vec<CertificateFiles> = default "",
            like "[{ cert = \"gateway.pem\", key = \"gateway.key\" }]";

        /// Protocols to offer to the backends by ALPN, the preferred one first. A client and its backend
        /// choose separately, and bytes are passed on unchanged: offer one protocol, the same as in `alpn`.
        backend_alpn: Vec<String> = default "", like "\"h2\"";

        /// What the client sees when the backend's connection ends without close_notify: `abort`
        /// resets, `close` ends cleanly.
        backend_truncation: Truncation = default "abort", like "\"close\"";

        /// How to check the health of each backend: `connect` (it accepts a connection), `tls` (it
        /// completes a TLS handshake) or `GET /PATH` (it answers with one of `check_status`). With
        /// `backend_tls`, `tls` and `GET` use TLS as clients' connections do, and verify the
        /// certificate; with `pass_through` they use TLS and verify nothing. A backend that fails
        /// its checks is skipped until they succeed again.
        check: Probe = default "off";

        /// HTTP status codes with which a healthy backend answers the `GET` of `check`.
        check_status: StatusCodes = default "200-399", like "\"200-299\"";

        /// Interval between checks of a backend; each check comes up to a fifth sooner.
        check_every: Duration = default "2s", "100ms" ..= "1h",
            costs "one connection to each backend per interval";

        /// Maximum time of a check.
        check_timeout: Duration = default "1s", "10ms" ..= "1m";

        /// Successful checks in a row after which a backend is used again.
        check_rise: u32 = default "2", "1" ..= "100";

        /// Failed checks in a row after which a backend is skipped.
        check_fall: u32 = default "3", "1" ..= "100";

        /// Local addresses to connect to the backends from. One address has some 28,000 local ports
        /// to a backend, so more connections need more addresses (or a unix socket). `auto`: the
        /// system chooses; for a backend on 127.x.y.z, addresses of 127.64.0.0/16 are used too, as
        /// many as the connections need.
        source_addresses: Vec<SourceAddress> = default "auto";

        /// Server names (SNI) that this route serves: `example.com`, or `*.example.com` for every
        /// name with one more label. None: all. Routes may share an address; then an exact name
        /// takes precedence over a wildcard, and a wildcard over a route without names. A client
        /// whose name matches no route is refused with the alert unrecognized_name.
        server_names: Vec<ServerName> = default "",
            costs "nothing at rest; the ClientHello is read before the handshake begins";

        /// Pass the connection on to the backend unchanged, with its TLS: only the server name is
        /// read. The backend has the certificate.
        pass_through: bool = default "false",
            costs "192 bytes at rest, like any connection";

        /// Certificates and their keys as PEM: `{ cert = "…", key = "…" }`, or the path of a file
        /// with both, or of a directory with many (see the guide). A chain begins with the leaf;
        /// `ocsp = "…"` beside `cert` and `key` is a file with an OCSP response to staple, and
        /// `passphrase = "…"` a file with the passphrase of an encrypted key. `spiffe:` is the first
        /// certificate that `spiffe_agent` has for Dormouse, and `spiffe://example.org/web` the one with this id. Of
        /// several certificates, the one for the server name that the client asks for is used,
        /// exact names before wildcards; of several for one name (ECDSA and RSA), the first whose
        /// signatures the client accepts.
        certificates: Vec<CertificateFiles> = default "",
            costs "their text and key once per worker, nothing per connection";

        /// Create a self-signed certificate for this name at startup, for tests. No client trusts
        /// it unless told to.
        self_signed: Option<String> = default "none";

        /// Names to obtain and renew certificates for automatically from an ACME server
        /// (`acme_server`): one certificate for each, ECDSA P-256. The server connects to each name
        /// on port 443 (tls-alpn-01) and must reach one of this route's addresses. A client that
        /// asks for a name whose certificate has not arrived yet is refused with the alert
        /// unrecognized_name, unless one of `certificates` is for that name: it takes precedence.
        acme: Vec<AcmeName> = default "",
            costs "the same as a certificate from a file; while the ACME server checks a name, each ClientHello is read before the handshake begins";

        /// What a client gets if it sends no server name, or one without a certificate: the first
        /// certificate (`default`), or the alert unrecognized_name (`refuse`). `refuse-named`: the
        /// alert for a client that sends such a name, the first certificate for one that sends none.
        unknown_name: NameUnknown = default "default", like "\"refuse\"";

        /// What the backend sees when a client's connection ends without close_notify, which may
        /// mean that someone cut the connection. `abort` delivers what was received and then resets
        /// the backend's connection; `close` ends it cleanly, for clients that never send
        /// close_notify.
        truncation: Truncation = default "abort", like "\"close\"";

        /// Keep the backend's direction open after the client has closed its own. `false`: once the
        /// client has closed and its last bytes are delivered, both connections are closed, and
        /// bytes that the backend has not sent by then are lost. That is for protocols in which a
        /// client waits for the answer before it closes.
        half_close: bool = default "true", like "false";

        /// In place of `idle_timeout`, for connections of this route. `inherit`: the value of that option.
        /// `off`: they may be idle for any time.
        route_idle_timeout: RouteTimeout = default "inherit", "1s" ..= "365d", like "\"30m\"";

        /// In place of `total_timeout`, for connections of this route. `inherit`: the value of that
        /// option. `off`: they may last for any time.
        route_total_timeout: RouteTimeout = default "inherit", "1s" ..= "365d", like "\"12h\"";

        /// In place of `backend_connect_timeout`, for connections of this route: maximum time until a backend accepts a
        /// connection. `inherit`: the value of that option.
        route_backend_connect_timeout: Inherited<Duration> = default "inherit", "10ms" ..= "10m", like "\"2s\"";

        /// In place of `partial_record_timeout`, for connections of this route: maximum time from the first byte of a
        /// record to its last. `inherit`: the value of that option.
        route_partial_record_timeout: Inherited<Duration> = default "inherit", "100ms" ..= "1h", like "\"5m\"";

        /// Reset a connection if bytes have waited for one of its sides for this long, and that side has taken none of
        /// them: a peer that has stopped reading. What fits into a socket's queue of 4 KiB does not count.
        /// `stall_timeout` does the same for all connections, but only while memory is short.
        route_stall_timeout: Option<Duration> = default "off", "1s" ..= "365d",
            costs "two system calls more per wake",
            like "\"5m\"";

        /// In place of `connection_log_one_in`, for connections of this route: log one in this many. `0`: none.
        /// `inherit`: the value of that option.
        route_connection_log_one_in: Inherited<u32> = default "inherit", "0" ..= "1000000", like "100";

        /// Maximum number of established connections of this route, over all workers. Further
        /// connections are closed without an answer.
        route_max_connections: Option<u32> = default "off", "1" ..= "16000000", like "20_000";

        /// Maximum number of handshakes that clients of this route may start per second, over all workers; after a
        /// quieter second, as many at once. Further connections are closed without an answer, before
        /// the handshake.
        route_handshakes_per_second: Option<u32> = default "off", "1" ..= "1000000", like "200";

        /// Maximum bytes per second of all connections of this route together, in both directions and over
        /// all workers; a quarter of them may pass at once. Its connections take turns; nothing is dropped, and
        /// other routes are not affected.
        route_bytes_per_second: Option<ByteSize> = default "off", "64 KiB" ..= "1 TiB",
            costs "30 bytes of heap while a connection waits",
            like "\"20 MiB\"";

        /// Maximum share of the memory for connections that this route may use, in percent: of
        /// `max_connections` and `max_awake`, of `pending_memory` and of `kernel_memory`. Further connections are
        /// closed without an answer. While the route's connections hold their share of the memory for slow
        /// peers, Dormouse reads those of this route as if memory were short; other routes are not affected.
        route_memory_share: Option<u32> = default "off", "1" ..= "100", like "10";

        /// Take connections that are idle for this long out of the kernel: a record of 64 bytes replaces each
        /// TCP socket, until a packet comes for it. The client's side always leaves; the backend's side leaves
        /// if it is TCP without `backend_tls`. Needs Linux 5.9 and, at the start, CAP_NET_ADMIN, CAP_BPF and
        /// CAP_NET_RAW: see the guide (deep-rest.md).
        rest_after: Option<Duration> = default "off", "1ms" ..= "365d",
            costs "64 bytes and 24 bytes of tables for each side that rests, instead of a socket; a packet that wakes a side takes some 100 µs longer";

        /// Send the client's address to the backend in a PROXY protocol header before the first
        /// byte. `v1`: a line with the addresses. `v2`: also what TLS negotiated (version, suite,
        /// server name, ALPN, the client certificate's common name) and a connection id that also
        /// appears in Dormouse's log. `v2-certificate`: also the client's certificate itself (DER,
        /// up to 12 KiB), on resumed connections too. The backend must expect the header.
        proxy_protocol: ProxyProtocol = default "off",
            costs "512 bytes of `pending_memory` until the backend has accepted; `v2-certificate` adds the certificate's length";

        /// The protocol in which clients ask for TLS, if their connections do not begin with it:
        /// `smtp`, `imap`, `pop3`, `xmpp`, `ldap` or `postgres`. Dormouse answers the client until
        /// TLS begins, and refuses all other commands. The backend gets a new plain connection after
        /// the handshake; its greeting must arrive within `backend_connect_timeout`.
        starttls: Starttls = default "off",
            costs "up to 4 KiB until the handshake begins, nothing at rest",
            like "\"smtp\"";

        /// Networks of proxies in front of this listener that send the client's address in a PROXY
        /// protocol header (version 1 or 2). Connections from these networks must begin with a
        /// header; other connections must not have one.
        accept_proxy_from: Vec<Network> = default "";

        /// Networks from which clients may connect. None: from everywhere. Connections from other
        /// networks are closed without an answer.
        allow: Vec<Network> = default "";

        /// Networks from which clients may not connect, whatever `allow` says.
        deny: Vec<Network> = default "";

        /// Protocols to accept by ALPN, the preferred one first. None: ALPN is not answered. Bytes
        /// are passed on unchanged, so the backend must speak these protocols. Of routes that share
        /// an address and a name, the first with a protocol that the client offers is chosen,
        /// otherwise the one without `alpn`.
        alpn: Vec<String> = default "";

        /// Oldest TLS version to accept.
        min_version: TlsVersion = default "1.2", like "\"1.3\"";

        /// Newest TLS version to accept.
        max_version: TlsVersion = default "1.3";

        /// TLS settings that Mozilla recommends: `intermediate` is TLS 1.2 and 1.3, for nearly all
        /// clients; `modern` is TLS 1.3 only. Both have only AEAD suites with forward secrecy.
        profile: TlsProfile = default "intermediate", like "\"modern\"";

        /// Cipher suites to accept, by their IANA names; the client's order of preference decides.
        /// None: all of the profile.
        suites: Vec<TlsSuite> = default "";

        /// Key exchange groups, the preferred one first. None: all.
        groups: Vec<TlsGroup> = default "";

        /// Whether to request client certificates: `none`, `optional` (a client may send none, but
        /// one that is sent must be valid), or `required`. When a client resumes a session, its
        /// certificate is verified again, with the current authorities, time and revocation lists.
        client_certificates: ClientAsk = default "none";

        /// Authorities that may sign client certificates: a PEM file with one or more certificates,
        /// or a directory of such files. `reload_certificates` reloads changed files. Or a trust domain,
        /// `spiffe://example.org`, whose authorities `spiffe_agent` keeps current: then only certificates with
        /// an id of that domain are accepted.
        client_ca: Option<ClientCa> = default "off", like "\"clients-ca.pem\"";

        /// Revocation lists in PEM: files, or directories, all files of which are read. With any
        /// list, every issuer in a client's chain needs a current one. `reload_certificates`
        /// reloads changed files.
        client_crl: Vec<PathBuf> = default "",
            costs "four to seven times the files' size in each worker, and 14 times while they are replaced, which `memory` includes";

        /// Which clients with a valid certificate are accepted: `cn=`, `ou=`, `dns=`, `uri=` (a
        /// SPIFFE id, which may end with `*`) or `sha256=` (the certificate's digest). One match is
        /// enough. None: all are accepted. Each refused client is logged with the reason.
        client_allow: Vec<ClientMatch> = default "";
    }
}
