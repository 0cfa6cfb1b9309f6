//! Imports of other programs' configurations, and the recipes of the guide.

mod ghostunnel;
mod import;
mod recipes;
mod walk;
