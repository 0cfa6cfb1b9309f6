//! An operator's day, from the morning's deployment to an alert in the night: four tenants with real servers behind one
//! program, and after each step every connection is asked that the step was not about.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use dormouse_interop::admin::Admin;
use dormouse_interop::certificates::{Files, Kind, authority};
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::process::{Process, signal};
use dormouse_interop::requirement::Root;
use dormouse_interop::scene::unused_host;
use dormouse_interop::terminator::Can;
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rcgen::SerialNumber;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::audit::starttls::postgres_programs;

/// Connections of each tenant.
const EACH: usize = 6;
const METRICS_PORT: u16 = 9901;
const PROMETHEUS_PORT: u16 = 9090;

#[test]
#[ignore = "takes a minute or more"]
fn nobody_loses_a_connection_on_an_operators_day() {
    let programs = [
        "mosquitto",
        "redis-server",
        "nginx",
        "prometheus",
        "dnsmasq",
    ];
    requires!(
        Can::BeDormouse,
        Root,
        tools::present(&programs),
        "curl",
        "unshare"
    );
    let Some(mut day) = Day::deploy() else {
        return;
    };
    day.rotate_a_certificate();
    day.revoke_a_client();
    day.drain_one_backend();
    day.end_one_tenants_connections();
    day.upgrade();
    day.lose_the_dns_server();
    day.fill_the_disk();
    day.an_alert_fires();
}

/// What is there in the morning. Each step asserts that all connections of other tenants are still there.
struct Day {
    clients: Vec<Client>,
    gateway: Process,
    admin: Admin,
    prometheus: Process,
    dns: Process,
    /// The two servers of the web tenant.
    web: [Server; 2],
    _servers: Vec<Server>,
    host: IpAddr,
    folder: TempDir,
}

// ---- the day ----

impl Day {
    /// Checks the configuration, starts everything, and lets clients of all tenants connect.
    fn deploy() -> Option<Day> {
        let folder = tempfile::tempdir().expect("a folder");
        let here = folder.path();
        fs::set_permissions(here, Permissions::from_mode(0o755)).expect("its mode");
        for tenant in Tenant::ALL {
            tenant.write_certificate(here);
        }
        fs::write(here.join("revoked.pem"), authority().revocation_list(&[])).expect("written");
        let [mqtt, cache, db] = [(); 3].map(|()| SocketAddr::new(unused_host(), 7_000));
        let web = [(); 2].map(|()| SocketAddr::new(unused_host(), 7_000));
        let servers = vec![
            mosquitto(mqtt, here),
            redis(cache, here),
            postgres(db, here)?,
        ];
        let host = unused_host();
        let dns = dnsmasq(host, cache.ip(), here);
        let routes = Tenant::ALL.map(|tenant| {
            let to = match tenant {
                Tenant::Mqtt => format!("to = '{mqtt}'\nclient_certificates = 'required'\nclient_ca = '{}'\nclient_crl = 'revoked.pem'", authority().trust().display()),
                Tenant::Cache => "to = 'cache.day.test:7000'".to_owned(),
                Tenant::Db => format!("to = '{db}'\nstarttls = 'postgres'"),
                Tenant::Web => format!("to = ['{}', '{}']\nalpn = ['h2']", web[0], web[1]),
            };
            let name = tenant.name();
            format!(
                "[[route]]\nname = '{name}'\nlisten = '{}'\n{to}\n\
                 certificates = [{{ cert = '{name}.pem', key = '{name}.key' }}]\n",
                tenant.address(host)
            )
        });
        let configuration = here.join("dormouse.toml");
        let text = format!(
            "workers = 2\nadmin = 'admin.sock'\nmetrics = '{host}:{METRICS_PORT}'\n\
             connection_log = 'logs/connections.log'\nreload_certificates = '100ms'\nresolve_every = '1s'\n{}",
            routes.concat()
        );
        fs::write(&configuration, text).expect("written");
        let gateway = gateway(here, host);
        let mut day = Day {
            clients: Vec::new(),
            prometheus: prometheus(host, here),
            admin: Admin::at(&here.join("admin.sock")),
            web: web.map(|address| nginx(address, here)),
            _servers: servers,
            gateway,
            dns,
            host,
            folder,
        };
        day.dormouse(&["check", "-c", &configuration.to_string_lossy()]);
        for tenant in Tenant::ALL {
            day.connect(tenant, EACH);
        }
        day.all_are_there();
        Some(day)
    }

    /// New clients get the new certificate; nobody else notices.
    fn rotate_a_certificate(&mut self) {
        let shown = |day: &Day| {
            let peer = Tenant::Cache.handshake(day, 0).expect("a handshake");
            let chain = peer.tls.peer_certificates().expect("a certificate");
            chain[0].to_vec()
        };
        let before = shown(self);
        Tenant::Cache.write_certificate(self.folder.path());
        wait::until_true("the new certificate", || shown(self) != before);
        self.all_are_there();
    }

    /// A device is lost: its certificate is revoked, and its connection closed by its address.
    fn revoke_a_client(&mut self) {
        let lost = serial(2);
        let list = authority().revocation_list(&[lost]);
        fs::write(self.folder.path().join("revoked.pem"), list).expect("written");
        wait::until_true("the client to be refused", || {
            Tenant::Mqtt.open(self, 2).is_err()
        });
        let address = Tenant::Mqtt.client_ip(2).to_string();
        let said = self.dormouse(&["close", "--route", "mqtt", "--client", &address]);
        assert_eq!(said, "closed 1 connection\n");
        self.take(
            |client| client.tenant == Tenant::Mqtt && client.number == 2,
            1,
        );
        self.all_are_there();
    }

    /// One web server gets new software: its connections move, and those of the other stay.
    fn drain_one_backend(&mut self) {
        let address = self.web[0].address.to_string();
        let before = self.count(&["--backend", &address]);
        assert!((1..EACH).contains(&before), "{before} of {EACH}");
        self.dormouse(&["ctl", "out", &address, "--wait", "100ms", "--close-rest"]);
        wait::until_true("its connections to be closed", || {
            self.count(&["--backend", &address]) == 0
        });
        let is_closed = |client: &mut Client| client.tenant == Tenant::Web && client.ask().is_err();
        self.take(is_closed, before);
        self.web[0].restart();
        self.connect(Tenant::Web, before);
        assert_eq!(self.count(&["--backend", &address]), 0, "it is still out");
        self.dormouse(&["ctl", "in", &address]);
        self.connect(Tenant::Web, 2);
        assert_ne!(self.count(&["--backend", &address]), 0);
        self.all_are_there();
    }

    /// A tenant moves out.
    fn end_one_tenants_connections(&mut self) {
        let said = self.dormouse(&["close", "--route", "cache"]);
        assert_eq!(said, format!("closed {EACH} connections\n"));
        self.take(|client| client.tenant == Tenant::Cache, EACH);
        self.all_are_there();
        self.connect(Tenant::Cache, EACH);
    }

    /// A package brings a new binary to the same path.
    fn upgrade(&mut self) {
        let binary = self.folder.path().join("dormouse");
        let next = self.folder.path().join("dormouse.new");
        fs::copy(tools::dormouse(), &next).expect("copied");
        fs::rename(&next, &binary).expect("moved");
        let workers = self.gateway.workers();
        self.dormouse(&["upgrade"]);
        wait::until_true("other workers", || {
            let now = self.gateway.workers();
            now.len() == workers.len() && now.iter().all(|pid| !workers.contains(pid))
        });
        self.all_are_there();
        self.connect(Tenant::Web, 1);
    }

    /// Names keep their addresses while nobody answers.
    fn lose_the_dns_server(&mut self) {
        signal(self.dns.pid(), Signal::STOP);
        self.gateway
            .wait_for_line("backend name lookup failed", PATIENCE);
        self.all_are_there();
        self.connect(Tenant::Cache, 1);
        signal(self.dns.pid(), Signal::CONT);
        self.gateway
            .wait_for_line("backend name resolves again", PATIENCE);
    }

    /// The disk with the connection log is full: lines are lost and counted, connections are not.
    fn fill_the_disk(&mut self) {
        let logs = self.logs();
        let filler = logs.join("filler");
        let mut file = fs::File::create(&filler).expect("a file on the small disk");
        while file.write_all(&[0; 4096]).is_ok() {}
        let lost = |day: &Day| {
            let metrics = day.fetch(METRICS_PORT, "/metrics");
            let line = metrics
                .lines()
                .find_map(|line| line.strip_prefix("dormouse_connection_log_lost_total "));
            line.expect("the metric").parse::<f64>().expect("a number")
        };
        wait::until_true("lost lines", || {
            drop(Tenant::Cache.open(self, 100).expect("a connection"));
            lost(self) > 0.0
        });
        self.all_are_there();
        drop(file);
        fs::remove_file(&filler).expect("removed");
        let log = logs.join("connections.log");
        let len = || fs::metadata(&log).map_or(0, |found| found.len());
        let full = len();
        wait::until_true("the log to grow again", || {
            drop(Tenant::Cache.open(self, 100).expect("a connection"));
            len() > full
        });
        self.all_are_there();
    }

    /// The alert for the lost lines reaches the operator, and no alert for what went well.
    fn an_alert_fires(&mut self) {
        let firing = wait::until("an alert", Duration::from_secs(60), || {
            let answer = self.fetch(PROMETHEUS_PORT, "/api/v1/alerts");
            let answer: Value = serde_json::from_str(&answer).expect("JSON");
            let alerts = answer["data"]["alerts"].as_array().expect("alerts").clone();
            let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
            let names = firing.map(|alert| alert["labels"]["alertname"].to_string());
            let names: Vec<String> = names.collect();
            names
                .iter()
                .any(|name| name.contains("DormouseConnectionLogLost"))
                .then_some(names)
        });
        assert_eq!(firing.len(), 1, "{firing:?}\n{}", self.prometheus.log());
        self.all_are_there();
        let log = self.gateway.log();
        assert!(!log.contains("worker died"), "{log}");
    }
}

// ---- how the operator looks and acts ----

impl Day {
    /// Runs a command of the program for this instance, where names resolve as for it.
    fn dormouse(&self, words: &[&str]) -> String {
        let pid = self.gateway.pid().to_string();
        let mut command = Command::new(tools::path("nsenter"));
        command.args(["--target", &pid, "--mount"]);
        command.arg(tools::dormouse()).args(words);
        if words[0] != "check" {
            command.arg("--admin").arg(self.admin.path());
        }
        let Output {
            status,
            stdout,
            stderr,
        } = command.output().expect("dormouse");
        let said = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "dormouse {words:?}: {said}");
        String::from_utf8_lossy(&stdout).into_owned()
    }

    fn count(&self, filter: &[&str]) -> usize {
        let said = self.dormouse(&[&["connections", "--count"], filter].concat());
        said.trim().parse().expect("a number")
    }

    fn fetch(&self, port: u16, path: &str) -> String {
        super::monitoring::fetch(&format!("http://{}:{port}{path}", self.host))
    }

    /// The small disk, which only the program's mount namespace has.
    fn logs(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.gateway.pid()));
        let folder = self
            .folder
            .path()
            .strip_prefix("/")
            .expect("an absolute path");
        root.join(folder).join("logs")
    }

    /// Opens connections of a tenant, which stay for the rest of the day.
    fn connect(&mut self, tenant: Tenant, count: usize) {
        let of_tenant = self.clients.iter().filter(|client| client.tenant == tenant);
        let next = of_tenant.map(|client| client.number + 1).max().unwrap_or(0);
        for number in next..next + count {
            let client = tenant.open(self, number);
            let client = client.unwrap_or_else(|error| panic!("{}: {error}", tenant.name()));
            self.clients.push(client);
        }
    }

    /// Takes out the clients whose connections a step has ended.
    fn take(&mut self, is_ended: impl FnMut(&mut Client) -> bool, expected: usize) {
        let ended: Vec<Client> = self.clients.extract_if(.., is_ended).collect();
        assert_eq!(ended.len(), expected);
        for mut client in ended {
            assert!(client.ask().is_err(), "{} is still there", client.name());
        }
    }

    /// Asks all clients, each over its own connection.
    fn all_are_there(&mut self) {
        for client in &mut self.clients {
            let answer = client.ask();
            answer.unwrap_or_else(|error| panic!("{}: {error}", client.name()));
        }
    }
}

// ---- the tenants and their clients ----

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tenant {
    Mqtt,
    Cache,
    Db,
    Web,
}

/// One long-lived connection.
struct Client {
    tenant: Tenant,
    number: usize,
    peer: Peer,
}

impl Tenant {
    const ALL: [Tenant; 4] = [Tenant::Mqtt, Tenant::Cache, Tenant::Db, Tenant::Web];

    fn name(self) -> &'static str {
        match self {
            Tenant::Mqtt => "mqtt",
            Tenant::Cache => "cache",
            Tenant::Db => "db",
            Tenant::Web => "web",
        }
    }

    fn address(self, host: IpAddr) -> SocketAddr {
        SocketAddr::new(host, 8_440 + self as u16)
    }

    fn write_certificate(self, folder: &Path) {
        let own = tempfile::tempdir().expect("a folder");
        let name = self.name();
        let host = format!("{name}.day.test");
        let files = authority().give_out_for(name, Kind::EcdsaP256, &[&host], own.path());
        for (from, to) in [
            (files.key, format!("{name}.key")),
            (files.cert, format!("{name}.pem")),
        ] {
            fs::copy(from, folder.join(to)).expect("copied");
        }
    }

    /// The address of a client, by which it can be found.
    fn client_ip(self, number: usize) -> IpAddr {
        Ipv4Addr::new(127, 10, 1 + self as u8, 1 + number as u8).into()
    }

    fn handshake(self, day: &Day, number: usize) -> std::io::Result<Peer> {
        let mut tcp = peer::connect_from(self.client_ip(number), self.address(day.host));
        let mut config = match self {
            Tenant::Mqtt => peer::config_showing(&device(number, day.folder.path())),
            _ => peer::configs_by_version()[0].clone(),
        };
        if self == Tenant::Web {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        if self == Tenant::Db {
            tcp.write_all(b"\0\0\0\x08\x04\xd2\x16\x2f")?;
            let mut answer = [0];
            tcp.read_exact(&mut answer)?;
            assert_eq!(&answer, b"S");
        }
        Peer::over(
            tcp,
            peer::client_for(config, &format!("{}.day.test", self.name())),
        )
    }

    /// Connects, says hello in the tenant's protocol, and asks once.
    fn open(self, day: &Day, number: usize) -> std::io::Result<Client> {
        let mut client = Client {
            tenant: self,
            number,
            peer: self.handshake(day, number)?,
        };
        match self {
            Tenant::Mqtt => {
                // CONNECT of MQTT 3.1.1 with a clean session, no keepalive and a client id.
                let id = format!("device-{number:03}");
                let mut hello = b"\x10\x16\0\x04MQTT\x04\x02\0\0\0\x0a".to_vec();
                hello.extend(id.as_bytes());
                client.say(&hello)?;
                assert_eq!(client.hear(4)?, b"\x20\x02\0\0");
            }
            Tenant::Cache => {}
            Tenant::Db => {
                client.say(b"\0\0\0\x17\0\x03\0\0user\0postgres\0\0")?;
                client.hear_until_ready()?;
            }
            // The preface of HTTP/2, and empty SETTINGS.
            Tenant::Web => client.say(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")?,
        }
        client.ask()?;
        Ok(client)
    }
}

impl Client {
    fn name(&self) -> String {
        format!("client {} of {}", self.number, self.tenant.name())
    }

    fn say(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.peer.stream().write_all(bytes)
    }

    fn hear(&mut self, len: usize) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.peer.stream().read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// One question and its answer, in the tenant's protocol.
    fn ask(&mut self) -> std::io::Result<()> {
        match self.tenant {
            Tenant::Mqtt => {
                self.say(b"\xc0\0")?;
                assert_eq!(self.hear(2)?, b"\xd0\0");
            }
            Tenant::Cache => {
                self.say(b"PING\r\n")?;
                assert_eq!(self.hear(7)?, b"+PONG\r\n");
            }
            Tenant::Db => {
                self.say(b"Q\0\0\0\x11select 6 * 7\0")?;
                let answer = self.hear_until_ready()?;
                assert!(answer.windows(2).any(|two| two == b"42"), "{answer:?}");
            }
            Tenant::Web => {
                self.say(b"\0\0\x08\x06\0\0\0\0\0dormouse")?;
                loop {
                    let header = self.hear(9)?;
                    let len = usize::from(header[1]) << 8 | usize::from(header[2]);
                    let body = self.hear(len)?;
                    match (header[3], header[4] & 1) {
                        (6, 1) => {
                            assert_eq!(body, b"dormouse");
                            return Ok(());
                        }
                        (4, 0) => self.say(b"\0\0\0\x04\x01\0\0\0\0")?,
                        (7, _) => return Err(std::io::ErrorKind::ConnectionAborted.into()),
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }

    /// PostgreSQL's messages up to ReadyForQuery.
    fn hear_until_ready(&mut self) -> std::io::Result<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let header = self.hear(5)?;
            let len = u32::from_be_bytes([header[1], header[2], header[3], header[4]]);
            let body = self.hear(len as usize - 4)?;
            assert_ne!(header[0], b'E', "{}", String::from_utf8_lossy(&body));
            all.extend(body);
            if header[0] == b'Z' {
                return Ok(all);
            }
        }
    }
}

fn serial(number: usize) -> Vec<u8> {
    vec![0x11, number as u8 + 1]
}

/// The certificate of a device.
fn device(number: usize, folder: &Path) -> Files {
    let name = format!("device-{number}");
    authority().give_out_with(&name, Kind::EcdsaP256, folder, |params| {
        params.serial_number = Some(SerialNumber::from_slice(&serial(number)));
    })
}

// ---- the programs ----

/// A server, and how to start it again.
struct Server {
    process: Process,
    address: SocketAddr,
    name: String,
    command: Vec<String>,
    folder: PathBuf,
}

impl Server {
    fn start(name: &str, address: SocketAddr, command: &str, folder: &Path) -> Server {
        let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let process = Process::start(name, &command, folder);
        wait::until_listening(name, address);
        Server {
            process,
            address,
            name: name.to_owned(),
            command,
            folder: folder.to_owned(),
        }
    }

    fn restart(&mut self) {
        self.process.terminate();
        self.process = Process::start(&self.name, &self.command, &self.folder);
        wait::until_listening(&self.name, self.address);
    }
}

fn mosquitto(address: SocketAddr, folder: &Path) -> Server {
    let file = folder.join("mosquitto.conf");
    let (port, ip) = (address.port(), address.ip());
    let text = format!("listener {port} {ip}\nallow_anonymous true\nuser root\n");
    fs::write(&file, text).expect("written");
    let command = format!("{} -c {}", tools::path("mosquitto"), file.display());
    Server::start("mosquitto", address, &command, folder)
}

fn redis(address: SocketAddr, folder: &Path) -> Server {
    let command = format!(
        "{} --bind {} --port {} --protected-mode no --appendonly no --dir {}",
        tools::path("redis-server"),
        address.ip(),
        address.port(),
        folder.display()
    );
    Server::start("redis", address, &command, folder)
}

/// `None`: not installed, and reported.
fn postgres(address: SocketAddr, folder: &Path) -> Option<Server> {
    let Some(programs) = postgres_programs() else {
        tools::unavailable("`postgres` is not installed: run interop/install");
        return None;
    };
    let programs = programs.display();
    let passwd = fs::read_to_string("/etc/passwd").expect("users");
    let user = passwd
        .lines()
        .find_map(|line| line.strip_prefix("postgres:"));
    let user = user.and_then(|rest| rest.split(':').nth(1));
    let user: u32 = user
        .and_then(|id| id.parse().ok())
        .expect("the user postgres");
    let own = folder.join("postgres");
    fs::create_dir(&own).expect("a folder");
    chown(&own, Some(user), None).expect("its owner");
    let as_user = format!("{} --reuid={user} --clear-groups", tools::path("setpriv"));
    let data = own.join("data");
    let init = format!(
        "{as_user} {programs}/initdb -D {} -A trust -N",
        data.display()
    );
    let mut init = init.split(' ');
    let made = Command::new(init.next().expect("a program"))
        .args(init)
        .output();
    let made = made.expect("initdb");
    assert!(made.status.success(), "{made:?}");
    let command = format!(
        "{as_user} {programs}/postgres -D {} -h {} -p {} -k {}",
        data.display(),
        address.ip(),
        address.port(),
        own.display()
    );
    Some(Server::start("postgres", address, &command, folder))
}

/// HTTP/2 without TLS.
fn nginx(address: SocketAddr, folder: &Path) -> Server {
    let name = format!("nginx-{}", address.ip());
    let file = folder.join(format!("{name}.conf"));
    let text = format!(
        "daemon off; pid {here}/{name}.pid; error_log stderr; events {{}}\n\
         http {{ access_log off; keepalive_timeout 1h; client_header_timeout 1h;\n\
         server {{ listen {address} http2; return 200 web; }} }}\n",
        here = folder.display()
    );
    fs::write(&file, text).expect("written");
    Server::start(&name, address, &tools::nginx(&file).join(" "), folder)
}

fn dnsmasq(host: IpAddr, cache: IpAddr, folder: &Path) -> Process {
    let command = format!(
        "{} --keep-in-foreground --conf-file=/dev/null --log-facility=- --user=root --pid-file={}/dnsmasq.pid \
         --listen-address={host} --bind-interfaces --no-resolv --no-hosts --local=/day.test/ --local-ttl=1 \
         --address=/cache.day.test/{cache}",
        tools::path("dnsmasq"),
        folder.display()
    );
    let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    let mut process = Process::start("dnsmasq", &command, folder);
    process.wait_for_line("started", PATIENCE);
    process
}

/// The program, with a small disk for its logs and a resolv.conf of its own.
fn gateway(folder: &Path, host: IpAddr) -> Process {
    let resolver = folder.join("resolv.conf");
    let text = format!("nameserver {host}\noptions timeout:1 attempts:1\n");
    fs::write(&resolver, text).expect("written");
    fs::create_dir(folder.join("logs")).expect("a folder");
    fs::copy(tools::dormouse(), folder.join("dormouse")).expect("copied");
    let here = folder.display();
    let script = format!(
        "mount --bind {} /etc/resolv.conf && mount -t tmpfs -o size=128k tmpfs {here}/logs && \
         exec {here}/dormouse serve -c {here}/dormouse.toml",
        resolver.display()
    );
    let command = ["unshare", "--mount", "sh", "-c", &script].map(str::to_owned);
    let mut process = Process::start("dormouse", &command, folder);
    process.wait_for_line("ready", PATIENCE);
    process
}

fn prometheus(host: IpAddr, folder: &Path) -> Process {
    let rules = tools::home().join("../packaging/prometheus/dormouse.rules.yml");
    let file = folder.join("prometheus.yml");
    let text = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: ['{}']\n\
         scrape_configs:\n- job_name: dormouse\n  static_configs: [{{ targets: ['{host}:{METRICS_PORT}'] }}]\n",
        rules.canonicalize().expect("the rules").display()
    );
    fs::write(&file, text).expect("written");
    let command = [
        tools::path("prometheus"),
        format!("--config.file={}", file.display()),
        format!("--storage.tsdb.path={}", folder.join("data").display()),
        format!("--web.listen-address={host}:{PROMETHEUS_PORT}"),
        "--log.level=warn".to_owned(),
    ];
    let process = Process::start("prometheus", &command, folder);
    wait::until_listening("prometheus", SocketAddr::new(host, PROMETHEUS_PORT));
    process
}
