//! Limits of the machine and of each client, and rate limits.

mod capacity;
mod certificates;
mod many_routes;
mod mapped_addresses;
mod per_client;
mod per_route;
mod rates;
mod spread;
mod storm;
