//! `dormouse connect`: plain local clients, and foreign TLS servers.

mod local_clients;
mod servers;
mod stacks;
mod unix_files;
