//! Key exchange groups by the names that programs use for them.

use std::fmt;

use dormouse_engine::Group;

/// A name that is no group's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownGroup(String);

impl fmt::Display for UnknownGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Group::ALL.map(Group::name).join(", ");
        write!(f, "the group {:?} is unknown; known are {known}", self.0)
    }
}

impl std::error::Error for UnknownGroup {}

/// Returns the groups with these names, in their order; all groups if there are no names. The names are those of
/// IANA's registry or of OpenSSL, in any case.
pub fn groups_by_name(names: &[impl AsRef<str>]) -> Result<Vec<Group>, UnknownGroup> {
    if names.is_empty() {
        return Ok(Group::ALL.to_vec());
    }
    names.iter().map(|name| group(name.as_ref())).collect()
}

fn group(name: &str) -> Result<Group, UnknownGroup> {
    let registered = match name {
        "prime256v1" | "P-256" => "secp256r1",
        "P-384" => "secp384r1",
        name => name,
    };
    let mut groups = Group::ALL.into_iter();
    let found = groups.find(|group| group.name().eq_ignore_ascii_case(registered));
    found.ok_or_else(|| UnknownGroup(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_registries() {
        let groups = groups_by_name(&["P-384", "prime256v1", "X25519", "x25519mlkem768"]);
        let expected = [
            Group::P384,
            Group::P256,
            Group::X25519,
            Group::X25519MlKem768,
        ];
        assert_eq!(groups.as_deref(), Ok(expected.as_slice()));
        let none: [&str; 0] = [];
        assert_eq!(groups_by_name(&none), Ok(Group::ALL.to_vec()));
        let unknown = groups_by_name(&["x25519", "x448"]).map_err(|error| error.to_string());
        let words =
            "the group \"x448\" is unknown; known are X25519MLKEM768, x25519, secp256r1, secp384r1";
        assert_eq!(unknown, Err(words.to_owned()));
    }
}
