//! What several programs' importers say, and what is too long to stand between the code.

pub(super) const PROXY_FROM_WHOM: &str = "clients speak the PROXY protocol: set accept_proxy_from \
    to the networks of your proxies";

pub(super) const BACKENDS_ARE_JUDGED: &str = "certificates of backends are always judged here: \
    name who vouches for them with `backend_ca` (a certificate that is signed by itself is its \
    own), or remove this line if the system trusts them";

pub(super) const KEYS_ARE_PLAIN: &str = "keys are read unencrypted: \
    openssl pkey -in KEY -out KEY.plain, readable by root alone";

pub(super) const HTTP2: &str = "bytes are passed on as they are: alpn = [\"h2\", \"http/1.1\"] \
    only if what is behind us speaks HTTP/2 in the clear";

pub(super) const NGINX_STAYS: &str = "nginx stays behind for what is done with requests: instead \
    of its `listen … ssl` give this server `listen 127.0.0.1:8080 proxy_protocol; \
    set_real_ip_from 127.0.0.1; real_ip_header proxy_protocol;` without its ssl_ lines";

pub(super) const HAPROXY_STAYS: &str = "HAProxy stays behind for what is done with requests: give \
    it `bind 127.0.0.1:8080 accept-proxy` instead of this bind";

pub(super) const PINNED: &str = "only the very certificates in CAfile were let in (verifyPeer): \
    client_ca is who has signed them, and client_allow = [\"sha256=…\"] who they are";

pub(super) const NOT_VERIFIED: &str = "it was not on, so any server is taken: remove `insecure`, \
    and the server is verified";

pub(super) const ONE_CA_FILE: &str = "`ca` is one file; whom the system trusts is trusted now: cat \
    its files into one, and name that";

pub(super) const NO_WRITE_IP: &str = "the backend expects the client's address in its old form: \
    let it expect the PROXY protocol, and set proxy_protocol = \"v2\"";

pub(super) const CONNECTIONS_OF_ALL: &str = "`max_connections` is for all workers together; by \
    default as many as the machine allows";

pub(super) const RULES: &str = "no counterpart: connections are let in by `allow`, `deny`, \
    `connections_per_client` and `handshakes_per_client`";

pub(super) const BY_THEIR_NAMES: &str = "certificates are chosen by the names in them; routes \
    with `server_names` can differ";

pub(super) const WHO_MAY_COME: &str = "say in `allow` and `deny` who may connect";

pub(super) const HAPROXY_SEES_NO_TLS: &str = "what HAProxy asks TLS for (`ssl_fc`, `ssl_c_…`) is \
    not there behind us: a redirect to https would go in circles. `dst_port` still tells the ports \
    apart";

pub(super) const NGINX_SEES_NO_TLS: &str = "what nginx knows of TLS ($scheme, $https, $ssl_…) is \
    not there behind us: a redirect to https would go in circles. $proxy_protocol_server_port still \
    tells the ports apart";

pub(super) const CLIENTS_UNCHECKED: &str = "clients were asked for this too: say in `client_allow` \
    who may come in, and in `client_crl` who not";

pub(super) const NAME_OF_SERVER: &str = "no name was asked for: the server's certificate has to be \
    for the host of `to` here, or for `server_name`";

pub(super) const REDIRECTS_ELSEWHERE: &str = "does more than a redirect to the same host and path \
    over https: keep nginx for it, or nobody answers there any more";

pub(super) const ACME_WAS_ANSWERED: &str = "challenges of an ACME server were answered here: \
    acme = [\"NAME\"] in the route, with acme_challenge = \"http-01\", obtains certificates over \
    `redirect`";

pub(super) const OTHER_NAMES_TOO: &str = "carried over, but clients that ask for other names are \
    redirected as well";

pub(super) const NOT_PERMANENT: &str = "carried over, but a redirect is permanent here: 308, or 301 \
    by `redirect_status`";

pub(super) const LINES_OF_CONNECTIONS: &str = "carried over, but there is a line for each \
    connection, with the fields of `connection_log`";

pub(super) const STARTS_IN_THE_CLEAR: &str = "TLS begins after a conversation in the clear \
    (STARTTLS and the like), which is not spoken here: remove this section, and keep stunnel for it";
