//! The name by which an address was looked up.

use jni::objects::{JObject, JString};
use jni::{Env, jni_sig, jni_str};

use crate::exceptions::{Error, none_pending};

/// Reads `InetAddress.holder.originalHostName`.
pub(crate) fn original_host_name<'local>(
    env: &mut Env<'local>,
    address: &JObject<'_>,
) -> Result<JString<'local>, Error> {
    let found = private_field(env, address);
    // Another JDK may not have the fields.
    none_pending(env);
    Ok(found.unwrap_or_else(|_| JString::null()))
}

fn private_field<'local>(
    env: &mut Env<'local>,
    address: &JObject<'_>,
) -> Result<JString<'local>, jni::errors::Error> {
    let holder = env.get_field(
        address,
        jni_str!("holder"),
        jni_sig!("Ljava/net/InetAddress$InetAddressHolder;"),
    )?;
    let name = env.get_field(
        &holder.l()?,
        jni_str!("originalHostName"),
        jni_sig!("Ljava/lang/String;"),
    )?;
    let name = name.l()?;
    match name.is_null() {
        true => Ok(JString::null()),
        false => env.cast_local::<JString<'_>>(name),
    }
}
