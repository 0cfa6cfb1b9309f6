//! What must fit together where sessions are resumed and clients show certificates.

use super::Config;
use super::choices::ClientAsk;
use super::key_source::KeySource;
use super::mistake::Collector;
use super::options::Route;
use super::placed::Placed;
use super::raw::Wrong;

/// Who asks for certificates must know who may vouch for them.
pub(super) fn clients(
    route: &Route,
    index: usize,
    placed: &Placed<'_>,
    mistakes: &mut Collector<'_>,
) {
    if !placed.sound_in_route(index, &["client_certificates", "client_ca", "client_crl"]) {
        return;
    }
    let asks = route.client_certificates != ClientAsk::None;
    if asks && route.client_ca.is_none() {
        mistakes.error(
            &placed.in_route(index, "client_certificates", None),
            Wrong::new("clients are asked for certificates, but nobody may vouch for them")
                .help("add client_ca = \"clients-ca.pem\""),
        );
    }
    let given = [
        ("client_ca", route.client_ca.is_some()),
        ("client_crl", !route.client_crl.is_empty()),
    ];
    for (name, _) in given.iter().filter(|(_, given)| *given && !asks) {
        mistakes.error(
            &placed.in_route(index, name, None),
            Wrong::new(format!(
                "`{name}` has no effect: clients are not asked for certificates"
            ))
            .help("add client_certificates = \"required\" (or \"optional\")"),
        );
    }
}

/// Where keys come from, and with what they are sealed.
pub(super) fn tickets(config: &Config, placed: &Placed<'_>, mistakes: &mut Collector<'_>) {
    let tickets = &config.tickets;
    if !placed.sound(&["ticket_keys", "ticket_secret_file", "ticket_store_ca"]) {
        return;
    }
    let sources = &tickets.ticket_keys;
    let only_files = sources.iter().all(|s| matches!(s, KeySource::File(_)));
    let store = sources.iter().find_map(|source| match source {
        KeySource::Store(address) => Some(address),
        _ => None,
    });
    let place = placed.option("ticket_keys");
    if sources.is_empty() || (sources.len() > 1 && !only_files) {
        mistakes.error(
            &place,
            Wrong::new("ticket keys come from one source; only key files may be several")
                .help("write one of \"memory\", \"file:PATH\", \"redis://HOST:PORT\""),
        );
    } else if store.is_some() && tickets.ticket_secret_file.is_none() {
        mistakes.error(
            &place,
            Wrong::new("keys in a store need a secret that seals them").help(
                "make one for the whole fleet: (umask 077; openssl rand -hex 32 > fleet.secret), and add ticket_secret_file = \"fleet.secret\"",
            ),
        );
    }
    if tickets.ticket_store_ca.is_some() && !store.is_some_and(|store| store.tls) {
        mistakes.warning(
            &placed.option("ticket_store_ca"),
            Wrong::new("`ticket_store_ca` has no effect without ticket_keys = \"rediss://…\"")
                .help("remove it, or let the store speak TLS"),
        );
    }
    if tickets.ticket_secret_file.is_some() && sources.contains(&KeySource::Memory) {
        mistakes.warning(
            &placed.option("ticket_secret_file"),
            Wrong::new("`ticket_secret_file` has no effect: ticket keys are kept in memory only")
                .help("add ticket_keys = \"file:PATH\", so that tickets outlive a restart"),
        );
    }
    if tickets.session_cache.is_some() && tickets.tickets == 0 {
        mistakes.warning(
            &placed.option("session_cache"),
            Wrong::new("`session_cache` has no effect: tickets = 0 turns resumption off")
                .help("remove one of the two"),
        );
    }
}

/// Room for TLS 1.2 sessions of clients that know no tickets, beside tickets: some 4,000 of them.
const BESIDE_TICKETS_BYTES: usize = 1 << 20;

impl Config {
    /// Bytes of the session cache: as configured, or a small one beside tickets. 0: there is none.
    pub fn session_cache_bytes(&self) -> usize {
        match self.tickets.session_cache {
            Some(bytes) => bytes.as_usize(),
            None if self.tickets.tickets == 0 || self.routes.is_empty() => 0,
            None => BESIDE_TICKETS_BYTES,
        }
    }
}
