//! A session as bytes: the properties that Python reports, and its state.
//!
//! ```text
//! | version 1 | suite 1 | resumed 1 | ALPN's length 1 | ALPN | certificates 1 | length 4, DER | … | session |
//! ```
//!
//! Lengths are little-endian. The session, which comes last, has 128 bytes if it is at rest.

use std::sync::Arc;

use dormouse_embed::{HandshakeInfo, NamedSuite, Session};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use zeroize::Zeroizing;

use crate::peer_chain::PeerChain;

const VERSION: u8 = 1;

/// The results of the handshake that Python may request later.
#[derive(Default)]
pub(crate) struct Facts {
    pub(crate) alpn: Option<Py<PyString>>,
    pub(crate) peer: Option<Arc<PeerChain>>,
    pub(crate) suite: u8,
    pub(crate) is_resumed: bool,
}

impl Facts {
    pub(crate) fn of(py: Python<'_>, info: HandshakeInfo) -> Facts {
        let alpn = info.alpn.as_deref().map(String::from_utf8_lossy);
        Facts {
            alpn: alpn.map(|name| PyString::intern(py, &name).unbind()),
            peer: PeerChain::of(info.peer_certificates),
            suite: NamedSuite::number(info.suite),
            is_resumed: info.resumed,
        }
    }
}

/// Returns the session as bytes.
pub(crate) fn write<'py>(py: Python<'py>, session: &[u8], facts: &Facts) -> Bound<'py, PyBytes> {
    let alpn = facts.alpn.as_ref().map(|name| name.to_string());
    let alpn = alpn.unwrap_or_default();
    let chain = facts
        .peer
        .as_deref()
        .map(PeerChain::certificates)
        .unwrap_or_default();
    // Allocated at full size: a growing vector would leave secrets behind.
    let room =
        5 + alpn.len() + chain.iter().map(|der| 4 + der.len()).sum::<usize>() + session.len();
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    bytes.extend([VERSION, facts.suite, u8::from(facts.is_resumed)]);
    // ALPN names have at most 255 bytes (RFC 7301), and the engine accepts no longer chain.
    bytes.push(alpn.len() as u8);
    bytes.extend(alpn.as_bytes());
    let chain = chain.get(..chain.len().min(255)).unwrap_or_default();
    bytes.push(chain.len() as u8);
    for der in chain {
        bytes.extend((der.len() as u32).to_le_bytes());
        bytes.extend(der);
    }
    bytes.extend(session);
    PyBytes::new(py, &bytes)
}

/// Reads bytes from [`write`], which may be from another version of this package.
pub(crate) fn read(py: Python<'_>, bytes: &[u8]) -> PyResult<(Session, Facts)> {
    match bytes.first() {
        Some(&VERSION) => {}
        Some(other) => {
            return Err(PyValueError::new_err(format!(
                "the exported connection has version {other}; this package reads version {VERSION}"
            )));
        }
        None => return Err(truncated(bytes)),
    }
    let (facts, session) = facts(py, bytes).ok_or_else(|| truncated(bytes))?;
    let session = Session::import(session)
        .map_err(|error| PyValueError::new_err(format!("the exported connection: {error}")))?;
    Ok((session, facts))
}

fn facts<'a>(py: Python<'_>, bytes: &'a [u8]) -> Option<(Facts, &'a [u8])> {
    let ([_, suite, resumed, alpn_len], rest) = bytes.split_first_chunk()?;
    let (alpn, rest) = rest.split_at_checked(usize::from(*alpn_len))?;
    let alpn = std::str::from_utf8(alpn).ok()?;
    let (count, mut rest) = rest.split_first()?;
    let mut chain = Vec::new();
    for _ in 0..*count {
        let (len, behind) = rest.split_first_chunk()?;
        let (der, behind) = behind.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        chain.push(der.to_vec());
        rest = behind;
    }
    let facts = Facts {
        alpn: (!alpn.is_empty()).then(|| PyString::intern(py, alpn).unbind()),
        peer: PeerChain::of(chain),
        suite: *suite,
        is_resumed: *resumed != 0,
    };
    Some((facts, rest))
}

fn truncated(bytes: &[u8]) -> PyErr {
    PyValueError::new_err(format!(
        "{} bytes are not an exported connection",
        bytes.len()
    ))
}
