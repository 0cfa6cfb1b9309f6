//! X25519 agreements of several handshakes, computed together before the handshakes need them.
//!
//! A server knows the client's share as soon as the ClientHello has arrived, and its answer needs two results of X25519:
//! a key pair of its own, and the secret that this pair and the client's share make. [`AgreementBatches::prepare`] computes
//! them for up to eight waiting clients with the instructions of one (`dormouse_x25519`).
//!
//! A prepared agreement belongs to one handshake: [`Handshake::use_agreement`](crate::Handshake::use_agreement) puts it into
//! the handshake's scope, and only a call of that handshake can take it from there, once, and only for the share that it
//! was made for. Otherwise AWS-LC computes the agreement, as in a handshake without one. Each agreement has a private key
//! of its own, which is wiped when the batch is done; the secret is wiped when it was used, or dropped.

use std::fmt;
use std::sync::LazyLock;

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey, X25519};
use dormouse_x25519::{BASE_POINTS, Batch, EightLanes, LANES};
use rustls::crypto::aws_lc_rs::kx_group;
use rustls::crypto::{
    ActiveKeyExchange, CompletedKeyExchange, SecureRandom, SharedSecret, SupportedKxGroup,
};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, ProtocolVersion};
use zeroize::Zeroizing;

use crate::call_scope::{Facts, Subject, if_in_scope};
use crate::client_hello::key_share::ClientShare;
use crate::deferred;

/// Length of a client's share for ML-KEM-768, which comes before that for X25519 in their hybrid.
const ML_KEM_SHARE_LEN: usize = 1184;

/// Computes agreements together.
#[derive(Clone, Copy, Debug)]
pub struct AgreementBatches {
    /// `None`: AWS-LC computes one after the other.
    lanes: Option<EightLanes>,
}

/// Why agreements are not computed together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoBatches {
    /// The CPU has no AVX-512 IFMA.
    CpuLacksIfma,
    /// A result differed from that of AWS-LC.
    Disagrees,
}

impl fmt::Display for NoBatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoBatches::CpuLacksIfma => "the CPU has no AVX-512 IFMA",
            NoBatches::Disagrees => "a result differs from that of AWS-LC",
        })
    }
}

/// A client's agreement, with the public key that the client is to receive.
pub struct PreparedAgreement {
    share: ClientShare,
    public_key: [u8; 32],
    secret: Zeroizing<[u8; 32]>,
}

impl PreparedAgreement {
    /// Returns the public key that the client receives, if the agreement is used.
    pub fn public_key(&self) -> &[u8; 32] {
        &self.public_key
    }
}

impl AgreementBatches {
    /// The smallest batch that takes less time than AWS-LC.
    pub const SIZE_MIN: usize = 2;
    /// The largest batch.
    pub const SIZE_MAX: usize = LANES;

    /// Asks the CPU, and compares the results with AWS-LC's once in a process.
    ///
    /// # Errors
    /// This CPU or this build cannot compute agreements together.
    pub fn detect() -> Result<AgreementBatches, NoBatches> {
        static DETECTED: LazyLock<Result<AgreementBatches, NoBatches>> = LazyLock::new(|| {
            let lanes = EightLanes::detect().ok_or(NoBatches::CpuLacksIfma)?;
            match agrees(|scalars, points, results| lanes.x25519(scalars, points, results)) {
                true => Ok(AgreementBatches { lanes: Some(lanes) }),
                false => Err(NoBatches::Disagrees),
            }
        });
        *DETECTED
    }

    /// Returns the same without a need for the CPU: AWS-LC computes one agreement after the other. For tests and
    /// simulations, which must not depend on the CPU.
    pub fn one_by_one() -> AgreementBatches {
        AgreementBatches { lanes: None }
    }

    /// Computes the agreements with these clients, of which there are at most [`AgreementBatches::SIZE_MAX`].
    ///
    /// There is none for a share that makes no secret: the library refuses the client when it computes the agreement
    /// itself. Without random bytes there is none at all.
    pub fn prepare(self, shares: &[ClientShare]) -> Vec<Option<Box<PreparedAgreement>>> {
        let shares = &shares[..shares.len().min(Self::SIZE_MAX)];
        let random = deferred::random();
        let mut public_keys = BASE_POINTS;
        let mut secrets = Zeroizing::new(BASE_POINTS);
        if !self.compute(random, shares, &mut public_keys, &mut secrets) {
            return shares.iter().map(|_| None).collect();
        }
        let prepared = shares.iter().enumerate().map(|(at, share)| {
            // A secret must not be zero (RFC 8446 §7.4.2). The sum of all bits tells without a branch on one of them.
            let is_zero = secrets[at].iter().fold(0, |all, byte| all | byte) == 0;
            if is_zero {
                return None;
            }
            // The secret is written where it stays.
            let mut prepared = Box::new(PreparedAgreement {
                share: *share,
                public_key: public_keys[at],
                secret: Zeroizing::new([0; 32]),
            });
            prepared.secret.copy_from_slice(&secrets[at]);
            Some(prepared)
        });
        prepared.collect()
    }

    /// Draws private keys and computes the public keys and the secrets. Half a batch fits into one call, with the public
    /// keys beside the secrets. `false`: there are no random bytes.
    fn compute(
        self,
        random: &dyn SecureRandom,
        shares: &[ClientShare],
        public_keys: &mut Batch,
        secrets: &mut Batch,
    ) -> bool {
        const HALF: usize = LANES / 2;
        let mut scalars = Zeroizing::new([[0; 32]; LANES]);
        if random.fill(scalars.as_flattened_mut()).is_err() {
            return false;
        }
        let mut points = BASE_POINTS;
        if shares.len() > HALF {
            self.x25519(&scalars, &BASE_POINTS, public_keys);
            for (point, share) in points.iter_mut().zip(shares) {
                *point = *share.bytes();
            }
            self.x25519(&scalars, &points, secrets);
            return true;
        }
        let (first, second) = scalars.split_at_mut(HALF);
        second.copy_from_slice(first);
        for (point, share) in points[HALF..].iter_mut().zip(shares) {
            *point = *share.bytes();
        }
        let mut results = Zeroizing::new([[0; 32]; LANES]);
        self.x25519(&scalars, &points, &mut results);
        public_keys[..HALF].copy_from_slice(&results[..HALF]);
        secrets[..HALF].copy_from_slice(&results[HALF..]);
        true
    }

    fn x25519(self, scalars: &Batch, points: &Batch, results: &mut Batch) {
        match self.lanes {
            Some(lanes) => lanes.x25519(scalars, points, results),
            None => by_library(scalars, points, results),
        }
    }
}

/// Computes the same with AWS-LC. A secret that it refuses is zero.
fn by_library(scalars: &Batch, points: &Batch, results: &mut Batch) {
    let cases = scalars.iter().zip(points).zip(results);
    for ((scalar, point), result) in cases {
        *result = [0; 32];
        let private = PrivateKey::from_private_key(&X25519, scalar);
        let point = UnparsedPublicKey::new(&X25519, point);
        // An error leaves zeros.
        let _ = private.map(|private| {
            agreement::agree(&private, point, (), |secret| {
                result.copy_from_slice(secret);
                Ok(())
            })
        });
    }
}

/// Whether `x25519` and AWS-LC return the same for some random scalars and points, and for points at the limits.
fn agrees(x25519: impl Fn(&Batch, &Batch, &mut Batch)) -> bool {
    let random = deferred::random();
    let (mut scalars, mut points) = ([[0; 32]; LANES], [[0; 32]; LANES]);
    for limits in [false, true] {
        let filled = random.fill(scalars.as_flattened_mut());
        if filled.and(random.fill(points.as_flattened_mut())).is_err() {
            return false;
        }
        if limits {
            points[0] = [0; 32];
            points[1] = [0xff; 32];
            points[2] = BASE_POINTS[0];
            points[3] = [0; 32];
            points[3][0] = 1;
        }
        let (mut ours, mut theirs) = ([[0; 32]; LANES], [[0; 32]; LANES]);
        x25519(&scalars, &points, &mut ours);
        by_library(&scalars, &points, &mut theirs);
        if ours != theirs {
            return false;
        }
    }
    true
}

/// The agreement that was prepared for a handshake.
#[derive(Default)]
pub(crate) struct NextAgreement(pub(crate) Option<Box<PreparedAgreement>>);

impl Facts for NextAgreement {
    const SUBJECT: Subject = Subject::Agreement;
}

/// Takes the agreement that was prepared for the current handshake, if it was made for this share. No other call gets it.
fn take(share: &[u8]) -> Option<Box<PreparedAgreement>> {
    let prepared = if_in_scope(|next: &mut NextAgreement| next.0.take()).flatten();
    prepared.filter(|prepared| prepared.share.bytes() == share)
}

/// X25519, or its hybrid with ML-KEM-768, which uses a prepared agreement if the handshake has one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PreparedGroup {
    X25519,
    X25519MlKem768,
}

impl PreparedGroup {
    /// The library's group.
    fn library(self) -> &'static dyn SupportedKxGroup {
        match self {
            PreparedGroup::X25519 => kx_group::X25519,
            PreparedGroup::X25519MlKem768 => kx_group::X25519MLKEM768,
        }
    }
}

impl SupportedKxGroup for PreparedGroup {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        self.library().start()
    }

    fn start_and_complete(&self, peer_pub_key: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let (ml_kem, x25519) = match self {
            PreparedGroup::X25519 => (None, peer_pub_key),
            PreparedGroup::X25519MlKem768 => {
                match peer_pub_key.split_at_checked(ML_KEM_SHARE_LEN) {
                    Some((ml_kem, x25519)) => (Some(ml_kem), x25519),
                    None => return self.library().start_and_complete(peer_pub_key),
                }
            }
        };
        let Some(prepared) = take(x25519) else {
            return self.library().start_and_complete(peer_pub_key);
        };
        let (pub_key, secret) = match ml_kem {
            None => (prepared.public_key.to_vec(), prepared.secret.to_vec()),
            // Public keys and secrets are concatenated, ML-KEM's first (draft-ietf-tls-ecdhe-mlkem §4).
            Some(ml_kem) => {
                let ml_kem = kx_group::MLKEM768.start_and_complete(ml_kem)?;
                let pub_key = [&ml_kem.pub_key[..], &prepared.public_key].concat();
                let secret = [ml_kem.secret.secret_bytes(), &prepared.secret[..]].concat();
                (pub_key, secret)
            }
        };
        Ok(CompletedKeyExchange {
            group: self.name(),
            pub_key,
            secret: SharedSecret::from(secret),
        })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        self.library().ffdhe_group()
    }

    fn name(&self) -> NamedGroup {
        self.library().name()
    }

    fn fips(&self) -> bool {
        self.library().fips()
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        self.library().usable_for_version(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_scope::{CallScope, enter};

    /// A client's private key and its share.
    fn client() -> (PrivateKey, ClientShare) {
        let private = PrivateKey::generate(&X25519).unwrap();
        let share = private.compute_public_key().unwrap();
        let share = ClientShare::new(share.as_ref().try_into().unwrap());
        (private, share)
    }

    fn all_kinds() -> Vec<AgreementBatches> {
        let detected = AgreementBatches::detect();
        assert_ne!(detected.err(), Some(NoBatches::Disagrees));
        let one_by_one = AgreementBatches::one_by_one();
        detected.ok().into_iter().chain([one_by_one]).collect()
    }

    fn scope_with(prepared: Option<Box<PreparedAgreement>>) -> Box<CallScope> {
        let mut scope = CallScope::new();
        scope.of::<NextAgreement>().0 = prepared;
        scope
    }

    #[test]
    fn both_sides_get_the_same_secret() {
        for batches in all_kinds() {
            for count in 0..=AgreementBatches::SIZE_MAX {
                let (clients, shares): (Vec<_>, Vec<_>) = (0..count).map(|_| client()).unzip();
                let prepared = batches.prepare(&shares);
                assert_eq!(prepared.len(), count);
                for ((client, share), prepared) in clients.iter().zip(&shares).zip(prepared) {
                    let prepared = prepared.unwrap();
                    let public_key = UnparsedPublicKey::new(&X25519, prepared.public_key);
                    let theirs =
                        agreement::agree(client, public_key, (), |theirs| Ok(theirs.to_vec()));
                    assert_eq!(theirs.unwrap(), *prepared.secret);
                    assert!(prepared.share == *share);
                }
            }
        }
    }

    #[test]
    fn every_agreement_has_a_key_of_its_own() {
        for batches in all_kinds() {
            let (_, share) = client();
            let twice = [[share; 8], [share; 8]].map(|shares| batches.prepare(&shares));
            let mut keys: Vec<_> = (twice.iter().flatten())
                .map(|prepared| prepared.as_ref().unwrap().public_key)
                .collect();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), 16);
        }
    }

    #[test]
    fn a_share_of_low_order_is_left_to_the_library() {
        for batches in all_kinds() {
            let one = std::array::from_fn(|at| u8::from(at == 0));
            let shares = [ClientShare::new([0; 32]), ClientShare::new(one), client().1];
            let prepared = batches.prepare(&shares);
            let are_prepared: Vec<bool> = prepared.iter().map(Option::is_some).collect();
            assert_eq!(are_prepared, [false, false, true]);
        }
        let (_, refused) = enter(scope_with(None), || {
            PreparedGroup::X25519.start_and_complete(&[0; 32])
        });
        assert!(refused.is_err());
    }

    #[test]
    fn an_agreement_is_used_once_and_only_for_its_share() {
        let (_, share) = client();
        let (_, other) = client();
        let prepare = || AgreementBatches::one_by_one().prepare(&[share]).remove(0);
        let expected = |prepared: &Option<Box<PreparedAgreement>>| {
            let prepared = prepared.as_ref().unwrap();
            (prepared.public_key.to_vec(), prepared.secret.to_vec())
        };
        let complete = |share: ClientShare| {
            let completed = PreparedGroup::X25519
                .start_and_complete(share.bytes())
                .unwrap();
            (completed.pub_key, completed.secret.secret_bytes().to_vec())
        };

        let prepared = prepare();
        let first = expected(&prepared);
        let (_, (used, again)) = enter(scope_with(prepared), || (complete(share), complete(share)));
        assert_eq!(used, first);
        assert_ne!(again.0, first.0, "used twice");

        let prepared = prepare();
        let unused = expected(&prepared);
        let (_, (of_other, after)) =
            enter(scope_with(prepared), || (complete(other), complete(share)));
        assert_ne!(of_other.0, unused.0, "used for another share");
        assert_ne!(after.0, unused.0, "kept after another share");

        // Outside of the handshake there is none.
        let (mut scope, ()) = enter(scope_with(prepare()), || ());
        complete(share);
        assert!(scope.of::<NextAgreement>().0.is_some());
    }

    #[test]
    fn the_hybrid_completes_with_a_prepared_half() {
        let exchange = kx_group::X25519MLKEM768.start().unwrap();
        let share = exchange.pub_key().to_vec();
        let x25519 = share.last_chunk().unwrap();
        let prepared = AgreementBatches::one_by_one().prepare(&[ClientShare::new(*x25519)]);
        let public_key = prepared[0].as_ref().unwrap().public_key;
        let scope = scope_with(prepared.into_iter().next().unwrap());
        let (_, server) = enter(scope, || {
            PreparedGroup::X25519MlKem768
                .start_and_complete(&share)
                .unwrap()
        });
        assert_eq!(server.pub_key.last_chunk(), Some(&public_key));
        let client = exchange.complete(&server.pub_key).unwrap();
        assert_eq!(client.secret_bytes(), server.secret.secret_bytes());
    }

    #[test]
    fn a_wrong_result_is_detected() {
        assert!(agrees(by_library));
        for wrong in 0..LANES {
            assert!(!agrees(|scalars, points, results| {
                by_library(scalars, points, results);
                results[wrong][31] ^= 1;
            }));
        }
    }
}
