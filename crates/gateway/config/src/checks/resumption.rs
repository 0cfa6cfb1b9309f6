//! Checks of client certificates and of session resumption.

use crate::checks::common::{keys_in_files, no_item_twice, one_certificate};
use crate::config::Config;
use crate::input::locations::{Locations, SectionRef};
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::problem::Problem;
use crate::options::Route;
use crate::values::choices::ClientAsk;
use crate::values::key_source::KeySource;

/// Reports client certificates without authorities to verify them, and authorities without client
/// certificates.
pub(crate) fn clients(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    let is_sound = at.sound(&["client_certificates", "client_ca", "client_crl"]);
    // None of them has an effect with `pass_through`, which is reported elsewhere.
    if !is_sound || route.pass_through {
        return;
    }
    let asks = route.client_certificates != ClientAsk::None;
    if asks && route.client_ca.is_none() {
        mistakes.error(
            &at.location("client_certificates", None),
            Problem::new(
                "client certificates are requested, but no authority is given to verify them",
            )
            .help("add client_ca = \"clients-ca.pem\""),
        );
    }
    let given = [
        ("client_ca", route.client_ca.is_some()),
        ("client_crl", !route.client_crl.is_empty()),
    ];
    for (name, _) in given.iter().filter(|(_, given)| *given && !asks) {
        mistakes.error(
            &at.location(name, None),
            Problem::new(format!(
                "`{name}` has no effect: client certificates are not requested"
            ))
            .help("add client_certificates = \"required\" (or \"optional\")"),
        );
    }
}

/// Reports mistakes in where ticket keys come from and what seals them.
pub(crate) fn tickets(
    config: &Config,
    locations: &Locations<'_>,
    mistakes: &mut MistakeCollector<'_>,
) {
    let tickets = &config.tickets;
    let second = || locations.item_of_option("ticket_store_certificates", 1);
    one_certificate(second, &tickets.ticket_store_certificates, mistakes);
    let item = |n| locations.item_of_option("ticket_store_certificates", n);
    keys_in_files(item, &tickets.ticket_store_certificates, mistakes);
    if !locations.sound(&["ticket_keys", "ticket_secret_file"]) {
        return;
    }
    let sources = &tickets.ticket_keys;
    let item = |n| locations.item_of_option("ticket_keys", n);
    no_item_twice(item, sources, mistakes);
    let only_files = sources.iter().all(|s| matches!(s, KeySource::File(_)));
    let is_store = |source: &KeySource| matches!(source, KeySource::Store(_));
    let location = locations.option("ticket_keys");
    if sources.is_empty() || (sources.len() > 1 && !only_files) {
        mistakes.error(
            &location,
            Problem::new("ticket keys come from one source, or from several key files")
                .help("write one of \"memory\", \"file:PATH\", \"redis://HOST:PORT\""),
        );
    } else if sources.iter().any(is_store) && tickets.ticket_secret_file.is_none() {
        mistakes.error(
            &location,
            Problem::new("ticket keys in a store must be sealed with a secret, and none is given").help(
                "make one secret for the whole fleet: (umask 077; openssl rand -hex 32 > fleet.secret), and add ticket_secret_file = \"fleet.secret\"",
            ),
        );
    }
}
