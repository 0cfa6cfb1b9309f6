//! What an order changes in a configuration.

use dormouse_config::{Backend, Config, Upstream, WEIGHT_MAX};
use dormouse_handover::control::{BackendChange, RunningChange};
use std::net::SocketAddr;

/// Changes a configuration, and returns what it has now, in words. On an error nothing has changed.
pub(crate) fn apply(config: &mut Config, change: &RunningChange) -> Result<String, String> {
    match change {
        RunningChange::LogLevel(level) => {
            config.log.log_level = *level;
            Ok(format!("the log level is {level}"))
        }
        RunningChange::Backend {
            address,
            route,
            change,
        } => change_backend(config, address, route.as_deref(), *change),
    }
}

/// Whether the configuration has what an order is for.
pub(crate) fn is_known(config: &Config, change: &RunningChange) -> bool {
    let RunningChange::Backend { address, route, .. } = change else {
        return true;
    };
    let mut routes = config.route_names().into_iter().zip(&config.routes);
    routes.any(|(name, of_route)| {
        route.as_ref().is_none_or(|one| *one == name)
            && of_route.to.iter().any(|one| is_called(one, address))
    })
}

/// Changes a backend in one route, or in all routes that have it.
fn change_backend(
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
    let names = config.route_names().into_iter();
    let of_order = |name: &str| route.is_none_or(|one| one == name);
    for (index, (name, of_route)) in names.zip(&config.routes).enumerate() {
        if !of_order(&name) || !of_route.to.iter().any(|one| is_called(one, address)) {
            continue;
        }
        let is_left = |one: &Upstream| !one.out && !is_called(one, address);
        if change == BackendChange::Out && !of_route.to.iter().any(is_left) {
            return Err(format!(
                "route {name} would have no backend left: put another backend in first, \
                 or drain with `dormouse drain`"
            ));
        }
        changed.push((index, name));
    }
    if changed.is_empty() {
        return Err(unknown(config, address, route));
    }
    for (index, _) in &changed {
        let backends = config.routes[*index].to.iter_mut();
        for upstream in backends.filter(|one| is_called(one, address)) {
            match change {
                BackendChange::In => upstream.out = false,
                BackendChange::Out => upstream.out = true,
                BackendChange::Weight(weight) => upstream.weight = weight,
            }
        }
    }
    let now = match change {
        BackendChange::In => "is in".to_owned(),
        BackendChange::Out => "is out: no new connections, open ones continue".to_owned(),
        BackendChange::Weight(weight) => format!("has the weight {weight}"),
    };
    let routes: Vec<_> = changed.into_iter().map(|(_, name)| name).collect();
    Ok(format!(
        "backend {address} of route {} {now}",
        routes.join(", ")
    ))
}

/// Whether this is the backend `address`: as written in the configuration, or as its only address. A list of what is kept
/// asks this of all backends for each line.
pub(super) fn is_called(upstream: &Upstream, address: &str) -> bool {
    match &upstream.backend {
        Backend::Tcp { given, addresses } => {
            given == address
                || matches!(addresses[..], [only] if address.parse().is_ok_and(|given: SocketAddr| given == only))
        }
        other => other.to_string() == address,
    }
}

fn unknown(config: &Config, address: &str, route: Option<&str>) -> String {
    let of_name = |upstream: &&Upstream| {
        let mut addresses = upstream.backend.addresses();
        addresses.any(|one| one.to_string() == address)
    };
    if let Some(name) = config
        .upstreams()
        .find(of_name)
        .and_then(|one| one.backend.name())
    {
        return format!("{address} is one address of {name}; use the name {name}");
    }
    let known: Vec<String> = config
        .upstreams()
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
        config.upstreams().map(|upstream| upstream.out).collect()
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
