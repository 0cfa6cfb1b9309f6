//! Backends: failures, TLS, balance, health checks, DNS names, the client's address for them, and STARTTLS.

pub(crate) mod balance;
mod dns;
mod failures;
mod first_data;
mod health;
mod health_tls;
mod orders;
mod proxy_protocol;
pub(crate) mod starttls;
mod tls;
