//! The client of a running `serve`'s admin socket, for all commands that ask or change it.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use dormouse_config::{self as config, Admin, STANDARD_INPUT};
use dormouse_handover::status::{OrderResult, Status};
use dormouse_reactor::socket::connect_unix;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use crate::exit_status::ExitStatus;
use crate::{mistakes, terminal};

/// Limit on a response.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Time in which a query is repeated while a worker or the control process is replaced.
const RETRY_FOR: Duration = Duration::from_secs(10);
/// Pause before a query is repeated.
const PAUSE: Duration = Duration::from_millis(500);
/// Timeout of a query, which needs no work.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a command: longer than the gateway itself waits for the command to complete.
const ORDER_TIMEOUT: Duration = Duration::from_secs(660);

/// The end of a subcommand. `Err`: something prevented its work, and was printed.
pub(crate) type Exit = Result<ExitCode, ExitCode>;

/// The running `serve` to contact.
#[derive(Clone, Debug, Args)]
pub(crate) struct InstanceArgs {
    /// Admin socket of the running `serve`; for `status` and `top` also the address of its
    /// `metrics` [default: /run/dormouse/admin.sock for root, otherwise dormouse/admin.sock in
    /// $XDG_RUNTIME_DIR]
    #[arg(long, value_name = "PATH|ADDR")]
    pub(crate) admin: Option<String>,

    /// Configuration file of the running `serve`: its admin socket is used if the instance there runs this file
    #[arg(short, long, value_name = "FILE", conflicts_with = "admin")]
    pub(crate) config: Option<PathBuf>,
}

/// The running `serve` to contact, and the form of its answer.
#[derive(Clone, Debug, Args)]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    pub(crate) instance: InstanceArgs,

    /// Print the answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The answer to a request for a page of connections, or of their numbers.
pub(crate) enum Asked<T> {
    /// The page.
    Answer(T),
    /// The request is wrong.
    Refused(String),
    /// There is no answer.
    Failed(Failure),
}

/// A query without an answer.
#[derive(Debug)]
pub(crate) struct Failure {
    /// A message for the user.
    pub(crate) why: String,
    /// Whether the next try may succeed: a worker or the control process is being replaced.
    may_pass: bool,
}

impl Failure {
    fn lasting(why: String) -> Failure {
        let may_pass = false;
        Failure { why, may_pass }
    }
}

impl From<Failure> for String {
    fn from(failure: Failure) -> String {
        failure.why
    }
}

/// The time in which a query is repeated.
pub(crate) struct Retries {
    until: Instant,
}

impl Retries {
    pub(crate) fn begin() -> Retries {
        let until = Instant::now() + RETRY_FOR;
        Retries { until }
    }

    /// Pauses before the next try. Returns `false` if the query must not be repeated.
    pub(crate) fn pause(&self, failure: &Failure) -> bool {
        let repeats = failure.may_pass && Instant::now() < self.until;
        if repeats {
            thread::sleep(PAUSE);
        }
        repeats
    }
}

/// The admin address of a running `serve`.
#[derive(Clone, Debug)]
pub(crate) enum AdminAddress {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdminAddress::Unix(path) => write!(f, "{}", path.display()),
            AdminAddress::Tcp(address) => write!(f, "{address}"),
        }
    }
}

impl AdminAddress {
    /// Finds the address by flag, configuration or default. With a configuration, the instance there must run it: several
    /// instances may have the same `admin`, and one of them has the socket. Prints the error, if any.
    pub(crate) fn find(args: &InstanceArgs) -> Result<AdminAddress, ExitCode> {
        let address = AdminAddress::of_instance(args)?;
        if let Some(file) = &args.config {
            address.check_runs(file).map_err(failed)?;
        }
        Ok(address)
    }

    fn check_runs(&self, file: &Path) -> Result<(), String> {
        let status: Status = self.question("/status")?;
        let running = status.configuration.and_then(|running| running.file);
        if running
            .as_deref()
            .is_some_and(|running| is_same(Path::new(running), file))
        {
            return Ok(());
        }
        let runs = match running.as_deref() {
            None => "was started without a configuration file".to_owned(),
            Some(STANDARD_INPUT) => "has its configuration from standard input".to_owned(),
            Some(running) => format!("runs {running}"),
        };
        Err(format!(
            "the instance at {self} {runs}, not {}; no request was sent\n   \
             = help: give each instance another `admin`; to reach the one at {self}, use --admin {self}",
            file.display()
        ))
    }

    fn of_instance(args: &InstanceArgs) -> Result<AdminAddress, ExitCode> {
        let admin = match (&args.admin, &args.config) {
            (Some(given), _) => {
                // As `metrics` writes them.
                let usual = match given.split_once(':') {
                    Some(("" | "localhost", port)) => format!("127.0.0.1:{port}"),
                    _ => given.clone(),
                };
                return Ok(match usual.parse() {
                    Ok(address) => AdminAddress::Tcp(address),
                    Err(_) => {
                        let path = given.strip_prefix("unix:").unwrap_or(given);
                        AdminAddress::Unix(PathBuf::from(path))
                    }
                });
            }
            (None, Some(file)) => of_configuration(file)?,
            (None, None) => Admin::Auto,
        };
        match (AdminAddress::of(&admin), admin) {
            (Some(address), _) => Ok(address),
            (None, Admin::Auto) => {
                terminal::error("there is no default admin socket: XDG_RUNTIME_DIR is not set");
                terminal::note("   = help: name the socket with --admin PATH");
                Err(ExitStatus::Misused.into())
            }
            (None, _) => {
                terminal::error("the admin socket is switched off in this configuration");
                terminal::note(
                    "   = help: set admin = \"/run/dormouse/admin.sock\", or remove `admin`, and restart",
                );
                Err(ExitStatus::Misused.into())
            }
        }
    }

    /// Returns the address of the option's value, if it has one.
    pub(crate) fn of(admin: &Admin) -> Option<AdminAddress> {
        match admin {
            Admin::Unix(path) => Some(AdminAddress::Unix(path.clone())),
            Admin::Auto => Admin::usual_path().map(AdminAddress::Unix),
            Admin::None | Admin::Loopback(_) => None,
        }
    }

    /// Sends a `GET` and parses the answer. `Err` is a message for the user.
    pub(crate) fn question<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        Ok(self.try_question(path)?)
    }

    fn try_question<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let (status, body) = self.exchange("GET", path, "", QUESTION_TIMEOUT)?;
        if status != 200 {
            return Err(Failure {
                why: format!("{self}: {}", body.trim_end()),
                may_pass: is_passing(status),
            });
        }
        self.parsed(&body)
    }

    fn parsed<T: DeserializeOwned>(&self, body: &str) -> Result<T, Failure> {
        serde_json::from_str(body).map_err(|error| Failure {
            why: self.foreign(),
            // The control process died before it had sent all.
            may_pass: error.is_eof(),
        })
    }

    /// As [`question`](Self::question), but asks again while the control process is replaced, by an upgrade or after its
    /// death: for commands that ask for minutes.
    pub(crate) fn question_again<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        let retries = Retries::begin();
        loop {
            match self.try_question(path) {
                Err(failure) if retries.pause(&failure) => {}
                answer => return Ok(answer?),
            }
        }
    }

    /// Asks for a page of connections.
    pub(crate) fn page<T: DeserializeOwned>(&self, method: &str, path: &str) -> Asked<T> {
        let (status, body) = match self.exchange(method, path, "", QUESTION_TIMEOUT) {
            Ok(answer) => answer,
            Err(failure) => return Asked::Failed(failure),
        };
        if status == 200 {
            return match self.parsed(&body) {
                Ok(answer) => Asked::Answer(answer),
                Err(failure) if failure.may_pass => Asked::Failed(failure),
                Err(failure) => Asked::Refused(failure.why),
            };
        }
        let words = serde_json::from_str::<OrderResult>(&body).map(|result| result.words);
        let why = words.unwrap_or_else(|_| format!("{self}: {}", body.trim_end()));
        match is_passing(status) {
            true => Asked::Failed(Failure {
                why,
                may_pass: true,
            }),
            false => Asked::Refused(why),
        }
    }

    /// Sends a `POST`.
    pub(crate) fn order(&self, path: &str) -> Result<OrderResult, String> {
        self.order_with(path, "")
    }

    /// Sends a `POST` with a body.
    fn order_with(&self, path: &str, body: &str) -> Result<OrderResult, String> {
        let (status, body) = self.exchange("POST", path, body, ORDER_TIMEOUT)?;
        let words = body.trim_end();
        match serde_json::from_str(&body) {
            Ok(result) => Ok(result),
            // Refused before it came to the command, in plain text: a body that is too long.
            Err(_) if status / 100 == 4 => Ok(OrderResult {
                done: false,
                words: words.to_owned(),
            }),
            Err(_) => Err(format!("{self}: {words}")),
        }
    }

    /// Sends one request and returns the response's status and body.
    fn exchange(
        &self,
        method: &str,
        path: &str,
        body: &str,
        timeout: Duration,
    ) -> Result<(u16, String), Failure> {
        let len = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len}\r\n\r\n");
        // With all its room from the start: there may be a key in the body.
        let mut request = Zeroizing::new(String::with_capacity(head.len() + len));
        request.push_str(&head);
        request.push_str(body);
        let answer = match self {
            AdminAddress::Unix(socket) => connect_unix(socket, timeout)
                .and_then(|stream| stream.set_read_timeout(Some(timeout)).map(|()| stream))
                .and_then(|stream| converse(stream, &request)),
            AdminAddress::Tcp(address) => TcpStream::connect_timeout(address, QUESTION_TIMEOUT)
                .and_then(|stream| stream.set_read_timeout(Some(timeout)).map(|()| stream))
                .and_then(|stream| converse(stream, &request)),
        };
        let answer = answer.map_err(|error| Failure {
            why: self.in_words(&error, timeout),
            may_pass: is_of_replacement(&error),
        })?;
        if answer.is_empty() {
            return Err(Failure {
                why: format!(
                    "{self}: no answer: the control process has just ended, and the next one starts. \
                     `dormouse status` shows what has happened"
                ),
                may_pass: true,
            });
        }
        split(&answer).ok_or_else(|| Failure::lasting(self.foreign()))
    }

    fn foreign(&self) -> String {
        format!("{self}: the answer is not from `dormouse serve`")
    }

    fn in_words(&self, error: &io::Error, timeout: Duration) -> String {
        match error.kind() {
            io::ErrorKind::NotFound => format!(
                "{self}: no such socket: is `dormouse serve` running? \
                 If its `admin` is another path, give it with --admin or -c"
            ),
            io::ErrorKind::ConnectionRefused => {
                format!("{self}: connection refused: `dormouse serve` is no longer running")
            }
            io::ErrorKind::PermissionDenied => {
                format!(
                    "{self}: permission denied: only root and the user who runs `dormouse serve` may connect"
                )
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("{self}: no answer within {} s", timeout.as_secs())
            }
            _ => format!("{self}: {error}"),
        }
    }
}

/// Whether a response with this status may be another one soon: a worker or the control process is being replaced.
fn is_passing(status: u16) -> bool {
    matches!(status, 503 | 504)
}

/// Whether connections fail so while the control process is replaced.
fn is_of_replacement(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound};
    matches!(
        error.kind(),
        ConnectionRefused | NotFound | ConnectionReset | BrokenPipe
    )
}

/// Whether both paths lead to one file, also through links.
fn is_same(one: &Path, other: &Path) -> bool {
    let absolute = |path: &Path| std::path::absolute(path).ok();
    let file = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let is_equal = absolute(one).is_some_and(|one| Some(one) == absolute(other));
    is_equal || file(one).is_some_and(|one| Some(one) == file(other))
}

/// Returns the configuration file's admin address. Prints the error, if any.
fn of_configuration(file: &Path) -> Result<Admin, ExitCode> {
    config::admin_of(file)
        .map_err(|found| mistakes::refuse(Some(file), &found, "no request was sent"))
}

fn converse(mut stream: impl Read + Write, request: &str) -> io::Result<Vec<u8>> {
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}

/// Splits a response that ends with its connection into status and body.
fn split(answer: &[u8]) -> Option<(u16, String)> {
    let text = std::str::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.split(' ').next()?;
    Some((status.parse().ok()?, body.to_owned()))
}

/// Runs a subcommand that is one order, and prints its result.
pub(crate) fn run_order(args: &AdminArgs, path: &str) -> Exit {
    run_order_with(args, path, "")
}

/// As [`run_order`], for an order with a body.
pub(crate) fn run_order_with(args: &AdminArgs, path: &str, body: &str) -> Exit {
    let address = AdminAddress::find(&args.instance)?;
    let result = address.order_with(path, body).map_err(failed)?;
    Ok(show(&result, args.json))
}

/// Prints an error of the running program, or of the connection to it.
pub(crate) fn failed(what: impl fmt::Display) -> ExitCode {
    terminal::error(what);
    ExitStatus::Failed.into()
}

/// Prints the result of an order.
pub(crate) fn show(result: &OrderResult, json: bool) -> ExitCode {
    if json {
        terminal::print_json(result);
    } else if result.done {
        terminal::line(&result.words);
    } else {
        // Mistakes in a configuration begin with "error: " already.
        let words = result.words.strip_prefix("error: ");
        terminal::error(words.unwrap_or(&result.words));
    }
    if result.done {
        ExitCode::SUCCESS
    } else {
        ExitStatus::Misused.into()
    }
}

/// Percent-encodes a text (RFC 3986 §2.1), except characters that are safe everywhere.
pub(crate) fn encoded(text: impl AsRef<[u8]>) -> String {
    let each = text.as_ref().iter().map(|&byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b':' | b'/' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// Asks a server that gives one of these answers to each connection, in their order, and then is gone.
    fn ask<T>(answers: &[&'static str], question: impl FnOnce(&AdminAddress) -> T) -> T {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("admin.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        let answers = answers.to_vec();
        let server = thread::spawn(move || {
            for answer in answers {
                let (mut client, _) = listener.accept().expect("a client");
                if !answer.is_empty() {
                    let _ = client.read(&mut [0; 4096]).expect("a request");
                    client.write_all(answer.as_bytes()).expect("sent");
                }
            }
        });
        let answer = question(&AdminAddress::Unix(path));
        server.join().expect("its end");
        answer
    }

    fn ask_again(answers: &[&'static str]) -> Result<u32, String> {
        ask(answers, |address| address.question_again("/status"))
    }

    #[test]
    fn a_question_is_repeated_while_the_control_process_is_replaced() {
        const WHOLE: &str = "HTTP/1.1 200 OK\r\n\r\n7";
        assert_eq!(ask_again(&["", "", WHOLE]), Ok(7));
        let passing = "HTTP/1.1 503 Service Unavailable\r\n\r\nnot yet";
        assert_eq!(
            ask_again(&[passing, "HTTP/1.1 200 OK\r\n\r\n", WHOLE]),
            Ok(7)
        );
    }

    /// The control process died before it had sent all of a page.
    #[test]
    fn a_page_that_is_cut_may_be_asked_for_again() {
        for (answer, is_passing) in [
            ("HTTP/1.1 200 OK\r\n\r\n[1,", true),
            ("HTTP/1.1 200 OK\r\n\r\n<p>", false),
        ] {
            let asked: Asked<Vec<u32>> = ask(&[answer], |address| address.page("GET", "/"));
            match asked {
                Asked::Failed(failure) => assert!(failure.may_pass && is_passing, "{answer}"),
                Asked::Refused(why) => assert!(!is_passing, "{answer}: {why}"),
                Asked::Answer(page) => panic!("{page:?}"),
            }
        }
    }

    #[test]
    fn a_question_that_is_refused_is_asked_once() {
        for (answer, why) in [
            ("HTTP/1.1 403 Forbidden\r\n\r\nonly root", "only root"),
            (
                "220 mail.example.com ESMTP\r\n",
                "not from `dormouse serve`",
            ),
            ("HTTP/1.1 200 OK\r\n\r\n<p>", "not from `dormouse serve`"),
        ] {
            // A second try would find the server gone.
            let refused = ask_again(&[answer]).expect_err(answer);
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn splits_a_response() {
        let answer = b"HTTP/1.1 409 Conflict\r\nContent-Length: 3\r\n\r\n{}\n";
        assert_eq!(split(answer), Some((409, "{}\n".to_owned())));
        for wrong in [&b""[..], b"hello", b"HTTP/1.1 x\r\n\r\n", b"\xff\r\n\r\n"] {
            assert_eq!(split(wrong), None);
        }
    }

    #[test]
    fn encodes_an_address_as_a_parameter() {
        assert_eq!(encoded("127.0.0.1:8080"), "127.0.0.1:8080");
        assert_eq!(encoded("[::1]:80&route=2"), "%5B::1%5D:80%26route%3D2");
    }
}
