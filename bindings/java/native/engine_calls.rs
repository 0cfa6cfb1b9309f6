//! Calls from a handshake to Java: to verify the peer, and to sign with keys that stay in Java.
//!
//! The engine calls its hooks on the thread of [`open`](crate::open). Both methods of Java catch every
//! exception themselves and return the reason.

use std::cell::RefCell;

use dormouse_embed::{
    AlertDescription, CertificateRefusal, JudgeCertificate, ShownCertificates, Sign, SigningScheme,
};
use jni::objects::{JByteArray, JObject, JObjectArray, JString};
use jni::refs::Global;
use jni::sys::jint;
use jni::{Env, JValue, JavaVM, jni_sig, jni_str};

use crate::exceptions::{Error, none_pending};

thread_local! {
    /// The engine whose handshake this thread performs.
    static CALLER: RefCell<Option<Global<JObject<'static>>>> = const { RefCell::new(None) };
}

/// Lets hooks find the engine while `work` runs. A hook may itself perform a handshake.
pub(crate) fn on_behalf_of<R>(
    env: &Env<'_>,
    engine: &JObject<'_>,
    work: impl FnOnce() -> R,
) -> Result<R, Error> {
    let engine = env.new_global_ref(engine)?;
    let before = CALLER.replace(Some(engine));
    let result = work();
    CALLER.set(before);
    Ok(result)
}

/// Leaves the decision to the engine's TrustManager.
#[derive(Debug)]
pub(crate) struct TrustManager;

impl JudgeCertificate for TrustManager {
    fn judge(&self, shown: &ShownCertificates<'_>) -> Result<(), CertificateRefusal> {
        let engine = CALLER.take();
        let judged = match &engine {
            Some(engine) => ask_trust_manager(engine.as_obj(), shown.chain),
            None => Err(unavailable("no engine").into()),
        };
        CALLER.set(engine);
        judged
    }
}

/// `String judge(byte[][] chain)`: null, or why the peer is not trusted. Then `int refusalAlert()` is the alert.
fn ask_trust_manager(engine: &JObject<'_>, chain: &[&[u8]]) -> Result<(), CertificateRefusal> {
    in_java(|env| {
        let chain = byte_arrays(env, chain)?;
        let why = env.call_method(
            engine,
            jni_str!("judge"),
            jni_sig!("([[B)Ljava/lang/String;"),
            &[JValue::Object(&chain)],
        )?;
        let why = why.l()?;
        if why.is_null() {
            return Ok(Ok(()));
        }
        let reason = env.cast_local::<JString<'_>>(why)?.try_to_string(env)?;
        let alert = env.call_method(engine, jni_str!("refusalAlert"), jni_sig!("()I"), &[])?;
        let alert = u8::try_from(alert.i()?).ok();
        Ok(Err(CertificateRefusal {
            reason,
            alert: alert.and_then(AlertDescription::error_from_code),
        }))
    })?
}

/// A key that stays in Java, a `dormouse.KeySigner`.
#[derive(Debug)]
pub(crate) struct JavaKey(pub(crate) Global<JObject<'static>>);

impl Sign for JavaKey {
    /// `byte[] sign(int scheme, byte[] message)`: null if it failed; the engine then knows why.
    fn sign(&self, scheme: SigningScheme, message: &[u8]) -> Result<Vec<u8>, String> {
        in_java(|env| {
            let message = env.byte_array_from_slice(message)?;
            let signature = env.call_method(
                self.0.as_obj(),
                jni_str!("sign"),
                jni_sig!("(I[B)[B"),
                &[
                    JValue::Int(jint::from(scheme.code())),
                    JValue::Object(&message),
                ],
            )?;
            let signature = signature.l()?;
            if signature.is_null() {
                return Ok(Err(format!(
                    "its provider cannot sign with {}",
                    scheme.name()
                )));
            }
            let signature = env.cast_local::<JByteArray<'_>>(signature)?;
            Ok(Ok(env.convert_byte_array(&signature)?))
        })?
    }
}

fn in_java<R>(
    work: impl FnOnce(&mut Env<'_>) -> Result<R, jni::errors::Error>,
) -> Result<R, String> {
    let vm = JavaVM::singleton().map_err(unavailable)?;
    vm.attach_current_thread(|env| {
        let result = work(env);
        none_pending(env);
        result
    })
    .map_err(unavailable)
}

fn unavailable(why: impl std::fmt::Display) -> String {
    format!("the call to Java failed: {why}")
}

/// Makes a `byte[][]`.
pub(crate) fn byte_arrays<'local, T: AsRef<[u8]>>(
    env: &mut Env<'local>,
    all: &[T],
) -> Result<JObjectArray<'local, JByteArray<'local>>, jni::errors::Error> {
    let array = JObjectArray::<JByteArray<'_>>::new(env, all.len(), JByteArray::null())?;
    for (at, bytes) in all.iter().enumerate() {
        let bytes = env.byte_array_from_slice(bytes.as_ref())?;
        array.set_element(env, at, &bytes)?;
        env.delete_local_ref(bytes);
    }
    Ok(array)
}
