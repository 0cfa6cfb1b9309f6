//! A TLS connection of a Java engine: records in, records out.

use dormouse_embed::{
    AlertDescription, BATCH_START, ClientContext, ClientHello, End, Event, FailureKind,
    HandshakeInfo, ServerContext, Session, UnixTime, Version, alert_name,
};
use jni::objects::{JByteArray, JObject, JString};
use jni::sys::{jint, jlong};
use jni::{Env, JValue, jni_sig, jni_str};
use zeroize::Zeroizing;

use crate::buffers::{Room, with_scratch};
use crate::engine_calls::{byte_arrays, on_behalf_of};
use crate::exceptions::{Error, session_error, settings_error};
use crate::handle;

/// Bit of the result of [`open`]: there is output for the peer.
pub(crate) const OUTPUT_WAITS: jlong = 1 << 32;
/// Bit of the result of [`open_in_place`]: there is output for the peer.
pub(crate) const BATCH_OUTPUT_WAITS: jlong = 1 << 62;
/// Bits of the lower one of two lengths in a result.
pub(crate) const LENGTH_BITS: u32 = 31;

/// Starts a connection to a server.
pub(crate) fn connect(
    env: &mut Env<'_>,
    context: jlong,
    name: &JString<'_>,
) -> Result<Session, Error> {
    let context = handle::copy_of::<ClientContext>(context).ok_or_else(released)?;
    Session::connect(&context, &name.try_to_string(env)?).map_err(settings_error)
}

/// Continues with a context. `alpn` may be null.
pub(crate) fn decide(
    env: &mut Env<'_>,
    connection: jlong,
    context: jlong,
    alpn: &JByteArray<'_>,
) -> Result<(), Error> {
    let mut context = handle::copy_of::<ServerContext>(context).ok_or_else(released)?;
    if !alpn.is_null() {
        let alpn = env.convert_byte_array(alpn)?;
        context = context.with_alpn(vec![alpn]).map_err(settings_error)?;
    }
    handle::with(connection, |one: &mut Session| {
        one.decide(&context).map_err(session_error)
    })
}

/// Refuses the client.
pub(crate) fn refuse(connection: &mut Session, alert: jint) -> Result<(), Error> {
    let alert = u8::try_from(alert)
        .ok()
        .and_then(AlertDescription::error_from_code)
        .ok_or_else(|| {
            Error::Misuse(format!(
                "{alert} is not an error alert (RFC 8446 section 6.2)"
            ))
        })?;
    connection.refuse(alert).map_err(session_error)
}

/// Continues an exported connection.
pub(crate) fn restore(env: &mut Env<'_>, exported: &JByteArray<'_>) -> Result<Session, Error> {
    let bytes = Zeroizing::new(env.convert_byte_array(exported)?);
    Session::import(&bytes).map_err(|error| Error::Ssl(error.to_string()))
}

fn released() -> Error {
    Error::Misuse("the context is released".to_owned())
}

/// Events of one call that are reported to Java.
#[derive(Default)]
struct Found {
    hello: Option<ClientHello>,
    info: Option<Box<HandshakeInfo>>,
    end: Option<End>,
}

/// Handles the bytes in `source`, usually one record.
pub(crate) fn open(
    env: &mut Env<'_>,
    connection: &mut Session,
    engine: &JObject<'_>,
    source: &Room<'_>,
    target: &Room<'_>,
) -> Result<jlong, Error> {
    let mut found = Found::default();
    let plaintext_len = with_scratch(source.len(), |scratch| {
        source.read(env, scratch)?;
        let mut written = Ok(0);
        let is_handshaking = connection.is_handshaking();
        let env = &*env;
        let mut feed = || {
            connection.feed(UnixTime::now(), scratch, |event| match event {
                Event::ClientHello(hello) => found.hello = Some(hello),
                Event::Established(info) => found.info = Some(info),
                Event::Data(bytes) => {
                    if let Ok(offset) = written {
                        written = target
                            .write(env, offset, bytes)
                            .map(|()| offset + bytes.len());
                    }
                }
                Event::Ended(end) => found.end = Some(end),
            })
        };
        let fed = match is_handshaking {
            true => on_behalf_of(env, engine, feed)?,
            false => feed(),
        };
        fed.map_err(session_error)?;
        written
    })?;
    found.tell(env, engine)?;
    let output = match connection.output().is_empty() {
        true => 0,
        false => OUTPUT_WAITS,
    };
    Ok(plaintext_len as jlong | output)
}

impl Found {
    /// Calls the engine's method for each event.
    fn tell(self, env: &mut Env<'_>, engine: &JObject<'_>) -> Result<(), Error> {
        if let Some(hello) = self.hello {
            tell_hello(env, engine, &hello)?;
        }
        if let Some(info) = self.info {
            tell_established(env, engine, &info)?;
        }
        if let Some(end) = self.end {
            tell_ended(env, engine, &end)?;
        }
        Ok(())
    }
}

/// `void clientHello(String serverName, byte[][] alpn)`
fn tell_hello(env: &mut Env<'_>, engine: &JObject<'_>, hello: &ClientHello) -> Result<(), Error> {
    let name = match &hello.server_name {
        Some(name) => env.new_string(name)?,
        None => JString::null(),
    };
    let alpn = byte_arrays(env, &hello.alpn)?;
    env.call_method(
        engine,
        jni_str!("clientHello"),
        jni_sig!("(Ljava/lang/String;[[B)V"),
        &[JValue::Object(&name), JValue::Object(&alpn)],
    )?;
    Ok(())
}

/// `void established(boolean tls13, String suite, byte[] alpn, String signature, boolean sentOwn, byte[][] peer)`
fn tell_established(
    env: &mut Env<'_>,
    engine: &JObject<'_>,
    info: &HandshakeInfo,
) -> Result<(), Error> {
    let suite = env.new_string(info.suite)?;
    let alpn = match &info.alpn {
        Some(name) => env.byte_array_from_slice(name)?,
        None => JByteArray::null(),
    };
    let signature = match info.signature {
        Some(name) => env.new_string(name)?,
        None => JString::null(),
    };
    let peer = byte_arrays(env, &info.peer_certificates)?;
    env.call_method(
        engine,
        jni_str!("established"),
        jni_sig!("(ZLjava/lang/String;[BLjava/lang/String;Z[[B)V"),
        &[
            JValue::Bool(info.protocol == Version::Tls13),
            JValue::Object(&suite),
            JValue::Object(&alpn),
            JValue::Object(&signature),
            JValue::Bool(info.own_certificate_sent),
            JValue::Object(&peer),
        ],
    )?;
    Ok(())
}

/// `void ended(int kind, int alert, String reason)`; the kinds are those of `dormouse.PeerEnd`.
fn tell_ended(env: &mut Env<'_>, engine: &JObject<'_>, end: &End) -> Result<(), Error> {
    let (kind, alert) = match end {
        End::Closed => (0, 0),
        End::Truncated => (1, 0),
        End::Alert(alert) => (2, *alert),
        End::Refused(refusal) => (3, refusal.answer().description.code()),
        End::Handshake(failure) => match failure.kind {
            FailureKind::PeerAlert(alert) => (2, alert),
            _ => (4, 0),
        },
    };
    let reason = match kind {
        2 => env.new_string(alert_name(alert))?,
        _ => env.new_string(end.to_string())?,
    };
    env.call_method(
        engine,
        jni_str!("ended"),
        jni_sig!("(IILjava/lang/String;)V"),
        &[
            JValue::Int(kind),
            JValue::Int(jint::from(alert)),
            JValue::Object(&reason),
        ],
    )?;
    Ok(())
}

/// Opens the complete records of a buffer that the caller owns.
pub(crate) fn open_in_place(
    env: &mut Env<'_>,
    connection: &mut Session,
    engine: &JObject<'_>,
    records: &Room<'_>,
) -> Result<jlong, Error> {
    let received = records.in_place(env, |records| {
        connection.receive_at_rest(UnixTime::now(), records)
    })?;
    let Some(received) = received.map_err(session_error)? else {
        return Ok(-1);
    };
    if let Some(end) = &received.end {
        tell_ended(env, engine, end)?;
    }
    let output = match connection.output().is_empty() {
        true => 0,
        false => BATCH_OUTPUT_WAITS,
    };
    Ok(two_lengths(received.consumed, received.plaintext_len) | output)
}

/// `DormouseEngine.contentAt` computes with this number.
const _: () = assert!(BATCH_START == 32);

/// Seals plaintext that lies in a buffer that the caller owns.
pub(crate) fn seal_in_place(
    env: &mut Env<'_>,
    connection: &mut Session,
    batch: &Room<'_>,
    plaintext_len: jint,
) -> Result<jlong, Error> {
    let plaintext_len = usize::try_from(plaintext_len)
        .map_err(|_| Error::Misuse(format!("{plaintext_len} bytes of plaintext")))?;
    let records = batch.in_place(env, |batch| connection.seal_batch(batch, plaintext_len))?;
    let records = records.map_err(session_error)?;
    Ok(two_lengths(records.start, records.end))
}

/// Both are lengths of Java's, which have 31 bits.
fn two_lengths(upper: usize, lower: usize) -> jlong {
    (upper as jlong) << LENGTH_BITS | lower as jlong
}

/// Seals all of `source`, at most a record, into `target`.
pub(crate) fn seal(
    env: &mut Env<'_>,
    connection: &mut Session,
    source: &Room<'_>,
    target: &Room<'_>,
) -> Result<jint, Error> {
    let need = connection.sealed_len(source.len());
    if need > target.len() {
        return Ok(missing_room(need));
    }
    with_scratch(connection.batch_len(source.len()), |batch| {
        let content = connection.content_range(0).start;
        let content = batch.get_mut(content..content + source.len());
        source.read(env, content.unwrap_or_default())?;
        let records = connection
            .seal_batch(batch, source.len())
            .map_err(session_error)?;
        target.write(env, 0, batch.get(records.clone()).unwrap_or_default())?;
        Ok(jint::try_from(records.len()).unwrap_or(jint::MAX))
    })
}

/// Moves output to `target`, cut between records.
pub(crate) fn drain(
    env: &mut Env<'_>,
    connection: &mut Session,
    target: &Room<'_>,
) -> Result<jint, Error> {
    let output = connection.output();
    let mut len = 0;
    while len < output.len() {
        let next = len + record_len(output.get(len..).unwrap_or_default());
        if next > target.len() {
            if len == 0 {
                return Ok(missing_room(next));
            }
            break;
        }
        len = next;
    }
    target.write(env, 0, output.get(..len).unwrap_or_default())?;
    connection.output_sent(len);
    Ok(jint::try_from(len).unwrap_or(jint::MAX))
}

/// Length of the first record of our own output, which consists of whole records.
fn record_len(output: &[u8]) -> usize {
    match output {
        [_, _, _, high, low, ..] => {
            (5 + usize::from(u16::from_be_bytes([*high, *low]))).min(output.len())
        }
        _ => output.len(),
    }
}

fn missing_room(need: usize) -> jint {
    -jint::try_from(need).unwrap_or(jint::MAX)
}
