//! The engine against stock rustls, against bad peers and with bad certificates.

mod certificates;
mod identities;
mod refusals;
mod resumption;
mod sessions;
mod stock;
mod stock_client;
mod stock_server;
