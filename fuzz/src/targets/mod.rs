//! The targets.

pub(crate) mod calls;
pub(crate) mod configuration;
pub(crate) mod handover;
pub(crate) mod instrument;
pub(crate) mod messages;
pub(crate) mod mqtt;
pub(crate) mod peer_certificates;
pub(crate) mod pem;
pub(crate) mod proxy_protocol;
pub(crate) mod records;
pub(crate) mod sessions;
pub(crate) mod starttls_clients;
pub(crate) mod starttls_servers;
pub(crate) mod tcp_segment;
pub(crate) mod tls;
pub(crate) mod x509;

/// The first byte as a number, and the rest.
fn choice(data: &[u8]) -> (u8, &[u8]) {
    match data {
        [first, rest @ ..] => (*first, rest),
        [] => (0, &[]),
    }
}

/// The input in two pieces, cut at a place that the first byte chooses.
fn cut(data: &[u8]) -> (&[u8], &[u8]) {
    let (place, rest) = choice(data);
    rest.split_at(usize::from(place) * rest.len() / 255)
}
