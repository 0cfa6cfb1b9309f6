//! As many routes and backends as a configuration may have. A step that compares all routes with each other takes minutes
//! with this number, longer than the tests wait.

use std::process::Command;

use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::terminator::Can;
use dormouse_interop::tools;

use crate::certificates::site::Site;

const ROUTES: usize = 10_000;
const BACKENDS: usize = 2_000;
/// One in this number of routes echoes by itself.
const ECHOES: usize = 1_000;

/// The routes, on one address; `name` gives each its server name.
fn routes(name: impl Fn(usize) -> String) -> String {
    let route = |n| {
        let to = match n % ECHOES {
            0 => "echo:".to_owned(),
            _ => {
                let backend = n % BACKENDS;
                format!("127.99.{}.{}:9", backend / 200, backend % 200 + 1)
            }
        };
        format!(
            "[[route]]\nname = 'tenant-{n}'\nlisten = 'LISTEN'\nserver_names = '{}'\nto = '{to}'\n\
             route_max_connections = 100\ncertificates = [{{ cert = 'HERE/{1}.pem', key = 'HERE/{1}.key' }}]\n",
            name(n),
            n % 4
        )
    };
    (0..ROUTES).map(route).collect()
}

fn connect(site: &Site, name: &str) -> Peer {
    let tcp = peer::connect_tcp(site.address).expect("a connection");
    let tls = peer::client_for(peer::config(), name);
    let mut peer = Peer::over(tcp, tls).unwrap_or_else(|error| panic!("{name}: {error}"));
    peer.echo()
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    peer
}

/// They are checked, started, reloaded and served, and the figures of some are shown by their names.
#[test]
#[ignore = "half a minute: ten thousand routes"]
fn ten_thousand_routes_are_served_and_reloaded() {
    requires!(Can::BeDormouse);
    let first = |n| format!("t{n}.a.example");
    let site = Site::new(&routes(first), |folder| {
        for n in 0..4 {
            let names = ["*.a.example", "*.b.example"];
            let files = authority().give_out_for("site", Kind::EcdsaP256, &names, folder);
            std::fs::rename(files.cert, folder.join(format!("{n}.pem"))).expect("moved");
            std::fs::rename(files.key, folder.join(format!("{n}.key"))).expect("moved");
        }
    });
    let echoes = (0..ROUTES).step_by(ECHOES);
    let mut before: Vec<Peer> = echoes.clone().map(|n| connect(&site, &first(n))).collect();
    let checked = Command::new(tools::dormouse())
        .arg("check")
        .arg(site.folder.path().join("dormouse.toml"))
        .output()
        .expect("dormouse check");
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{checked:?}");
    assert_eq!(said.matches("\nRoute tenant-").count() + 1, ROUTES);
    // Every second name is another, so routes are told from each other by their names.
    let second = |n| match n % (2 * ECHOES) {
        0 => first(n),
        _ => format!("t{n}.b.example"),
    };
    site.reload(&routes(second));
    for peer in &mut before {
        peer.echo().expect("an echo after the reload");
    }
    let after: Vec<Peer> = echoes.map(|n| connect(&site, &second(n))).collect();
    let (_, page) = site
        .admin
        .ask("GET", "/status?route=tenant-9000&route=tenant-17");
    let status: serde_json::Value = serde_json::from_str(&page).expect("JSON");
    let chosen = status["routes"].as_array().expect("routes");
    assert_eq!(chosen.len(), 2, "{chosen:?}");
    let of_9000 = chosen.iter().find(|one| one["name"] == "tenant-9000");
    let of_9000 = of_9000.expect("the route");
    assert_eq!(of_9000["connections"], 2);
    // Numbers by age may be some seconds old.
    assert!(of_9000["ages"]["under_1h"].as_u64() >= Some(1), "{of_9000}");
    let (_, metrics) = site.admin.ask("GET", "/metrics?route=tenant-90*");
    let sample = "dormouse_route_connections{route=\"tenant-9000\"} 2\n";
    assert!(metrics.contains(sample), "{sample}");
    drop(after);
}
