//! Clients in other runtimes: three reasons for which none of their connections is resumed, and healthy twins.

use std::path::Path;

use super::places::Place;
use super::{Judged, dormouse, is_clean, is_named, judged};

/// Audits a program of `callers/`; `None` if the machine lacks its interpreter.
fn audit(interpreter: &str, program: &str, words: &[&str]) -> Option<Judged> {
    if !Path::new(interpreter).exists() {
        eprintln!("left out: there is no {interpreter} here");
        return None;
    }
    let program = format!("{}/callers/{program}", env!("CARGO_MANIFEST_DIR"));
    let command = ["client", "-q", "--json", "-", "--", interpreter, &program];
    let command = [&command, words].concat();
    Some(judged(&dormouse(&Place::shared(), &command)))
}

/// Checks that the client resumes nothing, why, and what is advised.
fn never_resumes(judged: Option<Judged>, cause: &str, advice: &str) {
    let Some(judged) = judged else { return };
    is_named(&judged, "client-never-resumes");
    let findings = judged.0["findings"].as_array().unwrap();
    let finding = findings
        .iter()
        .find(|it| it["id"] == "client-never-resumes");
    let finding = finding.unwrap();
    let holds = |field: &str, part| finding[field].as_str().unwrap().contains(part);
    assert!(holds("cause", cause), "{cause:?} is not in {finding:#}");
    assert!(holds("advice", advice), "{advice:?} is not in {finding:#}");
}

fn resumes(judged: Option<Judged>) {
    let Some(judged) = judged else { return };
    is_clean(&judged);
    assert!(judged.0["client"]["resumed"].as_u64() >= Some(10));
}

const NODE: &str = "/usr/bin/node";
const PYTHON: &str = "/usr/bin/python3";
const SHELL: &str = "/bin/sh";

#[test]
fn an_agent_that_caches_no_sessions() {
    let judged = audit(NODE, "client.cjs", &["sessions-off", "{url}"]);
    never_resumes(judged, "discards its sessions", "maxCachedSessions");
    resumes(audit(NODE, "client.cjs", &["one-agent", "{url}"]));
}

#[test]
fn a_context_for_each_request_in_node() {
    let judged = audit(NODE, "client.cjs", &["context-each", "{url}"]);
    never_resumes(
        judged,
        "parses its trust store each time",
        "createSecureContext",
    );
    resumes(audit(NODE, "client.cjs", &["one-context", "{url}"]));
}

#[test]
fn a_context_for_each_request_in_python() {
    let judged = audit(PYTHON, "client.py", &["context-each", "{address}"]);
    never_resumes(
        judged,
        "parses its trust store each time",
        "session=previous.session",
    );
    resumes(audit(PYTHON, "client.py", &["one-context", "{address}"]));
}

#[test]
fn a_process_for_each_request() {
    let judged = audit(SHELL, "process-each", &["{url}"]);
    never_resumes(
        judged,
        "a process of its own",
        "use one process for many requests",
    );
    let kept = audit(SHELL, "process-each", &["{url}", "kept"]);
    is_clean(&kept.unwrap());
}
