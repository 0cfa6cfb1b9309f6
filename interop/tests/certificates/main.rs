//! Certificates by name, routes by name and protocol, clients by rule, and names whose TLS passes
//! through: with OpenSSL's client and server as the others.

mod acme;
mod choice;
mod clients;
mod routes;
mod site;
mod stapling;
mod through;
