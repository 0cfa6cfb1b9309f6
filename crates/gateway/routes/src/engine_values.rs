//! Conversion of option values to the engine's types.

use dormouse_config::{SpiffeRule, TlsGroup, TlsSuite, TlsVersion};
use dormouse_engine::{Group, JudgeCertificate, ServerIds, Suite, Version};
use std::sync::Arc;

pub(crate) fn suite(suite: TlsSuite) -> Suite {
    match suite {
        TlsSuite::Aes128Gcm => Suite::Aes128Gcm,
        TlsSuite::Aes256Gcm => Suite::Aes256Gcm,
        TlsSuite::Chacha20 => Suite::Chacha20,
        TlsSuite::EcdsaAes128Gcm => Suite::EcdsaAes128Gcm,
        TlsSuite::EcdsaAes256Gcm => Suite::EcdsaAes256Gcm,
        TlsSuite::EcdsaChacha20 => Suite::EcdsaChacha20,
        TlsSuite::RsaAes128Gcm => Suite::RsaAes128Gcm,
        TlsSuite::RsaAes256Gcm => Suite::RsaAes256Gcm,
        TlsSuite::RsaChacha20 => Suite::RsaChacha20,
    }
}

pub(crate) fn group(group: TlsGroup) -> Group {
    match group {
        TlsGroup::X25519MlKem768 => Group::X25519MlKem768,
        TlsGroup::X25519 => Group::X25519,
        TlsGroup::P256 => Group::P256,
        TlsGroup::P384 => Group::P384,
    }
}

pub(crate) fn alpn(names: &[String]) -> Vec<Vec<u8>> {
    names.iter().map(|name| name.as_bytes().to_vec()).collect()
}

pub(crate) fn version(version: TlsVersion) -> Version {
    match version {
        TlsVersion::Tls12 => Version::Tls12,
        TlsVersion::Tls13 => Version::Tls13,
    }
}

/// What accepts servers by their SPIFFE ids, whatever their names are.
pub(crate) fn judge_of_ids(ids: &[SpiffeRule]) -> Arc<dyn JudgeCertificate> {
    Arc::new(ServerIds(ids.iter().map(SpiffeRule::rule).collect()))
}
