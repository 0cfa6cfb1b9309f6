//! Settings of a server or client, checked and prepared once for all its connections.
//!
//! | file | subject |
//! |---|---|
//! | `server`, `client` | settings, and the context made from them |
//! | `certificates` | the certificates of a server's context, by name |
//! | `settings`, `suites` | versions, groups and cipher suites, for both |
//! | `choose_identity` | the caller's choice of a certificate |
//! | `warm_up` | a server's first handshake, with itself |

pub(crate) mod certificates;
pub(crate) mod choose_identity;
pub(crate) mod client;
pub(crate) mod server;
pub(crate) mod settings;
pub(crate) mod suites;
pub(crate) mod warm_up;
