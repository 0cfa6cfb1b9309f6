//! Options of an origination.

use crate::option::group::option_groups;
use crate::values::choices::{StapledOcsp, Starttls, TlsVersion, Truncation};
use crate::values::endpoints::{PlainListen, Server};
use crate::values::pem_files::{Ca, CertificateFiles};
use crate::values::quantities::ByteSize;
use crate::values::route_name::RouteName;
use crate::values::route_timeout::{Inherited, RouteTimeout};
use crate::values::spiffe::SpiffeRule;
use std::path::PathBuf;
use std::time::Duration;

option_groups! {
    /// The other direction: plain connections from this machine are carried to a server over TLS.
    /// Written as `[[originate]]`; `dormouse connect` makes one from its flags.
    Originate, "Originate", each at reload {
        /// Name of the origination in metrics, logs and `status`. `none`: `originate-1` for the
        /// first in the file, and so on. No two routes or originations may have the same name.
        name: Option<RouteName> = default "none", like "\"billing\"";

        /// Addresses to listen on: `HOST:PORT`, `[IPv6]:PORT`, `:PORT` or `unix:PATH`. Connections
        /// to these addresses are not encrypted, and anyone who can reach an address can use it:
        /// keep them on this machine.
        listen: Vec<PlainListen> = required "127.0.0.1:8080";

        /// TLS servers to connect to, as `HOST:PORT`, in the order in which they are tried. A
        /// server that failed is skipped for a while. A name is looked up at startup and at each
        /// reload; all its addresses are tried.
        to: Vec<Server> = required "192.0.2.7:443";

        /// Server name to send to the server and to expect in its certificate. `none`: the host of
        /// `to`.
        server_name: Option<String> = default "none", like "\"db.example.com\"";

        /// For servers that begin in plaintext, and start TLS when they are asked to: `smtp`, `imap`, `pop3`,
        /// `xmpp`, `ldap` or `postgres`. Dormouse asks; the local client speaks the protocol without TLS. A
        /// server that refuses TLS gets no connection.
        starttls: Starttls = default "off",
            costs "up to 4 KiB until the handshake begins, nothing at rest",
            like "\"smtp\"";

        /// Authorities that may sign the server's certificate: a PEM file, or `system` for those
        /// that the operating system trusts. Or a trust domain, `spiffe://example.org`, whose authorities
        /// `spiffe_agent` keeps current: then `server_ids` takes the place of the name in the certificate.
        ca: Ca = default "system", like "\"authority.pem\"";

        /// SPIFFE ids of the server, of the trust domain in `ca`; `*` at the end stands for any rest. Its
        /// certificate must have one of them.
        server_ids: Vec<SpiffeRule> = default "", like "\"spiffe://example.org/db\"";

        /// Revocation lists for the server's certificate, in PEM: files, or directories, all files of
        /// which are read. With any list, every issuer in the server's chain needs a current one.
        /// `reload_certificates` reloads changed files; sessions of the server are then dropped.
        crl: Vec<PathBuf> = default "",
            costs "four to seven times the files' size in each worker, and 14 times while they are replaced, which `memory` includes",
            like "\"authority.crl\"";

        /// Whether the server must staple a valid OCSP response. `optional`: it need not, but a valid
        /// response that says "revoked" refuses it. `required`: a server without a valid response that
        /// says "good" is refused.
        ocsp: StapledOcsp = default "optional";

        /// Accept any certificate: anyone between this machine and the server can read and change
        /// everything. Use it only for tests.
        insecure: bool = default "false";

        /// Client certificate and key for servers that request one, as PEM files; or one of `spiffe_agent`:
        /// `spiffe:` for its first, `spiffe://example.org/web` for the one with this id.
        certificates: Vec<CertificateFiles> = default "";

        /// Protocols to offer by ALPN, the preferred one first. Bytes are passed on unchanged, so
        /// the local clients must speak these protocols.
        alpn: Vec<String> = default "";

        /// Oldest TLS version to use.
        min_version: TlsVersion = default "1.2", like "\"1.3\"";

        /// Newest TLS version to use.
        max_version: TlsVersion = default "1.3";

        /// What the local client sees when the server's connection ends without close_notify:
        /// `abort` resets, `close` ends cleanly.
        truncation: Truncation = default "abort", like "\"close\"";

        /// In place of `idle_timeout`, for connections of this origination. `inherit`: the value of that option.
        /// `off`: they may be idle for any time.
        route_idle_timeout: RouteTimeout = default "inherit", "1s" ..= "365d", like "\"30m\"";

        /// In place of `total_timeout`, for connections of this origination. `inherit`: the value of that
        /// option. `off`: they may last for any time.
        route_total_timeout: RouteTimeout = default "inherit", "1s" ..= "365d", like "\"12h\"";

        /// In place of `backend_connect_timeout`, for connections of this origination: maximum time until a server accepts a
        /// connection. `inherit`: the value of that option.
        route_backend_connect_timeout: Inherited<Duration> = default "inherit", "10ms" ..= "10m", like "\"2s\"";

        /// In place of `partial_record_timeout`, for connections of this origination: maximum time from the first byte of a
        /// record to its last. `inherit`: the value of that option.
        route_partial_record_timeout: Inherited<Duration> = default "inherit", "100ms" ..= "1h", like "\"5m\"";

        /// Reset a connection if bytes have waited for one of its sides for this long, and that side has taken none of
        /// them: a peer that has stopped reading. What fits into a socket's queue of 4 KiB does not count.
        /// `stall_timeout` does the same for all connections, but only while memory is short.
        route_stall_timeout: Option<Duration> = default "off", "1s" ..= "365d",
            costs "two system calls more per wake",
            like "\"5m\"";

        /// In place of `connection_log_one_in`, for connections of this origination: log one in this many. `0`: none.
        /// `inherit`: the value of that option.
        route_connection_log_one_in: Inherited<u32> = default "inherit", "0" ..= "1000000", like "100";

        /// Maximum number of established connections of this origination, over all workers. Further
        /// connections are reset.
        route_max_connections: Option<u32> = default "off", "1" ..= "16000000", like "20_000";

        /// Maximum bytes per second of all connections of this origination together, in both directions and over
        /// all workers; a quarter of them may pass at once. Its connections take turns; nothing is dropped, and
        /// other routes are not affected.
        route_bytes_per_second: Option<ByteSize> = default "off", "64 KiB" ..= "1 TiB",
            costs "30 bytes of heap while a connection waits",
            like "\"20 MiB\"";

        /// Maximum share of the memory for connections that this origination may use, in percent: of
        /// `max_connections` and `max_awake`, of `pending_memory` and of `kernel_memory`. Further local
        /// connections are reset. While its connections hold their share of the memory for slow peers, Dormouse
        /// reads them as if memory were short; other routes are not affected.
        route_memory_share: Option<u32> = default "off", "1" ..= "100", like "10";

        /// Number of resumed handshakes after a full one; the next handshake is full again. 0:
        /// every handshake is full.
        resume_uses: u32 = default "100", "0" ..= "1000000";

        /// How long after a full handshake its session may be resumed. Whole seconds.
        resume_age: Duration = default "1h", "1s" ..= "7d";

        /// How long a new connection keeps the state that receives tickets, which come after the
        /// handshake. Data passes meanwhile.
        ticket_wait: Duration = default "1s", "10ms" ..= "1m",
            costs "about 2 kB per connection, for at most this long";

        /// File in which TLS 1.3 sessions survive a restart. They are secrets: only the owner may
        /// read the file.
        session_file: Option<PathBuf> = default "off",
            like "\"/var/lib/dormouse/sessions\"";

        /// Connections to keep established and at rest, in all workers together, so that a local
        /// client need not wait for a handshake.
        warm: u32 = default "0", "0" ..= "1000000",
            costs "a slot and a socket here, and a connection at the server, for each",
            like "4";
    }
}
