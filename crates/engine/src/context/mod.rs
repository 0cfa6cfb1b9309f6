//! What all connections of a server or a client share: settings, checked and made ready once.
//!
//! | file | subject |
//! |---|---|
//! | `server`, `client` | settings, and the context that is made of them |
//! | `settings`, `suites` | versions, groups and cipher suites, for both |
//! | `warm_up` | a server's first handshake, with itself |

pub(crate) mod client;
pub(crate) mod server;
pub(crate) mod settings;
pub(crate) mod suites;
pub(crate) mod warm_up;
