//! A TLS connection of the Python half.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, TryLockError};

use dormouse_embed::{
    AlertDescription, End, Event, HandshakeInfo, HandshakeLimits, NamedSuite, Role, SessionError,
    UnixTime,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use zeroize::Zeroize as _;

use crate::contexts::{ClientContext, ServerContext};
use crate::errors;
use crate::exported::{self, Facts};
use crate::owner::Owner;
use crate::peer_chain::PeerChain;

/// Flag in the result of [`Session::receive`]: there is output to send.
pub(crate) const OUTPUT: u8 = 1;
/// The handshake is done.
pub(crate) const ESTABLISHED: u8 = 2;
/// The ClientHello has arrived: `decide` or `refuse` continues.
pub(crate) const CLIENT_HELLO: u8 = 4;
/// The peer's direction has ended; `end` says how.
pub(crate) const ENDED: u8 = 8;

/// Calls with more bytes than this release the interpreter. For fewer, releasing it costs more than the work.
const DETACH_MIN: usize = 32 * 1024;
/// Scratch memory that a thread keeps.
const SCRATCH_MAX: usize = 512 * 1024;

thread_local! {
    /// Ciphertext that is opened in place, and plaintext, of the current call. All connections of the thread share it.
    static SCRATCH: RefCell<(Vec<u8>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

/// A TLS connection: bytes in, bytes out.
///
/// At rest it consists of this object alone. Only one thread at a time may use it.
#[pyclass(frozen, module = "dormouse._native")]
pub(crate) struct Session {
    owner: Owner,
    inner: Mutex<Inner>,
}

/// The part that only one thread at a time may use.
struct Inner {
    session: dormouse_embed::Session,
    end: Option<Box<End>>,
    hello: Option<Box<dormouse_embed::ClientHello>>,
    facts: Facts,
}

/// The results of one call.
#[derive(Default)]
struct Found {
    info: Option<Box<HandshakeInfo>>,
    hello: Option<Box<dormouse_embed::ClientHello>>,
    end: Option<End>,
}

impl Session {
    fn new(session: dormouse_embed::Session, facts: Facts) -> Session {
        Session {
            owner: Owner::this_process(),
            inner: Mutex::new(Inner {
                session,
                end: None,
                hello: None,
                facts,
            }),
        }
    }

    /// For calls that change the session. Another thread gets an error, and does not touch data that the owner may be
    /// using.
    fn enter(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Inner>> {
        self.owner.check(py)?;
        self.look(py)
    }

    fn look(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Inner>> {
        match self.inner.try_lock() {
            Ok(inner) => Ok(inner),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(errors::misuse(
                py,
                "another thread uses the connection at this moment",
            )),
        }
    }
}

impl Inner {
    fn feed(&mut self, py: Python<'_>, input: &mut [u8], plaintext: &mut Vec<u8>) -> PyResult<u8> {
        let mut found = Found::default();
        let session = &mut self.session;
        let detaches = session.is_handshaking() || input.len() >= DETACH_MIN;
        let mut feed = || {
            session.feed(UnixTime::now(), input, |event| match event {
                Event::ClientHello(hello) => found.hello = Some(Box::new(hello)),
                Event::Established(info) => found.info = Some(info),
                Event::Data(bytes) => plaintext.extend_from_slice(bytes),
                Event::Ended(end) => found.end = Some(end),
            })
        };
        let fed = if detaches { py.detach(feed) } else { feed() };
        fed.map_err(|error| errors::session(py, error))?;
        Ok(self.note(py, found))
    }

    fn note(&mut self, py: Python<'_>, found: Found) -> u8 {
        let mut signals = 0;
        if let Some(info) = found.info {
            self.facts = Facts::of(py, *info);
            signals |= ESTABLISHED;
        }
        if let Some(hello) = found.hello {
            self.hello = Some(hello);
            signals |= CLIENT_HELLO;
        }
        if let Some(end) = found.end {
            self.end = Some(Box::new(end));
            signals |= ENDED;
        }
        if !self.session.output().is_empty() {
            signals |= OUTPUT;
        }
        signals
    }

    fn take_output<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let output = PyBytes::new(py, self.session.output());
        self.session.output_sent(output.as_bytes().len());
        output
    }

    /// Runs an action on the session, and returns the bytes to send.
    fn sending<'py>(
        &mut self,
        py: Python<'py>,
        work: impl FnOnce(&mut dormouse_embed::Session) -> Result<(), SessionError>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        work(&mut self.session).map_err(|error| errors::session(py, error))?;
        Ok(self.take_output(py))
    }
}

/// The alert of this number, if it ends a connection with an error.
fn alert(code: u8) -> PyResult<AlertDescription> {
    AlertDescription::error_from_code(code).ok_or_else(|| {
        PyValueError::new_err(format!(
            "{code} is not an error alert (RFC 8446 section 6.2)"
        ))
    })
}

#[pymethods]
impl Session {
    /// A session with a client that has just connected.
    #[staticmethod]
    fn accept(context: &ServerContext) -> Session {
        let session = dormouse_embed::Session::accept(&context.context);
        Session::new(session, Facts::default())
    }

    /// A session with a client whose ClientHello chooses the context.
    #[staticmethod]
    fn listen() -> Session {
        let session = dormouse_embed::Session::listen(HandshakeLimits::default());
        Session::new(session, Facts::default())
    }

    /// A session with the server `server_name`. The first `receive`, without input, creates the ClientHello.
    #[staticmethod]
    fn connect(py: Python<'_>, context: &ClientContext, server_name: &str) -> PyResult<Session> {
        let session = dormouse_embed::Session::connect(&context.context, server_name);
        let session = session.map_err(|error| errors::settings(py, error))?;
        Ok(Session::new(session, Facts::default()))
    }

    /// Continues an exported session. Its bytes may be used once.
    #[staticmethod]
    fn restore(py: Python<'_>, exported: &[u8]) -> PyResult<Session> {
        let (session, facts) = exported::read(py, exported)?;
        Ok(Session::new(session, facts))
    }

    /// Restricts the session to the calling thread.
    fn pin(&self) {
        self.owner.pin();
    }

    /// Takes bytes of the peer, split anywhere. Returns plaintext and flags.
    fn receive<'py>(&self, py: Python<'py>, data: &[u8]) -> PyResult<(Bound<'py, PyBytes>, u8)> {
        let mut inner = self.enter(py)?;
        let (mut input, mut plaintext) = SCRATCH.take();
        input.clear();
        input.extend_from_slice(data);
        plaintext.clear();
        let fed = inner.feed(py, &mut input, &mut plaintext);
        let bytes = PyBytes::new(py, &plaintext);
        if input.capacity().max(plaintext.capacity()) <= SCRATCH_MAX {
            SCRATCH.set((input, plaintext));
        } else {
            plaintext.zeroize();
        }
        Ok((bytes, fed?))
    }

    /// Handles the end of the transport. Afterwards `end` says whether everything has arrived.
    fn receive_eof(&self, py: Python<'_>) -> PyResult<()> {
        let mut inner = self.enter(py)?;
        let end = inner.session.eof();
        inner.end = Some(Box::new(end.map_err(|error| errors::session(py, error))?));
        Ok(())
    }

    /// Takes the bytes to send to the peer.
    fn take_output<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(self.enter(py)?.take_output(py))
    }

    /// Seals plaintext. Returns the bytes to send, after all earlier output.
    fn seal<'py>(&self, py: Python<'py>, plaintext: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let mut inner = self.enter(py)?;
        let session = &mut inner.session;
        if session.is_handshaking() || session.state().owes_key_update() {
            // The length is not known beforehand.
            return inner.sending(py, |session| session.send(plaintext));
        }
        PyBytes::new_with(py, session.sealed_len(plaintext.len()), |output| {
            let mut seal = || session.seal_into(plaintext, output);
            let sealed = match plaintext.len() >= DETACH_MIN {
                true => py.detach(&mut seal),
                false => seal(),
            };
            sealed.map(drop).map_err(|error| errors::session(py, error))
        })
    }

    /// Ends our direction with close_notify. Returns the bytes to send.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.enter(py)?.sending(py, dormouse_embed::Session::close)
    }

    /// Aborts the connection with a fatal alert. Returns the bytes to send.
    fn abort<'py>(&self, py: Python<'py>, why: u8) -> PyResult<Bound<'py, PyBytes>> {
        let why = alert(why)?;
        self.enter(py)?.sending(py, |session| session.abort(why))
    }

    /// Replaces the key of our direction (TLS 1.3). Returns the bytes to send.
    fn update_keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.enter(py)?
            .sending(py, dormouse_embed::Session::update_keys)
    }

    /// After `CLIENT_HELLO`: the server name that the client requests, and the protocols that it offers.
    fn client_hello(&self, py: Python<'_>) -> PyResult<Option<(Option<String>, Vec<String>)>> {
        let inner = self.look(py)?;
        Ok(inner.hello.as_ref().map(|hello| {
            let alpn = hello.alpn.iter();
            let alpn = alpn.map(|name| String::from_utf8_lossy(name).into_owned());
            (hello.server_name.clone(), alpn.collect())
        }))
    }

    /// After `CLIENT_HELLO`: continues with this context. Call `receive` next.
    fn decide(&self, py: Python<'_>, context: &ServerContext) -> PyResult<()> {
        let mut inner = self.enter(py)?;
        inner.hello = None;
        let decided = inner.session.decide(&context.context);
        decided.map_err(|error| errors::session(py, error))
    }

    /// After `CLIENT_HELLO`: refuses the client with this alert. Call `receive` next.
    fn refuse(&self, py: Python<'_>, why: u8) -> PyResult<()> {
        let why = alert(why)?;
        let mut inner = self.enter(py)?;
        inner.hello = None;
        let refused = inner.session.refuse(why);
        refused.map_err(|error| errors::session(py, error))
    }

    /// Client: whether the session keeps memory for tickets that may still arrive.
    fn awaits_tickets(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.look(py)?.session.awaits_tickets())
    }

    /// Client: ignores tickets that arrive later.
    fn ignore_tickets(&self, py: Python<'_>) -> PyResult<()> {
        self.enter(py)?.session.ignore_tickets();
        Ok(())
    }

    /// Ends the session here, and returns the bytes with which it continues elsewhere, once. They are secret.
    fn export<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let mut inner = self.enter(py)?;
        let exported = inner.session.export();
        let exported = exported.map_err(|error| errors::session(py, error))?;
        Ok(exported::write(py, &exported, &inner.facts))
    }

    /// Whether the session consists of this object alone, with nothing in the heap.
    #[getter]
    fn is_at_rest(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.look(py)?.session.is_at_rest())
    }

    #[getter]
    fn is_handshaking(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.look(py)?.session.is_handshaking())
    }

    #[getter]
    fn is_client(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.look(py)?.session.state().role() == Role::Client)
    }

    /// Whether nothing more can be sent.
    #[getter]
    fn is_closed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.look(py)?.session.state().closed())
    }

    #[getter]
    fn is_resumed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.look(py)?.facts.is_resumed)
    }

    /// How the peer's direction ended: the kind, a description, the alert, and OpenSSL's number for the problem with
    /// the peer's certificate.
    #[getter]
    fn end(&self, py: Python<'_>) -> PyResult<Option<EndFacts>> {
        let inner = self.look(py)?;
        Ok(inner.end.as_deref().map(|end| {
            let (kind, verify_code) = errors::kind_of(end);
            (kind, end.to_string(), end.alert(), verify_code)
        }))
    }

    /// The protocol: `TLSv1.2` or `TLSv1.3`.
    #[getter]
    fn version(&self, py: Python<'_>) -> PyResult<Option<&'static str>> {
        Ok(version(&self.look(py)?.session))
    }

    /// The cipher suite: OpenSSL's name, the protocol, the bits of its key.
    #[getter]
    fn cipher(&self, py: Python<'_>) -> PyResult<Option<(&'static str, &'static str, u16)>> {
        let inner = self.look(py)?;
        let suite = NamedSuite::numbered(inner.facts.suite);
        Ok(suite
            .zip(version(&inner.session))
            .map(|(suite, version)| (suite.openssl, version, suite.key_bits())))
    }

    /// The application protocol.
    #[getter]
    fn alpn(&self, py: Python<'_>) -> PyResult<Option<Py<PyString>>> {
        let inner = self.look(py)?;
        Ok(inner.facts.alpn.as_ref().map(|name| name.clone_ref(py)))
    }

    /// The certificates that the peer sent, DER, its own first.
    #[getter]
    fn peer_certificates<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let chain = self.look(py)?.facts.peer.clone();
        let chain = chain.as_deref().map(PeerChain::certificates);
        let chain = chain.unwrap_or_default().iter();
        PyTuple::new(py, chain.map(|der| PyBytes::new(py, der)))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let inner = self.look(py)?;
        Ok(match &inner.end {
            Some(end) => format!("<dormouse Session, ended: {end}>"),
            None if inner.session.is_handshaking() => "<dormouse Session, handshaking>".to_owned(),
            None => "<dormouse Session>".to_owned(),
        })
    }
}

/// Kind, description, alert, number of the certificate's problem.
type EndFacts = (&'static str, String, Option<u8>, i32);

fn version(session: &dormouse_embed::Session) -> Option<&'static str> {
    let state = session.state();
    (!state.is_empty()).then(|| state.version().name())
}
