//! Imports of other programs' configurations, and the recipes of the guide.

mod ghostunnel;
mod haproxy_3;
mod import;
mod probe;
mod recipes;
mod scenarios;
mod side_by_side;
mod telling_backend;
mod walk;
