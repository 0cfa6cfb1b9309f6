//! Files for other programs that packages contain: alert rules of Prometheus, and a configuration of logrotate.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use dormouse_interop::peer::Peer;
use dormouse_interop::scene::Scene;
use dormouse_interop::terminator::Can;
use dormouse_interop::tools;
use dormouse_interop::wait;

use super::monitoring::{fetch, scene_with};

const RULES: &str = "prometheus/dormouse.rules.yml";

/// The folder of the files for packages.
fn packaging() -> PathBuf {
    tools::home().join("../packaging")
}

fn text(path: &str) -> String {
    fs::read_to_string(packaging().join(path)).expect("a file of the repository")
}

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

#[test]
fn every_alert_fires_on_its_day_and_none_on_a_quiet_one() {
    requires!(Can::BeDormouse, "promtool");
    let folder = packaging().join("prometheus");
    let promtool = || Command::new(tools::path("promtool"));
    succeeds(
        promtool()
            .args(["check", "rules"])
            .arg(packaging().join(RULES)),
    );
    succeeds((promtool().args(["test", "rules", "dormouse.test.yml"])).current_dir(&folder));
    // The tests notice a rule that no longer fires.
    let broken = tempfile::tempdir().expect("a folder");
    let rules = text(RULES);
    let changed = rules.replace("> 0.9\n", "> 0.99\n");
    assert_ne!(rules, changed);
    fs::write(broken.path().join("dormouse.rules.yml"), changed).expect("written");
    let tests = text("prometheus/dormouse.test.yml");
    fs::write(broken.path().join("dormouse.test.yml"), tests).expect("written");
    let mut command = promtool();
    let command = command.args(["test", "rules", "dormouse.test.yml"]);
    let output = command
        .current_dir(broken.path())
        .output()
        .expect("promtool");
    assert!(!output.status.success(), "{output:?}");
}

/// The rules are about metrics that the program has, with their labels.
#[test]
fn alerts_read_metrics_of_the_program() {
    requires!(Can::BeDormouse, "curl");
    let (scene, admin) = scene_with(|settings| {
        let file = tempfile::NamedTempFile::new().expect("a file");
        settings.option("connection_log", &file.path().display().to_string());
    });
    drop(Peer::echoing(scene.address));
    let page = fetch(&format!("http://{admin}/metrics"));
    let rules = text(RULES);
    let mut alerts = 0;
    for rule in rules.split("- alert:").skip(1) {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = |text: &str| -> Vec<String> {
            let words = text.split(|c| !is_of_name(c));
            words.map(str::to_owned).collect()
        };
        let expression = rule.lines().find(|line| line.trim().starts_with("expr:"));
        let expression = words(expression.expect("an expression"));
        let metrics: Vec<&String> = (expression.iter())
            .filter(|word| word.starts_with("dormouse_"))
            .collect();
        for metric in &metrics {
            assert!(page.contains(&format!("# TYPE {metric} ")), "{metric}");
        }
        let labels = rule
            .split("$labels.")
            .skip(1)
            .map(|rest| words(rest)[0].clone());
        for label in labels.filter(|label| label != "instance") {
            let has_label = |line: &str| {
                metrics
                    .iter()
                    .any(|metric| line.starts_with(metric.as_str()))
                    && line.contains(&format!("{label}=\""))
            };
            assert!(page.lines().any(has_label), "{label} in{rule}");
        }
        alerts += 1;
    }
    assert_eq!(alerts, 9);
}

/// Every query of the dashboard names metrics that the program has. Route limits and originations need no traffic to be
/// there.
#[test]
fn the_dashboard_reads_metrics_of_the_program() {
    requires!(Can::BeDormouse, "curl");
    let (scene, admin) = scene_with(|settings| {
        settings.option("name", "shop");
    });
    drop(Peer::echoing(scene.address));
    let page = fetch(&format!("http://{admin}/metrics"));
    let dashboard = text("grafana/dormouse.json");
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let mut queries: Vec<&str> = targets
        .flatten()
        .filter_map(|one| one["expr"].as_str())
        .collect();
    let variables = dashboard["templating"]["list"]
        .as_array()
        .expect("variables");
    queries.extend(
        variables
            .iter()
            .filter_map(|one| one["query"]["query"].as_str()),
    );
    assert!(queries.len() > 30, "{}", queries.len());
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for query in queries {
        let words = query.split(|c| !is_of_name(c));
        let is_metric = |word: &&str| word.starts_with("dormouse_") || word.starts_with("process_");
        for metric in words.filter(is_metric) {
            let family = metric.trim_end_matches("_bucket");
            assert!(
                page.contains(&format!("# TYPE {family} ")),
                "{metric} in {query}"
            );
        }
    }
    let ids: std::collections::BTreeSet<_> = panels.iter().map(|one| one["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has its own id");
}

/// Turns the connection log of a running program with the shipped file; only its paths are the test's own.
#[test]
fn logrotate_turns_the_connection_log() {
    requires!(Can::BeDormouse, "logrotate");
    let logs = tempfile::tempdir().expect("a folder");
    let log = logs.path().join("connections.log");
    let admin = logs.path().join("admin.sock");
    let scene = Scene::with(|settings| {
        settings.option("connection_log", &log.display().to_string());
        settings.option("admin", &admin.display().to_string());
    });
    let lines = |path: &Path| fs::read_to_string(path).unwrap_or_default().lines().count();
    let connect = || drop(Peer::echoing(scene.address));
    connect();
    wait::until_true("the first line", || lines(&log) == 1);
    let order = format!(
        "{} ctl reopen-logs --admin {}",
        tools::dormouse().display(),
        admin.display()
    );
    let shipped = text("logrotate/dormouse");
    let own = (shipped.replace("/var/log/dormouse/", &format!("{}/", logs.path().display())))
        .replace("dormouse ctl reopen-logs", &order)
        .replace("if systemctl --quiet is-active dormouse", "if true");
    assert!(own.contains(&order) && own.contains("if true"), "{own}");
    let folder = tempfile::tempdir().expect("a folder");
    let (file, state) = (folder.path().join("dormouse"), folder.path().join("state"));
    fs::write(&file, own).expect("written");
    // logrotate refuses a configuration that others can write.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("its mode");
    succeeds(
        Command::new(tools::path("logrotate"))
            .arg("--force")
            .arg("--state")
            .arg(&state)
            .arg(&file),
    );
    connect();
    wait::until_true("the line in the new file", || lines(&log) == 1);
    assert_eq!(lines(&logs.path().join("connections.log.1")), 1);
}
