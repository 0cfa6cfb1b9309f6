//! Sessions with tokens. After an error the library of the token is started anew: a token may have been pulled out, or a
//! machine with tokens started again. A PIN that the token has refused is never tried again, because most tokens lock
//! themselves after a few attempts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::object::{Attribute, AttributeType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::{Slot, TokenInfo};
use cryptoki::types::AuthPin;
use dormouse_handover::signing::SignRequest;

use super::messages::KeyAccess;
use super::signature::Scheme;

/// Time in which a token that failed is not tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Maximum length of a reason.
const WORDS_MAX: usize = 300;

/// The keys, and the libraries of their tokens.
pub(super) struct Tokens<'a> {
    keys: Vec<Key<'a>>,
    modules: BTreeMap<PathBuf, Pkcs11>,
    /// Tokens that have refused a PIN, by library and serial number, with what they said.
    refused: BTreeMap<(PathBuf, String), String>,
}

struct Key<'a> {
    access: &'a KeyAccess,
    open: Option<OpenKey>,
    /// When it could not be used, and why.
    failed: Option<(Instant, String)>,
}

struct OpenKey {
    session: Session,
    handle: ObjectHandle,
}

impl<'a> Tokens<'a> {
    /// Nothing is opened before the first signature.
    pub(super) fn new(keys: &'a [KeyAccess]) -> Tokens<'a> {
        let keys = keys.iter().map(|access| Key {
            access,
            open: None,
            failed: None,
        });
        Tokens {
            keys: keys.collect(),
            modules: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Signs, or says why not.
    pub(super) fn sign(&mut self, request: &SignRequest) -> Result<Vec<u8>, String> {
        let scheme = Scheme::of(request.scheme);
        let scheme = scheme.filter(|scheme| scheme.digest_len() == request.digest.len());
        let scheme = scheme.ok_or("this signature scheme is not supported")?;
        let is_it = |key: &Key<'_>| key.access.key.uri == request.key;
        let place = self.keys.iter().position(is_it);
        let place = place.ok_or("the signer does not have this key")?;
        if let Some((at, why)) = &self.keys[place].failed
            && at.elapsed() < PAUSE
        {
            return Err(why.clone());
        }
        let was_open = self.keys[place].open.is_some();
        let mut signed = self.try_to_sign(place, scheme, &request.digest);
        if signed.is_err() {
            self.close(place);
            if was_open {
                signed = self.try_to_sign(place, scheme, &request.digest);
            }
        }
        let signed =
            signed.map_err(|why| dormouse_printable::line_up_to(&why, WORDS_MAX).to_string());
        let failed = signed.as_ref().err();
        self.keys[place].failed = failed.map(|why| (Instant::now(), why.clone()));
        signed
    }

    fn try_to_sign(
        &mut self,
        place: usize,
        scheme: Scheme,
        digest: &[u8],
    ) -> Result<Vec<u8>, String> {
        if self.keys[place].open.is_none() {
            self.keys[place].open = Some(self.open(self.keys[place].access)?);
        }
        let OpenKey { session, handle } =
            (self.keys[place].open.as_ref()).expect("it was just opened");
        let input = scheme.input(digest);
        let signature = session.sign(&scheme.mechanism(), *handle, &input);
        let signature = signature.map_err(|error| {
            let other = is_of_another_kind(session, *handle, scheme);
            other.unwrap_or_else(|| words(&error))
        })?;
        scheme
            .finish(signature)
            .ok_or_else(|| "the token's signature is not valid".to_owned())
    }

    /// Opens a session with the token, logs in, and finds the key.
    fn open(&mut self, access: &KeyAccess) -> Result<OpenKey, String> {
        let key = &access.key;
        let module = self.module(&key.module)?;
        let slots = module.get_slots_with_token().map_err(|e| words(&e))?;
        let is_it = |slot: Slot, info: &TokenInfo| {
            let wanted = [
                (&key.token, info.label()),
                (&key.serial, info.serial_number()),
                (&key.manufacturer, info.manufacturer_id()),
                (&key.model, info.model()),
            ];
            let has = |(wanted, is): &(&Option<String>, &str)| {
                wanted.as_deref().is_none_or(|wanted| wanted == *is)
            };
            wanted.iter().all(has) && key.slot.is_none_or(|number| number == slot.id())
        };
        let tokens = slots.into_iter().filter_map(|slot| {
            let info = module.get_token_info(slot).ok()?;
            let is_there = info.token_initialized() && is_it(slot, &info);
            is_there.then_some((slot, info))
        });
        let tokens: Vec<(Slot, TokenInfo)> = tokens.collect();
        let (slot, info) = match &tokens[..] {
            [one] => one,
            [] => return Err("there is no such token".to_owned()),
            _ => {
                return Err(
                    "several tokens are meant; add token=, serial= or slot-id= to the URI"
                        .to_owned(),
                );
            }
        };
        let session = module.open_ro_session(*slot).map_err(|e| words(&e))?;
        if let Some(pin) = &access.pin {
            let token = (key.module.clone(), info.serial_number().to_owned());
            if let Some(why) = self.refused.get(&token) {
                return Err(why.clone());
            }
            let pin = AuthPin::from(pin.0.clone());
            match session.login(UserType::User, Some(&pin)) {
                Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => {}
                Err(error) => {
                    let why = words(&error);
                    if is_about_pin(&error) {
                        self.refused.insert(token, why.clone());
                    }
                    return Err(why);
                }
            }
        }
        let mut wanted = vec![Attribute::Class(ObjectClass::PRIVATE_KEY)];
        wanted.extend((key.object.as_ref()).map(|label| Attribute::Label(label.clone().into())));
        wanted.extend(key.id.clone().map(Attribute::Id));
        let found = session.find_objects(&wanted).map_err(|e| words(&e))?;
        match found[..] {
            [handle] => Ok(OpenKey { session, handle }),
            [] if access.pin.is_none() => Err(
                "there is no such key in the token without a PIN; add pin-source=FILE to the URI"
                    .to_owned(),
            ),
            [] => Err("there is no such key in the token".to_owned()),
            _ => Err("several keys are meant; add id= to the URI".to_owned()),
        }
    }

    /// Loads the library of a token, once.
    fn module(&mut self, path: &Path) -> Result<Pkcs11, String> {
        if let Some(module) = self.modules.get(path) {
            return Ok(module.clone());
        }
        let module = Pkcs11::new(path).map_err(|e| words(&e))?;
        let locking = CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK);
        module.initialize(locking).map_err(|e| words(&e))?;
        self.modules.insert(path.to_owned(), module.clone());
        Ok(module)
    }

    /// Closes everything that uses the library of this key.
    fn close(&mut self, place: usize) {
        let path = &self.keys[place].access.key.module;
        for key in &mut self.keys {
            if key.access.key.module == *path {
                key.open = None;
            }
        }
        if let Some(module) = self.modules.remove(path) {
            // It may be the reason for the error.
            let _ = module.finalize();
        }
    }
}

/// What a token refuses in words of its own: its key is not of the kind that the certificate's is.
fn is_of_another_kind(session: &Session, key: ObjectHandle, scheme: Scheme) -> Option<String> {
    let attributes = session.get_attributes(key, &[AttributeType::KeyType]);
    let kind = attributes.ok()?.into_iter().find_map(|one| match one {
        Attribute::KeyType(kind) => Some(kind),
        _ => None,
    })?;
    let (name, wanted) = scheme.key();
    (kind != wanted)
        .then(|| format!("the certificate is for {name}, and the key in the token is for {kind}"))
}

/// Whether another attempt with the same PIN would count against the token's limit.
fn is_about_pin(error: &Error) -> bool {
    let Error::Pkcs11(code, _) = error else {
        return false;
    };
    matches!(
        code,
        RvError::PinIncorrect
            | RvError::PinInvalid
            | RvError::PinLenRange
            | RvError::PinLocked
            | RvError::PinExpired
    )
}

fn words(error: &Error) -> String {
    match error {
        Error::Pkcs11(RvError::PinIncorrect, _) => "the token refuses the PIN".to_owned(),
        Error::Pkcs11(RvError::PinLocked, _) => "the token's PIN is locked".to_owned(),
        Error::Pkcs11(code, function) => format!("{function:?}: {code:?}"),
        Error::LibraryLoading(error) => format!("the library cannot be loaded: {error}"),
        error => error.to_string(),
    }
}
