//! `dormouse connect`: plain local clients, and the TLS servers of others.

mod local_clients;
mod servers;
mod stacks;
