//! Reasons and advice that several importers share, or that are too long to keep inside the code.

pub(super) const PROXY_NETWORKS: &str = "clients send the PROXY protocol: set \
    accept_proxy_from to the networks of your proxies";

pub(super) const BACKENDS_ARE_VERIFIED: &str = "backends' certificates are always verified \
    here: name the authority that signs them with `backend_ca` (for a self-signed \
    certificate, the certificate itself), or remove this line if the system trusts it";

pub(super) const BACKEND_VERSIONS: &str = "TLS 1.2 and 1.3 with AEAD suites are used with backends";

pub(super) const BACKEND_NEWEST: &str = "backends with TLS 1.2 were refused, and are accepted here: \
    let the backends offer TLS 1.3 only";

pub(super) const SECURITY_LEVEL: &str = "keys and suites of 112 bits of security are accepted here \
    (level 2): limit `suites` and `groups`, and the keys of your authorities";

pub(super) const COMMAND: &str =
    "a command to OpenSSL: see whether it limits versions, suites or clients";

pub(super) const PASSPHRASES: &str = "write the passphrase of each encrypted key to a file of its \
    own, readable only by its owner, and add passphrase = \"FILE\" beside `cert` and `key`";

pub(super) const HTTP2: &str = "bytes are passed on unchanged: set alpn = [\"h2\", \
    \"http/1.1\"] only if the backend supports unencrypted HTTP/2";

/// The beginning of [`nginx_stays`].
pub(super) const NGINX_STAYS: &str = "nginx stays behind Dormouse to process requests";

pub(super) fn nginx_stays(address: &str) -> String {
    format!(
        "{NGINX_STAYS}: replace its `listen … ssl` by `listen {address} proxy_protocol; \
         set_real_ip_from 127.0.0.1; real_ip_header proxy_protocol;`, and remove its ssl_ lines"
    )
}

/// The beginning of [`haproxy_stays`].
pub(super) const HAPROXY_STAYS: &str = "HAProxy stays behind Dormouse to process requests";

pub(super) fn haproxy_stays(address: &str) -> String {
    format!("{HAPROXY_STAYS}: replace this bind by `bind {address} accept-proxy`")
}

pub(super) const PINNED_CLIENTS: &str = "only the certificates in CAfile themselves were accepted \
    (verifyPeer): set client_ca to the authority that signed them, and client_allow = \
    [\"sha256=…\"] to their digests";

pub(super) const NOT_VERIFIED: &str = "verification was off, so any server is accepted: \
    remove `insecure` to verify the server";

pub(super) const ONE_CA_FILE: &str = "`ca` is one file, and the system's authorities are \
    used now: concatenate the directory's files into one, and set `ca` to it";

pub(super) const NO_WRITE_IP: &str = "the backend expects the client's address in hitch's \
    own format: configure it for the PROXY protocol, and set proxy_protocol = \"v2\"";

pub(super) const CONNECTIONS_OF_ALL_WORKERS: &str = "`max_connections` applies to all workers \
    together; the default is as many as the machine allows";

pub(super) const LOG: &str = "the log goes to standard error, or with log_to = \"syslog\" to syslog; \
    `connection_log` has a line for each connection";

pub(super) const RULES: &str = "no equivalent: connections are limited by `allow`, `deny`, \
    `connections_per_client` and `handshakes_per_client`";

pub(super) const CERTIFICATES_BY_NAME: &str = "certificates are chosen by the names in them; use \
    routes with `server_names` for other choices";

pub(super) const CERTIFICATE_OPTIONS: &str = "options of one certificate have no equivalent: use a \
    route with `server_names` for its names";

pub(super) const CERTIFICATE_VERIFIES: &str = "clients that ask for these names had to be verified, or \
    to have TLS 1.3: until they have a route with `server_names`, `client_certificates`, `client_ca` \
    and `min_version`, the settings of the whole bind apply to them";

pub(super) const REFUSALS: &str = "clients that this rule refused are accepted here: use \
    `client_certificates` and `client_allow` for rules about certificates, `server_names` for \
    names, `allow` and `deny` for networks, `handshakes_per_client` for rates";

pub(super) const BRANCHES: &str = "all branches were converted: remove from this file those that \
    did not apply";

pub(super) const EARLIER_RULE: &str = "an earlier rule decides for some of these clients; here the \
    more exact name does, whatever the order";

pub(super) const CLIENT_NETWORKS: &str = "set `allow` and `deny` to the networks that may or \
    may not connect";

pub(super) const ACCEPTED_BEFORE: &str = "rules before it accept some of these clients, but here \
    `deny` takes precedence, whatever the order: list in `deny` only networks without them";

pub(super) const NAMES_BY_EXPRESSION: &str = "names must be listed in `server_names`, or written \
    as \"*.example.com\"; until then clients that ask for them reach another route, or none";

pub(super) const REFUSED_NAMES: &str = "clients that ask for these names were refused; here they \
    reach the route for all other names: give that route `server_names`";

pub(super) const ONE_LABEL: &str = "converted, but `*` stands for one label here, and for any \
    number before";

pub(super) const OTHER_PROTOCOLS: &str = "converted, but a client that offers only other \
    protocols is refused here, and was served before";

pub(super) const HAPROXY_SEES_NO_TLS: &str = "behind Dormouse, HAProxy has no TLS facts \
    (`ssl_fc`, `ssl_c_…`), so a redirect to https would loop; use `dst_port` to distinguish \
    the ports";

pub(super) const NGINX_SEES_NO_TLS: &str = "behind Dormouse, nginx has no TLS facts \
    ($scheme, $https, $ssl_…), so a redirect to https would loop; use \
    $proxy_protocol_server_port to distinguish the ports";

pub(super) const HOST_HEADER: &str = "its backends also serve names with other rules for clients \
    (a certificate, `allow`, `deny`, checks of requests), which nginx applied to a `Host` header \
    with such a name, too: give these names backends of their own, or let the backends refuse them";

pub(super) const HOST_OF_CLIENT: &str = "here backends get the client's `Host` header, so clients \
    choose among their virtual hosts: let the backends serve the same for every `Host`, or keep \
    nginx behind Dormouse";

pub(super) const HOST_OF_OTHERS: &str = "nginx chose among its servers by the `Host` header; here \
    clients may send any, so let the backends refuse the names of other servers";

pub(super) const CLIENTS_UNCHECKED: &str = "this was checked for clients too: use \
    `client_allow` for the clients to accept, and `client_crl` for those to refuse";

pub(super) const REVOKED_SERVERS: &str = "stunnel asked the authority whether the server's \
    certificate is revoked: set `crl` to its revocation lists, or ocsp = \"required\" if the server \
    staples responses";

pub(super) const SERVER_NAME_UNCHECKED: &str = "no server name was checked: here the server's \
    certificate must be for the host of `to`, or for `server_name`";

pub(super) const REDIRECTS_ELSEWHERE: &str = "does more than redirect to the same host and \
    path over https: keep nginx for it, or this address will not be served";

pub(super) const REDIRECTS_BESIDE_OTHERS: &str = "redirects to https on an address where another \
    server does not: keep nginx for both, or this address will not be served";

pub(super) const REDIRECTS_ON_SOCKET: &str = "redirects to https on a unix socket, where Dormouse \
    cannot: keep nginx for it, or this address will not be served";

pub(super) const ACME_WAS_ANSWERED: &str = "ACME challenges were answered here: acme = \
    [\"NAME\"] in the route, with acme_challenge = \"http-01\", obtains certificates over \
    `redirect`";

pub(super) const REDIRECTS_OTHER_NAMES: &str = "converted, but clients that ask for other names \
    are redirected too";

pub(super) const NOT_PERMANENT: &str = "converted, but redirects are permanent here: 308, or \
    301 with `redirect_status`";

pub(super) const ONE_STATUS: &str =
    "all redirects have one status, that of the first with 301 or 308";

pub(super) const PER_CLIENT: &str =
    "converted, but it counts a client's connections to all routes together";

pub(super) const NO_TICKETS: &str = "converted, but it holds also for the routes that had tickets: their \
    clients make a full handshake each time; remove `tickets` if that is too much";

pub(super) const REDIRECTS_TO_OTHER_PORT: &str = "all addresses in `redirect` lead to one port, \
    and an earlier redirect leads to another: keep the old program for this one, or change the port \
    that it leads to";

pub(super) const ONE_LINE_PER_CONNECTION: &str = "converted, but with one line per connection, \
    and the fields of `connection_log`";

pub(super) const STARTTLS: &str = "TLS starts after a plaintext exchange \
    (STARTTLS and the like), which is not supported here for this protocol: remove this section, \
    and keep stunnel for it";

pub(super) const LOG_IN: &str = "stunnel logged in to the server for its clients: let the clients do \
    that themselves";

/// The beginning of a remark about an address that Dormouse cannot listen on.
pub(super) const NO_DOOR: &str = "Dormouse listens on TCP addresses, up to 200 ports in a range: \
    set them in `listen`";

pub(super) const QUIC: &str = "this is a QUIC listener, and Dormouse has no QUIC: delete it, and the \
    alt-svc header that announces it; browsers then use TCP";

pub(super) const SECOND_TLS: &str = "the client's TLS was encrypted once more on its way to the \
    backend; here it is passed on as it is, so let the backend expect the client's TLS alone";

pub(super) const COMPUTED_TARGET: &str = "this target is computed for each connection: add the \
    backends to `to`, in a route with `server_names` for each if the name chooses";

pub(super) const CLIENT_NETWORKS_OF_ORIGINATION: &str = "an [[originate]] accepts everybody who can \
    reach its address: listen on an address that only these clients reach";

pub(super) const HEADER_OF_CLIENT: &str = "here the backend gets this header as the client sends it, \
    so it must not be trusted: set proxy_protocol = \"v2\" and let the backend take the client's \
    address from there, or keep nginx behind Dormouse (`listen 127.0.0.1:8080 proxy_protocol`)";

pub(super) const STAYS_WITH_NGINX: &str = "nginx continues to do this, behind Dormouse";

pub(super) const STAYS_WITH_HAPROXY: &str = "HAProxy continues to do this, behind Dormouse";

pub(super) const NO_TARGET: &str = "Dormouse does not connect there: give this server a TCP address \
    or a unix socket";

pub(super) const WITHOUT_ALPN: &str = "protocols choose among the routes of this address, so this \
    one, for all other clients, answers no ALPN";

pub(super) const OCSP: &str = "OCSP responses are fetched and verified by default (`ocsp_fetch`)";

pub(super) const REQUESTS: &str = "it is about requests, which Dormouse does not read";

pub(super) const NO_QUIC: &str = "there is no QUIC here";

/// How to name a key in a token.
pub(super) const TOKEN_KEY: &str = "for a key in a PKCS #11 token, export its certificate to a PEM file, write the PIN to a file \
    that only its owner can read, set `pkcs11_user`, and write certificates = [{ cert = \"FILE.pem\", \
    key = \"pkcs11:token=TOKEN;object=KEY?module-path=/LIBRARY.so&pin-source=/FILE\" }]";

/// What to do about an engine or a provider of OpenSSL.
pub(super) fn engine(name: &str) -> &'static str {
    match name.contains("pkcs11") {
        true => TOKEN_KEY,
        false => "keys are in files, or in PKCS #11 tokens: list them in `certificates`",
    }
}
