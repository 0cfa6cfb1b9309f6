//! Certificates pushed by an administrator: they are checked like those from files and kept in the edition until a
//! reload.
//!
//! A pushed certificate precedes the certificates from files that it replaces, because clients get the first one that
//! fits. The replaced ones stay in the list, so that changes of their files are still noticed and withdrawing the
//! pushed certificate restores them.

use super::pair::warnings_of;
use dormouse_engine::{Identity, IdentityError, KeyKind, PemFile};
use dormouse_handover::{Pem, PemContents, SecretText};

/// Maximum number of pushed certificates per route.
const PUSHED_MAX: usize = 256;

/// A pushed certificate with its warnings.
pub(crate) struct Pushed {
    pub(crate) pem: Pem,
    identity: Identity,
    pub(crate) warnings: Vec<String>,
}

impl Pushed {
    /// Parses a chain and its key. The error describes the problem.
    pub(crate) fn read(text: &SecretText) -> Result<Pushed, String> {
        const CERTIFICATE: &str = "the pushed certificate";
        let words = |error: IdentityError| error.to_string();
        let text = text.0.as_bytes();
        let chain = PemFile::of(text, CERTIFICATE).chain().map_err(words)?;
        let mut key = PemFile::of(text, "the pushed key").key().map_err(words)?;
        let identity = Identity::from_pem(
            chain.as_bytes(),
            key.as_bytes(),
            CERTIFICATE,
            "the pushed key",
        );
        let identity = identity.map_err(words)?;
        let Some(first) = identity.names().first() else {
            return Err(format!(
                "{CERTIFICATE} has no DNS name or IP address, so no client would get it"
            ));
        };
        // The name identifies a pushed certificate: the next one for this name and kind of key replaces it.
        let name = format!("pushed: {first} ({})", word(identity.key_kind()));
        let warnings = warnings_of(&identity, &name);
        let pem = Pem::from(PemContents {
            key_name: name.clone(),
            name,
            chain,
            ocsp: Vec::new(),
            ocsp_from_file: false,
            is_pushed: true,
            // Moved: a copy would not be wiped.
            key: std::mem::take(&mut *key),
        });
        Ok(Pushed {
            pem,
            identity,
            warnings,
        })
    }

    /// Takes one that was pushed before. Its warnings are known.
    fn again(pem: &Pem) -> Option<Pushed> {
        Some(Pushed {
            pem: pem.clone(),
            identity: pem.identity().ok()?.clone(),
            warnings: Vec::new(),
        })
    }

    /// Returns the names and addresses for which the certificate is valid.
    pub(crate) fn names(&self) -> &[String] {
        self.identity.names()
    }
}

/// The certificates of a route, each parsed only once.
pub(crate) struct RouteCertificates(Vec<(Pem, Option<Identity>)>);

impl RouteCertificates {
    pub(crate) fn of(pems: &[Pem]) -> RouteCertificates {
        let parsed = |pem: &Pem| (pem.clone(), pem.identity().ok().cloned());
        RouteCertificates(pems.iter().map(parsed).collect())
    }

    pub(crate) fn into_pems(self) -> Vec<Pem> {
        self.0.into_iter().map(|(pem, _)| pem).collect()
    }

    /// Whether one of the certificates shares a name with the pushed one.
    pub(crate) fn have_a_name_of(&self, pushed: &Pushed) -> bool {
        self.sharing(pushed).next().is_some()
    }

    /// Adds a certificate and replaces an earlier pushed one for the same name and kind of key. Fails if there are too
    /// many.
    pub(crate) fn add(&mut self, pushed: &Pushed) -> Result<(), String> {
        self.0.retain(|(pem, _)| pem.name != pushed.pem.name);
        if self.0.iter().filter(|(pem, _)| pem.is_pushed).count() >= PUSHED_MAX {
            return Err(format!(
                "there are already {PUSHED_MAX} pushed certificates, the maximum: withdraw some, or put them into files"
            ));
        }
        let added = (pushed.pem.clone(), Some(pushed.identity.clone()));
        self.0.insert(self.place_of(pushed), added);
        Ok(())
    }

    /// Position before the first certificate that shares a name and the kind of key. If there is none, an RSA
    /// certificate goes last, so that clients that support the other kinds get those.
    fn place_of(&self, pushed: &Pushed) -> usize {
        let kind = word(pushed.identity.key_kind());
        let same = self.sharing(pushed).find(|(_, other)| *other == kind);
        let first = || self.sharing(pushed).next().filter(|_| kind != "RSA");
        same.or_else(first).map_or(self.0.len(), |(at, _)| at)
    }

    /// Positions and key kinds of the certificates that share a name with the pushed one.
    fn sharing<'a>(
        &'a self,
        pushed: &'a Pushed,
    ) -> impl Iterator<Item = (usize, &'static str)> + 'a {
        let all = self.0.iter().enumerate();
        all.filter_map(|(at, (_, identity))| {
            let identity = identity.as_ref()?;
            let is_shared = |name: &String| is_among(name, pushed.names());
            let shares = identity.names().iter().any(is_shared);
            shares.then(|| (at, word(identity.key_kind())))
        })
    }

    /// Removes the pushed certificates for a name and returns their number.
    pub(crate) fn withdraw(&mut self, name: &str) -> usize {
        let before = self.0.len();
        self.0.retain(|(pem, identity)| {
            let is_for = |identity: &Identity| is_among(name, identity.names());
            !(pem.is_pushed && identity.as_ref().is_some_and(is_for))
        });
        before - self.0.len()
    }
}

/// Adds the pushed certificates among `former` to certificates that were read again from files.
pub(super) fn with_pushed(former: &[Pem], pems: Vec<Pem>) -> Vec<Pem> {
    if !former.iter().any(|pem| pem.is_pushed) {
        return pems;
    }
    let mut all = RouteCertificates::of(&pems);
    for pem in former.iter().filter(|pem| pem.is_pushed) {
        if let Some(pushed) = Pushed::again(pem) {
            // The number of pushed certificates has not grown, so the limit holds.
            let _ = all.add(&pushed);
        }
    }
    all.into_pems()
}

fn is_among(name: &str, names: &[String]) -> bool {
    names.iter().any(|other| other.eq_ignore_ascii_case(name))
}

fn word(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::Rsa { .. } => "RSA",
        KeyKind::Ecdsa { .. } => "ECDSA",
        KeyKind::Ed25519 => "Ed25519",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(name: &str) -> SecretText {
        let (chain, key) = Identity::self_signed_pem(name).expect("a certificate");
        SecretText(format!("{chain}{}", *key))
    }

    fn pushed(text: &SecretText) -> Pushed {
        Pushed::read(text).unwrap_or_else(|why| panic!("{why}"))
    }

    fn from_file(name: &str) -> Pem {
        let mut pem = pushed(&made(name)).pem;
        pem.change(|pem| {
            pem.name = format!("{name}.pem");
            pem.is_pushed = false;
        });
        pem
    }

    fn shown(pems: &[Pem]) -> Vec<&str> {
        pems.iter().map(|pem| pem.name.as_str()).collect()
    }

    #[test]
    fn a_pushed_certificate_precedes_the_one_it_replaces() {
        let files = [from_file("a.example"), from_file("b.example")];
        let mut all = RouteCertificates::of(&files);
        let first = pushed(&made("B.example"));
        assert!(all.have_a_name_of(&first));
        all.add(&first).expect("room in the table");
        // The next certificate for the same name replaces it.
        let second = pushed(&made("B.example"));
        all.add(&second).expect("room in the table");
        let other = pushed(&made("c.example"));
        assert!(!all.have_a_name_of(&other));
        all.add(&other).expect("room in the table");
        let pems = all.into_pems();
        let expected = [
            "a.example.pem",
            "pushed: B.example (ECDSA)",
            "b.example.pem",
            "pushed: c.example (ECDSA)",
        ];
        assert_eq!(shown(&pems), expected);
        assert_eq!(pems[1].chain, second.pem.chain);

        let renewed = with_pushed(&pems, files.to_vec());
        assert_eq!(shown(&renewed), expected);
        let mut all = RouteCertificates::of(&renewed);
        assert_eq!(all.withdraw("b.EXAMPLE"), 1);
        assert_eq!(
            all.withdraw("a.example"),
            0,
            "this certificate is from a file"
        );
        assert_eq!(all.into_pems().len(), 3);
    }

    #[test]
    fn an_invalid_certificate_is_refused_with_a_reason() {
        let (one, other) = (made("a.example"), made("b.example"));
        let key_of = |text: &SecretText| {
            let at = text.0.find("-----BEGIN PRIVATE").expect("a key");
            text.0[at..].to_owned()
        };
        let chain = PemFile::of(one.0.as_bytes(), "one")
            .chain()
            .expect("a chain");
        for (text, why) in [
            ("hello".to_owned(), "the pushed certificate: is not PEM"),
            (
                chain.clone(),
                "the pushed key: contains a certificate instead of the key",
            ),
            (
                key_of(&one),
                "the pushed certificate: contains a key instead",
            ),
            (
                format!("{chain}{}", key_of(&other)),
                "the pushed key: the key does not belong to the certificate in the pushed certificate",
            ),
            (
                format!("{}{}", one.0, key_of(&other)),
                "the pushed key: contains 2 different private keys",
            ),
        ] {
            let found = Pushed::read(&SecretText(text)).err().unwrap_or_default();
            assert!(found.starts_with(why), "{found}");
        }
    }

    #[test]
    fn the_number_of_pushed_certificates_is_limited() {
        let many = (0..PUSHED_MAX).map(|n| {
            let mut pem = from_file("x.example");
            pem.change(|pem| {
                pem.name = format!("pushed: {n}");
                pem.is_pushed = true;
            });
            (pem, None)
        });
        let mut all = RouteCertificates(many.collect());
        let why = all.add(&pushed(&made("y.example")));
        assert!(why.is_err_and(|why| why.contains("256 pushed certificates")));
        assert_eq!(all.into_pems().len(), PUSHED_MAX);
    }
}
