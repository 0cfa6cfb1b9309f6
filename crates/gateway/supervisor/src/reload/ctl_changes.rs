//! Changes of the running configuration by `dormouse ctl`, which a reload ends: the file applies again.

use crate::configuration::edition::Edition;
use dormouse_config::{Config, Upstream};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};

/// Values that differ from those of the file, or did so for a while. The files say nothing of backends that are out, and have
/// no pushed certificates, so these need no note.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CtlChanges(BTreeSet<CtlChange>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum CtlChange {
    LogLevel,
    /// The weight of a backend in a route.
    Weight {
        route: String,
        backend: String,
    },
}

impl CtlChanges {
    /// What kept changes have changed in the configuration of the files, which a later reload may end.
    pub(crate) fn of(before: &Config, after: &Config) -> CtlChanges {
        let mut changes = CtlChanges::default();
        changes.note(before, after);
        changes
    }

    /// Notes what an order has changed.
    pub(crate) fn note(&mut self, before: &Config, after: &Config) {
        if before.log.log_level != after.log.log_level {
            self.0.insert(CtlChange::LogLevel);
        }
        for (route, former, next) in backends(before, after) {
            if former.weight != next.weight {
                let backend = next.to_string();
                self.0.insert(CtlChange::Weight { route, backend });
            }
        }
    }

    /// What ends when the configuration `next` follows the running one, in words.
    pub(crate) fn undone(&self, edition: &Edition, next: &Config) -> Vec<String> {
        let now = &edition.config;
        let pushed = edition.material.certificates.iter().flatten();
        let pushed = pushed.filter(|pem| pem.is_pushed).map(|pem| &pem.name);
        let pushed = pushed.collect::<BTreeSet<_>>().into_iter();
        let mut undone: Vec<String> = pushed
            .map(|name| format!("certificate no longer used: {name}"))
            .collect();
        for (route, former, next) in backends(now, next) {
            let shown = format!("backend {next} of route {route}");
            if former.out && !next.out {
                undone.push(format!("{shown} is in again"));
            }
            let backend = next.to_string();
            let (was, is) = (former.weight, next.weight);
            if was != is && self.0.contains(&CtlChange::Weight { route, backend }) {
                undone.push(format!(
                    "{shown} has the weight {is} again, no longer {was}"
                ));
            }
        }
        let (was, is) = (now.log.log_level, next.log.log_level);
        if was != is && self.0.contains(&CtlChange::LogLevel) {
            undone.push(format!("the log level is {is} again, no longer {was}"));
        }
        undone
    }
}

/// The backends that both configurations have in a route of the same name.
fn backends<'a>(
    before: &'a Config,
    after: &'a Config,
) -> impl Iterator<Item = (String, &'a Upstream, &'a Upstream)> {
    let former = before.route_names().into_iter().zip(&before.routes);
    let former: HashMap<String, _> = former.collect();
    let routes = after.route_names().into_iter().zip(&after.routes);
    routes.flat_map(move |(name, route)| {
        let former = former.get(&name).copied();
        route.to.iter().filter_map(move |next| {
            // A name may have other addresses now.
            let written = next.to_string();
            let is_same = |other: &&Upstream| other.to_string() == written;
            let former = former?.to.iter().find(is_same)?;
            Some((name.clone(), former, next))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::load::{self, Ready};
    use crate::configuration::occasion::{Occasion, Occupied, Purpose};
    use crate::configuration::source::Source;
    use dormouse_config::{LogLevel, Section};

    fn edition(weight: u32, log_level: &str) -> Edition {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("dormouse.toml");
        let text = format!(
            "log_level = '{log_level}'\n[[route]]\nname = 'web'\nlisten = '127.0.0.1:5001'\nself_signed = 'x'\n\
             to = [{{ address = '127.0.0.1:1', weight = {weight} }}, '127.0.0.1:2']\n"
        );
        std::fs::write(&file, text).expect("written");
        let source = Source {
            file: Some(file),
            section: Section::Route,
            flags: Vec::new(),
        };
        let occasion = Occasion {
            purpose: Purpose::Check,
            look_up: &|_, _| Ok(Vec::new()),
            occupied: &|_| Occupied::default(),
        };
        let ready = load::load(&source, &occasion);
        let Ready {
            loaded, material, ..
        } = ready.unwrap_or_else(|mistakes| panic!("{mistakes}"));
        Edition::new(1, 0, loaded.config, loaded.plan, material)
    }

    #[test]
    fn a_reload_names_what_it_ends_of_the_orders_and_nothing_else() {
        let mut running = edition(5, "info");
        let mut changes = CtlChanges::default();
        // The files have changed, and nothing else.
        let next = edition(7, "debug").config;
        assert_eq!(changes.undone(&running, &next), [""; 0]);

        let before = running.config.clone();
        running.config.log.log_level = LogLevel::Trace;
        let [first, second, ..] = &mut running.config.routes[0].to[..] else {
            panic!("two backends");
        };
        (first.weight, second.out) = (9, true);
        changes.note(&before, &running.config);
        running.material.certificates[0][0].change(|pem| pem.is_pushed = true);
        let undone = changes.undone(&running, &next);
        let expected = [
            "certificate no longer used: self_signed x",
            "backend 127.0.0.1:1 of route web has the weight 7 again, no longer 9",
            "backend 127.0.0.1:2 of route web is in again",
            "the log level is debug again, no longer trace",
        ];
        assert_eq!(undone, expected);
        // The next binary knows as much.
        let text = serde_json::to_string(&changes).expect("JSON");
        let read: CtlChanges = serde_json::from_str(&text).expect("the same");
        assert_eq!(read.undone(&running, &next), expected);
        // The file has now what the order had set.
        assert_eq!(read.undone(&running, &running.config.clone()).len(), 1);
    }
}
