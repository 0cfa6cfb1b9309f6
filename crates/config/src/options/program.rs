//! Options of the program as a whole.

use crate::option::group::option_groups;
use crate::values::admin::Admin;
use crate::values::amounts::Amount;
use crate::values::choices::{
    AcmeChallenge, LogFormat, LogLevel, RedirectStatus, Sandbox, SyslogFacility,
};
use crate::values::endpoints::Listen;
use crate::values::key_source::KeySource;
use crate::values::log_target::{LogDestination, LogTarget};
use crate::values::metrics_address::MetricsAddress;
use crate::values::pem_files::Ca;
use crate::values::quantities::{ByteSize, Count};
use std::path::PathBuf;
use std::time::Duration;

option_groups! {
    /// The program as a whole.
    Process, "Process" {
        /// More files that belong to the configuration: a file, or a directory, of which all files
        /// whose names end with `.toml` are read in the order of their names. They hold routes,
        /// originations and options of the program; each of the latter may be given once in all
        /// files. Paths in a file are relative to that file.
        include: Vec<PathBuf> = default "", like "\"conf.d/\"";

        /// Threads of work, each in a process of its own beside a small keeper which
        /// starts it again should it die. `auto`: one per core, more if the limit on
        /// descriptors per process asks for it.
        workers: Count = default "auto", "1" ..= "1024",
            costs "two processes each";

        /// The user that keepers and workers become once the listeners are open, by name or
        /// number. Only root can become somebody else. The main process stays who it is. `none`:
        /// those of root become nobody (65534), unless a route has a backend on a unix socket, which
        /// may be closed to nobody; then they stay root, with one capability (CAP_DAC_OVERRIDE), and
        /// a warning says so.
        user: Option<String> = default "none", like "\"dormouse\"";

        /// The group that they become; `none`: the group of `user`.
        group: Option<String> = default "none", like "\"dormouse\"";

        /// Whether keepers, workers and the process that answers questions confine themselves to
        /// the system calls and files they need (seccomp, Landlock). `on`: as far as the kernel
        /// can; what it lacks is said at the start. `required`: nothing is started without.
        sandbox: Sandbox = default "on", like "\"required\"";

        /// The unix socket on which `dormouse status`, `top`, `reload`, `drain` and `upgrade` are
        /// answered, for the user who runs the program and root. `auto` is
        /// /run/dormouse/admin.sock for root, else dormouse/admin.sock in $XDG_RUNTIME_DIR,
        /// unless another instance has it. `none` switches it off.
        admin: Admin = default "auto", like "\"/run/dormouse/edge.sock\"";

        /// The TCP address on which metrics (for Prometheus), health and the status page are
        /// answered: `IP:PORT`, or `:PORT` for all addresses of the machine. Orders are refused
        /// there. Whoever reaches the address may ask, and learns the names of routes, backends
        /// and certificates and how busy the machine is.
        metrics: Option<MetricsAddress> = default "off", like "\"127.0.0.1:9901\"";

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

        /// After SIGQUIT or SIGUSR1: the time over which all connections are closed evenly, before
        /// the program ends. Should the main process die, its workers stop accepting at once, and
        /// close their connections over this time too.
        shutdown_drain: Duration = default "1m", "100ms" ..= "1d";
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

        /// How the server is shown that a name is ours: `tls-alpn-01` on port 443, where one of the
        /// route's addresses must be what the server finds; or `http-01` on port 80, where one of the
        /// addresses of `redirect` must be.
        acme_challenge: AcmeChallenge = default "tls-alpn-01", like "\"http-01\"";

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

    /// A listener for plain HTTP that sends browsers on to https. A process of its own answers it,
    /// without privileges.
    Redirect, "Redirect from HTTP" {
        /// Addresses that are listened on for plain HTTP: `HOST:PORT`, `[IPv6]:PORT`, or `:PORT` for
        /// all addresses of the machine. Every request is answered with a redirect to the same host
        /// and path over https, and the connection is closed.
        redirect: Vec<Listen> = default "", like "\":80\"";

        /// The status of a redirect: 308 (permanent; the method stays) or 301 (permanent; browsers
        /// make a GET of a POST).
        redirect_status: RedirectStatus = default "308", like "301";

        /// The port of the https address that clients are sent to.
        redirect_port: u32 = default "443", "1" ..= "65535", like "8443";
    }

    /// What is logged, and where.
    Log, "Log" {
        /// The least important lines that are written: `error`, `warn`, `info`, `debug`,
        /// `trace`, or `off`.
        log_level: LogLevel = default "info", like "\"debug\"";

        /// `text` for people, `json` for programs: one object per line.
        log_format: LogFormat = default "text", like "\"json\"";

        /// Where log lines go: `stderr`, or syslog (RFC 5424): `syslog` is the machine's own at
        /// /dev/log, `syslog:/PATH` another unix socket, `syslog://IP:PORT` one that listens for UDP.
        /// A message that syslog does not take at once is dropped.
        log_to: LogDestination = default "stderr", like "\"syslog\"";

        /// The facility of messages to syslog, of the log and of the connection log.
        syslog_facility: SyslogFacility = default "daemon", like "\"local0\"";

        /// A line for every handshake, done or failed: version, suite, group, server name,
        /// protocol, whether it was resumed and if not why, its time, bytes of each flight.
        log_handshakes: bool = default "false",
            costs "a line per handshake",
            like "true";

        /// A line for every connection when it ends: route, client, backend, server name, protocol,
        /// version, suite, whether a session was resumed, bytes each way, duration, how it ended and
        /// who ended it. `stderr`; the path of a file, which is appended to and opened again at each
        /// reload; or syslog, as in `log_to`. Lines that can't be written are dropped and counted; no connection waits.
        connection_log: LogTarget = default "off",
            costs "128 bytes per connection, and a line for each",
            like "\"/var/log/dormouse.log\"";

        /// What a line of the connection log looks like: `text`, fields as `name=value`; or `json`,
        /// one object.
        connection_log_format: LogFormat = default "text", like "\"json\"";

        /// Log one connection of so many, chosen evenly.
        connection_log_one_in: u32 = default "1", "1" ..= "1000000", like "100";
    }
}
