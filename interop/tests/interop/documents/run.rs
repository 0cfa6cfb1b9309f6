//! Runs a block's commands one after the other, as a reader would.

use std::path::{Path, PathBuf};
use std::time::Duration;

use dormouse_interop::machine::Machine;
use dormouse_interop::process::Process;
use dormouse_interop::wait::PATIENCE;

use super::page::{Block, repository};
use super::{configurations, neighbours};

/// Time for a long command: an audit, the demo, or a build that waits for one of another test.
const LONG: Duration = Duration::from_secs(900);

pub(super) fn block(page: &str, block: &Block) {
    let Some(machine) = Machine::start() else {
        return;
    };
    let place = format!("{page}:{}", block.line);
    match block.language.as_str() {
        "toml" => {
            neighbours::names(&machine);
            if let Err(why) = configurations::check(&machine, &block.text) {
                panic!("{place}: {why}");
            }
        }
        "yaml" => {
            machine.write("prometheus.yml", &block.text);
            machine.run("promtool check config prometheus.yml");
        }
        _ => {
            let _neighbours = neighbours::settle(&machine, page, &block.text);
            commands(&machine, &place, block);
        }
    }
}

fn commands(machine: &Machine, place: &str, block: &Block) {
    let folder = folder(machine, &block.text);
    let commands = block.commands();
    let mut server: Option<Process> = None;
    for (number, command) in commands.iter().enumerate() {
        println!("{place}: {command}");
        if is_server(command) {
            if let Some(former) = server.take() {
                machine.stop(former);
            }
            let mut started = machine.start_in(&folder, &with_our_binary(command));
            started.wait_for_line("ready", PATIENCE);
            // The next command of the page sends the request.
            let is_asked = commands.get(number + 1).is_some_and(|next| !is_ours(next));
            if !is_asked {
                ask(machine, command);
            }
            server = Some(started);
        } else if command.starts_with("openssl s_client") {
            converse(machine, command);
        } else {
            let (status, log) = machine.run_in(&folder, command, LONG);
            let is_fine = status.success() || (is_audit(command) && status.code() == Some(1));
            assert!(is_fine, "{place}: `{command}`: {status}\n{log}");
        }
    }
    if let Some(server) = server {
        machine.stop(server);
    }
}

/// The folder in which a reader would be: the repository, if the commands use its files.
fn folder(machine: &Machine, text: &str) -> PathBuf {
    let about_sources = ["make ", "cargo ", "packaging/"];
    if about_sources.iter().any(|word| text.contains(word)) {
        repository()
    } else {
        machine.home()
    }
}

/// Replaces the release build by the build of these tests.
fn with_our_binary(command: &str) -> String {
    command.replace("target/release/dormouse", "dormouse")
}

fn is_ours(command: &str) -> bool {
    with_our_binary(command).starts_with("dormouse ")
}

/// Audits exit with status 1 when there are findings.
fn is_audit(command: &str) -> bool {
    command.starts_with("dormouse audit ")
}

fn is_server(command: &str) -> bool {
    let last = command.rsplit("&& ").next().unwrap_or(command);
    let last = with_our_binary(last);
    ["dormouse serve ", "dormouse connect "]
        .iter()
        .any(|server| last.starts_with(server))
}

/// Sends a request to a server that was started with this command, through TLS if it terminates TLS.
fn ask(machine: &Machine, command: &str) {
    let address = listens(machine, command);
    if command.contains("dormouse connect") {
        let host = "Host: www.example.com";
        machine.run(&format!("curl -sS --fail -H '{host}' http://{address}/"));
    } else {
        converse(
            machine,
            &format!("openssl s_client -connect {address} -servername www.example.com -quiet"),
        );
    }
}

/// The address of a server: from its flags, or from its configuration.
fn listens(machine: &Machine, command: &str) -> String {
    let after = |text: &str, name: &str| {
        let (_, rest) = text.split_once(name)?;
        let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | ']');
        rest.split(is_end).next().map(str::to_owned)
    };
    let address = after(command, "--listen ").unwrap_or_else(|| {
        let file = after(command, "-c ").expect("flags or a configuration");
        let text = std::fs::read_to_string(Path::new(&machine.home()).join(file));
        let text = text.expect("its configuration").replace("[\"", "\"");
        after(&text, "listen = \"").expect("an address in the configuration")
    });
    let (host, port) = address.rsplit_once(':').expect("a host and a port");
    match host {
        "" | "*" | "0.0.0.0" | "[::]" => format!("127.0.0.1:{port}"),
        _ => address,
    }
}

/// Sends a line through an interactive client, and waits for the answer of an echo or web server.
fn converse(machine: &Machine, client: &str) {
    let script = format!(
        "{client} < <(printf 'GET / HTTP/1.0\\r\\n\\r\\n'; sleep 60) > answer 2>&1 & client=$!
         for try in $(seq 300); do grep -q HTTP/1 answer && break; sleep 0.1; done
         kill $client; grep HTTP/1 answer || {{ cat answer; exit 1; }}"
    );
    let (status, log) = machine.run_in(&machine.home(), &script, 2 * PATIENCE);
    assert!(status.success(), "`{client}`: no answer:\n{log}");
}
