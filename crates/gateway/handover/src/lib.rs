//! Everything that passes between the processes of a gateway, and from one binary to the next.
//!
//! | | from | to |
//! |---|---|---|
//! | [`slot`]: a connection at rest | a worker | the next worker, or the next binary |
//! | [`log_entries`]: its entry for the connection log | a worker | the next worker, or the next binary |
//! | [`Handover`]: configuration, certificates, keys | main | keepers and workers |
//! | [`stored`]: its routes, certificates and revocation lists, each once | main | workers |
//! | [`lists`]: revocation lists in the task of a scout | main | a scout |
//! | [`notes`]: additions to the handover | a worker | the next worker |
//! | [`fingerprint`]: certificates in entries and filters | a worker | main, control, the next worker |
//! | [`orders`]: messages on a worker's channel | main and workers | each other |
//! | [`control`]: messages on control's channel | main and control | each other |
//! | [`signing`]: signatures with keys in tokens | a worker, the signer | main, a worker |
//! | [`connections`]: pages of a list of connections | a worker | main, control, `dormouse connections` |
//! | [`status`]: the status document | control | `dormouse status` and `top` |
//! | [`upgrade`]: commands on a keeper's board | main | keepers |
//!
//! [`layout`] has the versions of all formats. [`share`] divides the limits among workers, and [`child`]
//! has properties of all processes that main starts.
#![forbid(unsafe_code)]

mod ages;
pub mod child;
mod clock;
pub mod connections;
pub mod control;
mod descriptors;
mod document;
pub mod fingerprint;
#[doc(hidden)]
pub mod fuzzed;
pub mod layout;
pub mod lists;
pub mod log_entries;
pub mod message;
pub mod notes;
pub mod orders;
pub mod parts;
mod pem;
pub mod share;
pub mod signing;
pub mod slot;
pub mod status;
pub mod stored;
pub mod trial;
pub mod upgrade;

pub use clock::unix_time;
pub use descriptors::{Descriptors, RestDescriptors};
pub use document::{Handover, KeeperPart, RoutesToPack, orphaned_ms_max};
pub use pem::{ClientTrust, OriginPem, Pem, PemContents, Revocation, SecretText};
