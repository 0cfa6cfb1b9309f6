//! `dormouse connect`: plain local clients, and foreign TLS servers.

mod files;
mod limits;
mod local_clients;
mod servers;
mod stacks;
mod starttls;
