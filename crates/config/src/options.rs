//! The table of options. Everything else follows from it: the fields of
//! [`Config`](super::Config), defaults, reading, checking, the flags of the
//! command line and the reference.
//!
//! An entry is `name: type = default "…"` (or `required "an example"`), then the
//! range, then what raising it costs, then (`like`) an example for the reference, if one of its
//! kind would not say enough. Sizes and durations are written as a user writes them.

use crate::option::group::option_groups;
use crate::values::acme_name::AcmeName;
use crate::values::admin::Admin;
use crate::values::amounts::{Amount, SourceAddress};
use crate::values::choices::{
    Balance, ClientAsk, LogFormat, LogLevel, NameUnknown, ProxyProtocol, Sandbox, TlsGroup,
    TlsProfile, TlsSuite, TlsVersion, Truncation,
};
use crate::values::client_match::ClientMatch;
use crate::values::endpoints::{Listen, PlainListen, Server};
use crate::values::key_source::KeySource;
use crate::values::network::Network;
use crate::values::pem_files::{Ca, CertificateFiles};
use crate::values::probe::{Probe, StatusCodes};
use crate::values::quantities::{ByteSize, Count};
use crate::values::server_name::ServerName;
use crate::values::upstream::Upstream;
use std::path::PathBuf;
use std::time::Duration;

option_groups! {
    /// One way through the program: where connections come in, what is shown to
    /// them, and where their plaintext goes. Written as `[[route]]`, as often as
    /// there are routes.
    Route, "Routes" {
        /// Addresses to listen on: `HOST:PORT`, `[IPv6]:PORT`, or `:PORT` for all
        /// addresses of the machine, IPv4 and IPv6. A name is looked up once, at the start.
        /// `[::]:PORT` takes IPv6 only.
        listen: Vec<Listen> = required "127.0.0.1:8443";

        /// Where the plaintext goes: `HOST:PORT`, `unix:PATH`, or `echo:` to answer
        /// with what was received, for trying out and for measuring. A name is looked
        /// up at the start and again (`resolve_every`); each of its IPv4 addresses, eight at
        /// most, is a backend of its own (those of IPv6 where there is none of IPv4).
        /// Of several backends each may be a table with `weight` (1 to 1000), `backup` (used
        /// only while no other can be) and `max_connections`. When one can't be connected
        /// to, the next is tried, and the client notices nothing.
        to: Vec<Upstream> = required "127.0.0.1:8080";

        /// How a backend is chosen: `round-robin` by weight; `least-connections` for its
        /// weight, over all workers; `client-hash`: the same client address goes to the
        /// same backend, and when one goes away only its clients move.
        balance: Balance = default "round-robin", like "\"least-connections\"";

        /// Connects that fail in a row until a backend is passed over.
        backend_failures: u32 = default "3", "1" ..= "1000";

        /// For how long it is passed over; then one connection tries it, while the others go
        /// elsewhere until that one knows. If all are passed over, all are tried.
        backend_pause: Duration = default "10s", "100ms" ..= "1h";

        /// A backend that has come back gets its full share only after so long, and little
        /// at first.
        slow_start: Option<Duration> = default "off", "1s" ..= "1h";

        /// Speak TLS with the backends, too. Their certificates are judged, and sessions resumed.
        backend_tls: bool = default "false",
            costs "each connection counts as two: two slots, four descriptors",
            like "true";

        /// Who may vouch for the backends: a PEM file of authorities (or the certificate itself,
        /// if it is signed by itself), or `system` for those which the operating system trusts.
        backend_ca: Ca = default "system", like "\"internal-ca.pem\"";

        /// The name that backends are asked for and that their certificates must be for. None:
        /// the host of each one in `to`.
        backend_name: Option<String> = default "none", like "\"app.internal\"";

        /// What is shown to backends which ask for a certificate: it, and its key, as PEM files.
        backend_certificates: Vec<CertificateFiles> = default "",
            like "[{ cert = \"gateway.pem\", key = \"gateway.key\" }]";

        /// Protocols offered to the backends by ALPN, the preferred one first. The bytes are
        /// passed on unseen: it should be what clients get by `alpn`.
        backend_alpn: Vec<String> = default "";

        /// What the client sees when the backend's connection ends without close_notify: `abort`
        /// resets, `close` ends cleanly.
        backend_truncation: Truncation = default "abort", like "\"close\"";

        /// Ask each backend now and then whether it is well: `connect` (it accepts a
        /// connection), `tls` (it completes a TLS handshake) or `GET /PATH` (it answers with one
        /// of `check_status`). With `backend_tls` both speak TLS as clients' connections do, and
        /// judge the certificate; with `pass_through` they speak TLS and judge nothing. One that
        /// is not well is passed over until it is.
        check: Probe = default "off";

        /// Answers to the `GET` of `check` which mean that the backend is well.
        check_status: StatusCodes = default "200-399", like "\"200-299\"";

        /// How often each backend is asked; each time up to a fifth sooner.
        check_every: Duration = default "2s", "100ms" ..= "1h",
            costs "a connection to each backend";

        /// How long an answer may take.
        check_timeout: Duration = default "1s", "10ms" ..= "1m";

        /// Good answers in a row after which a backend is used again.
        check_rise: u32 = default "2", "1" ..= "100";

        /// Bad answers in a row after which a backend is passed over.
        check_fall: u32 = default "3", "1" ..= "100";

        /// Addresses from which the backend is connected to. One address has some 28,000
        /// local ports to a backend, so more connections need more addresses (or a unix
        /// socket). `auto`: the system chooses; for a backend on 127.x.y.z addresses of
        /// 127.64.0.0/16 are used besides, as many as it takes.
        source_addresses: Vec<SourceAddress> = default "auto";

        /// Names that this route is for, as clients ask for them (SNI): `example.com`, or
        /// `*.example.com` for every name with one more label. None: all. Routes may share an
        /// address; then an exact name goes before a wildcard, and that before a route
        /// without names. Who asks for a name that no route is for is refused with the alert
        /// unrecognized_name.
        server_names: Vec<ServerName> = default "",
            costs "nothing at rest; the ClientHello is read before the handshake begins";

        /// Pass the connection on to the backend as it came, with its TLS: the bytes are not
        /// touched, only the name is read. The backend has the certificate.
        pass_through: bool = default "false",
            costs "192 bytes at rest, as any connection";

        /// Certificates and their keys as PEM: `{ cert = "…", key = "…" }`, or the path of a
        /// file which has both, or of a directory with many (see the guide). The chain stands
        /// in the order leaf first; `ocsp = "…"` beside them is a file with an OCSP response to
        /// staple. Of several the one which fits the name that the client asks
        /// for is used, exact names before wildcards; of several for one name (ECDSA and RSA)
        /// the first whose signatures the client accepts.
        certificates: Vec<CertificateFiles> = default "",
            costs "their text and key once per worker, none per connection";

        /// Make a certificate for this name at the start instead of reading one: for
        /// trying out. No client trusts it unless told to.
        self_signed: Option<String> = default "none";

        /// Names for which certificates are had from an ACME server (`acme_server`) and renewed, by
        /// themselves: one for each, ECDSA P-256. The server looks for each name at port 443
        /// (tls-alpn-01), and one of this route's addresses must be what it finds. Who asks for a
        /// name whose certificate has not come yet is refused with the alert unrecognized_name,
        /// unless one of `certificates` is for it, which goes before.
        acme: Vec<AcmeName> = default "",
            costs "as a certificate from a file; while a name is looked for, each ClientHello is read before the handshake begins";

        /// What clients get which ask for a name that no certificate is for, or for none: the
        /// first certificate (`default`), or the alert unrecognized_name (`refuse`).
        unknown_name: NameUnknown = default "default", like "\"refuse\"";

        /// What the backend sees when a client's connection ends without close_notify,
        /// which may mean that somebody cut it. `abort` delivers what was received and
        /// then resets the backend's connection; `close` ends it cleanly, for clients
        /// which never send close_notify.
        truncation: Truncation = default "abort", like "\"close\"";

        /// Tell the backend who the client is, by a PROXY protocol header before the first
        /// byte. `v1` is a line with the addresses; `v2` has also what TLS agreed (version,
        /// suite, server name, ALPN, the client certificate's common name) and an id that stands
        /// in our log too; `v2-certificate` adds the client's certificate itself (DER, up to
        /// 12 KiB), of a resumed connection too. The backend must expect it.
        proxy_protocol: ProxyProtocol = default "off",
            costs "512 bytes of `pending_memory` until the backend has accepted; with the certificate its length besides";

        /// Networks of proxies in front of this listener which say by a PROXY protocol
        /// header (1 or 2) who the client is. From there a header is required; from
        /// everywhere else none is accepted.
        accept_proxy_from: Vec<Network> = default "";

        /// Networks from which clients may connect. None: from everywhere. Others are
        /// closed without an answer.
        allow: Vec<Network> = default "";

        /// Networks from which clients may not connect, whatever `allow` says.
        deny: Vec<Network> = default "";

        /// Protocols offered by ALPN, the preferred one first. None: ALPN is not
        /// answered. The bytes are passed on unseen, so the backend must speak them. Of routes
        /// which share an address and a name, the first is taken that has a protocol which the
        /// client offers, else the one which has none.
        alpn: Vec<String> = default "";

        /// The oldest version of TLS that is accepted.
        min_version: TlsVersion = default "1.2", like "\"1.3\"";

        /// The newest version of TLS that is accepted.
        max_version: TlsVersion = default "1.3";

        /// What TLS is made of, after Mozilla's recommendations: `intermediate` is TLS 1.2
        /// and 1.3, for nearly all clients there are; `modern` is TLS 1.3 only. Both have
        /// AEAD suites with forward secrecy only.
        profile: TlsProfile = default "intermediate", like "\"modern\"";

        /// Cipher suites that are accepted, under their IANA names; which one is used is the
        /// client's choice. None: all of the profile.
        suites: Vec<TlsSuite> = default "";

        /// Key exchange groups, the preferred one first. None: all.
        groups: Vec<TlsGroup> = default "";

        /// Whether clients are asked for certificates: `none`, `optional` (who shows one must
        /// show a good one), or `required`. A client that resumes a session is judged anew, by
        /// the chain, the time and the revocation lists of now.
        client_certificates: ClientAsk = default "none";

        /// Who may vouch for clients: a PEM file with one or more certificates, or a directory
        /// of such files. Taken into use when it changes, as `reload_certificates` says.
        client_ca: Option<PathBuf> = default "off", like "\"clients-ca.pem\"";

        /// Revocation lists in PEM: files, or directories of which every file is read. When
        /// there is any, there must be a current one for every issuer in a client's chain. New
        /// ones are taken into use as `reload_certificates` says.
        client_crl: Vec<PathBuf> = default "";

        /// Which of the clients with a good certificate may come in: `cn=`, `ou=`, `dns=`, `uri=`
        /// (a SPIFFE id, maybe with `*` at its end) or `sha256=` (the certificate's digest). One
        /// that fits is enough; none given: all come in. Who is refused, and why, is in the log.
        client_allow: Vec<ClientMatch> = default "";
    }

    /// The other direction: plain connections of this machine come in and are carried to
    /// a server over TLS. Written as `[[originate]]`; `dormouse connect` makes one of its
    /// flags.
    Originate, "Originate" {
        /// Addresses to listen on: `HOST:PORT`, `[IPv6]:PORT`, `:PORT` or `unix:PATH`. What
        /// arrives there is not protected: keep it on this machine.
        listen: Vec<PlainListen> = required "127.0.0.1:8080";

        /// The TLS servers, `HOST:PORT`, in the order in which they are tried. One that
        /// failed is passed over for a while. A name is looked up once, at the start; all
        /// its addresses are tried.
        to: Vec<Server> = required "192.0.2.7:443";

        /// The name that the server is asked for and that its certificate must be for. None:
        /// the host of `to`.
        server_name: Option<String> = default "none", like "\"db.example.com\"";

        /// Who may vouch for the server: a PEM file of authorities, or `system` for those
        /// which the operating system trusts.
        ca: Ca = default "system", like "\"authority.pem\"";

        /// Take any certificate: whoever is between here and the server can read and change
        /// everything. Only for trying out.
        insecure: bool = default "false";

        /// The client's own certificate and key as PEM files, for servers which ask for one.
        certificates: Vec<CertificateFiles> = default "";

        /// Protocols offered by ALPN, the preferred one first. The bytes are passed on
        /// unseen, so the local clients must speak them.
        alpn: Vec<String> = default "";

        /// The oldest version of TLS that is spoken.
        min_version: TlsVersion = default "1.2", like "\"1.3\"";

        /// The newest version of TLS that is spoken.
        max_version: TlsVersion = default "1.3";

        /// What the local client sees when the server's connection ends without
        /// close_notify: `abort` resets, `close` ends cleanly.
        truncation: Truncation = default "abort", like "\"close\"";

        /// Handshakes that may be resumed after a full one, then the next is a full one. 0:
        /// every handshake is a full one.
        resume_uses: u32 = default "100", "0" ..= "1000000";

        /// How long after a full handshake its session may be resumed. Whole seconds.
        resume_age: Duration = default "1h", "1s" ..= "7d";

        /// How long a new connection keeps what takes tickets (they come after the
        /// handshake). Its bytes pass meanwhile.
        ticket_wait: Duration = default "1s", "10ms" ..= "1m",
            costs "about 2 kB per connection, for so long at most";

        /// A file in which TLS 1.3 sessions outlive a restart. They are secrets: nobody but
        /// the owner may read it.
        session_file: Option<PathBuf> = default "off",
            like "\"/var/lib/dormouse/sessions\"";

        /// Connections kept established and at rest, in all workers together, so that a
        /// local client need not wait for a handshake.
        warm: u32 = default "0", "0" ..= "1000000",
            costs "a slot and a socket each, here and at the server",
            like "4";
    }

    /// The program as a whole.
    Process, "Process" {
        /// Threads of work, each in a process of its own beside a small keeper which
        /// starts it again should it die. `auto`: one per core, more if the limit on
        /// descriptors per process asks for it.
        workers: Count = default "auto", "1" ..= "1024",
            costs "two processes each";

        /// The user that keepers and workers become once the listeners are open, by name or
        /// number. Only root can become somebody else. The main process stays who it is.
        user: Option<String> = default "none", like "\"dormouse\"";

        /// The group that they become; `none`: the group of `user`.
        group: Option<String> = default "none", like "\"dormouse\"";

        /// Whether keepers, workers and the process that answers questions confine themselves to
        /// the system calls and files they need (seccomp, Landlock). `on`: as far as the kernel
        /// can; what it lacks is said at the start. `required`: nothing is started without.
        sandbox: Sandbox = default "on", like "\"required\"";

        /// Where `dormouse status`, `reload`, `drain` and `upgrade` are answered: the path of
        /// a unix socket, for the user who runs the program and root; or a loopback address,
        /// on which every user of the machine may ask, but nobody gives orders. `auto` is
        /// /run/dormouse/admin.sock for root, else dormouse/admin.sock in $XDG_RUNTIME_DIR,
        /// unless another instance has it. `none` switches it off.
        admin: Admin = default "auto", like "\"/run/dormouse/edge.sock\"";

        /// How often to look whether files have changed: certificates and keys, directories of
        /// them, `client_ca`, `client_crl`. New ones are used for new connections once certificate
        /// and key fit each other. `off`: only a reload reads them.
        reload_certificates: Option<Duration> = default "10s", "100ms" ..= "1d";

        /// Ask the authorities of certificates which name an OCSP responder, and staple the
        /// answers. It is done by a process without privileges, which lives only as long as that
        /// takes. A file given with `ocsp` goes before it.
        ocsp_fetch: bool = default "true",
            costs "300 bytes to 3 kB per certificate and worker, and as much per handshake";

        /// How often the names of backends are looked up for which DNS has no lifetime (TTL):
        /// those in /etc/hosts, from other sources, and those which can't be looked up just now.
        /// All others are looked up again when their TTL is over. New connections go to the
        /// addresses which a name has then; those which are there stay. One that can't be looked
        /// up keeps its addresses. `off`: names are looked up at the start and at a reload only.
        resolve_every: Option<Duration> = default "30s", "1s" ..= "1d";

        /// A TTL that is less counts as this.
        resolve_ttl_min: Duration = default "1s", "100ms" ..= "1h";

        /// A TTL that is more counts as this.
        resolve_ttl_max: Duration = default "1h", "1s" ..= "7d";
    }

    /// How much there may be of everything. Reaching a limit gives a log line and a
    /// counter, and never closes an established connection.
    Limits, "Limits" {
        /// What the whole process tree may use at most, with what the kernel holds for its
        /// sockets. Limits which are `auto` are made to fit, and a sum of limits that does not
        /// fit is refused at the start. `dormouse check` shows what each limit costs.
        memory: Option<ByteSize> = default "off", "32 MiB" ..= "64 TiB";

        /// Connections in all workers together. `auto`: as many as the limit on
        /// descriptors, the local ports and `memory` allow. Above it connections wait in the
        /// listen queue.
        max_connections: Count = default "auto", "1" ..= "16000000",
            costs "192 bytes of slot per established connection; a slot which never was used costs nothing",
            like "100_000";

        /// Handshakes in flight, in all workers together. `auto`: 1024, or fewer if an
        /// eighth of `memory` would not suffice.
        max_handshakes: Count = default "auto", "1" ..= "1000000",
            costs "up to twice `handshake_bytes_max` and the TLS library's state, for as long as the handshake takes";

        /// Established connections that one client address may have, over all workers. An
        /// IPv6 network /64 counts as one client. Others are closed without an answer.
        connections_per_client: Option<u32> = default "off", "1" ..= "1000000",
            costs "24 bytes of shared memory per client address, in a table of fixed size";

        /// Handshakes that one client address may begin per minute, over all workers; all of
        /// them at once, if there were none before. Others are closed without an answer.
        handshakes_per_client: Option<u32> = default "off", "1" ..= "60000",
            costs "as `connections_per_client`";

        /// Bytes per second that may pass for one client address after its handshakes, in both
        /// directions and on all its connections together, over all workers. An IPv6 network /64
        /// counts as one client. Who has more is read more slowly; nothing is dropped, and nobody
        /// else waits. Counts for connections that come after it was set.
        bytes_per_client: Option<ByteSize> = default "off", "64 KiB" ..= "1 TiB",
            costs "8 bytes more than `connections_per_client`; 30 bytes in the heap while a connection waits";

        /// What may pass for one client at once, when less did before. `auto`: as much as
        /// `bytes_per_client` in one second.
        burst_per_client: Amount = default "auto", "16 KiB" ..= "1 TiB";

        /// Bytes per second that may pass for all clients together, as `bytes_per_client`; a
        /// quarter of it at once. Connections take turns.
        max_bytes_per_second: Option<ByteSize> = default "off", "64 KiB" ..= "1 TiB",
            costs "30 bytes in the heap while a connection waits";

        /// Bytes which a client may send before its handshake is done.
        handshake_bytes_max: ByteSize = default "64 KiB", "4 KiB" ..= "1 MiB",
            costs "as much per handshake in flight, if the client sends it";

        /// Bytes kept for connections which could not be finished yet (partial records
        /// and writes which the other side did not take), in all workers together. When
        /// it is used up nothing more is read until some of it is free. `auto`: 64 MiB, or
        /// an eighth of `memory` if that is less.
        pending_memory: Amount = default "auto", "1 MiB" ..= "1 TiB",
            costs "itself, when all of it is used; given back when it is not";

        /// The share of `pending_memory` which one connection may have. Above it the
        /// connection is not read until the other side took some.
        pending_per_connection: ByteSize = default "128 KiB", "40 KiB" ..= "64 MiB",
            costs "as much of `pending_memory` per blocked connection";

        /// What the kernel may hold in all send queues of more than 4 KiB, in all workers
        /// together. Above it nothing is read for those who are slow to take it; the others
        /// are not affected. `auto`: an eighth of `memory`, or a quarter of what TCP may use
        /// on this machine before it comes under pressure (net.ipv4.tcp_mem).
        kernel_memory: Amount = default "auto", "1 MiB" ..= "1 TiB",
            costs "itself in the kernel, when peers are slow to read";
    }

    /// How long anything may take. Timers are checked every 100 ms.
    Timeouts, "Timeouts" {
        /// From accept to the end of the handshake. Time in which a client waits for its turn,
        /// because too many came at once, does not count, but for six times as long at most.
        handshake_timeout: Duration = default "10s", "100ms" ..= "10m";

        /// Close a connection on which nothing was sent or received for so long.
        idle_timeout: Option<Duration> = default "off", "1s" ..= "365d";

        /// Close a connection that is so old, whatever passes on it.
        total_timeout: Option<Duration> = default "off", "1s" ..= "365d";

        /// From the first byte of a record to its last.
        partial_record_timeout: Duration = default "60s", "100ms" ..= "1h";

        /// Until the backend has accepted a connection.
        backend_connect_timeout: Duration = default "5s", "10ms" ..= "10m";

        /// A worker that gives no sign of life for so long is ended, and the next one goes on with
        /// its connections. `off` for debuggers.
        hang_timeout: Option<Duration> = default "10s", "1s" ..= "10m";

        /// How long an upgrade waits for handshakes in flight; those that are not done by then
        /// are closed, and their clients connect again.
        handshake_grace: Duration = default "1s", "0ms" ..= "10m";

        /// How long delivery of what was received may take after the other side has
        /// gone; then the connection is reset.
        drain_timeout: Duration = default "10s", "100ms" ..= "10m";

        /// After SIGTERM or SIGINT: how long connections with pending bytes have to finish.
        /// Those at rest are closed at once, all others at the end of it.
        shutdown_grace: Duration = default "10s", "100ms" ..= "1h";
    }

    /// What the kernel is asked to do for the sockets, on both sides.
    Sockets, "Sockets" {
        /// Bytes of data that the kernel may buffer for sending, per socket. It takes this
        /// only for connections whose reader is slow. It never takes more than
        /// net.core.rmem_max and net.core.wmem_max.
        socket_buffer: ByteSize = default "256 KiB", "16 KiB" ..= "64 MiB",
            costs "up to as much in the kernel for each side of a blocked connection, and as much again for its overhead";

        /// Bytes of data which a peer may send before they are read; the kernel keeps them.
        /// `auto`: `socket_buffer`, or with `memory` as much as can be kept for every
        /// connection at once, 256 KiB at most.
        receive_buffer: Amount = default "auto", "4 KiB" ..= "64 MiB",
            costs "up to twice as much in the kernel for each side of a connection that is not read";

        /// Connections that wait to be accepted, per listening address. The kernel lowers
        /// it to net.core.somaxconn. `auto`: 4096, or fewer if a sixteenth of `memory` would
        /// not suffice.
        backlog: Count = default "auto", "1" ..= "65535",
            costs "about 4 kB in the kernel per waiting connection, and what it sends meanwhile";

        /// Ask a peer for a sign of life when nothing came for so long. Each connection asks up to
        /// a fifth sooner, so that not all of them ask at once. Whole seconds.
        keepalive_idle: Option<Duration> = default "2m", "1s" ..= "9h",
            costs "a packet each way per connection and interval";

        /// Ask again after so long without an answer. Whole seconds.
        keepalive_interval: Duration = default "15s", "1s" ..= "9h";

        /// Take the peer for gone after so many unanswered probes. Only counts when
        /// `user_timeout` is off: the kernel goes by that one otherwise.
        keepalive_count: u32 = default "4", "1" ..= "127";

        /// Take the peer for gone when what was sent, probes included, is unanswered for
        /// so long.
        user_timeout: Option<Duration> = default "3m", "1s" ..= "1d";
    }

    /// Tickets let a client that comes back skip the costly part of the handshake.
    Tickets, "Tickets" {
        /// Tickets that a TLS 1.3 client gets after its handshake. 0 turns resumption off,
        /// for TLS 1.2 too.
        tickets: u32 = default "2", "0" ..= "8",
            costs "about 250 bytes on the wire per ticket";

        /// How long a ticket may be used. RFC 8446 §4.6.1 allows seven days. Whole seconds.
        ticket_lifetime: Duration = default "12h", "1m" ..= "7d";

        /// How often the key of the tickets changes. A key opens tickets for one more
        /// rotation after it was replaced.
        ticket_rotation: Duration = default "12h", "1m" ..= "7d";

        /// Keep sessions on this machine instead of in tickets. A TLS 1.3 ticket can then be
        /// used once, and TLS 1.2 goes by session ids. All workers share the cache; the oldest
        /// sessions go first.
        session_cache: Option<ByteSize> = default "off", "64 KiB" ..= "1 TiB",
            costs "itself, when all of it has been used; about 240 bytes per session";

        /// Where the keys of the tickets come from. `memory`: made at the start, gone at the end.
        /// `file:PATH`: either kept there by Dormouse, sealed with `ticket_secret_file`, so that
        /// tickets outlive a restart; or a key of 48 or 80 bytes, as nginx has them (several files:
        /// the first seals), or lines of such keys in base64, as HAProxy has them.
        /// `redis://HOST:PORT` or `rediss://HOST:PORT` (with TLS): shared by a fleet through
        /// Redis or Valkey, sealed with `ticket_secret_file`.
        ticket_keys: Vec<KeySource> = default "memory",
            like "\"file:/var/lib/dormouse/tickets.keys\"";

        /// A file with a secret of at least 32 bytes which only its owner may read; the same on
        /// all machines of a fleet. It seals the ticket keys wherever they are kept.
        ticket_secret_file: Option<PathBuf> = default "off",
            like "\"/etc/dormouse/tickets.secret\"";

        /// Who may vouch for the store of `ticket_keys = "rediss://…"`: a PEM file. Off: those
        /// whom the system trusts.
        ticket_store_ca: Option<PathBuf> = default "off", like "\"internal-ca.pem\"";
    }

    /// Where certificates for the names in `acme` come from (RFC 8555).
    Acme, "ACME" {
        /// The directory of the ACME server.
        acme_server: String = default "https://acme-v02.api.letsencrypt.org/directory";

        /// Whether its terms of service are agreed to: without, nothing is asked of it. Its directory
        /// says where they are.
        acme_terms_agreed: bool = default "false";

        /// An e-mail address where the server's people may write to.
        acme_email: Option<String> = default "none";

        /// Where certificates, their keys and the account's are kept: a directory for the owner of
        /// the main process alone, which is made if need be. For each server there is one in it.
        acme_folder: PathBuf = default "/var/lib/dormouse/acme";

        /// Who may vouch for the ACME server: a PEM file of authorities, or `system` for those
        /// which the operating system trusts.
        acme_ca: Ca = default "system";

        /// The id of a key by which a new account is bound to one that is known already (External
        /// Account Binding), if the server asks for that.
        acme_eab_id: Option<String> = default "none";

        /// A file with that key, in base64url as such servers give it out. Nobody but the owner may
        /// read it.
        acme_eab_key_file: Option<PathBuf> = default "off";
    }

    /// What is written to standard error.
    Log, "Log" {
        /// The least important lines that are written: `error`, `warn`, `info`, `debug`,
        /// `trace`, or `off`.
        log_level: LogLevel = default "info", like "\"debug\"";

        /// `text` for people, `json` for programs: one object per line.
        log_format: LogFormat = default "text", like "\"json\"";

        /// A line for every handshake, done or failed: version, suite, group, server name,
        /// protocol, whether it was resumed and if not why, its time, bytes of each flight.
        log_handshakes: bool = default "false",
            costs "a line per handshake",
            like "true";
    }
}
