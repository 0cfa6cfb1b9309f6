//! Rules that lead clients to a target, in the order in which the other program tries them; Dormouse prefers the more
//! exact name, and among the routes of a name the first with a protocol that the client offers.

use crate::origin::Origins;

/// The target of clients that ask for one of these names and offer one of these protocols; without names or protocols,
/// of all other clients.
#[derive(Clone, Debug)]
pub(super) struct Case<T> {
    pub(super) names: Vec<String>,
    pub(super) protocols: Vec<String>,
    pub(super) target: T,
    pub(super) from: Origins,
}

/// Maximum number of names and protocols of all cases: of comparisons, there are as many as its square.
pub(super) const NAMES_MAX: usize = 5000;
/// Maximum number of names that cases about protocols alone are repeated for.
const REPEATED_MAX: usize = 20_000;

pub(super) const TOO_MANY_NAMES: &str =
    "these are too many names and protocols for `import`: make routes with `server_names` for them";

/// Adds the cases that keep each client at its target. A rule about protocols alone also counts for the names of later
/// rules; and clients that ask for the names of a rule about both, but offer other protocols, go on to the later rules.
/// `None`: these would be too many.
pub(super) fn complete<T: Clone>(cases: Vec<Case<T>>) -> Option<Vec<Case<T>>> {
    let names: usize = cases.iter().map(|one| one.names.len()).sum();
    let by_protocol = cases.iter().filter(|one| !one.protocols.is_empty()).count();
    if names + cases.len() > NAMES_MAX || by_protocol * names > REPEATED_MAX {
        return None;
    }
    let mut all: Vec<Case<T>> = Vec::new();
    for (n, case) in cases.iter().enumerate() {
        let (has_names, has_protocols) = (!case.names.is_empty(), !case.protocols.is_empty());
        let later = cases.iter().skip(n + 1);
        all.push(case.clone());
        if !has_protocols {
            continue;
        }
        if !has_names {
            all.extend(for_names_of(case, later));
            continue;
        }
        for name in &case.names {
            let others = cases.iter().chain(&all);
            let mut others = others.filter(|one| one.protocols.is_empty());
            if others
                .clone()
                .any(|one| one.names.iter().any(|it| it.eq_ignore_ascii_case(name)))
            {
                continue;
            }
            let later = later.clone().filter(|one| one.protocols.is_empty());
            let next = later
                .clone()
                .find(|one| one.names.is_empty() || one.names.iter().any(|it| covers(it, name)));
            let next = next.or_else(|| others.find(|one| one.names.is_empty()));
            if let Some(next) = next {
                all.push(Case {
                    names: vec![name.clone()],
                    protocols: Vec::new(),
                    target: next.target.clone(),
                    from: next.from.clone(),
                });
            }
        }
    }
    Some(all)
}

/// Returns a rule about protocols for the names of later rules.
fn for_names_of<'a, T: Clone + 'a>(
    case: &Case<T>,
    later: impl Iterator<Item = &'a Case<T>>,
) -> Option<Case<T>> {
    let mut named = Case {
        names: Vec::new(),
        ..case.clone()
    };
    for one in later {
        for name in &one.names {
            if !named
                .names
                .iter()
                .any(|there| there.eq_ignore_ascii_case(name))
            {
                named.names.push(name.clone());
            }
        }
        if !one.names.is_empty() {
            named.from.add(&one.from);
        }
    }
    (!named.names.is_empty()).then_some(named)
}

/// Returns whether a wildcard stands for this name.
pub(super) fn covers(wildcard: &str, name: &str) -> bool {
    let (Some(end), Some((first, rest))) = (wildcard.strip_prefix("*."), name.split_once('.'))
    else {
        return wildcard.eq_ignore_ascii_case(name);
    };
    first != "*" && rest.eq_ignore_ascii_case(end)
}
