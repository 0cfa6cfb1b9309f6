//! Follows ghostunnel's page: the commands above its example run, clients with certificates send requests to both
//! ends, Dormouse with the example replaces ghostunnel, and the clients get the same answers.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;

use dormouse_interop::certificates::{Files, Kind, authority};
use dormouse_interop::process::Process;
use dormouse_interop::scene::{PLAIN_PORT, unused_host};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use dormouse_interop::web::Web;
use rcgen::{DnType, SanType};

use super::import::{dormouse, ready};

const PAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../docs/guide/moving-from-ghostunnel.md"
);
const SERVER: &str = "db.example.com";
const SERVER_PORT: u16 = 8443;
const CLIENT_PORT: u16 = 8081;

/// The first example of the page: ghostunnel's commands, which are comments there, and the file.
fn example() -> (Vec<String>, String) {
    let page = fs::read_to_string(PAGE).expect("the page");
    let block = page.split("```toml\n").nth(1).expect("an example");
    let block = block.split("```").next().unwrap_or_default().to_owned();
    let comments = block.lines().filter_map(|line| line.strip_prefix("# "));
    let comments: Vec<&str> = comments.map(str::trim).collect();
    let joined = comments.join("\n").replace("\\\n", "");
    let commands = joined
        .lines()
        .filter(|line| line.starts_with("ghostunnel "));
    (commands.map(str::to_owned).collect(), block)
}

/// Addresses, names and files of this test; they replace those of the page.
struct Scene {
    host: IpAddr,
    folder: tempfile::TempDir,
    web: Web,
    staff: Files,
    guest: Files,
}

impl Scene {
    fn new() -> Scene {
        let folder = tempfile::tempdir().expect("a folder");
        let here = folder.path();
        authority().give_out_for("server", Kind::EcdsaP256, &[SERVER], here);
        let of_unit = |name: &str, unit: &str| {
            authority().give_out_with(name, Kind::EcdsaP256, here, |params| {
                let uri = "spiffe://example.org/ns/db/x".try_into().expect("a URI");
                params.subject_alt_names = vec![SanType::URI(uri)];
                let unit_name = DnType::OrganizationalUnitName;
                params.distinguished_name.push(unit_name, unit);
            })
        };
        let (staff, guest) = (of_unit("client", "staff"), of_unit("guest", "guests"));
        for name in ["clients-ca.pem", "servers-ca.pem"] {
            fs::copy(authority().trust(), here.join(name)).expect("copied");
        }
        let host = unused_host();
        Scene {
            host,
            web: Web::start(SocketAddr::new(host, PLAIN_PORT)),
            staff,
            guest,
            folder,
        }
    }

    fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.host, port)
    }

    fn placed(&self, text: &str) -> String {
        let mut text = text
            .replace("0.0.0.0:8443", &self.at(SERVER_PORT).to_string())
            .replace("db.example.com:8443", &self.at(SERVER_PORT).to_string())
            .replace("127.0.0.1:8080", &self.web.address().to_string())
            .replace("127.0.0.1:8081", &self.at(CLIENT_PORT).to_string());
        for name in [
            "clients-ca.pem",
            "servers-ca.pem",
            "server.pem",
            "server.key",
            "client.pem",
            "client.key",
        ] {
            let path = self.folder.path().join(name).display().to_string();
            text = text
                .replace(&format!("\"{name}\""), &format!("\"{path}\""))
                .replace(&format!(" {name}"), &format!(" {path}"));
        }
        text
    }

    /// What curl gets with this certificate at the server: the status, or that there was no answer.
    fn status_with(&self, files: Option<&Files>) -> String {
        let mut command = curl();
        command.arg("--cacert").arg(authority().trust());
        if let Some(files) = files {
            command
                .arg("--cert")
                .arg(&files.cert)
                .arg("--key")
                .arg(&files.key);
        }
        let place = format!("{SERVER}:{SERVER_PORT}:{}", self.host);
        command.args(["--resolve", &place]);
        status(command.arg(format!("https://{SERVER}:{SERVER_PORT}/bytes/5000")))
    }

    /// What a program without TLS gets at the client's end.
    fn plain_status(&self) -> String {
        status(curl().arg(format!("http://{}/bytes/5000", self.at(CLIENT_PORT))))
    }

    fn assert_serves(&self) {
        assert_eq!(self.status_with(Some(&self.staff)), "200 5000");
        assert_eq!(self.status_with(Some(&self.guest)), "no answer");
        assert_eq!(self.status_with(None), "no answer");
        assert_eq!(self.plain_status(), "200 5000");
    }

    fn wait_for(&self, port: u16) {
        let at = self.at(port);
        wait::until_listening("the program", at);
    }
}

fn curl() -> Command {
    let mut command = Command::new(tools::path("curl"));
    command.args([
        "--silent",
        "--show-error",
        "--max-time",
        "30",
        "--output",
        "/dev/null",
    ]);
    command.args(["--write-out", "%{http_code} %{size_download}"]);
    command
}

fn status(command: &mut Command) -> String {
    let output = command.output().expect("curl runs");
    match output.status.success() {
        true => String::from_utf8_lossy(&output.stdout).into_owned(),
        false => "no answer".to_owned(),
    }
}

fn start(name: &str, words: &str, folder: &Path) -> Process {
    let mut command: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    command[0] = tools::path(&command[0]);
    Process::start(name, &command, folder)
}

#[test]
fn the_example_of_the_page_replaces_ghostunnel() {
    requires!(ready("ghostunnel"), "curl");
    let scene = Scene::new();
    let here = scene.folder.path();
    let (commands, config) = example();
    let [server, client] = commands.as_slice() else {
        panic!("the page has a server and a client: {commands:?}");
    };
    // The test's web server has another address than the page's.
    let server = format!("{} --unsafe-target", scene.placed(server));
    // The page's name does not resolve here, and its client listens on localhost.
    let client = format!(
        "{} --override-server-name {SERVER} --unsafe-listen",
        scene.placed(client)
    );
    let mut config = scene.placed(&config);
    config = config.replace(
        "[[originate]]\n",
        &format!("[[originate]]\nserver_name = \"{SERVER}\"\n"),
    );
    {
        let _server = start("ghostunnel server", &server, here);
        scene.wait_for(SERVER_PORT);
        let _client = start("ghostunnel client", &client, here);
        scene.wait_for(CLIENT_PORT);
        scene.assert_serves();
    }
    let file = here.join("dormouse.toml").display().to_string();
    fs::write(&file, format!("admin = \"none\"\n{config}")).expect("written");
    let checked = dormouse(&["check", &file]);
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}\n{config}");
    let mut process = start(
        "dormouse",
        &format!("{} serve {file}", tools::dormouse().display()),
        here,
    );
    process.wait_for_line("ready", PATIENCE);
    scene.assert_serves();
}
