//! The choice of a backend: `use_backend` and `default_backend`.

use super::condition::{Acls, Test, condition};
use super::config::Config;
use super::syntax::HaproxySection;
use crate::advice::EARLIER_RULE;
use crate::cases::{Case, NAMES_MAX, TOO_MANY_NAMES, complete};
use crate::origin::Origins;

pub(super) type BackendCase<'a> = Case<Option<&'a HaproxySection>>;

/// The backends of a frontend, and the lines whose conditions Dormouse does not evaluate.
#[derive(Default)]
pub(super) struct BackendCases<'a> {
    pub(super) all: Vec<BackendCase<'a>>,
    pub(super) not_ours: Vec<(&'static str, Origins)>,
    /// Lines about protocols, which HAProxy compares differently.
    pub(super) by_protocol: Origins,
    /// Lines that no client reaches.
    pub(super) unreached: Origins,
    /// Number of names and of lines so far.
    names: usize,
}

pub(super) fn cases<'a>(part: &'a HaproxySection, config: &'a Config) -> BackendCases<'a> {
    let mut cases = BackendCases::default();
    let acls = Acls::of(part, &config.files);
    for line in part.all("use_backend") {
        let name = line.word(1);
        let tests = condition(line, &acls);
        let from = tests.from;
        if cases.names > NAMES_MAX {
            cases.not_ours.push((TOO_MANY_NAMES, from));
            continue;
        }
        if name.contains("%[") {
            let found = tests
                .ways
                .is_none()
                .then(|| cases.of_map(name, config, &from));
            match found.flatten() {
                Some(true) => {}
                Some(false) => cases.not_ours.push((EARLIER_RULE, from)),
                None => {
                    let why = "names must be listed: use a route with `server_names` for each";
                    cases.not_ours.push((why, from));
                }
            }
            continue;
        }
        for way in tests.ways.unwrap_or_else(|| vec![Vec::new()]) {
            match way_in(&way) {
                Some((names, protocols)) => {
                    let backend = config.backend(name);
                    if names.iter().any(|name| cases.decide(name, backend)) {
                        cases.not_ours.push((EARLIER_RULE, from.clone()));
                    }
                    if protocols.iter().any(|one| one != "acme-tls/1") {
                        cases.by_protocol.add(&from);
                    }
                    cases.add(names, protocols, backend, &from);
                }
                None => {
                    let why = "routes are chosen only by server name and protocol";
                    cases.not_ours.push((why, from.clone()));
                }
            }
        }
    }
    for_all_others(part, config, &mut cases);
    let all = std::mem::take(&mut cases.all);
    let from: Origins = all.iter().flat_map(|case| case.from.iter()).collect();
    match complete(all) {
        Some(all) => cases.all = all,
        None => cases.not_ours.push((TOO_MANY_NAMES, from)),
    }
    cases
}

/// Adds the backend of all other clients.
fn for_all_others<'a>(part: &'a HaproxySection, config: &'a Config, cases: &mut BackendCases<'a>) {
    let default = part.find(&["default_backend"]);
    // An earlier case matches every client already.
    let is_for_all = |case: &BackendCase<'_>| case.names.is_empty() && case.protocols.is_empty();
    if let Some(at) = cases.all.iter().position(is_for_all) {
        let later = cases.all.split_off(at + 1);
        let later = later
            .into_iter()
            .flat_map(|case| case.from.iter().collect::<Vec<_>>());
        cases.unreached.add(later.collect::<Origins>());
        cases.unreached.add(
            default
                .map(|line| line.origin)
                .into_iter()
                .collect::<Origins>(),
        );
    } else if let Some(line) = default {
        cases.add(
            Vec::new(),
            Vec::new(),
            config.backend(line.word(1)),
            &line.origin.into(),
        );
    } else if part
        .all("server")
        .chain(part.all("server-template"))
        .next()
        .is_some()
    {
        cases.add(Vec::new(), Vec::new(), Some(part), &Origins::default());
    }
}

/// Returns the names and protocols of a condition. `None`: it tests something else.
fn way_in(way: &[Test]) -> Option<(Vec<String>, Vec<String>)> {
    let (mut names, mut protocols) = (Vec::new(), Vec::new());
    for test in way {
        match test {
            Test::Name(all) if names.is_empty() => names.clone_from(all),
            Test::Protocol(all) if protocols.is_empty() => protocols.clone_from(all),
            Test::Tls => {}
            _ => return None,
        }
    }
    Some((names, protocols))
}

fn is_same(one: Option<&HaproxySection>, other: Option<&HaproxySection>) -> bool {
    one.map(|part| part.origin) == other.map(|part| part.origin)
}

impl<'a> BackendCases<'a> {
    fn add(
        &mut self,
        names: Vec<String>,
        protocols: Vec<String>,
        backend: Option<&'a HaproxySection>,
        from: &Origins,
    ) {
        self.names += 1 + names.len();
        // More names for the same backend belong to the same route.
        let same = self.all.iter_mut().find(|case| {
            is_same(case.target, backend)
                && case.target.is_some()
                && case.protocols == protocols
                && !case.names.is_empty()
                && !names.is_empty()
        });
        match same {
            Some(case) => {
                case.names.extend(names);
                case.from.add(from);
            }
            None => self.all.push(BackendCase {
                names,
                protocols,
                target: backend,
                from: from.clone(),
            }),
        }
    }

    /// Returns whether an earlier case leads some clients that ask for this name, or a name under this wildcard, to
    /// another backend. In HAProxy the end of a name may follow several labels.
    fn decide(&self, name: &str, backend: Option<&HaproxySection>) -> bool {
        let name = name.to_ascii_lowercase();
        let matches = |pattern: &String| {
            let end = pattern.strip_prefix('*').map(str::to_ascii_lowercase);
            end.is_some_and(|end| name.ends_with(&end))
        };
        let is_name = |earlier: &String| earlier.eq_ignore_ascii_case(&name);
        let mut others = self
            .all
            .iter()
            .filter(|case| !is_same(case.target, backend));
        // A rule about protocols alone is repeated for the names of later ones.
        others.any(|case| {
            case.names.is_empty() && case.protocols.is_empty()
                || case.names.iter().any(matches)
                || case.protocols.is_empty() && case.names.iter().any(is_name)
        })
    }

    /// Adds the cases of `%[req.ssl_sni,lower,map(FILE,DEFAULT)]`: each line of the file has a name
    /// and a backend. Returns whether no earlier rule decides for one of the names. `None`: the text is something else,
    /// or the file can't be read.
    fn of_map(&mut self, text: &str, config: &'a Config, from: &Origins) -> Option<bool> {
        let (file, default) = map(text)?;
        let text = config.files.text(&config.path("", file))?;
        let mut is_first = true;
        for entry in text.lines() {
            let mut words = entry.split_whitespace();
            let (Some(name), Some(backend)) = (words.next(), words.next()) else {
                continue;
            };
            // A missing backend leads to the default, as in HAProxy.
            let backend = config.backend(backend).filter(|_| !name.starts_with('#'));
            if backend.is_some() && self.names > NAMES_MAX {
                return None;
            }
            if backend.is_some() {
                is_first &= !self.decide(name, backend);
                self.add(vec![name.to_owned()], Vec::new(), backend, from);
            }
        }
        if let Some(backend) = default.and_then(|name| config.backend(name)) {
            self.add(Vec::new(), Vec::new(), Some(backend), from);
        }
        Some(is_first)
    }
}

/// Returns the file and the default of a map by server name.
fn map(text: &str) -> Option<(&str, Option<&str>)> {
    let inner = text.strip_prefix("%[")?.strip_suffix(']')?;
    let (fetch, rest) = inner.split_once(',')?;
    if !matches!(fetch, "req.ssl_sni" | "req_ssl_sni" | "ssl_fc_sni") {
        return None;
    }
    let rest = rest.strip_prefix("lower,").unwrap_or(rest);
    let inner = rest.strip_prefix("map(").or(rest.strip_prefix("map_str("));
    let inner = inner?.strip_suffix(')')?;
    Some(match inner.split_once(',') {
        Some((file, default)) => (file, Some(default)),
        None => (inner, None),
    })
}
