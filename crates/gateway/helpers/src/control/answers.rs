//! Responses to requests, and the orders that are forwarded to main.

use super::http::{Request, Response};
use super::listener::Access;
use super::selection::Selection;
use super::view::View;
use super::{ages, metrics, status};
use dormouse_config as config;
use dormouse_config::LogLevel;
use dormouse_handover::SecretText;
use dormouse_handover::connections::{
    CLOSED_MAX, CertificateProperty, ConnectionFilter, Page, PageAction, PageOrder, PagePlace,
};
use dormouse_handover::control::{
    AdminOrder, AdminResult, BackendChange, DrainOrder, RunningChange,
};
use dormouse_handover::status::OrderResult;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Default duration of a drain.
const DRAIN_MS: u64 = 600_000;

/// The status page.
const PAGE: &str = include_str!("page.html");

const PATHS: &str = "\
GET  /                  status page, for a browser
GET  /status            full status, as JSON
GET  /metrics           metrics, for Prometheus
GET  /healthz           200 while a worker runs
GET  /readyz            200 while new connections are accepted
GET  /connections?route=NAME&backend=ADDRESS&client=NETWORK&name=NAME&certificate=NAME&refused=true&id=ID&older=10m&idle=10m
                        connections by these properties, a page at a time: from=NEXT for the next page
GET  /connections/count                              the same parameters; only numbers
GET  /connections/ages                               the same parameters; numbers by age, route and backend
POST /connections/close?most=64                      the same parameters
POST /reload            reload the configuration
POST /drain?over=10m&order=longest|shortest
POST /drain/stop        cancel the drain; accept connections again
POST /backends/out?address=ADDRESS&route=NAME        no new connections; undo with /backends/in
POST /backends/weight?address=ADDRESS&weight=N
POST /log-level?level=debug                          keep=true, also for backends: outlasts reloads and restarts
POST /ticket-keys/rotate
POST /logs/reopen                                    after a rotation of the connection log
POST /trace?client=NETWORK&for=10m                   log handshakes and ends of connections
POST /certificates?route=NAME                        body: a chain and its key, PEM
POST /certificates/withdraw?name=NAME&route=NAME
POST /upgrade?binary=PATH";

/// What to do with a request.
pub(super) enum Handling {
    /// Send this response.
    Respond(Response),
    /// Forward this order to main.
    Forward(AdminOrder),
}

/// Decides how to handle a request.
pub(super) fn reply(request: &Request, view: &View, access: Access) -> Handling {
    if let Some(refused) = refuse_foreign_page(request, access) {
        return Handling::Respond(refused);
    }
    let wanted = match request.path.as_str() {
        "/" | "/status" | "/metrics" | "/healthz" | "/readyz" | "/connections"
        | "/connections/count" | "/connections/ages" => "GET",
        "/connections/close"
        | "/reload"
        | "/drain"
        | "/drain/stop"
        | "/upgrade"
        | "/backends/in"
        | "/backends/out"
        | "/backends/weight"
        | "/log-level"
        | "/ticket-keys/rotate"
        | "/logs/reopen"
        | "/trace"
        | "/certificates"
        | "/certificates/withdraw" => "POST",
        _ => {
            return Handling::Respond(Response::words(
                404,
                &format!("no such path; try one of these:\n{PATHS}"),
            ));
        }
    };
    // A HEAD is a GET whose response has no body (RFC 9110 §9.3.2).
    let is_allowed = request.method == wanted || (wanted == "GET" && request.is_head());
    if !is_allowed {
        let words = format!("{} needs the method {wanted}", request.path);
        return Handling::Respond(Response {
            allow: Some(if wanted == "GET" { "GET, HEAD" } else { wanted }),
            ..Response::words(405, &words)
        });
    }
    // Control holds no connection, so main asks the workers.
    if wanted == "POST" || request.path.starts_with("/connections") {
        return order(request, view, access);
    }
    let selection = match Selection::of(&request.query) {
        Ok(selection) => selection,
        // Other paths have always ignored parameters, which health checks of others may send.
        Err(_) if !matches!(&*request.path, "/status" | "/metrics") => Selection::default(),
        Err(words) => return Handling::Respond(Response::words(400, &words)),
    };
    if is_early(request, view) {
        let words =
            "the control process has just started, and waits for the main process; try again";
        return Handling::Respond(Response::words(503, words));
    }
    Handling::Respond(match request.path.as_str() {
        "/status" => Response::json(200, &status::document(view, &selection)),
        "/metrics" => Response {
            content_type: "text/plain; version=0.0.4; charset=utf-8",
            body: metrics::page(view, &selection),
            ..Response::words(200, "")
        },
        "/healthz" => health(view),
        "/readyz" => readiness(view),
        _ => Response {
            content_type: "text/html; charset=utf-8",
            body: PAGE.to_owned(),
            ..Response::words(200, "")
        },
    })
}

/// Refuses requests that a foreign web page makes through a browser on this machine: a page can send
/// orders blindly, and can read answers if its own host name resolves to this address (DNS rebinding).
fn refuse_foreign_page(request: &Request, access: Access) -> Option<Response> {
    if request.method == "POST" && request.origin.is_some() {
        let words = "commands from web pages are refused";
        return Some(Response::words(403, words));
    }
    let is_loopback = access == Access::Questions { is_loopback: true };
    let host = request.host.as_deref().filter(|_| is_loopback)?;
    let address = host.parse().map(|address: SocketAddr| address.ip());
    let address = address.or_else(|_| host.trim_matches(['[', ']']).parse::<IpAddr>());
    let is_ours = match address {
        Ok(address) => address.is_loopback(),
        Err(_) => {
            let name = host.split_once(':').map_or(host, |(name, _)| name);
            name.eq_ignore_ascii_case("localhost")
        }
    };
    let words = "use a loopback address or `localhost` as the host of the URL";
    (!is_ours).then(|| Response::words(421, words))
}

/// Healthy means that a worker runs. The death of main must not make a supervisor kill all connections.
fn health(view: &View) -> Response {
    match (view.workers_alive(), view.main_alive()) {
        (0, _) => Response::words(503, "no worker runs"),
        (_, true) => Response::words(200, "ok"),
        (_, false) => Response::words(200, "workers run, but the main process is gone"),
    }
}

fn readiness(view: &View) -> Response {
    if view.is_accepting() {
        Response::words(200, "ok")
    } else {
        let phase = status::phase(view).name();
        Response::words(503, &format!("not accepting: {phase}"))
    }
}

fn order(request: &Request, view: &View, access: Access) -> Handling {
    if access != Access::Orders {
        return Handling::Respond(Response::words(
            403,
            "commands and lists of connections are accepted only on the admin socket (option `admin`), where the \
             client's user is known",
        ));
    }
    if !view.main_alive() {
        return Handling::Respond(gone());
    }
    match parse_order(request) {
        Ok(order) => Handling::Forward(order),
        Err(words) => Handling::Respond(outcome(false, &words, 400)),
    }
}

fn parse_order(request: &Request) -> Result<AdminOrder, String> {
    let mut parameters: Vec<_> = request.query.iter().collect();
    let mut take = |name: &str| {
        let at = parameters.iter().position(|(found, _)| found == name)?;
        Some(parameters.remove(at).1.as_str())
    };
    let order = match request.path.as_str() {
        "/connections" | "/connections/count" | "/connections/ages" | "/connections/close" => {
            AdminOrder::Page(Box::new(page_order(&request.path, &mut take)?))
        }
        "/reload" => AdminOrder::Reload,
        "/drain/stop" => AdminOrder::StopDrain,
        "/ticket-keys/rotate" => AdminOrder::RotateTicketKeys,
        "/logs/reopen" => AdminOrder::ReopenLogs,
        "/trace" => AdminOrder::Trace {
            client: config::read_network(
                take("client").ok_or("client= is missing: give a network or an address")?,
            )?,
            for_ms: {
                let time = config::read_duration(take("for").unwrap_or("10m"))?;
                time.as_millis().try_into().unwrap_or(u64::MAX)
            },
        },
        "/log-level" | "/backends/in" | "/backends/out" | "/backends/weight" => {
            AdminOrder::Change {
                change: running_change(&request.path, &mut take)?,
                is_kept: flag("keep", take("keep"))?,
            }
        }
        "/certificates" => AdminOrder::PushCertificate {
            pem: pem(&request.body)?,
            route: take("route").map(str::to_owned),
        },
        "/certificates/withdraw" => AdminOrder::WithdrawCertificate {
            name: take("name")
                .ok_or("name= is missing: give a name in the certificate to withdraw")?
                .to_owned(),
            route: take("route").map(str::to_owned),
        },
        "/upgrade" => AdminOrder::Upgrade {
            binary: take("binary").map(PathBuf::from),
        },
        _ => AdminOrder::Drain {
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
                        "`{other}` is not a drain order; use `longest` (longest idle first) or \
                         `shortest`"
                    ));
                }
            },
        },
    };
    match parameters.first() {
        None => Ok(order),
        Some((name, _)) => Err(format!("{} has no parameter `{name}`", request.path)),
    }
}

/// An order for a page of connections. `take` removes a parameter.
fn page_order<'a>(
    path: &str,
    take: &mut impl FnMut(&str) -> Option<&'a str>,
) -> Result<PageOrder, String> {
    let mut duration_ms = |name| {
        let duration = take(name).map(config::read_duration).transpose()?;
        Ok::<_, String>(duration.map(|duration| duration.as_millis() as u64))
    };
    let (older_ms, idle_ms) = (duration_ms("older")?, duration_ms("idle")?);
    let filter = ConnectionFilter {
        route: take("route").map(str::to_owned),
        backends: take("backend").map(str::to_owned).into_iter().collect(),
        client: take("client").map(config::read_network).transpose()?,
        name: take("name").map(str::to_owned),
        refused: flag("refused", take("refused"))?,
        certificate: take("certificate").map(CertificateProperty::from),
        id: take("id").map(connection_id).transpose()?,
        older_ms,
        idle_ms,
    };
    let action = match path {
        "/connections" => PageAction::List,
        "/connections/count" => PageAction::Count,
        "/connections/ages" => PageAction::CountAges,
        _ if filter == ConnectionFilter::default() => {
            return Err(
                "name a property of the connections to close; POST /drain closes all".to_owned(),
            );
        }
        _ => PageAction::Close(match take("most") {
            None => CLOSED_MAX,
            Some(most) => most
                .parse()
                .map_err(|_| "`most` must be a whole number".to_owned())?,
        }),
    };
    let from = take("from").map(str::parse).transpose()?;
    Ok(PageOrder {
        filter,
        action,
        from: from.unwrap_or(PagePlace::of_worker(0)),
    })
}

/// The id of a connection. A part of one would choose no connection, without a word.
fn connection_id(given: &str) -> Result<String, String> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    match given.len() == 32 && given.bytes().all(is_digit) {
        true => Ok(given.to_owned()),
        false => Err(format!(
            "`{given}` is not an id of a connection; it has 32 digits, as in 5f0c9a3e77d1b2046a21c1d000000007"
        )),
    }
}

/// A parameter that is given, as `true`, or not.
fn flag(name: &str, given: Option<&str>) -> Result<bool, String> {
    match given {
        None => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(format!("`{name}` may be `true`, and not `{other}`")),
    }
}

/// A change of the running configuration. `take` removes a parameter.
fn running_change<'a>(
    path: &str,
    take: &mut impl FnMut(&str) -> Option<&'a str>,
) -> Result<RunningChange, String> {
    let change = match path {
        "/log-level" => return Ok(RunningChange::LogLevel(log_level(take("level"))?)),
        "/backends/in" => BackendChange::In,
        "/backends/out" => BackendChange::Out,
        _ => BackendChange::Weight(weight(take("weight"))?),
    };
    Ok(RunningChange::Backend {
        change,
        address: take("address")
            .ok_or("address= is missing: name a backend, as GET /status lists it")?
            .to_owned(),
        route: take("route").map(str::to_owned),
    })
}

/// Whether the answer needs a report that main has not sent yet: without it, lists would be empty, and an instance that
/// accepts connections would not seem ready.
pub(super) fn is_early(request: &Request, view: &View) -> bool {
    matches!(request.path.as_str(), "/status" | "/metrics" | "/readyz") && !view.is_complete()
}

/// Whether the answer has numbers of connections by age, route and backend.
pub(super) fn has_ages(request: &Request) -> bool {
    matches!(request.path.as_str(), "/status" | "/metrics")
}

/// Response with a page of connections, or of their numbers.
pub(super) fn page(page: &Page, view: &View) -> Response {
    // Names and numbers always serialize.
    let text = match &page.ages {
        None => serde_json::to_string(page),
        Some(groups) => serde_json::to_string(&ages::named(page, groups, &view.listed)),
    };
    let text = text.unwrap_or_default();
    Response {
        content_type: "application/json",
        body: dormouse_printable::json(&format!("{text}\n")),
        ..Response::words(200, "")
    }
}

/// The body as PEM. Main looks at what is in it.
fn pem(body: &SecretText) -> Result<SecretText, String> {
    // Other characters need up to six bytes each in the message to main.
    let is_text = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    if body.0.is_empty() || !body.0.chars().all(is_text) {
        return Err("the body must be a certificate chain and its key in PEM".to_owned());
    }
    Ok(body.clone())
}

fn log_level(given: Option<&str>) -> Result<LogLevel, String> {
    let found = LogLevel::WORDS
        .iter()
        .find(|(word, _)| Some(*word) == given);
    found.map(|(_, level)| *level).ok_or_else(|| {
        let known: Vec<&str> = LogLevel::WORDS.iter().map(|(word, _)| *word).collect();
        format!("`level` must be one of {}", known.join(", "))
    })
}

fn weight(given: Option<&str>) -> Result<u32, String> {
    let number = given.and_then(|text| text.parse().ok());
    number.ok_or_else(|| "`weight` must be a whole number".to_owned())
}

/// Response to a completed order.
pub(super) fn answered(result: &AdminResult) -> Response {
    outcome(result.done, &result.words, 409)
}

/// Response to an order after main's death.
pub(super) fn gone() -> Response {
    let words = "the main process is gone: connections are still served, but nothing can be changed; \
            restart dormouse when its connections may be closed";
    outcome(false, words, 503)
}

/// Response to an order that main did not answer before its end, or before another binary took its place.
pub(super) fn ended() -> Response {
    outcome(
        false,
        "dormouse has ended or was upgraded meanwhile; try again",
        503,
    )
}

/// Response to a client for whose long response there is no memory now.
pub(super) fn busy() -> Response {
    let words = "other clients are reading long responses; try again in some seconds, or choose fewer routes";
    Response::words(503, words)
}

/// Response to an order that main did not answer in time.
pub(super) fn too_late() -> Response {
    outcome(false, "the main process does not answer", 504)
}

fn outcome(done: bool, words: &str, refused: u16) -> Response {
    let status = if done { 200 } else { refused };
    let result = OrderResult {
        done,
        words: words.to_owned(),
    };
    Response::json(status, &result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(
        method: &str,
        host: Option<&str>,
        origin: Option<&str>,
        access: Access,
    ) -> Option<u16> {
        let request = Request {
            method: method.to_owned(),
            path: "/status".to_owned(),
            query: Vec::new(),
            host: host.map(str::to_owned),
            origin: origin.map(str::to_owned),
            body: SecretText(String::new()),
        };
        refuse_foreign_page(&request, access).map(|response| response.status)
    }

    #[test]
    fn a_part_of_an_id_is_refused() {
        let whole = "5f0c9a3e77d1b2046a21c1d000000007";
        assert_eq!(connection_id(whole).as_deref(), Ok(whole));
        let upper = whole.to_uppercase();
        for wrong in [
            "",
            "7",
            &whole[1..],
            &upper,
            &format!("{whole}0"),
            "id=5f0c9a3e77d1b2046a21c1d0000000",
        ] {
            assert!(connection_id(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn requests_of_foreign_pages_are_refused() {
        let local = Access::Questions { is_loopback: true };
        let open = Access::Questions { is_loopback: false };
        for host in [
            "127.0.0.1:9901",
            "localhost:9901",
            "localhost",
            "[::1]:9901",
            "[::1]",
            "127.7.7.7",
        ] {
            assert_eq!(refused("GET", Some(host), None, local), None, "{host}");
        }
        for host in [
            "example.com:9901",
            "example.com",
            "10.0.0.1:80",
            "127.0.0.1.example.com",
        ] {
            assert_eq!(refused("GET", Some(host), None, local), Some(421), "{host}");
            assert_eq!(refused("GET", Some(host), None, open), None, "{host}");
            assert_eq!(
                refused("GET", Some(host), None, Access::Orders),
                None,
                "a unix socket has no name"
            );
        }
        assert_eq!(refused("GET", None, None, local), None);
        let page = Some("http://localhost:9901");
        assert_eq!(refused("POST", None, page, Access::Orders), Some(403));
        assert_eq!(refused("POST", None, page, open), Some(403));
        assert_eq!(refused("GET", None, page, Access::Orders), None);
    }
}
