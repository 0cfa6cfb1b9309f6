//! The program's log and the connection log in syslog, with rsyslogd over its Unix socket and over UDP.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::peer::Peer;
use dormouse_interop::process::{Process, signal};
use dormouse_interop::scene::{TLS_PORT, applies, unused_host};
use dormouse_interop::terminator::Can;
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// Template for rsyslogd's output: one JSON object per message and line.
const TEMPLATE: &str = r#"template(name="all" type="list" option.jsonf="on") {
  property(outname="facility" name="syslogfacility-text" format="jsonf")
  property(outname="severity" name="syslogseverity-text" format="jsonf")
  property(outname="time" name="timereported" dateFormat="rfc3339" date.inUTC="on" format="jsonf")
  property(outname="program" name="programname" format="jsonf")
  property(outname="pid" name="procid" format="jsonf")
  property(outname="id" name="msgid" format="jsonf")
  property(outname="version" name="protocol-version" format="jsonf")
  property(outname="text" name="msg" format="jsonf")
}"#;

/// A real rsyslogd with its own Unix socket and UDP port.
struct Rsyslog {
    process: Process,
    folder: TempDir,
    socket: PathBuf,
    udp: String,
}

impl Rsyslog {
    fn start() -> Rsyslog {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let host = unused_host();
        // Finds a free port: it is released before rsyslogd opens it.
        let port = UdpSocket::bind((host, 0)).and_then(|socket| socket.local_addr());
        let port = port.expect("a free port").port();
        let (socket, udp) = (at("log.sock"), format!("{host}:{port}"));
        let config = format!(
            "global(workDirectory=\"{0}\")\n\
             module(load=\"imuxsock\" SysSock.Use=\"off\")\nmodule(load=\"imudp\")\n{TEMPLATE}\n\
             input(type=\"imuxsock\" Socket=\"{1}\" CreatePath=\"on\" RateLimit.Interval=\"0\")\n\
             input(type=\"imudp\" address=\"{host}\" port=\"{port}\")\n\
             action(type=\"omfile\" file=\"{0}/messages\" template=\"all\")\n",
            folder.path().display(),
            socket.display(),
        );
        fs::write(at("rsyslog.conf"), config).expect("written");
        let process = launch(folder.path());
        wait_for(&socket);
        Rsyslog {
            process,
            folder,
            socket,
            udp,
        }
    }

    /// Stops rsyslogd and starts a new one.
    fn restart(&mut self) {
        self.process.terminate();
        let _ = fs::remove_file(&self.socket);
        self.process = launch(self.folder.path());
        wait_for(&self.socket);
    }

    fn messages(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.path().join("messages")).unwrap_or_default();
        // The last line may be incomplete.
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    fn wait_for(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        wait::until(what, PATIENCE, || self.messages().into_iter().find(&is_it))
    }
}

fn launch(folder: &Path) -> Process {
    let file = |name: &str| folder.join(name).display().to_string();
    let command = [
        tools::path("rsyslogd"),
        "-n".to_owned(),
        "-f".to_owned(),
        file("rsyslog.conf"),
        "-i".to_owned(),
        file("rsyslogd.pid"),
    ];
    Process::start("rsyslogd", &command, folder)
}

fn wait_for(socket: &Path) {
    wait::until_true("rsyslogd's socket", || socket.exists());
}

/// Starts Dormouse with these options before its route.
fn serve(folder: &Path, options: &str) -> (Process, SocketAddr) {
    let address = SocketAddr::new(unused_host(), TLS_PORT);
    let config = format!(
        "workers = 1\nadmin = '{}/admin.sock'\n{options}\n\
         [[route]]\nname = 'shop'\nlisten = '{address}'\nto = 'echo:'\ncertificates = '{}'\n",
        folder.display(),
        authority().certificate(Kind::EcdsaP256).both.display()
    );
    let file = folder.join("dormouse.toml");
    fs::write(&file, config).expect("written");
    let command = [
        tools::dormouse().display().to_string(),
        "serve".to_owned(),
        file.display().to_string(),
    ];
    let process = Process::start("dormouse", &command, folder);
    wait::until_listening("dormouse", address);
    (process, address)
}

fn one_connection(address: SocketAddr) {
    Peer::connect(address)
        .and_then(|mut peer| peer.echo())
        .expect("an echo");
}

fn can_run() -> bool {
    applies(Can::BeDormouse) && tools::present(&["rsyslogd"])
}

/// Log lines of main and workers and connection log lines arrive with their severity, facility and time, also after a
/// restart of syslog and after an upgrade.
#[test]
fn messages_arrive_by_a_unix_socket() {
    requires!(can_run());
    let mut syslog = Rsyslog::start();
    let folder = tempfile::tempdir().expect("a folder");
    let place = format!("syslog:{}", syslog.socket.display());
    let options = format!(
        "log_to = '{place}'\nconnection_log = '{place}'\nsyslog_facility = 'local3'\nlog_handshakes = true"
    );
    let (process, address) = serve(folder.path(), &options);
    let ready = syslog.wait_for("the line that it is ready", |message| {
        message["text"]
            .as_str()
            .is_some_and(|text| text.contains("ready"))
    });
    assert_eq!(
        [&ready["facility"], &ready["severity"], &ready["program"]],
        ["local3", "info", "dormouse"]
    );
    assert_eq!(ready["pid"], process.pid().to_string());
    one_connection(address);
    let is_line = |message: &Value| message["program"] == "dormouse-connection";
    let line = syslog.wait_for("a line for the connection", is_line);
    let text = line["text"].as_str().unwrap_or_default();
    assert!(
        text.contains("route=shop") && text.contains("end="),
        "{text}"
    );
    let of_worker = syslog.wait_for("a line of the worker", |message| {
        message["text"]
            .as_str()
            .is_some_and(|text| text.contains("handshake"))
    });
    assert_ne!(of_worker["pid"], ready["pid"]);
    // Nothing goes to standard error, which a terminal would show.
    assert!(process.lines_with("ready").is_empty());

    // Each log has a socket of its own, which is connected again in its own time.
    let lines = |syslog: &Rsyslog| {
        let messages = syslog.messages();
        let of_connections = messages.iter().filter(|one| is_line(one)).count();
        [of_connections, messages.len() - of_connections]
    };
    syslog.restart();
    let before = lines(&syslog);
    wait::until_true("lines of both logs after syslog was restarted", || {
        one_connection(address);
        let now = lines(&syslog);
        now[0] > before[0] && now[1] > before[1]
    });
    signal(process.pid(), Signal::USR2);
    syslog.wait_for("a line of the new binary", |message| {
        message["text"]
            .as_str()
            .is_some_and(|text| text.contains("new binary running"))
    });
}

#[test]
fn messages_arrive_by_udp_as_json() {
    requires!(can_run());
    let syslog = Rsyslog::start();
    let folder = tempfile::tempdir().expect("a folder");
    let place = format!("syslog://{}", syslog.udp);
    let options = format!(
        "log_to = '{place}'\nlog_format = 'json'\nconnection_log = '{place}'\nconnection_log_format = 'json'"
    );
    let (_process, address) = serve(folder.path(), &options);
    one_connection(address);
    let line = syslog.wait_for("a line for the connection", |one| one["id"] == "connection");
    let expected = ["daemon", "info", "dormouse", "1"];
    assert_eq!(
        [
            &line["facility"],
            &line["severity"],
            &line["program"],
            &line["version"]
        ],
        expected
    );
    let text = line["text"].as_str().unwrap_or_default();
    let fields: Value = serde_json::from_str(text.trim()).expect("an object");
    assert_eq!(fields["route"], "shop");
    // The message has the time of its log line.
    let of_message = line["time"].as_str().unwrap_or_default();
    assert_eq!(
        of_message.get(..19),
        fields["time"].as_str().and_then(|time| time.get(..19))
    );
    let ready = syslog.wait_for("the line that it is ready", |message| {
        message["text"]
            .as_str()
            .is_some_and(|text| text.contains("ready"))
    });
    let text = ready["text"].as_str().unwrap_or_default();
    let fields: Value = serde_json::from_str(text.trim()).expect("an object");
    assert_eq!(fields["level"], "INFO");
}

/// Without syslog the program starts anyway, warns and does not block. If it cannot continue, standard error is
/// restored.
#[test]
fn an_absent_syslog_stops_nothing() {
    requires!(Can::BeDormouse);
    let folder = tempfile::tempdir().expect("a folder");
    let place = format!("syslog:{}/nobody.sock", folder.path().display());
    let options = format!("log_to = '{place}'\nconnection_log = '{place}'");
    let (mut process, address) = serve(folder.path(), &options);
    process.wait_for_line("no syslog server receives there now", PATIENCE);
    for _ in 0..20 {
        one_connection(address);
    }
}
