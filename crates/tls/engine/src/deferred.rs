//! Signatures that are made elsewhere, while the handshake waits.
//!
//! rustls signs within a call and cannot wait. So the first attempt of a handshake ends at the signature. Until there,
//! everything that it drew is kept: random bytes, key exchanges, a session. Once the signature has arrived, a second
//! rustls connection gets the same bytes and draws the same, up to the same signature, and continues. That it asks for
//! the signature of the same message is checked, so an attempt that differs fails. A second attempt costs parsing and
//! hashing again, but no key exchange.

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use rustls::crypto::{
    ActiveKeyExchange, CompletedKeyExchange, GetRandomFailed, SecureRandom, SharedSecret,
    SupportedKxGroup, aws_lc_rs,
};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, ProtocolVersion};
use zeroize::Zeroizing;

use crate::call_scope::{Facts, Subject, if_in_scope};
use crate::signing_scheme::SigningScheme;

/// A signature that a handshake waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureRequest {
    /// The caller's name of the key ([`Identity::with_deferred_key`](crate::Identity::with_deferred_key)).
    pub key: Arc<str>,
    /// How to sign.
    pub scheme: SigningScheme,
    /// What to sign: the message's digest ([`SigningScheme::digest`]).
    pub digest: Vec<u8>,
}

/// What a handshake with a deferred signature has drawn, and its signature.
#[derive(Default)]
pub(crate) struct Deferred {
    draws: Vec<Draw>,
    /// How many of them the second attempt has drawn. `None`: this is the first attempt.
    drawn: Option<usize>,
    /// What the first attempt could not sign.
    pub(crate) wanted: Option<SignatureRequest>,
    signature: Vec<u8>,
}

impl Facts for Deferred {
    const SUBJECT: Subject = Subject::DeferredSignature;
}

/// Something that differs from call to call.
enum Draw {
    Random(Zeroizing<Vec<u8>>),
    Exchange(Arc<Exchange>),
    Completed {
        pub_key: Vec<u8>,
        secret: Zeroizing<Vec<u8>>,
    },
    Session(Option<(u64, Zeroizing<Vec<u8>>)>),
    Hint(Option<NamedGroup>),
}

impl Deferred {
    /// Begins the second attempt.
    pub(crate) fn sign_with(&mut self, signature: Vec<u8>) {
        self.drawn = Some(0);
        self.signature = signature;
    }
}

/// Signs with the key of a [`SignatureRequest`]: the first attempt ends here, the second gets the signature.
pub(crate) fn sign(request: SignatureRequest) -> Result<Vec<u8>, Error> {
    let signed = if_in_scope(|deferred: &mut Deferred| match &deferred.wanted {
        None => {
            deferred.wanted = Some(request);
            Err("it is signed elsewhere")
        }
        Some(wanted) if *wanted == request && deferred.drawn.is_some() => {
            Ok(std::mem::take(&mut deferred.signature))
        }
        Some(_) => Err("the second attempt of the handshake differs from the first"),
    });
    let signed = signed.unwrap_or(Err("its key signs only in handshakes that can wait"));
    signed.map_err(|why| Error::General(format!("no signature: {why}")))
}

/// Returns what the first attempt drew here, if this is the second one.
fn drawn<T>(read: impl FnOnce(&Draw) -> Option<T>) -> Option<T> {
    let next = if_in_scope(|deferred: &mut Deferred| {
        let drawn = deferred.drawn.as_mut()?;
        let draw = deferred.draws.get(*drawn)?;
        *drawn += 1;
        read(draw)
    });
    next.flatten()
}

/// Keeps what the first attempt has drawn.
fn keep(draw: impl FnOnce() -> Draw) {
    if_in_scope(|deferred: &mut Deferred| {
        if deferred.drawn.is_none() {
            deferred.draws.push(draw());
        }
    });
}

/// Whether what is drawn is kept.
fn is_kept() -> bool {
    if_in_scope(|_: &mut Deferred| ()).is_some()
}

/// Draws a session of a client, with the number of its chain.
pub(crate) fn session(
    take: impl FnOnce() -> Option<(u64, Zeroizing<Vec<u8>>)>,
) -> Option<(u64, Zeroizing<Vec<u8>>)> {
    let kept = drawn(|draw| match draw {
        Draw::Session(session) => Some(session.clone()),
        _ => None,
    });
    kept.unwrap_or_else(|| {
        let session = take();
        keep(|| Draw::Session(session.clone()));
        session
    })
}

/// Draws the group that a server has chosen before, which other connections may change.
pub(crate) fn hint(read: impl FnOnce() -> Option<NamedGroup>) -> Option<NamedGroup> {
    let kept = drawn(|draw| match draw {
        Draw::Hint(group) => Some(*group),
        _ => None,
    });
    kept.unwrap_or_else(|| {
        let group = read();
        keep(|| Draw::Hint(group));
        group
    })
}

/// Returns the library's source of random bytes, which keeps them for a second attempt.
pub(crate) fn random() -> &'static dyn SecureRandom {
    static RANDOM: LazyLock<KeptRandom> =
        LazyLock::new(|| KeptRandom(aws_lc_rs::default_provider().secure_random));
    &*RANDOM
}

#[derive(Debug)]
struct KeptRandom(&'static dyn SecureRandom);

impl SecureRandom for KeptRandom {
    fn fill(&self, room: &mut [u8]) -> Result<(), GetRandomFailed> {
        let kept = drawn(|draw| match draw {
            Draw::Random(bytes) => Some(bytes.clone()),
            _ => None,
        });
        match kept.filter(|bytes| bytes.len() == room.len()) {
            Some(bytes) => room.copy_from_slice(&bytes),
            None => {
                self.0.fill(room)?;
                keep(|| Draw::Random(Zeroizing::new(room.to_vec())));
            }
        }
        Ok(())
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

/// A group whose exchanges are kept for a second attempt.
#[derive(Debug)]
pub(crate) struct KeptGroup(pub(crate) &'static dyn SupportedKxGroup);

impl SupportedKxGroup for KeptGroup {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        if !is_kept() {
            return self.0.start();
        }
        let kept = drawn(|draw| match draw {
            Draw::Exchange(exchange) => Some(Arc::clone(exchange)),
            _ => None,
        });
        let exchange = match kept {
            Some(exchange) => exchange,
            None => {
                let exchange = Arc::new(Exchange::new(self.0.start()?));
                keep(|| Draw::Exchange(Arc::clone(&exchange)));
                exchange
            }
        };
        Ok(Box::new(KeptExchange(exchange)))
    }

    fn start_and_complete(&self, peer_pub_key: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let kept = drawn(|draw| match draw {
            Draw::Completed { pub_key, secret } => Some(CompletedKeyExchange {
                group: self.0.name(),
                pub_key: pub_key.clone(),
                secret: SharedSecret::from(&secret[..]),
            }),
            _ => None,
        });
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let completed = self.0.start_and_complete(peer_pub_key)?;
        keep(|| Draw::Completed {
            pub_key: completed.pub_key.clone(),
            secret: Zeroizing::new(completed.secret.secret_bytes().to_vec()),
        });
        Ok(completed)
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        self.0.ffdhe_group()
    }

    fn name(&self) -> NamedGroup {
        self.0.name()
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        self.0.usable_for_version(version)
    }
}

/// A key exchange that both attempts have.
struct Exchange {
    group: NamedGroup,
    pub_key: Vec<u8>,
    /// The share of a hybrid's classical half.
    component: Option<(NamedGroup, Vec<u8>)>,
    state: Mutex<ExchangeState>,
}

enum ExchangeState {
    Active(Box<dyn ActiveKeyExchange>),
    Completed(Zeroizing<Vec<u8>>),
    Failed,
}

impl Exchange {
    fn new(active: Box<dyn ActiveKeyExchange>) -> Exchange {
        let component = active.hybrid_component();
        Exchange {
            group: active.group(),
            pub_key: active.pub_key().to_vec(),
            component: component.map(|(group, share)| (group, share.to_vec())),
            state: Mutex::new(ExchangeState::Active(active)),
        }
    }

    /// Completes the exchange, or returns the secret that the first attempt got.
    fn complete(
        &self,
        complete: impl FnOnce(Box<dyn ActiveKeyExchange>) -> Result<SharedSecret, Error>,
    ) -> Result<SharedSecret, Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let secret = match std::mem::replace(&mut *state, ExchangeState::Failed) {
            ExchangeState::Active(active) => {
                Zeroizing::new(complete(active)?.secret_bytes().to_vec())
            }
            ExchangeState::Completed(secret) => secret,
            ExchangeState::Failed => {
                return Err(Error::General("a key exchange has failed".to_owned()));
            }
        };
        let shared = SharedSecret::from(&secret[..]);
        *state = ExchangeState::Completed(secret);
        Ok(shared)
    }
}

struct KeptExchange(Arc<Exchange>);

impl ActiveKeyExchange for KeptExchange {
    fn complete(self: Box<Self>, peer_pub_key: &[u8]) -> Result<SharedSecret, Error> {
        self.0.complete(|active| active.complete(peer_pub_key))
    }

    fn hybrid_component(&self) -> Option<(NamedGroup, &[u8])> {
        let component = self.0.component.as_ref();
        component.map(|(group, share)| (*group, share.as_slice()))
    }

    fn complete_hybrid_component(
        self: Box<Self>,
        peer_pub_key: &[u8],
    ) -> Result<SharedSecret, Error> {
        (self.0).complete(|active| active.complete_hybrid_component(peer_pub_key))
    }

    fn pub_key(&self) -> &[u8] {
        &self.0.pub_key
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        self.0.group
    }
}

impl fmt::Debug for KeptExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptExchange")
    }
}
