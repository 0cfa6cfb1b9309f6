//! Options of a route.

use crate::option::group::option_groups;
use crate::values::acme_name::AcmeName;
use crate::values::amounts::SourceAddress;
use crate::values::choices::{
    BackendDown, Balance, ClientAsk, NameUnknown, ProxyProtocol, TlsGroup, TlsProfile, TlsSuite,
    TlsVersion, Truncation,
};
use crate::values::client_match::ClientMatch;
use crate::values::endpoints::Listen;
use crate::values::network::Network;
use crate::values::pem_files::{Ca, CertificateFiles};
use crate::values::probe::{Probe, StatusCodes};
use crate::values::route_name::RouteName;
use crate::values::server_name::ServerName;
use crate::values::upstream::Upstream;
use std::path::PathBuf;
use std::time::Duration;

option_groups! {
    /// One way through the program: where connections come in, what is shown to
    /// them, and where their plaintext goes. Written as `[[route]]`, as often as
    /// there are routes.
    Route, "Routes" {
        /// The route's name in metrics, logs and `status`. None: the route's number in the file,
        /// from 1 on. No two routes may have the same name.
        name: Option<RouteName> = default "none", like "\"shop\"";

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

        /// What the client sees when no backend can be reached. `alert`: the fatal alert
        /// internal_error. `reset`: a TCP reset without an alert. `close`: close_notify, which a
        /// client can't distinguish from an empty answer. With `pass_through` the connection is
        /// reset in any case.
        backend_down: BackendDown = default "alert", like "\"reset\"";

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
}
