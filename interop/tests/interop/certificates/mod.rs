//! Certificates by name, routes by name and protocol, clients by rule, and pass-through, all with OpenSSL's
//! client and server.

mod acme;
mod acme_dns;
mod choice;
mod client_certificates;
mod files;
mod many;
mod ocsp;
mod pass_through;
mod passphrases;
mod pushed;
mod revoked_servers;
mod rotation;
mod routes;
mod self_signed;
pub(crate) mod site;
mod spiffe;
mod tokens;
