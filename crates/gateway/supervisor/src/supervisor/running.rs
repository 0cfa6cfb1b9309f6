//! Orders that change the running configuration without its files. A change lasts until the next reload,
//! which reads the files again; crashes of workers and upgrades keep it.

use super::Supervisor;
use crate::edition;
use crate::reload_report::Cause;
use dormouse_config::{Backend, Config, LogLevel, Upstream, WEIGHT_MAX};
use dormouse_handover::control::BackendChange;

impl Supervisor {
    /// Changes the running configuration. The answer is sent when all workers follow it.
    pub(super) fn change(
        &mut self,
        id: u64,
        change: impl FnOnce(&mut Config) -> Result<String, String>,
    ) {
        match self.try_change(change) {
            Ok(words) => {
                tracing::info!(change = words, "configuration changed by an admin command");
                self.reload.wait(Cause::Order, vec![id], words);
                self.finish_reload_if_complete();
            }
            Err(why) => self.answer(id, Err(why)),
        }
    }

    fn try_change(
        &mut self,
        change: impl FnOnce(&mut Config) -> Result<String, String>,
    ) -> Result<String, String> {
        if let Some(why) = self.refusal_of_change() {
            return Err(why);
        }
        let edition = &self.serving.edition;
        let mut config = edition.config.clone();
        let words = change(&mut config)?;
        let material = edition.material.clone();
        let before = edition.config.clone();
        self.serving
            .apply(config, material, self.drain.is_under_way())?;
        let after = &self.serving.edition.config;
        self.history.ctl_changes.note(&before, after);
        (self.set_logs)(&after.log);
        self.follow_edition();
        Ok(words)
    }
}

/// Changes the log level.
pub(super) fn set_log_level(config: &mut Config, level: LogLevel) -> String {
    config.log.log_level = level;
    format!("the log level is {level} until the next reload")
}

/// Changes a backend in one route, or in all routes that have it.
pub(super) fn change_backend(
    config: &mut Config,
    address: &str,
    route: Option<&str>,
    change: BackendChange,
) -> Result<String, String> {
    if let BackendChange::Weight(weight) = change
        && !(1..=WEIGHT_MAX).contains(&weight)
    {
        return Err(format!(
            "`{weight}` is not a valid weight; use 1 to {WEIGHT_MAX}"
        ));
    }
    let mut changed = Vec::new();
    let names = config.route_names();
    for (name, of_route) in names.into_iter().zip(&mut config.routes) {
        if route.is_some_and(|one| one != name) {
            continue;
        }
        for upstream in of_route.to.iter_mut().filter(|one| is_called(one, address)) {
            match change {
                BackendChange::In => upstream.out = false,
                BackendChange::Out => upstream.out = true,
                BackendChange::Weight(weight) => upstream.weight = weight,
            }
            changed.push(name.clone());
        }
        if changed.last() == Some(&name) && of_route.to.iter().all(|upstream| upstream.out) {
            return Err(format!(
                "route {name} would have no backend left: put another backend in first, \
                 or drain with `dormouse drain`"
            ));
        }
    }
    if changed.is_empty() {
        return Err(unknown(config, address, route));
    }
    let now = match change {
        BackendChange::In => "is in".to_owned(),
        BackendChange::Out => "is out: no new connections, open ones continue".to_owned(),
        BackendChange::Weight(weight) => format!("has the weight {weight}"),
    };
    Ok(format!(
        "until the next reload, backend {address} of route {} {now}",
        changed.join(", ")
    ))
}

/// Whether this is the backend `address`: as written in the configuration, or as its only address.
fn is_called(upstream: &Upstream, address: &str) -> bool {
    let addresses = edition::addresses(&upstream.backend);
    let given = match &upstream.backend {
        Backend::Tcp { given, .. } => given == address,
        other => other.to_string() == address,
    };
    given || matches!(addresses.as_slice(), [only] if only == address)
}

fn unknown(config: &Config, address: &str, route: Option<&str>) -> String {
    let of_name = |upstream: &&Upstream| {
        let addresses = edition::addresses(&upstream.backend);
        addresses.iter().any(|one| one == address)
    };
    if let Some(name) = edition::upstreams(config)
        .find(of_name)
        .and_then(|one| one.backend.name())
    {
        return format!("{address} is one address of {name}; use the name {name}");
    }
    let known: Vec<String> = edition::upstreams(config)
        .map(ToString::to_string)
        .take(20)
        .collect();
    let of_route = route.map_or(String::new(), |route| format!(" of route {route}"));
    format!(
        "no backend {address}{of_route}; the configuration has: {}",
        known.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_config::{Machine, Section, load_with};
    use std::io::Write as _;

    fn config() -> Config {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let text = "[[route]]\nlisten = '127.0.0.1:5001'\nself_signed = 'x'\n\
            to = ['127.0.0.1:5002', 'app:5003', 'unix:/run/app.sock']\n\
            [[route]]\nlisten = '127.0.0.1:5004'\nself_signed = 'x'\nto = ['127.0.0.1:5002', '127.0.0.1:5005']\n";
        write!(file, "{text}").expect("written");
        let app = |_: &str, port: u16| {
            Ok(vec![
                ([10, 0, 0, 1], port).into(),
                ([10, 0, 0, 2], port).into(),
            ])
        };
        let loaded = load_with(
            Some(file.path()),
            Section::Route,
            &[],
            &Machine::read(),
            &app,
            &|_| Vec::new(),
        );
        loaded
            .unwrap_or_else(|mistakes| panic!("{mistakes}"))
            .config
    }

    fn outs(config: &Config) -> Vec<bool> {
        edition::upstreams(config)
            .map(|upstream| upstream.out)
            .collect()
    }

    #[test]
    fn a_backend_is_taken_out_of_all_routes_or_one() {
        let mut config = config();
        let words = change_backend(&mut config, "127.0.0.1:5002", None, BackendChange::Out);
        assert!(
            words
                .expect("a backend of two routes")
                .contains("of route 1, 2 is out")
        );
        assert_eq!(outs(&config), [true, false, false, true, false]);
        let words = change_backend(&mut config, "127.0.0.1:5002", Some("2"), BackendChange::In);
        words.expect("a known backend");
        assert_eq!(outs(&config), [true, false, false, false, false]);
        let words = change_backend(&mut config, "app:5003", None, BackendChange::Weight(7));
        words.expect("by its name");
        assert_eq!(config.routes[0].to[1].weight, 7);
        change_backend(&mut config, "unix:/run/app.sock", None, BackendChange::Out)
            .expect("by its path");
    }

    #[test]
    fn impossible_changes_are_explained() {
        let mut config = config();
        let mut refused = |address, route, change| {
            change_backend(&mut config, address, route, change).expect_err("an invalid change")
        };
        let why = refused("10.0.0.2:5003", None, BackendChange::Out);
        assert_eq!(
            why,
            "10.0.0.2:5003 is one address of app:5003; use the name app:5003"
        );
        let why = refused("10.9.9.9:1", Some("2"), BackendChange::Out);
        assert!(
            why.starts_with(
                "no backend 10.9.9.9:1 of route 2; the configuration has: 127.0.0.1:5002,"
            ),
            "{why}"
        );
        let why = refused("app:5003", None, BackendChange::Weight(0));
        assert_eq!(why, "`0` is not a valid weight; use 1 to 1000");
        change_backend(&mut config, "127.0.0.1:5005", None, BackendChange::Out)
            .expect("another is left");
        let why = change_backend(&mut config, "127.0.0.1:5002", Some("2"), BackendChange::Out);
        assert!(
            why.expect_err("the last backend cannot be taken out")
                .starts_with("route 2 would have no backend left")
        );
    }
}
