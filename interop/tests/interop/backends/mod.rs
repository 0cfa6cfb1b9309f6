//! Backends: in trouble, over TLS, several of them, checked, found by name, and told who the client is.

mod balance;
mod dns;
mod failures;
mod health;
mod health_tls;
mod orders;
mod proxy_protocol;
mod tls;
