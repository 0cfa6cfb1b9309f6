//! The native half of the Python package `dormouse`: contexts and sessions, without sockets.
//!
//! | | |
//! |---|---|
//! | `contexts` | settings of servers and clients, prepared once |
//! | `session` | a connection: bytes in, bytes out |
//! | `owner` | which process and which thread may use a session |
//! | `peer_chain` | a peer's certificates, shared by connections with the same chain |
//! | `certificate` | a certificate as the dictionary of `ssl.SSLSocket.getpeercert` |
//! | `exported` | a session as bytes, for another process |
//! | `decrypt` | decryption of private keys |
//! | `errors` | exceptions |
//!
//! The transports of asyncio and Twisted are in the Python half (`python/dormouse`).
#![forbid(unsafe_code)]

mod certificate;
mod contexts;
mod decrypt;
mod errors;
mod exported;
mod key_log;
mod owner;
mod peer_chain;
mod session;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::certificate::describe_certificate;
    #[pymodule_export]
    use crate::contexts::{
        ClientContext, Common, Identity, ServerContext, TicketKeys, authorities, check_groups,
        pem_certificates, suites, system_roots,
    };
    #[pymodule_export]
    use crate::decrypt::decrypt_private_key;
    #[pymodule_export]
    use crate::errors::alert_reason;
    #[pymodule_export]
    use crate::owner::note_fork;
    #[pymodule_export]
    use crate::session::Session;

    #[pymodule_export]
    const OUTPUT: u8 = crate::session::OUTPUT;
    #[pymodule_export]
    const ESTABLISHED: u8 = crate::session::ESTABLISHED;
    #[pymodule_export]
    const CLIENT_HELLO: u8 = crate::session::CLIENT_HELLO;
    #[pymodule_export]
    const ENDED: u8 = crate::session::ENDED;
}
