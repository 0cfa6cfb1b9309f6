//! The native half of the Java package `dormouse`: contexts and connections, without sockets.
//!
//! | | |
//! |---|---|
//! | `lib` | the native methods of the class `dormouse.Native` |
//! | `contexts` | identities, and settings of servers and clients, prepared once |
//! | `connection` | a connection: records in, records out |
//! | `engine_calls` | calls from a handshake to Java: trust, signatures |
//! | `addresses` | the name by which an address was looked up |
//! | `buffers` | bytes of Java's arrays and direct buffers |
//! | `handle` | objects that Java holds as a `long` |
//! | `exceptions` | errors as exceptions |
//!
//! The rules of `SSLEngine` are kept by the Java half (`src/main/java/dormouse`). It locks an engine during
//! each call, so no connection is used by two threads at once.
#![deny(unsafe_code)]

mod addresses;
mod buffers;
mod connection;
mod contexts;
mod engine_calls;
mod exceptions;
mod handle;

use dormouse_embed::{ClientContext, Identity, ServerContext, Session};
use jni::objects::{JByteArray, JByteBuffer, JClass, JLongArray, JObject, JString};
use jni::sys::{jboolean, jint, jlong};
use jni::{EnvUnowned, jni_mangle};

use crate::buffers::Room;
use crate::contexts::{Certificates, ClientChoices, Common, ServerChoices};
use crate::exceptions::{Throw, session_error};

/// An identity with a key that Java passes, PKCS #8.
#[jni_mangle("dormouse.Native")]
pub fn identity<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    chain: Certificates<'local>,
    key: JByteArray<'local>,
    name: JString<'local>,
) -> jlong {
    env.with_env(|env| contexts::identity(env, &chain, &key, &name).map(handle::give))
        .resolve::<Throw>()
}

/// An identity whose key stays in Java: `signer` is a `dormouse.KeySigner`.
#[jni_mangle("dormouse.Native")]
pub fn identity_of_signer<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    chain: Certificates<'local>,
    signer: JObject<'local>,
    name: JString<'local>,
) -> jlong {
    env.with_env(|env| contexts::identity_of_signer(env, &chain, &signer, &name).map(handle::give))
        .resolve::<Throw>()
}

/// The context that the connections of a server share. `client_certificates`: 0 none, 1 wanted, 2 required.
#[jni_mangle("dormouse.Native")]
pub fn server_context<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    identities: JLongArray<'local>,
    versions: jint,
    suites: jint,
    client_certificates: jint,
    authorities: Certificates<'local>,
    ticket_lifetime_s: jint,
) -> jlong {
    env.with_env(|env| {
        let common = Common { versions, suites };
        let choices = ServerChoices {
            client_certificates,
            ticket_lifetime_s,
        };
        contexts::server(env, &identities, &common, &choices, &authorities).map(handle::give)
    })
    .resolve::<Throw>()
}

/// The context that the connections of a client share. `identity` may be 0.
#[jni_mangle("dormouse.Native")]
pub fn client_context<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    identity: jlong,
    versions: jint,
    suites: jint,
    alpn: Certificates<'local>,
    sessions_max: jint,
) -> jlong {
    env.with_env(|env| {
        let common = Common { versions, suites };
        let choices = ClientChoices {
            identity: handle::copy_of::<Identity>(identity),
            sessions_max,
        };
        contexts::client(env, choices, &common, &alpn).map(handle::give)
    })
    .resolve::<Throw>()
}

/// Frees an identity. Contexts that use it keep a reference.
#[jni_mangle("dormouse.Native")]
pub fn free_identity(_env: EnvUnowned<'_>, _class: JClass<'_>, identity: jlong) {
    handle::free::<Identity>(identity);
}

/// Frees a server's context. Its connections keep a reference.
#[jni_mangle("dormouse.Native")]
pub fn free_server_context(_env: EnvUnowned<'_>, _class: JClass<'_>, context: jlong) {
    handle::free::<ServerContext>(context);
}

/// Frees a client's context. Its connections keep a reference.
#[jni_mangle("dormouse.Native")]
pub fn free_client_context(_env: EnvUnowned<'_>, _class: JClass<'_>, context: jlong) {
    handle::free::<ClientContext>(context);
}

/// Frees a connection and wipes its secrets.
#[jni_mangle("dormouse.Native")]
pub fn free_connection(_env: EnvUnowned<'_>, _class: JClass<'_>, connection: jlong) {
    handle::free_connection(connection);
}

/// A connection with a client whose context Java chooses after its ClientHello.
#[jni_mangle("dormouse.Native")]
pub fn listen(_env: EnvUnowned<'_>, _class: JClass<'_>) -> jlong {
    handle::give_connection(Session::listen(Default::default()))
}

/// A connection to the server `name`. The first `open`, without input, creates the ClientHello.
#[jni_mangle("dormouse.Native")]
pub fn connect<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    context: jlong,
    name: JString<'local>,
) -> jlong {
    env.with_env(|env| connection::connect(env, context, &name).map(handle::give_connection))
        .resolve::<Throw>()
}

/// Continues with this context, after the ClientHello, and with this application protocol if there is one.
#[jni_mangle("dormouse.Native")]
pub fn decide<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    connection: jlong,
    context: jlong,
    alpn: JByteArray<'local>,
) {
    env.with_env(|env| connection::decide(env, connection, context, &alpn))
        .resolve::<Throw>()
}

/// Refuses a client with this alert, after its ClientHello.
#[jni_mangle("dormouse.Native")]
pub fn refuse<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    connection: jlong,
    alert: jint,
) {
    env.with_env(|_| handle::with(connection, |one| connection::refuse(one, alert)))
        .resolve::<Throw>()
}

/// Handles bytes of the peer. Plaintext goes to the target. Returns its length, plus [`connection::OUTPUT_WAITS`].
///
/// In each pair of array and buffer, one is null.
#[jni_mangle("dormouse.Native")]
pub fn open<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    connection: jlong,
    engine: JObject<'local>,
    source_array: JByteArray<'local>,
    source_buffer: JByteBuffer<'local>,
    source_at: jint,
    source_len: jint,
    target_array: JByteArray<'local>,
    target_buffer: JByteBuffer<'local>,
    target_at: jint,
    target_len: jint,
) -> jlong {
    env.with_env(|env| {
        let source = Room::new(source_array, source_buffer, source_at, source_len)?;
        let target = Room::new(target_array, target_buffer, target_at, target_len)?;
        handle::with(connection, |one| {
            connection::open(env, one, &engine, &source, &target)
        })
    })
    .resolve::<Throw>()
}

/// Seals plaintext into the target. Returns the length; or the required room, as a negative number.
#[jni_mangle("dormouse.Native")]
pub fn seal<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    connection: jlong,
    source_array: JByteArray<'local>,
    source_buffer: JByteBuffer<'local>,
    source_at: jint,
    source_len: jint,
    target_array: JByteArray<'local>,
    target_buffer: JByteBuffer<'local>,
    target_at: jint,
    target_len: jint,
) -> jint {
    env.with_env(|env| {
        let source = Room::new(source_array, source_buffer, source_at, source_len)?;
        let target = Room::new(target_array, target_buffer, target_at, target_len)?;
        handle::with(connection, |one| {
            connection::seal(env, one, &source, &target)
        })
    })
    .resolve::<Throw>()
}

/// Opens the complete records of a direct buffer in place. Returns the length of the plaintext, above it the length of
/// the records, and [`connection::BATCH_OUTPUT_WAITS`]; or -1 if the connection is not at rest.
#[jni_mangle("dormouse.Native")]
pub fn open_in_place<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    connection: jlong,
    engine: JObject<'local>,
    records: JByteBuffer<'local>,
    at: jint,
    len: jint,
) -> jlong {
    env.with_env(|env| {
        let records = Room::new(JByteArray::null(), records, at, len)?;
        handle::with(connection, |one| {
            connection::open_in_place(env, one, &engine, &records)
        })
    })
    .resolve::<Throw>()
}

/// Seals plaintext that lies in a direct buffer, in place. Returns the end of the records, and above it their
/// beginning.
#[jni_mangle("dormouse.Native")]
pub fn seal_in_place<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    connection: jlong,
    batch: JByteBuffer<'local>,
    at: jint,
    len: jint,
    plaintext_len: jint,
) -> jlong {
    env.with_env(|env| {
        let batch = Room::new(JByteArray::null(), batch, at, len)?;
        handle::with(connection, |one| {
            connection::seal_in_place(env, one, &batch, plaintext_len)
        })
    })
    .resolve::<Throw>()
}

/// Moves whole records of the output to the target. Returns their length; or the room that the first one needs, as a
/// negative number.
#[jni_mangle("dormouse.Native")]
pub fn drain<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    connection: jlong,
    target_array: JByteArray<'local>,
    target_buffer: JByteBuffer<'local>,
    target_at: jint,
    target_len: jint,
) -> jint {
    env.with_env(|env| {
        let target = Room::new(target_array, target_buffer, target_at, target_len)?;
        handle::with(connection, |one| connection::drain(env, one, &target))
    })
    .resolve::<Throw>()
}

/// Length of the output for the peer.
#[jni_mangle("dormouse.Native")]
pub fn output_len<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    connection: jlong,
) -> jint {
    env.with_env(|_| {
        handle::with(connection, |one| {
            Ok(jint::try_from(one.output().len()).unwrap_or(jint::MAX))
        })
    })
    .resolve::<Throw>()
}

/// Ends our direction with close_notify, which is then in the output.
#[jni_mangle("dormouse.Native")]
pub fn close<'local>(mut env: EnvUnowned<'local>, _class: JClass<'local>, connection: jlong) {
    env.with_env(|_| handle::with(connection, |one| one.close().map_err(session_error)))
        .resolve::<Throw>()
}

/// TLS 1.3: replaces the key of our direction. The message that tells the peer is then in the output.
#[jni_mangle("dormouse.Native")]
pub fn update_keys<'local>(mut env: EnvUnowned<'local>, _class: JClass<'local>, connection: jlong) {
    env.with_env(|_| handle::with(connection, |one| one.update_keys().map_err(session_error)))
        .resolve::<Throw>()
}

/// Client: ignores tickets that arrive later, so that the handshake's memory can be freed.
#[jni_mangle("dormouse.Native")]
pub fn ignore_tickets<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    connection: jlong,
) {
    env.with_env(|_| {
        handle::with(connection, |one| {
            one.ignore_tickets();
            Ok(())
        })
    })
    .resolve::<Throw>()
}

/// Whether the connection consists only of its state.
#[jni_mangle("dormouse.Native")]
pub fn is_at_rest<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    connection: jlong,
) -> jboolean {
    env.with_env(|_| handle::with(connection, |one| Ok(one.is_at_rest())))
        .resolve::<Throw>()
}

/// Ends the connection here and returns the bytes with which it continues elsewhere, once. They are secret.
#[jni_mangle("dormouse.Native")]
pub fn export<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    connection: jlong,
) -> JByteArray<'local> {
    env.with_env(|env| {
        let bytes = handle::with(connection, |one| one.export().map_err(session_error))?;
        Ok(env.byte_array_from_slice(&bytes)?)
    })
    .resolve::<Throw>()
}

/// Continues an exported connection.
#[jni_mangle("dormouse.Native")]
pub fn restore<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    exported: JByteArray<'local>,
) -> jlong {
    env.with_env(|env| connection::restore(env, &exported).map(handle::give_connection))
        .resolve::<Throw>()
}

/// The name by which a program has looked up an address: the JDK's private field `originalHostName`, which no reverse
/// lookup changes. Null if there is none, or if this JDK keeps it elsewhere.
#[jni_mangle("dormouse.Native")]
pub fn original_host_name<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    address: JObject<'local>,
) -> JString<'local> {
    env.with_env(|env| addresses::original_host_name(env, &address))
        .resolve::<Throw>()
}
