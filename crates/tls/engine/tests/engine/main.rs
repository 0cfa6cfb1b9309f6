//! The engine against stock rustls, misbehaving peers and invalid certificates.

mod agreements;
mod before_finished;
mod before_finished_protected;
mod certificates;
mod chains;
mod deferred_keys;
mod early_data;
mod examples;
mod exporter;
mod forgery;
mod hello;
mod identities;
mod kept_sessions;
mod ocsp;
mod ours;
mod pem;
mod pem_keys;
mod refusals;
mod resumption;
mod retries;
mod sessions;
mod stock;
mod stock_client;
mod stock_server;
