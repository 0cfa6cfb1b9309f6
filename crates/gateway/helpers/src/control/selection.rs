//! The choice of routes and backends for an answer: `?route=shop&route=tenant-*&backend=10.0.0.*`.
//!
//! Without a choice, an answer has the first few hundred, because each route has dozens of metrics.

use super::view::View;
use dormouse_handover::control::{Backend, Route};

/// Number of routes, and of backends, in an answer without a choice.
const FIRST: usize = 200;

/// Which routes and backends an answer has. A pattern is a name, or the beginning of one with `*` at its end.
#[derive(Debug, Default)]
pub(super) struct Selection {
    routes: Vec<String>,
    backends: Vec<String>,
}

impl Selection {
    /// Reads the parameters of a request. The error names an unknown one.
    pub(super) fn of(query: &[(String, String)]) -> Result<Selection, String> {
        let mut selection = Selection::default();
        for (name, pattern) in query {
            match name.as_str() {
                "route" => selection.routes.push(pattern.clone()),
                "backend" => selection.backends.push(pattern.clone()),
                _ => {
                    return Err(format!(
                        "no parameter `{name}`; `route` and `backend` choose by name, with `*` at the end for several"
                    ));
                }
            }
        }
        Ok(selection)
    }

    fn is_open(&self) -> bool {
        self.routes.is_empty() && self.backends.is_empty()
    }

    fn most(&self) -> usize {
        if self.is_open() { FIRST } else { usize::MAX }
    }

    /// The chosen routes. If only backends are chosen, there are none.
    pub(super) fn routes<'a>(&'a self, view: &'a View) -> impl Iterator<Item = &'a Route> {
        let all = view.listed.routes.iter();
        let chosen = all.filter(|route| self.is_open() || matches(&self.routes, &route.name));
        chosen.take(self.most())
    }

    /// The chosen backends: those with such an address or name, and those of the chosen routes.
    pub(super) fn backends<'a>(&'a self, view: &'a View) -> impl Iterator<Item = &'a Backend> {
        let is_chosen = |backend: &&Backend| {
            let mut routes = backend.routes.iter();
            let mut names = backend.name.iter().chain([&backend.address]);
            self.is_open()
                || routes.any(|route| matches(&self.routes, route))
                || names.any(|name| matches(&self.backends, name))
        };
        view.listed
            .backends
            .iter()
            .filter(is_chosen)
            .take(self.most())
    }
}

fn matches(patterns: &[String], name: &str) -> bool {
    let mut patterns = patterns.iter();
    patterns.any(|pattern| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    })
}
