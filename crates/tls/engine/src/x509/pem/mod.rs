//! Certificates, keys and revocation lists in PEM. Every PEM text that Dormouse reads is read here: files of pairs,
//! authorities and revocation lists, texts from bindings, from ACME servers and from the admin socket.
//!
//! | file | subject |
//! |---|---|
//! | `sections` | the text's grammar: nothing in it is passed over in silence |
//! | `kind` | the labels of sections, and what they hold |
//! | `foreign` | names files that are not PEM |
//! | `contents` | the certificates, the key or the revocation lists of a text |
//! | `encrypted_key` | a key's passphrase |
//! | `file` | files, with limits on their size |

pub(crate) mod contents;
mod encrypted_key;
pub(crate) mod file;
mod foreign;
pub(crate) mod kind;
pub(crate) mod sections;
