//! Options of an origination.

use crate::option::group::option_groups;
use crate::values::choices::{TlsVersion, Truncation};
use crate::values::endpoints::{PlainListen, Server};
use crate::values::pem_files::{Ca, CertificateFiles};
use crate::values::route_name::RouteName;
use std::path::PathBuf;
use std::time::Duration;

option_groups! {
    /// The other direction: plain connections of this machine come in and are carried to
    /// a server over TLS. Written as `[[originate]]`; `dormouse connect` makes one of its
    /// flags.
    Originate, "Originate" {
        /// The origination's name in metrics, logs and `status`. None: `originate-1` for the first
        /// in the file, and so on. No two routes or originations may have the same name.
        name: Option<RouteName> = default "none", like "\"billing\"";

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
}
