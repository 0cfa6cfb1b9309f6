//! Imports of other programs' configurations, and the recipes of the guide.

mod import;
mod recipes;
mod walk;
