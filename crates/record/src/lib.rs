//! TLS record protection for a connection at rest.
#![forbid(unsafe_code)]

mod alert;
mod derive;
mod error;
mod key;
mod limits;
mod message;
mod open;
mod seal;
mod state;
mod suite;

pub use alert::{Alert, AlertDescription, AlertLevel};
pub use derive::secret_yields;
pub use error::{Blame, Corrupt, Misuse, Reason, Refusal, SealError};
pub use key::{OpenKey, SealKey};
pub use limits::{
    CONTENT_MAX, EMPTY_RECORDS_MAX, GCM_RECORDS_MAX, GCM_REKEY_AT, HANDSHAKE_MESSAGE_MAX,
    KEY_UPDATES_MAX, RECORD_MAX, SMALL_RECORD_MAX, WARNINGS_MAX,
};
pub use open::{Opened, open};
pub use seal::{RecordRoom, record_room, seal_alert, seal_in_place, seal_key_update, seal_record};
pub use state::{KeyIv, LAYOUT_VERSION, State};
pub use suite::{Protocol, Role, Suite};
