//! Connections survive crashes, upgrades and reloads; draining and stopping close each of them cleanly.

mod drain;
mod kill;
mod processes;
mod reload;
mod signals;
mod systemd;
mod upgrade;
