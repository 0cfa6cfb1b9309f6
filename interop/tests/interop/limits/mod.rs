//! Limits of the machine and of each client, and rate limits.

mod capacity;
mod certificates;
mod mapped_addresses;
mod per_client;
mod per_route;
mod rates;
mod spread;
mod storm;
