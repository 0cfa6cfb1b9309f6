//! Limits: what happens when the machine or one client reaches one, and how fast bytes may pass.

mod capacity;
mod mapped_addresses;
mod per_client;
mod rates;
