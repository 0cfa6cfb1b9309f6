//! What a reader of the documents already has: certificates, a configuration, servers.

use std::fs;

use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::machine::Machine;
use dormouse_interop::process::Process;
use dormouse_interop::{tools, wait};

use super::page::blocks;

/// Server names in the documents.
const NAMES: [&str; 5] = [
    "localhost",
    "example.com",
    "example.org",
    "www.example.com",
    "redis.example.com",
];

/// Names of other machines in configurations.
const BACKENDS: [&str; 6] = [
    "app.internal",
    "app1.internal",
    "app2.internal",
    "ca.internal",
    "tickets.internal",
    "db.example.com",
];

/// The configuration that the documents mention without showing it.
const CONFIGURATION: &str = r#"[[route]]
listen = "127.0.0.1:8443"
to = "127.0.0.1:8080"
certificates = { cert = "site.pem", key = "site.key" }
"#;

/// A web server with TLS, and an echo server with TLS, for the pages on `audit`, `bench` and `connect`.
const NGINX: &str = "
user root;
daemon off;
worker_processes 4;
pid nginx.pid;
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
events { worker_connections 15000; }
http {
    access_log off;
    server { listen 127.0.0.1:443 ssl; ssl_certificate site.pem; ssl_certificate_key site.key;
             location / { return 200 here; } }
}
stream {
    server { listen 127.0.0.1:8443 ssl reuseport; ssl_certificate site.pem; ssl_certificate_key site.key;
             proxy_pass 127.0.0.1:7000; }
}
";

const ECHO: &str = "
import asyncio
async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()
async def main():
    async with await asyncio.start_server(echo, '127.0.0.1', 7000, backlog=4096) as server:
        await server.serve_forever()
asyncio.run(main())
";

const TLS_SERVER: &str = "
const fs = require('fs');
const files = { cert: fs.readFileSync('site.pem'), key: fs.readFileSync('site.key') };
require('tls').createServer(files, (peer) => peer.pipe(peer).on('error', () => {})).listen(8443, '127.0.0.1');
";

const FETCH: &str = "
use LWP::UserAgent;
print LWP::UserAgent->new->get($ARGV[0])->status_line, \"\\n\";
";

/// Cargo with the profile of the tests, and with their selection of packages: by another one, dependencies have other
/// features, and all that uses them is compiled again. That a release can be built, too, is tested beside the pages.
const CARGO: &str = "#!/usr/bin/env bash
arguments=()
for argument; do [ \"$argument\" = --release ] || arguments+=(\"$argument\"); done
[ \"$*\" != 'build --release' ] || arguments+=(--workspace --bin dormouse)
exec CARGO \"${arguments[@]}\"
";

/// The same for what `make` builds.
const MAKE: &str = "#!/bin/sh\nPROFILE=dev exec MAKE \"$@\"\n";

const NOTHING: &str = "#!/bin/sh\necho \"$0 $*\"\n";

/// Prepares the machine for a block of a page. Returns the processes that run beside the commands.
pub(super) fn settle(machine: &Machine, page: &str, text: &str) -> Vec<Process> {
    files(machine, page);
    let start = |command: &str| machine.start_in(&machine.home(), command);
    let until_listening = |port: u16| {
        wait::until(&format!("port {port}"), wait::PATIENCE, || {
            let look = format!("exec 2>/dev/null; : < /dev/tcp/127.0.0.1/{port}");
            let (status, _) = machine.run_in(&machine.home(), &look, wait::PATIENCE);
            status.success().then_some(())
        });
    };
    let mut running = Vec::new();
    if !text.contains("--listen 127.0.0.1:8080") {
        running.push(start("python3 -m http.server 8080 --bind 127.0.0.1"));
        until_listening(8080);
    }
    if text.contains("pgrep -o -x nginx") || text.contains("www.example.com:443") {
        running.push(start("exec python3 echo.py"));
        running.push(start("exec nginx -e stderr -p . -c nginx.conf"));
        until_listening(7000);
        until_listening(443);
        if text.contains("'node server.js'") {
            // Node uses this port.
            machine.run(
                "sed -i '/^stream/,$d' nginx.conf; nginx -e stderr -p . -c nginx.conf -s reload",
            );
        }
    }
    if text.contains("redis-cli") {
        machine.run("mkdir /run/redis");
        running.push(start("exec redis-server redis.conf --dir ."));
    }
    let speaks_of_running_one = [
        "reload",
        "drain",
        "upgrade",
        "status",
        "ctl",
        "connections",
        "close",
    ];
    if speaks_of_running_one
        .iter()
        .any(|command| text.contains(&format!("dormouse {command}")))
    {
        let mut server = start("dormouse serve -c dormouse.toml");
        server.wait_for_line("ready", wait::PATIENCE);
        running.push(server);
        machine.run(
            "mkdir /run/edge /opt/dormouse-2.0; ln -s /run/dormouse/admin.sock /run/edge/; \
             cp $(readlink -f $(command -v dormouse)) /opt/dormouse-2.0/dormouse",
        );
    }
    running
}

/// Makes the names of the documents resolvable.
pub(super) fn names(machine: &Machine) {
    let here = NAMES.map(|name| format!("127.0.0.1 {name}\n")).concat();
    let elsewhere = BACKENDS.map(|name| format!("127.0.0.2 {name}\n")).concat();
    machine.write("/etc/hosts", &(here + &elsewhere));
}

fn files(machine: &Machine, page: &str) {
    let home = machine.home();
    authority().give_out_for("site", Kind::EcdsaP256, &NAMES, &home);
    let trusted = fs::read_to_string(authority().trust()).expect("the authority");
    machine.write("ca.pem", &trusted);
    let system = fs::read_to_string("/etc/ssl/certs/ca-certificates.crt").unwrap_or_default();
    machine.write("/etc/ssl/certs/ca-certificates.crt", &(system + &trusted));
    names(machine);
    machine.write("dormouse.toml", CONFIGURATION);
    machine.write("nginx.conf", NGINX);
    machine.write("echo.py", ECHO);
    machine.write("server.js", TLS_SERVER);
    machine.write("fetch.pl", FETCH);
    machine.install("cargo", &CARGO.replace("CARGO", env!("CARGO")));
    machine.install("make", &MAKE.replace("MAKE", &tools::path("make")));
    // This machine has no service manager and no package manager.
    machine.install("systemctl", NOTHING);
    machine.install("apt", NOTHING);
    former_terminators(machine);
    files_of_the_page(machine, page);
}

/// Configurations of the programs from which a reader migrates.
fn former_terminators(machine: &Machine) {
    let cert = machine.home().join("site.pem").display().to_string();
    let key = machine.home().join("site.key").display().to_string();
    let both = machine.home().join("site.both.pem").display().to_string();
    machine.write(
        "/etc/haproxy/haproxy.cfg",
        &format!(
            "defaults\n    mode tcp\n    timeout connect 5s\n    timeout client 1m\n    timeout server 1m\n\
             listen web\n    bind 127.0.0.1:443 ssl crt {both}\n    server one 127.0.0.1:8080\n"
        ),
    );
    machine.write(
        "/etc/hitch/hitch.conf",
        &format!(
            "frontend = {{\n    host = \"127.0.0.1\"\n    port = \"443\"\n}}\n\
             backend = \"[127.0.0.1]:8080\"\npem-file = \"{both}\"\n"
        ),
    );
    machine.write(
        "/etc/nginx/nginx.conf",
        &format!(
            "events {{}}\nstream {{\n    server {{\n        listen 127.0.0.1:443 ssl;\n        \
             ssl_certificate {cert};\n        ssl_certificate_key {key};\n        \
             proxy_pass 127.0.0.1:8080;\n    }}\n}}\n"
        ),
    );
    machine.write(
        "/etc/stunnel/stunnel.conf",
        &format!("[web]\naccept = 127.0.0.1:443\nconnect = 127.0.0.1:8080\ncert = {both}\n"),
    );
}

/// Blocks that are files: their first line is a comment with the file name.
fn files_of_the_page(machine: &Machine, page: &str) {
    for block in blocks(page)
        .iter()
        .filter(|block| block.language.is_empty())
    {
        let first = block.text.lines().next().unwrap_or_default();
        if let Some(name) = first.strip_prefix("# ").filter(|name| !name.contains(' ')) {
            machine.write(name, &block.text);
        }
    }
}
