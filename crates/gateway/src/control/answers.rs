//! What is answered to whom.

use super::http::{Request, Response};
use super::talk::{Answer, Ask, DrainOrder};
use super::view::View;
use super::{metrics, status};
use crate::config;
use serde_json::json;
use std::path::PathBuf;

/// A drain without a time of its own takes this long.
const DRAIN_MS: u64 = 600_000;

const PATHS: &str = "\
GET  /status            everything, as JSON
GET  /metrics           counters, for Prometheus
GET  /healthz           200 as long as somebody is served
GET  /readyz            200 when new connections are accepted
POST /reload            read the configuration again
POST /drain?over=10m&order=longest|shortest
POST /drain/stop        accept again
POST /upgrade?binary=PATH";

/// What a request comes to.
pub(super) enum Reply {
    /// The response is known.
    Now(Response),
    /// Main has to be asked.
    Ask(Ask),
}

/// Decides about a request.
pub(super) fn reply(request: &Request, view: &View, questions_only: bool) -> Reply {
    let wanted = match request.path.as_str() {
        "/" | "/status" | "/metrics" | "/healthz" | "/readyz" => "GET",
        "/reload" | "/drain" | "/drain/stop" | "/upgrade" => "POST",
        _ => return Reply::Now(Response::words(404, &format!("there is:\n{PATHS}"))),
    };
    if request.method != wanted {
        let words = format!("{} is for {wanted}", request.path);
        return Reply::Now(Response {
            allow: Some(wanted),
            ..Response::words(405, &words)
        });
    }
    if wanted == "POST" {
        return order(request, view, questions_only);
    }
    Reply::Now(match request.path.as_str() {
        "/status" => Response::json(200, &status::document(view)),
        "/metrics" => Response {
            content_type: "text/plain; version=0.0.4; charset=utf-8",
            body: metrics::page(view),
            ..Response::words(200, "")
        },
        "/healthz" => health(view),
        "/readyz" => readiness(view),
        _ => Response::words(200, PATHS),
    })
}

/// Somebody is served. That main is gone is no reason to kill all connections.
fn health(view: &View) -> Response {
    match (view.workers_alive(), view.main_alive()) {
        (0, _) => Response::words(503, "no worker lives"),
        (_, true) => Response::words(200, "ok"),
        (_, false) => Response::words(200, "connections are served, but the main process is gone"),
    }
}

fn readiness(view: &View) -> Response {
    if view.is_accepting() {
        Response::words(200, "ok")
    } else {
        let phase = status::phase(view);
        let phase = phase.as_str().unwrap_or_default();
        Response::words(503, &format!("not accepting: {phase}"))
    }
}

fn order(request: &Request, view: &View, questions_only: bool) -> Reply {
    if questions_only {
        return Reply::Now(Response::words(
            403,
            "orders are taken on a unix socket only, where it is known who gives them",
        ));
    }
    if !view.main_alive() {
        return Reply::Now(gone());
    }
    match ask(request) {
        Ok(ask) => Reply::Ask(ask),
        Err(words) => Reply::Now(outcome(false, &words, 400)),
    }
}

fn ask(request: &Request) -> Result<Ask, String> {
    let mut parameters: Vec<_> = request.query.iter().collect();
    let mut take = |name: &str| {
        let at = parameters.iter().position(|(found, _)| found == name)?;
        Some(parameters.remove(at).1.as_str())
    };
    let ask = match request.path.as_str() {
        "/reload" => Ask::Reload,
        "/drain/stop" => Ask::StopDrain,
        "/upgrade" => Ask::Upgrade {
            binary: take("binary").map(PathBuf::from),
        },
        _ => Ask::Drain {
            over_ms: match take("over") {
                None => DRAIN_MS,
                Some(text) => config::read_duration(text)?
                    .as_millis()
                    .try_into()
                    .unwrap_or(u64::MAX),
            },
            order: match take("order") {
                None | Some("longest") => DrainOrder::Longest,
                Some("shortest") => DrainOrder::Shortest,
                Some(other) => {
                    return Err(format!(
                        "`{other}` is no order; there is longest (quiet for the longest time \
                         first) and shortest"
                    ));
                }
            },
        },
    };
    match parameters.first() {
        None => Ok(ask),
        Some((name, _)) => Err(format!("{} knows no parameter `{name}`", request.path)),
    }
}

/// What became of an order.
pub(super) fn answered(answer: &Answer) -> Response {
    outcome(answer.done, &answer.words, 409)
}

/// Nobody can carry an order out.
pub(super) fn gone() -> Response {
    let words = "the main process is gone: connections are served on, but nothing can be changed; \
                 start the program again when they can be spared";
    outcome(false, words, 503)
}

/// Main did not answer in time.
pub(super) fn too_late() -> Response {
    outcome(false, "the main process does not answer", 504)
}

fn outcome(done: bool, words: &str, refused: u16) -> Response {
    let status = if done { 200 } else { refused };
    Response::json(status, &json!({ "done": done, "words": words }))
}
