//! Connections outlive crashes, upgrades and reloads; draining and stopping end each of them properly.

mod drain;
mod kill;
mod processes;
mod reload;
mod systemd;
mod upgrade;
