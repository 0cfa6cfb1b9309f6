//! The functions on a connection that JavaScript calls: bytes in, bytes out. Connections are numbers; see `table`.

use std::cell::RefCell;
use std::sync::Arc;

use dormouse_embed::at_rest::Received;
use dormouse_embed::{
    AlertDescription, End, Event, HandshakeInfo, HandshakeLimits, NamedSuite, Session,
    SessionError, UnixTime, openssl_reason,
};
use napi::Env;
use napi::bindgen_prelude::BufferSlice;
use napi_derive::napi;

use crate::client_session::{self, OneSession};
use crate::contexts::{ClientContext, ServerContext};
use crate::details::{Details, TrustedIssuers};
use crate::errors::{self, Result};
use crate::table::{self, Connection};
use crate::{ends, exported, judge, key_log};

/// Flag in the result of [`receive`]: there is output to send.
const OUTPUT: u32 = 1;
/// The handshake is done.
const ESTABLISHED: u32 = 2;
/// The ClientHello has arrived: `decide` or `refuse` continues.
const CLIENT_HELLO: u32 = 4;
/// The peer's direction has ended; `end` says how.
const ENDED: u32 = 8;
/// A session has arrived that a later connection can resume.
const SESSION: u32 = 16;
/// There are lines for `keylog`.
const KEY_LOG: u32 = 32;
/// The plaintext is longer than the input; `take_plaintext` returns it.
const SPILLED: u32 = 64;
/// The plaintext's length is in the bits above these.
const FOUND_BITS: u32 = 7;

/// Size of the plaintext buffer that a thread keeps.
const SCRATCH_MAX: usize = 256 * 1024;

thread_local! {
    /// Plaintext of the current call.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Starts a connection with a client.
#[napi]
pub fn accept(context: &ServerContext) -> Result<u32> {
    table::insert(Connection::new(Session::accept(&context.context)))
}

/// Starts a connection with a client whose context depends on its ClientHello.
#[napi]
pub fn listen() -> Result<u32> {
    let session = Session::listen(HandshakeLimits::default());
    table::insert(Connection::new(session))
}

/// Starts a connection with the server `name`. The first `receive`, without input, creates the ClientHello.
///
/// With a context that resumes, `offered` is the session to resume, or empty.
#[napi]
pub fn connect(context: &ClientContext, name: String, offered: Option<&[u8]>) -> Result<u32> {
    let session = Session::connect(&context.context, &name).map_err(errors::settings)?;
    let mut connection = Connection::new(session);
    if let Some(offered) = offered {
        let offered = match offered {
            [] => None,
            bytes => client_session::read(bytes, &name)?,
        };
        let offered = offered.filter(|offered| match offered.problem {
            0 => true,
            // A resumed server shows no certificate, so only a full handshake lets JavaScript check its name.
            judge::WRONG_NAME => false,
            _ => !context.rejects,
        });
        connection.problem = offered.as_ref().map_or(0, |offered| offered.problem);
        let one = Arc::new(OneSession::new(
            name,
            offered.map(|offered| offered.session),
        ));
        connection.session.keep_sessions(Arc::clone(&one) as _);
        connection.rare().resumption = Some(one);
    }
    table::insert(connection)
}

/// A connection from another process.
#[napi(object)]
pub struct Restored {
    /// Its number here.
    pub number: u32,
    /// The flags that JavaScript gave to `export_connection`.
    pub flags: u8,
}

/// Continues an exported connection. Its bytes can be used once.
#[napi]
pub fn restore(bytes: &[u8]) -> Result<Restored> {
    let (connection, flags) = exported::read(bytes)?;
    let number = table::insert(connection)?;
    Ok(Restored { number, flags })
}

/// Ends a connection here and returns the bytes with which it continues elsewhere. They are secret. `flags`:
/// JavaScript's own, which `restore` returns.
#[napi]
pub fn export_connection<'env>(
    env: &'env Env,
    number: u32,
    flags: u8,
) -> Result<BufferSlice<'env>> {
    let bytes = table::with(number, |connection| exported::write(connection, flags))?;
    table::release(number);
    buffer(env, &bytes)
}

/// Drops a connection and wipes its secrets.
#[napi]
pub fn release(number: u32) {
    table::release(number);
}

/// Takes bytes of the peer, split anywhere: the first `len` of `input`. Puts the plaintext at their start. Returns
/// flags, and above them the plaintext's length.
#[napi]
pub fn receive(number: u32, mut input: BufferSlice<'_>, len: u32) -> Result<u32> {
    let input = input
        .get_mut(..len as usize)
        .ok_or_else(|| errors::argument(format!("{len} bytes of a shorter buffer")))?;
    table::with_keys(number, |connection, keys| {
        let (session, now) = (&mut connection.session, UnixTime::now());
        let received = keys.receive_at_rest(number.into(), session, now, input);
        match received.map_err(errors::session)? {
            Some(received) => finish_in_place(connection, now, input, received),
            None => receive_in_flight(connection, now, input),
        }
    })
}

/// After complete records were opened in place.
fn finish_in_place(
    connection: &mut Connection,
    now: UnixTime,
    input: &mut [u8],
    received: Received,
) -> Result<u32> {
    let rest = input.get_mut(received.consumed..).unwrap_or_default();
    if !rest.is_empty() {
        // The start of a record, which the session keeps.
        let kept = connection.session.feed(now, rest, |_| {});
        kept.map_err(errors::session)?;
    }
    let mut found = with_len(0, received.plaintext_len);
    if let Some(end) = received.end {
        note_end(connection, end);
        found |= ENDED;
    }
    if !connection.session.output().is_empty() {
        found |= OUTPUT;
    }
    Ok(found)
}

/// Keeps the first end: a connection that has failed reports another one in each later call.
fn note_end(connection: &mut Connection, end: End) {
    connection.rare().end.get_or_insert(end);
}

/// During the handshake, and after the start of a record.
fn receive_in_flight(connection: &mut Connection, now: UnixTime, input: &mut [u8]) -> Result<u32> {
    let mut plaintext = SCRATCH.take();
    plaintext.clear();
    let fed = feed(connection, now, input, &mut plaintext);
    let result = fed.map(|found| hand_over(connection, input, &plaintext, found));
    if plaintext.capacity() <= SCRATCH_MAX {
        SCRATCH.set(plaintext);
    }
    result
}

/// A read is 64 KiB long; `seal` and JavaScript keep inputs below 2^25.
fn with_len(found: u32, plaintext_len: usize) -> u32 {
    found | (plaintext_len as u32) << FOUND_BITS
}

fn hand_over(connection: &mut Connection, input: &mut [u8], plaintext: &[u8], found: u32) -> u32 {
    match input.get_mut(..plaintext.len()) {
        Some(start) => {
            start.copy_from_slice(plaintext);
            with_len(found, plaintext.len())
        }
        None => {
            connection.rare().plaintext = plaintext.to_vec();
            found | SPILLED
        }
    }
}

fn feed(
    connection: &mut Connection,
    now: UnixTime,
    input: &mut [u8],
    plaintext: &mut Vec<u8>,
) -> Result<u32> {
    let (mut info, mut hello, mut end) = (None, None, None);
    let fed = connection.session.feed(now, input, |event| match event {
        Event::ClientHello(found) => hello = Some(found),
        Event::Established(found) => info = Some(found),
        Event::Data(bytes) => plaintext.extend_from_slice(bytes),
        Event::Ended(found) => end = Some(found),
    });
    if let Some(found) = judge::take_found() {
        connection.problem = found.problem;
        // The other details come at the handshake's end.
        let issuers = found.issuers.map(TrustedIssuers);
        connection.details = Details {
            issuers,
            ..Details::default()
        }
        .shared();
    }
    let lines = key_log::take_lines();
    fed.map_err(errors::session)?;
    let mut found = 0;
    if let Some(info) = info {
        note(connection, *info);
        found |= ESTABLISHED;
    }
    if let Some(hello) = hello {
        connection.rare().hello = Some(hello);
        found |= CLIENT_HELLO;
    }
    if let Some(end) = end {
        note_end(connection, end);
        found |= ENDED;
    }
    if !lines.is_empty() {
        connection.rare().key_log = lines;
        found |= KEY_LOG;
    }
    if let Some(rare) = connection.rare.as_deref()
        && let Some(resumption) = &rare.resumption
        && resumption.has_received()
    {
        found |= SESSION;
    }
    if !connection.session.output().is_empty() {
        found |= OUTPUT;
    }
    Ok(found)
}

/// Keeps the results of the handshake.
fn note(connection: &mut Connection, info: HandshakeInfo) {
    connection.suite = NamedSuite::number(info.suite);
    connection.is_resumed = info.resumed;
    if let Some(exporter) = info.exporter {
        connection.rare().exporter = Some(exporter);
    }
    let judged = connection.details.take();
    let details = Details {
        issuers: judged.and_then(|judged| judged.issuers.clone()),
        server_name: info.sni,
        alpn: info.alpn,
        group: info.group.map(str::to_owned),
        peer: info.peer_certificates,
    };
    connection.details = details.shared();
}

/// Takes plaintext that `receive` could not put into its input.
#[napi]
pub fn take_plaintext<'env>(env: &'env Env, number: u32) -> Result<BufferSlice<'env>> {
    let plaintext = table::with(number, |connection| {
        Ok(std::mem::take(&mut connection.rare().plaintext))
    })?;
    buffer(env, &plaintext)
}

/// Handles the end of the transport. Returns whether everything arrived. After the end of our direction
/// (`has_finished`) many servers close without close_notify; only the middle of a record is then no proper end.
#[napi]
pub fn receive_eof(number: u32, has_finished: bool) -> Result<bool> {
    table::with(number, |connection| {
        let is_between_records = connection.session.unopened().is_empty();
        let end = connection.session.eof().map_err(errors::session)?;
        let is_clean = match end {
            End::Truncated => has_finished && is_between_records,
            _ => end.is_clean(),
        };
        note_end(connection, end);
        Ok(is_clean)
    })
}

/// Takes the bytes to send to the peer.
#[napi]
pub fn take_output<'env>(env: &'env Env, number: u32) -> Result<BufferSlice<'env>> {
    table::with(number, |connection| output(env, connection))
}

fn output<'env>(env: &'env Env, connection: &mut Connection) -> Result<BufferSlice<'env>> {
    let bytes = connection.session.take_output();
    buffer(env, &bytes)
}

/// Seals plaintext into `output`, after all earlier output. Returns the length to send; 0: `output` is too
/// small, and nothing has changed.
#[napi]
pub fn seal(number: u32, plaintext: &[u8], mut output: BufferSlice<'_>) -> Result<u32> {
    table::with_keys(number, |connection, keys| {
        let session = &mut connection.session;
        match keys.seal_into(number.into(), session, plaintext, &mut output) {
            Ok(len) => u32::try_from(len).map_err(errors::argument),
            Err(SessionError::BufferTooSmall { .. }) => Ok(0),
            Err(error) => Err(errors::session(error)),
        }
    })
}

/// Returns the room that `seal` needs.
#[napi]
pub fn sealed_len(number: u32, plaintext_len: u32) -> Result<f64> {
    table::with(number, |connection| {
        Ok(connection.session.sealed_len(plaintext_len as usize) as f64)
    })
}

/// Ends our direction with close_notify. Returns the bytes to send.
#[napi]
pub fn close<'env>(env: &'env Env, number: u32) -> Result<BufferSlice<'env>> {
    table::with(number, |connection| {
        connection.session.close().map_err(errors::session)?;
        output(env, connection)
    })
}

/// The server name and the protocols that a client requests.
#[napi(object)]
pub struct Hello {
    /// The server name.
    pub servername: Option<String>,
    /// Application protocols, a character for each byte.
    pub protocols: Vec<String>,
}

/// Returns the client's request, after `CLIENT_HELLO`.
#[napi]
pub fn client_hello(number: u32) -> Result<Option<Hello>> {
    table::with(number, |connection| {
        let hello = connection.rare().hello.take();
        Ok(hello.map(|hello| Hello {
            servername: hello.server_name,
            protocols: hello.alpn.iter().map(|name| text(name)).collect(),
        }))
    })
}

fn text(latin1: &[u8]) -> String {
    latin1.iter().copied().map(char::from).collect()
}

/// Continues with this context, after `CLIENT_HELLO`. Call `receive` next.
#[napi]
pub fn decide(number: u32, context: &ServerContext) -> Result<()> {
    table::with(number, |connection| {
        let decided = connection.session.decide(&context.context);
        decided.map_err(errors::session)
    })
}

/// Refuses the client with this alert, after `CLIENT_HELLO`. Call `receive` next.
#[napi]
pub fn refuse(number: u32, alert: u8) -> Result<()> {
    let why = AlertDescription::error_from_code(alert).ok_or_else(|| {
        errors::argument(format!(
            "{alert} is not an error alert (RFC 8446 section 6.2)"
        ))
    })?;
    table::with(number, |connection| {
        connection.session.refuse(why).map_err(errors::session)
    })
}

/// Client: whether the connection keeps memory for sessions that may still arrive.
#[napi]
pub fn awaits_sessions(number: u32) -> Result<bool> {
    table::with(number, |connection| Ok(connection.session.awaits_tickets()))
}

/// Client: ignores sessions that arrive later.
#[napi]
pub fn ignore_sessions(number: u32) -> Result<()> {
    table::with(number, |connection| {
        connection.session.ignore_tickets();
        Ok(())
    })
}

/// Client: takes the newest session that has arrived. It is secret.
#[napi]
pub fn take_session<'env>(env: &'env Env, number: u32) -> Result<Option<BufferSlice<'env>>> {
    let session = table::with(number, |connection| {
        let problem = connection.problem;
        let resumption = connection
            .rare
            .as_deref()
            .and_then(|rare| rare.resumption.as_ref());
        let taken = resumption.and_then(|one| one.take_received(problem));
        if let Some(rare) = connection.rare.as_deref_mut()
            && !connection.session.awaits_tickets()
        {
            rare.resumption = None;
        }
        Ok(taken)
    })?;
    session.map(|bytes| buffer(env, &bytes)).transpose()
}

/// Takes the lines for `keylog`.
#[napi]
pub fn take_key_log(number: u32) -> Result<Vec<String>> {
    table::with(number, |connection| {
        Ok(std::mem::take(&mut connection.rare().key_log))
    })
}

/// How the peer's direction ended.
#[napi(object)]
pub struct Ending {
    /// The kind of end; see `ends`.
    pub kind: String,
    /// The same in words.
    pub reason: String,
    /// The alert, received or sent.
    pub alert: Option<u8>,
    /// OpenSSL's reason for the alert.
    pub alert_reason: Option<String>,
}

/// Returns how the peer's direction ended.
#[napi]
pub fn end(number: u32) -> Result<Option<Ending>> {
    table::with(number, |connection| {
        let rare = connection.rare.as_deref();
        Ok(rare.and_then(|rare| rare.end.as_ref()).map(|end| Ending {
            kind: ends::kind(end).to_owned(),
            reason: end.to_string(),
            alert: end.alert(),
            alert_reason: end.alert().map(openssl_reason),
        }))
    })
}

/// Returns OpenSSL's name for the problem with the peer's certificate.
#[napi]
pub fn problem(number: u32) -> Result<Option<&'static str>> {
    table::with(number, |connection| Ok(judge::name(connection.problem)))
}

/// Returns whether nothing of the connection is in the heap, besides its entry in the table.
#[napi]
pub fn is_at_rest(number: u32) -> Result<bool> {
    table::with(number, |connection| {
        Ok(connection.session.is_at_rest() && connection.rare.is_none())
    })
}

/// Returns whether an earlier session was resumed.
#[napi]
pub fn is_resumed(number: u32) -> Result<bool> {
    table::with(number, |connection| Ok(connection.is_resumed))
}

/// Returns the protocol; `None` before the handshake is done.
#[napi]
pub fn protocol(number: u32) -> Result<Option<&'static str>> {
    table::with(number, |connection| {
        let state = connection.session.state();
        Ok((!state.is_empty()).then(|| state.version().name()))
    })
}

/// Returns the suite's names: IANA's, OpenSSL's.
#[napi]
pub fn suite(number: u32) -> Result<Option<Vec<&'static str>>> {
    table::with(number, |connection| {
        let suite = NamedSuite::numbered(connection.suite);
        Ok(suite.map(|suite| vec![suite.iana, suite.openssl]))
    })
}

/// Returns the key exchange group.
#[napi]
pub fn group(number: u32) -> Result<Option<String>> {
    details(number, |details| details.group.clone())
}

/// Returns the application protocol.
#[napi]
pub fn alpn(number: u32) -> Result<Option<String>> {
    details(number, |details| details.alpn.as_deref().map(text))
}

/// Returns the server name that the client sent, or that we requested.
#[napi]
pub fn server_name(number: u32) -> Result<Option<String>> {
    details(number, |details| details.server_name.clone())
}

fn details<T>(number: u32, look: impl FnOnce(&Details) -> Option<T>) -> Result<Option<T>> {
    table::with(number, |connection| {
        Ok(connection.details.as_deref().and_then(look))
    })
}

/// Returns the peer's certificates, DER, its own first.
#[napi]
pub fn peer_certificates<'env>(env: &'env Env, number: u32) -> Result<Vec<BufferSlice<'env>>> {
    let chain = details(number, |details| Some(details.peer.clone()))?.unwrap_or_default();
    chain.iter().map(|der| buffer(env, der)).collect()
}

/// Returns the issuers of a certificate, DER, of those that the connection trusts, up to one that has issued itself.
#[napi]
pub fn trusted_issuers<'env>(
    env: &'env Env,
    number: u32,
    certificate: &[u8],
) -> Result<Vec<BufferSlice<'env>>> {
    let found = details(number, |details| {
        let issuers = details.issuers.as_ref()?.0.issuers_of(certificate);
        Some(issuers.into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>())
    })?;
    let found = found.unwrap_or_default();
    found.iter().map(|der| buffer(env, der)).collect()
}

/// Derives `len` bytes from the connection's secrets (RFC 8446 §7.5, RFC 5705).
#[napi]
pub fn export_keying_material<'env>(
    env: &'env Env,
    number: u32,
    len: u32,
    label: String,
    context: Option<&[u8]>,
) -> Result<Option<BufferSlice<'env>>> {
    const LEN_MAX: u32 = 8_160;
    let exporter = table::with(number, |connection| {
        let rare = connection.rare.as_deref();
        Ok(rare.and_then(|rare| rare.exporter.clone()))
    })?;
    let Some(exporter) = exporter else {
        return Ok(None);
    };
    let mut output = zeroize::Zeroizing::new(vec![0; len.min(LEN_MAX + 1) as usize]);
    let exported = exporter.export(label.as_bytes(), context, &mut output);
    exported.map_err(errors::argument)?;
    buffer(env, &output).map(Some)
}

fn buffer<'env>(env: &'env Env, bytes: &[u8]) -> Result<BufferSlice<'env>> {
    BufferSlice::copy_from(env, bytes).map_err(errors::node)
}
