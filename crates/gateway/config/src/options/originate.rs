//! Options of an origination.

use crate::option::group::option_groups;
use crate::values::choices::{TlsVersion, Truncation};
use crate::values::endpoints::{PlainListen, Server};
use crate::values::pem_files::{Ca, CertificateFiles};
use crate::values::route_name::RouteName;
use crate::values::route_timeout::RouteTimeout;
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

        /// Authorities that may sign the server's certificate: a PEM file, or `system` for those
        /// that the operating system trusts.
        ca: Ca = default "system", like "\"authority.pem\"";

        /// Accept any certificate: anyone between this machine and the server can read and change
        /// everything. Use it only for tests.
        insecure: bool = default "false";

        /// Client certificate and key for servers that request one, as PEM files.
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
