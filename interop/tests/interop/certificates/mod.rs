//! Certificates by name, routes by name and protocol, clients by rule, and names whose TLS passes
//! through: with OpenSSL's client and server as the others.

mod acme;
mod choice;
mod client_certificates;
mod ocsp;
mod pass_through;
mod pushed;
mod routes;
pub(crate) mod site;
