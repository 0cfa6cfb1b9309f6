//! Revocation lists. One may have many megabytes, so routes that name the same file share its text, and it passes to another
//! process once: JSON has only the name and the digest of a list. In a handover its text is found by the digest
//! ([`stored`](crate::stored)), when it is needed. In the task of a scout the texts follow the secrets, after the places of all
//! lists among them.

use crate::parts;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::io;
use std::sync::{Arc, OnceLock};

/// A revocation list. Cloning it is cheap.
#[derive(Clone, Serialize, Deserialize)]
pub struct RevocationList {
    /// Its file, for messages.
    pub name: String,
    /// Another process gets the digest, and the text later.
    #[serde(
        rename = "digest",
        serialize_with = "to_digest",
        deserialize_with = "from_digest"
    )]
    text: Arc<Text>,
}

fn to_digest<S: Serializer>(text: &Text, to: S) -> Result<S::Ok, S::Error> {
    text.digest().serialize(to)
}

fn from_digest<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Text>, D::Error> {
    let digest = OnceLock::from(<[u8; 32]>::deserialize(from)?);
    let pem = String::new();
    Ok(Arc::new(Text { pem, digest }))
}

#[derive(Default)]
struct Text {
    pem: String,
    digest: OnceLock<[u8; 32]>,
}

impl Text {
    fn digest(&self) -> [u8; 32] {
        let Text { pem, digest } = self;
        *digest.get_or_init(|| dormouse_engine::digest(&[pem.as_bytes()]))
    }
}

impl RevocationList {
    /// Creates a list from its PEM.
    pub fn new(name: String, pem: String) -> RevocationList {
        let digest = OnceLock::new();
        let text = Arc::new(Text { pem, digest });
        RevocationList { name, text }
    }

    /// Returns the list, PEM; empty, and so refused, in a process that has not got the text yet.
    pub fn pem(&self) -> &str {
        &self.text.pem
    }

    /// Returns the SHA-256 digest of the text, computed when it is first needed.
    pub fn digest(&self) -> [u8; 32] {
        self.text.digest()
    }

    /// Sets the text, in a process that has only the digest.
    pub(crate) fn set_pem(&mut self, pem: String) {
        let digest = OnceLock::from(self.digest());
        self.text = Arc::new(Text { pem, digest });
    }

    /// Whether two lists have their text in the same memory.
    pub fn shares_text(&self, other: &RevocationList) -> bool {
        Arc::ptr_eq(&self.text, &other.text)
    }
}

impl PartialEq for RevocationList {
    fn eq(&self, other: &RevocationList) -> bool {
        self.name == other.name && (self.shares_text(other) || self.digest() == other.digest())
    }
}

impl Eq for RevocationList {}

impl Hash for RevocationList {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.name, self.digest()).hash(state);
    }
}

/// The texts of lists, each once.
pub struct Texts<'a> {
    /// For each list, the place of its text, in 8 bytes.
    places: Vec<u8>,
    texts: Vec<&'a RevocationList>,
}

impl<'a> Texts<'a> {
    /// Collects the texts of these lists.
    pub fn of(lists: impl Iterator<Item = &'a RevocationList>) -> Texts<'a> {
        let mut known = HashMap::new();
        let mut all = Texts {
            places: Vec::new(),
            texts: Vec::new(),
        };
        for list in lists {
            let place = known.entry(Arc::as_ptr(&list.text)).or_insert_with(|| {
                all.texts.push(list);
                all.texts.len() as u64 - 1
            });
            all.places.extend_from_slice(&place.to_le_bytes());
        }
        all
    }

    /// What follows the secrets of a memory file.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let texts = self.texts.iter().map(|list| list.pem().as_bytes());
        std::iter::once(self.places.as_slice()).chain(texts)
    }

    /// Returns the length of all texts together.
    pub fn bytes(&self) -> usize {
        self.texts.iter().map(|list| list.pem().len()).sum()
    }
}

/// Sets the texts of these lists from what follows the secrets of a memory file.
///
/// # Errors
/// These are not the texts of as many lists.
pub fn set_texts<'a>(
    lists: impl Iterator<Item = &'a mut RevocationList>,
    rest: &mut &[u8],
) -> io::Result<()> {
    let malformed = || io::Error::other("the revocation lists of the handover are malformed");
    let (places, behind) = parts::take_secret(rest)?.as_chunks::<8>();
    let mut places = places.iter().map(|place| u64::from_le_bytes(*place));
    let mut texts: Vec<Arc<Text>> = Vec::new();
    for list in lists {
        let place = places.next().ok_or_else(malformed)?;
        if place == texts.len() as u64 {
            let pem = parts::take_secret(rest)?.to_vec();
            let pem = String::from_utf8(pem).map_err(io::Error::other)?;
            texts.push(RevocationList::new(String::new(), pem).text);
        }
        let place = usize::try_from(place).map_err(io::Error::other)?;
        list.text = Arc::clone(texts.get(place).ok_or_else(malformed)?);
    }
    match places.next().is_none() && behind.is_empty() {
        true => Ok(()),
        false => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(name: &str) -> RevocationList {
        RevocationList::new(name.to_owned(), format!("text of {name}"))
    }

    #[test]
    fn a_text_passes_once() {
        let [a, b] = ["a", "b"].map(list);
        let lists = [a.clone(), b.clone(), a.clone(), list("a"), b];
        let texts = Texts::of(lists.iter());
        assert_eq!(texts.bytes(), 3 * a.pem().len());
        let bytes = parts::join_secrets(texts.parts().collect());
        let json = serde_json::to_string(&lists).expect("JSON");
        assert!(!json.contains("text of"), "{json}");
        let mut back: [RevocationList; 5] = serde_json::from_str(&json).expect("JSON");
        let mut rest = bytes.as_slice();
        set_texts(back.iter_mut(), &mut rest).expect("texts");
        assert!(rest.is_empty() && back == lists);
        assert!(back[0].shares_text(&back[2]) && !back[0].shares_text(&back[3]));
    }

    #[test]
    fn texts_of_other_lists_are_refused() {
        let lists = ["a", "b"].map(list);
        let bytes = parts::join_secrets(Texts::of(lists.iter()).parts().collect());
        for count in [0, 1, 3] {
            let mut other = vec![list("c"); count];
            assert!(set_texts(other.iter_mut(), &mut bytes.as_slice()).is_err());
        }
        let mut forged = bytes.to_vec();
        // The place of the second list.
        forged[16] = 7;
        let mut lists = lists;
        assert!(set_texts(lists.iter_mut(), &mut forged.as_slice()).is_err());
        for len in 0..bytes.len() {
            assert!(set_texts(lists.iter_mut(), &mut &bytes[..len]).is_err());
        }
    }
}
