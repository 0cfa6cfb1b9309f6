//! Options of the program as a whole.

use crate::option::group::option_groups;
use crate::values::admin::Admin;
use crate::values::amounts::Amount;
use crate::values::choices::{
    AcmeChallenge, LogFormat, LogLevel, Recheck, RedirectStatus, ResolveNames, Sandbox,
    SyslogFacility,
};
use crate::values::dns_server::DnsServer;
use crate::values::endpoints::Listen;
use crate::values::key_source::KeySource;
use crate::values::log_target::{LogDestination, LogTarget};
use crate::values::metrics_address::MetricsAddress;
use crate::values::pem_files::{Ca, CertificateFiles};
use crate::values::quantities::{ByteSize, Count};
use crate::values::spiffe::SpiffeAgent;
use crate::values::step::Step;
use std::path::PathBuf;
use std::time::Duration;

option_groups! {
    /// The program as a whole.
    Process, "Process" {
        /// More configuration files: each entry is a file, or a directory whose `.toml` files are
        /// read in the order of their names. Included files hold routes, originations and options
        /// of the program; each option of the program may be given only once in all files. Paths in
        /// an included file are relative to that file.
        include: Vec<PathBuf> = default "", at reload, like "\"conf.d/\"";

        /// Steps that somebody has to take, or to decide on, before this configuration can run: with
        /// any item, `check`, `serve` and a reload refuse it. `dormouse import` writes an item for
        /// everything that the result would lack. Do what an item says, or decide that it is not
        /// needed, and remove it. There is no flag for it.
        todo: Vec<Step> = default "", at reload, like "\"line 12: ssl_ocsp on\"";

        /// Number of worker processes. Each is one thread, with a small keeper process beside it
        /// that restarts it if it dies. `auto`: one per core, or more if `max_connections` needs
        /// more descriptors than that many processes may have.
        workers: Count = default "auto", at start, "1" ..= "1024",
            costs "two processes each";

        /// User that keepers and workers switch to after the listeners are open, by name or number.
        /// Only root can switch users. The main process keeps its own user. `none`: if the program
        /// runs as root, keepers and workers switch to nobody (65534), unless a route has a backend
        /// on a unix socket, which that user may not be allowed to open (they then keep a single
        /// capability, CAP_DAC_OVERRIDE), root of this container cannot switch users, or nobody
        /// cannot execute the program. In these cases they stay root, and a warning says why.
        user: Option<String> = default "none", at start, like "\"dormouse\"";

        /// Group that keepers and workers switch to. `none`: the group of `user`.
        group: Option<String> = default "none", at start, like "\"dormouse\"";

        /// User of the process that signs with keys in tokens (`pkcs11:`), by name or number: one that may use the
        /// token. `none`: nobody if the program runs as root, or else its own user.
        pkcs11_user: Option<String> = default "none", at reload, like "\"signer\"";

        /// Unix socket of an agent that implements the SPIFFE Workload API, such as SPIRE's. It has certificates for
        /// `certificates` and `backend_certificates`, and authorities for `client_ca`, `ca` and `backend_ca`, where
        /// these name `spiffe:` or `spiffe://…`, and replaces them in time. Without the agent the last ones stay;
        /// before its first answer, handshakes that need them fail.
        spiffe_agent: Option<SpiffeAgent> = default "off", at reload, like "\"unix:/run/spire/sockets/agent.sock\"";

        /// User of the process that asks the agent, by name or number: the agent chooses certificates by it.
        /// `none`: nobody if the program runs as root, or else its own user.
        spiffe_user: Option<String> = default "none", at reload, like "\"dormouse\"";

        /// Confine keepers, workers and helper processes to the system calls and files they need
        /// (seccomp, Landlock). `on`: as far as the kernel supports it; a warning at startup names
        /// what the kernel lacks. `required`: refuse to start unless the kernel supports all of it.
        sandbox: Sandbox = default "on", at start, like "\"required\"";

        /// Unix socket for `dormouse status`, `top`, `reload`, `drain`, `upgrade` and the other
        /// commands to a running instance, open to root and to the user who runs the program.
        /// `auto`: /run/dormouse/admin.sock for root, otherwise dormouse/admin.sock in
        /// $XDG_RUNTIME_DIR, unless another instance uses it. `none`: no socket.
        admin: Admin = default "auto", at start, like "\"/run/dormouse/edge.sock\"";

        /// File for changes by `dormouse ctl --keep`, which outlast a reload and a restart. Dormouse creates it and replaces
        /// it as a whole; only the owner may write it. Each instance needs a file of its own. A line without effect is
        /// named at the start, by a reload, `check` and `status`. `off`: `--keep` is refused.
        ctl_file: Option<PathBuf> = default "off", at reload, like "\"/var/lib/dormouse/kept\"";

        /// TCP address that serves metrics (for Prometheus), health checks and the status page:
        /// `IP:PORT`, or `:PORT` for all addresses of the machine. It accepts no commands. Anyone
        /// who can reach it can read the names of routes, backends and certificates, how busy the
        /// machine is, and the lines of the configuration that a reload has refused (without
        /// passwords).
        metrics: Option<MetricsAddress> = default "off", at start, like "\"127.0.0.1:9901\"";

        /// How often to check certificate files for changes: certificates and keys, directories of
        /// them, `client_ca`, `client_crl`, `ca`, `crl`, `backend_ca`, `backend_crl`. Changed files are
        /// read when the next check finds no further change, or at the third check in any case. New connections use them,
        /// provided that certificate and key match. `off`: only a reload reads them again.
        reload_certificates: Option<Duration> = default "10s", at reload, "100ms" ..= "1d";

        /// Which connections new rules apply to: `allow`, `deny`, `client_allow` and `client_crl` of their route, after
        /// a reload or a changed revocation list. `new`: only new connections; a reload says how many others the
        /// rules would refuse. `established`: these, too, are closed, spread over a minute. What is kept of a client
        /// certificate is in the connection log's entries, so connections without an entry are only checked by
        /// address (`connection_log`).
        recheck: Recheck = default "new", at reload, like "\"established\"";

        /// Fetch OCSP responses for certificates that name a responder, and staple them. A process
        /// without privileges fetches them and exits afterwards. A file given with `ocsp` takes
        /// precedence.
        ocsp_fetch: bool = default "true", at reload,
            costs "300 bytes to 3 kB per certificate and worker, and the same on the wire per handshake";

        /// How often to look up backend names that have no TTL: names from /etc/hosts and other
        /// sources than DNS, and names whose last lookup failed. All other names are looked up
        /// again when their TTL expires. New connections go to the addresses found last; existing
        /// connections keep theirs. A name that cannot be looked up keeps its last addresses.
        /// `off`: names are looked up only at startup and on a reload.
        resolve_every: Option<Duration> = default "30s", at reload, "1s" ..= "1d";

        /// What happens at a start or a reload if a name in `to` cannot be looked up. `required`: the
        /// configuration is refused. `lazy`: the backend is down until its name resolves; `check` and the log
        /// name it, and `status` and metrics show it. A start then waits for the resolver for 5 seconds in all, and at
        /// least for one name. A name that a running program has looked up before keeps its addresses in any case.
        resolve: ResolveNames = default "required", at reload, like "\"lazy\"";

        /// Minimum TTL: shorter TTLs are raised to it.
        resolve_ttl_min: Duration = default "1s", at reload, "100ms" ..= "1h";

        /// Maximum TTL: longer TTLs are lowered to it.
        resolve_ttl_max: Duration = default "1h", at reload, "1s" ..= "7d";
    }

    /// Limits on memory, connections and rates. Reaching a limit writes a log line and increments a
    /// counter; it closes no established connection that makes progress (`stall_timeout`).
    Limits, "Limits" {
        /// Maximum memory of all processes together, including what the kernel holds for their
        /// sockets. Limits set to `auto` are chosen to fit; if the limits add up to more, the
        /// program refuses to start. `dormouse check` shows what each limit costs.
        memory: Option<ByteSize> = default "off", at start, "32 MiB" ..= "64 TiB";

        /// Maximum number of connections, in all workers together. `auto`: as many as the
        /// descriptor limit, the local ports and `memory` allow. Further connections wait in the
        /// listen queue.
        max_connections: Count = default "auto", at reload_if_same_memory, "1" ..= "16000000",
            costs "192 bytes of slot per established connection; a slot that was never used costs nothing",
            like "100_000";

        /// Maximum number of connections that have sockets at one time, in all workers together, if a
        /// route has `rest_after`; the others are in deep rest. Handshakes count, too. When few places
        /// are left, quiet connections go to deep rest before their time. If that frees too few, new
        /// clients wait in the listen queue, and packets that would wake a connection wait, too, up to
        /// 2 MiB of them; others are dropped, and their senders repeat them. `auto`: as many as the
        /// descriptor limit and `memory` allow.
        max_awake: Count = default "auto", at reload_if_same_memory, "16" ..= "16000000",
            costs "two sockets and their buffers each, where a connection in deep rest has 432 bytes",
            like "10_000";

        /// Maximum number of handshakes in flight, in all workers together. `auto`: 1024, or fewer
        /// if 1024 would need more than an eighth of `memory`.
        max_handshakes: Count = default "auto", at reload_if_same_memory, "1" ..= "1000000",
            costs "up to twice `handshake_bytes_max` and the TLS library's state, during the handshake";

        /// Maximum number of established connections per client address, over all workers. An IPv6
        /// /64 network counts as one client, and an address in 64:ff9b::/96 as its IPv4 address.
        /// Further connections are closed without an answer.
        connections_per_client: Option<u32> = default "off", at reload, "1" ..= "1000000",
            costs "24 bytes of shared memory per client address, in a table of fixed size";

        /// Maximum number of handshakes that one client address may start per minute, over all
        /// workers; a client that was idle before may start all of them at once. Further
        /// connections are closed without an answer.
        handshakes_per_client: Option<u32> = default "off", at reload, "1" ..= "60000",
            costs "the same as `connections_per_client`";

        /// Maximum bytes per second for one client address after its handshakes, in both directions
        /// and on all its connections together, over all workers. An IPv6 /64 network counts as one
        /// client, and an address in 64:ff9b::/96 as its IPv4 address. A client above the limit is
        /// read more slowly; nothing is dropped, and other clients are not affected. Applies to
        /// connections accepted after the option was set.
        bytes_per_client: Option<ByteSize> = default "off", at reload, "64 KiB" ..= "1 TiB",
            costs "8 bytes more than `connections_per_client`; 30 bytes of heap while a connection waits";

        /// Bytes that one client may transfer at once after a quieter period. `auto`: one second of
        /// `bytes_per_client`.
        burst_per_client: Amount = default "auto", at reload, "16 KiB" ..= "1 TiB";

        /// Maximum bytes per second for all clients together, counted as for `bytes_per_client`; a
        /// quarter of them may pass at once. Connections take turns.
        max_bytes_per_second: Option<ByteSize> = default "off", at reload, "64 KiB" ..= "1 TiB",
            costs "30 bytes of heap while a connection waits";

        /// Maximum bytes that a client may send before its handshake is done.
        handshake_bytes_max: ByteSize = default "64 KiB", at reload, "4 KiB" ..= "1 MiB",
            costs "this much per handshake in flight, if the client sends it";

        /// Memory for pending bytes (partial records, and writes that the other side has not taken
        /// yet), in all workers together. When it is full, a connection whose other side has not taken
        /// what it got before is not read; all others are read a record at a time. `auto`: 64 MiB, or an eighth of `memory` if that is less; at least 1 MiB, and
        /// `pending_per_connection`, for each worker.
        pending_memory: Amount = default "auto", at start, "1 MiB" ..= "1 TiB",
            costs "its size while all of it is used; returned to the system when it is not";

        /// Maximum share of `pending_memory` for one connection. Above it, the connection is not
        /// read until the other side has taken some bytes.
        pending_per_connection: ByteSize = default "128 KiB", at reload, "40 KiB" ..= "64 MiB",
            costs "this much of `pending_memory` per blocked connection";

        /// Maximum that the kernel may hold in all send queues longer than 4 KiB, in all workers
        /// together. Near it, connections with a slow receiver are read less; a quarter is reserved for
        /// connections whose receiver reads. `auto`: an eighth of `memory`, or a quarter of what TCP may use on this
        /// machine before it comes under pressure (net.ipv4.tcp_mem), whichever is less; at least 1
        /// MiB for each worker.
        kernel_memory: Amount = default "auto", at reload_if_same_memory, "1 MiB" ..= "1 TiB",
            costs "its size in the kernel, while peers are slow to read";
    }

    /// Time limits. Timers are checked every 100 ms.
    Timeouts, "Timeouts" {
        /// Maximum time from accept to the end of the handshake. Time in the queue for
        /// `max_handshakes` does not count, up to six times this timeout.
        handshake_timeout: Duration = default "10s", at reload, "100ms" ..= "10m";

        /// Close a connection idle for this long. Idle means that nothing was sent or received. The
        /// TLS side gets close_notify; with `pass_through`, both sides get a reset.
        idle_timeout: Option<Duration> = default "off", at reload, "1s" ..= "365d";

        /// Close a connection after this long, even if it is busy. The two sides see the same as with
        /// `idle_timeout`, or a reset if Dormouse has received bytes that it has not passed on. What
        /// the backend has not sent by then is lost, and the client cannot distinguish that from a
        /// proper end.
        total_timeout: Option<Duration> = default "off", at reload, "1s" ..= "365d";

        /// Percentage by which `idle_timeout` and `total_timeout` differ between connections, so that
        /// connections that began together do not end together. `idle_timeout` becomes up to this much
        /// longer, and `total_timeout` up to this much shorter. `0`: all connections have the same.
        timeout_jitter: u32 = default "10", at reload, "0" ..= "50";

        /// Maximum time from the first byte of a record to its last. Then both sides get a reset.
        partial_record_timeout: Duration = default "60s", at reload, "100ms" ..= "1h";

        /// While `pending_memory` or `kernel_memory` is nearly full: close a connection that has held
        /// some of it for this long without progress. Its peer has taken nothing of what waits for it,
        /// or sent nothing more of a record. Both sides get a reset. When not even a record fits any
        /// more, a quarter of this time. With enough memory, a connection may wait for any time.
        stall_timeout: Duration = default "30s", at reload, "1s" ..= "1d";

        /// Maximum time until a backend accepts a connection.
        backend_connect_timeout: Duration = default "5s", at reload, "10ms" ..= "10m";

        /// Kill a worker that has not responded for this long; the next worker continues its
        /// connections. `off`: for use with a debugger.
        // Keepers learn it when they start.
        hang_timeout: Option<Duration> = default "10s", at start, "1s" ..= "10m";

        /// How long an upgrade waits for handshakes in flight; unfinished handshakes are then
        /// closed, and their clients have to reconnect.
        handshake_grace: Duration = default "1s", at reload, "0ms" ..= "10m";

        /// How long to deliver received bytes after the other side has closed; then the connection
        /// is reset.
        drain_timeout: Duration = default "10s", at reload, "100ms" ..= "10m";

        /// After SIGTERM or SIGINT: how long connections with pending bytes have to finish.
        /// Connections at rest are closed at once, all others at the end of this time.
        shutdown_grace: Duration = default "10s", at reload, "100ms" ..= "1h";

        /// After SIGQUIT or SIGUSR1: the time over which all connections are closed evenly before
        /// the program exits. If the main process dies, its workers stop accepting at once and
        /// close their connections over this time too.
        shutdown_drain: Duration = default "1m", at reload, "100ms" ..= "1d";
    }

    /// Kernel settings for sockets, of clients and of backends.
    Sockets, "Sockets" {
        /// Bytes that the kernel may buffer for sending, per socket. Only connections with a slow
        /// receiver use them. The kernel's own limits are net.core.rmem_max and net.core.wmem_max.
        socket_buffer: ByteSize = default "256 KiB", at reload, "16 KiB" ..= "64 MiB",
            costs "up to this much in the kernel for each side of a blocked connection, and the same again for the kernel's overhead";

        /// Bytes that a peer may send before Dormouse reads them; the kernel holds them meanwhile.
        /// `auto`: `socket_buffer`, or with `memory` as much of that as fits for every connection
        /// at once.
        receive_buffer: Amount = default "auto", at reload_if_same_memory, "4 KiB" ..= "64 MiB",
            costs "up to twice this much in the kernel for each side of a connection that is not read";

        /// Maximum number of connections that wait to be accepted, per listening address. The
        /// kernel lowers it to net.core.somaxconn. `auto`: 4096, or fewer if 4096 would need more
        /// than a sixteenth of `memory`.
        backlog: Count = default "auto", at reload_if_same_memory, "1" ..= "65535",
            costs "about 4 kB in the kernel per waiting connection, and the bytes it has sent";

        /// Send a TCP keepalive probe when nothing was received for this long. Each connection
        /// probes up to a fifth sooner, so that they do not all probe at once. Whole seconds.
        keepalive_idle: Option<Duration> = default "2m", at reload, "1s" ..= "9h",
            costs "a packet each way per connection and interval";

        /// Time between keepalive probes that are not answered; for a client's connection, up to two
        /// fifths less. Whole seconds.
        keepalive_interval: Duration = default "15s", at reload, "1s" ..= "9h";

        /// Number of unanswered keepalive probes after which the peer counts as gone. Applies only
        /// while `user_timeout` is off: otherwise the kernel goes by `user_timeout`.
        keepalive_count: u32 = default "4", at reload, "1" ..= "127";

        /// Treat the peer as gone when sent data, keepalive probes included, stays unacknowledged
        /// for this long.
        user_timeout: Option<Duration> = default "3m", at reload, "1s" ..= "1d";
    }

    /// Tickets let a returning client skip the costly part of the handshake.
    Tickets, "Tickets" {
        /// Number of tickets that a TLS 1.3 client gets after a full handshake. After a resumed
        /// handshake it gets one, which replaces the used ticket. 0 turns resumption off, for TLS
        /// 1.2 too.
        tickets: u32 = default "2", at reload, "0" ..= "8",
            costs "about 250 bytes on the wire per ticket";

        /// How long a ticket is valid, and how long after its full handshake a TLS 1.2 session can be
        /// resumed. RFC 8446 §4.6.1 allows at most seven days. Whole seconds.
        ticket_lifetime: Duration = default "12h", at reload, "1m" ..= "7d";

        /// How often the ticket key changes. A replaced key opens tickets for one more rotation.
        /// With a store, the machine that rotates sets the time for the fleet, so a changed value
        /// takes effect with the next rotation.
        ticket_rotation: Duration = default "12h", at reload, "1m" ..= "7d";

        /// Keep sessions in a cache on this machine instead of in tickets. A TLS 1.3 ticket can
        /// then be used only once, and TLS 1.2 uses session ids. All workers share the cache; the
        /// oldest sessions are dropped first. `off`: sessions are in tickets, except those of TLS 1.2
        /// clients without support for tickets, which share a cache of 1 MiB.
        // Whether a route issues tickets can change; where keys and sessions are kept cannot.
        session_cache: Option<ByteSize> = default "off", at start, "64 KiB" ..= "1 TiB",
            costs "its size once all of it has been used; about 240 bytes per session";

        /// Source of the ticket keys. `memory`: generated at startup, lost at exit. `file:PATH`:
        /// either a file that Dormouse writes, sealed with `ticket_secret_file`, so that tickets
        /// survive a restart; or a key of 48 or 80 bytes in nginx's format (of several files, the
        /// first seals); or lines of such keys in base64, HAProxy's format. `redis://HOST:PORT` or
        /// `rediss://HOST:PORT` (with TLS): shared by a fleet through Redis or Valkey, sealed with
        /// `ticket_secret_file`.
        ticket_keys: Vec<KeySource> = default "memory", at start,
            like "\"file:/var/lib/dormouse/tickets.keys\"";

        /// File with a secret of at least 32 bytes, which only its owner may read; the same on all
        /// machines of a fleet. It seals ticket keys that are kept in a file or a store.
        ticket_secret_file: Option<PathBuf> = default "off", at start,
            like "\"/etc/dormouse/tickets.secret\"";

        /// PEM file of the authorities that may sign the certificate of the store in `ticket_keys =
        /// "rediss://…"`. `off`: the authorities that the system trusts.
        ticket_store_ca: Option<PathBuf> = default "off", at start, like "\"internal-ca.pem\"";

        /// Client certificate and key for a store that requests one, as PEM files.
        ticket_store_certificates: Vec<CertificateFiles> = default "", at reload,
            like "[{ cert = \"gateway.pem\", key = \"gateway.key\" }]";
    }

    /// Automatic certificates for the names in `acme` (RFC 8555).
    Acme, "ACME" {
        /// URL of the ACME server's directory.
        acme_server: String = default "https://acme-v02.api.letsencrypt.org/directory", at reload;

        /// Agree to the ACME server's terms of service; nothing is requested from the server
        /// otherwise. The server's directory has the URL of the terms.
        acme_terms_agreed: bool = default "false", at reload;

        /// How to prove to the ACME server that a name is yours: `tls-alpn-01` on port 443, where
        /// the server must reach one of the route's addresses; `http-01` on port 80, where it
        /// must reach one of the addresses in `redirect`; or `dns-01` by a TXT record, which is
        /// written to `acme_dns_server` or by `acme_dns_hook`. Wildcards need `dns-01`.
        acme_challenge: AcmeChallenge = default "tls-alpn-01", at reload, like "\"http-01\"";

        /// Primary DNS server of the zones of the names in `acme`, for `dns-01`: `IP` or `IP:PORT`. It must
        /// accept dynamic updates (RFC 2136) of the TXT records `_acme-challenge.NAME`, or of the names to
        /// which these are aliases (CNAME).
        acme_dns_server: Option<DnsServer> = default "none", at reload, like "\"192.0.2.53\"";

        /// File with the key that authenticates the updates (TSIG), in BIND's format, as `tsig-keygen` writes
        /// it: HMAC with SHA-256, SHA-384 or SHA-512. Only its owner may read it. `off`: the server accepts
        /// updates by address.
        acme_dns_key_file: Option<PathBuf> = default "off", at reload, like "\"/etc/dormouse/acme-dns.key\"";

        /// Program that adds and removes the TXT record, in place of `acme_dns_server`: it gets `add` or `remove`,
        /// the record's name and its value as arguments, and ends with the status 0 if that is done. It runs for a
        /// minute at most, as `acme_dns_hook_user`, and cannot gain privileges.
        acme_dns_hook: Option<PathBuf> = default "off", at reload, like "\"/usr/local/bin/acme-dns\"";

        /// User of `acme_dns_hook`, by name or number. `none`: nobody if the program runs as root, or else its
        /// own user.
        acme_dns_hook_user: Option<String> = default "none", at reload, like "\"acme\"";

        /// How long to wait after a change of the record before the ACME server is told, so that the zone's other DNS
        /// servers have the record, too.
        acme_dns_wait: Duration = default "10s", at reload, "0s" ..= "2m";

        /// Kind of certificate, if the ACME server offers several (profiles): its directory lists them.
        /// `none`: the server's default.
        acme_profile: Option<String> = default "none", at reload, like "\"shortlived\"";

        /// E-mail address at which the ACME server's operator can reach you.
        acme_email: Option<String> = default "none", at reload, like "\"hostmaster@example.com\"";

        /// Directory for certificates, their keys and account keys; created if missing. Only the
        /// owner of the main process may have access. Each ACME server has a subdirectory of its
        /// own.
        acme_folder: PathBuf = default "/var/lib/dormouse/acme", at reload;

        /// Authorities that may sign the ACME server's certificate: a PEM file, or `system` for
        /// those that the operating system trusts.
        acme_ca: Ca = default "system", at reload;

        /// Client certificate and key for an ACME server that requests one, as PEM files.
        acme_certificates: Vec<CertificateFiles> = default "", at reload,
            like "[{ cert = \"gateway.pem\", key = \"gateway.key\" }]";

        /// Id of the key that binds a new account to an account that you already have at the ACME
        /// server's operator (External Account Binding), if the server requires it.
        acme_eab_id: Option<String> = default "none", at reload, like "\"kid-1\"";

        /// File with the key of `acme_eab_id`, in base64url as ACME servers issue it. Only its
        /// owner may read it.
        acme_eab_key_file: Option<PathBuf> = default "off", at reload, like "\"/etc/dormouse/acme-eab.key\"";
    }

    /// A listener for plain HTTP that redirects browsers to https. A separate process without
    /// privileges answers.
    Redirect, "Redirect from HTTP" {
        /// Addresses to listen on for plain HTTP: `HOST:PORT`, `[IPv6]:PORT`, or `:PORT` for all
        /// addresses of the machine. Every request is answered with a redirect to the same host and
        /// path over https, and the connection is closed.
        redirect: Vec<Listen> = default "", at reload, like "\":80\"";

        /// Status of the redirect: 308 (permanent; the method stays) or 301 (permanent; browsers
        /// change a POST to a GET).
        redirect_status: RedirectStatus = default "308", at reload, like "301";

        /// Port of the https address that clients are redirected to.
        redirect_port: u32 = default "443", at reload, "1" ..= "65535", like "8443";
    }

    /// Logs: the program's own, and the connection log.
    Log, "Log" {
        /// Least severe level to log: `error`, `warn`, `info`, `debug`, `trace`, or `off`.
        log_level: LogLevel = default "info", at reload, like "\"debug\"";

        /// Format of the log: `text` for people, or `json` for programs, one object per line.
        log_format: LogFormat = default "text", at start, like "\"json\"";

        /// Target of the log: `stderr`, or syslog. `syslog` is the machine's own at /dev/log,
        /// `syslog:/PATH` another unix socket, `syslog://IP:PORT` a server that receives UDP (RFC
        /// 5424). Messages that syslog does not accept at once are dropped.
        log_to: LogDestination = default "stderr", at start, like "\"syslog\"";

        /// Facility of messages to syslog, of the log and of the connection log.
        syslog_facility: SyslogFacility = default "daemon", at start, like "\"local0\"";

        /// Log a line for every handshake, successful or failed: version, suite, group, server
        /// name, protocol, whether it was resumed and if not why, duration, bytes of each flight.
        log_handshakes: bool = default "false", at reload,
            costs "a line per handshake",
            like "true";

        /// Log a line for every connection when it ends: route, client, backend, server name,
        /// protocol, version, suite, whether a session was resumed, bytes each way, duration, how
        /// it ended and which side ended it. `stderr`; the path of a file, which is appended to
        /// and reopened on each reload; or syslog, as in `log_to`. Lines that cannot be written are
        /// dropped and counted; no connection waits for the log.
        connection_log: LogTarget = default "off", at reload,
            costs "128 bytes per connection, and a line for each",
            like "\"/var/log/dormouse.log\"";

        /// Log a line when a connection is established, too. It has `begin=established`, and the `id` that the line of the
        /// end has.
        connection_log_begin: bool = default "false", at reload,
            costs "a second line per connection",
            like "true";

        /// Format of a line of the connection log: `text`, with fields as `name=value`; or `json`,
        /// one object.
        connection_log_format: LogFormat = default "text", at reload, like "\"json\"";

        /// Log one in this many connections, chosen evenly.
        connection_log_one_in: u32 = default "1", at reload, "1" ..= "1000000", like "100";
    }
}
