//! One connection to the agent: a request for certificates, whose response never ends.

use super::frames::Frames;
use super::socket::AgentSocket;
use bytes::Bytes;
use dormouse_handover::message;
use dormouse_printable::line_up_to;
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::socket::{self, Addr, ConnectOptions};
use dormouse_reactor::{Fd, process};
use h2::client::{Builder, SendRequest};
use http::{HeaderMap, Method, Request, Version};
use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// The only method that is used.
const METHOD: &str = "http://localhost/SpiffeWorkloadAPI/FetchX509SVID";
/// Keeps requests apart that a web page has made a browser send to the socket (SPIFFE Workload Endpoint §4.1).
const SECURITY_HEADER: (&str, &str) = ("workload.spiffe.io", "true");

/// Maximum wait for the agent's first response.
const ANSWER_MAX_MS: u64 = 10_000;

/// Maximum bytes of response headers and trailers.
const HEADERS_MAX: u32 = 16 << 10;
/// Maximum bytes that the agent may send before they are read.
const WINDOW: u32 = 64 << 10;
/// Maximum bytes of the agent's own words in a reason.
const WORDS_MAX: usize = 200;

/// Token of the agent's socket in the poller.
const AGENT: u64 = 1;

/// Why a connection has ended.
pub(super) enum Ended {
    MainIsGone,
    Failed(String),
}

/// Passes each message of the agent on, until the connection ends or `on_message` returns `false`.
pub(super) fn watch(
    agent: &Path,
    (poller, channel): (&Poller, Fd),
    on_message: impl FnMut(&[u8]) -> bool,
) -> Ended {
    // A unix socket is connected at once, unless the agent's queue is full.
    let address = Addr::Unix(agent.to_owned());
    let connected = socket::connect(&address, &ConnectOptions::default()).and_then(|connecting| {
        let fd = connecting.fd();
        let (socket, is_full) = AgentSocket::new(fd);
        poller.add(fd, AGENT, Interest::READ)?;
        Ok((fd, socket, is_full))
    });
    let (fd, socket, is_full) = match connected {
        Ok(connected) => connected,
        Err(error) => return Ended::Failed(format!("cannot connect: {error}")),
    };
    let has_answered = Rc::new(Cell::new(false));
    let stream = fetch(socket, Rc::clone(&has_answered), on_message);
    let link = Link {
        poller,
        channel,
        fd,
        is_full,
        has_answered,
    };
    // The socket is closed with `stream`, which also ends its polling.
    link.drive(stream)
        .unwrap_or_else(|error| Ended::Failed(error.to_string()))
}

/// Makes the request and reads the response. Returns why it has ended.
async fn fetch(
    socket: AgentSocket,
    has_answered: Rc<Cell<bool>>,
    mut on_message: impl FnMut(&[u8]) -> bool,
) -> String {
    let handshake = Builder::new()
        .enable_push(false)
        .max_header_list_size(HEADERS_MAX)
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .handshake::<_, Bytes>(socket)
        .await;
    let (requests, connection) = match handshake {
        Ok(both) => both,
        Err(error) => return in_words(&error),
    };
    let work = async {
        let mut on_message = |message: &[u8]| {
            has_answered.set(true);
            on_message(message)
        };
        match request(requests, &mut on_message).await {
            Ok(why) => why,
            Err(error) => in_words(&error),
        }
    };
    let (mut work, mut connection) = (pin!(work), pin!(connection));
    poll_fn(|context| {
        let ended = connection.as_mut().poll(context);
        // It may have received the rest of the response with the end.
        if let Poll::Ready(why) = work.as_mut().poll(context) {
            return Poll::Ready(why);
        }
        ended.map(|ended| match ended {
            Ok(()) => "the agent has closed the connection".to_owned(),
            Err(error) => in_words(&error),
        })
    })
    .await
}

async fn request(
    requests: SendRequest<Bytes>,
    on_message: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<String, h2::Error> {
    let request = Request::builder()
        .method(Method::POST)
        .version(Version::HTTP_2)
        .uri(METHOD)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header(SECURITY_HEADER.0, SECURITY_HEADER.1)
        .body(());
    let Ok(request) = request else {
        return Ok("the request is not valid".to_owned());
    };
    let mut requests = requests.ready().await?;
    let (response, mut body) = requests.send_request(request, false)?;
    // An empty message in its frame.
    body.send_data(Bytes::from_static(&[0; 5]), true)?;
    let (head, mut body) = response.await?.into_parts();
    if head.status != http::StatusCode::OK {
        return Ok(format!(
            "the agent answered with the status {}",
            head.status
        ));
    }
    if let Some(why) = status(&head.headers) {
        return Ok(why);
    }
    let mut frames = Frames::default();
    while let Some(part) = body.data().await {
        let part = part?;
        body.flow_control().release_capacity(part.len())?;
        match frames.take(&part, on_message) {
            Ok(true) => {}
            Ok(false) => return Ok("main does not take reports".to_owned()),
            Err(why) => return Ok(why),
        }
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    Ok(status(&trailers).unwrap_or_else(|| "the agent has ended its response".to_owned()))
}

/// The status of gRPC in headers or trailers, in words. `None`: there is none, or it says that all is well.
fn status(headers: &HeaderMap) -> Option<String> {
    let text = |name: &str| {
        let value = headers.get(name)?.as_bytes();
        Some(line_up_to(&String::from_utf8_lossy(value), WORDS_MAX).to_string())
    };
    let code = text("grpc-status").filter(|code| code != "0")?;
    let name = match &*code {
        "7" => "PermissionDenied".to_owned(),
        "14" => "Unavailable".to_owned(),
        _ => format!("status {code}"),
    };
    let message = text("grpc-message").unwrap_or_default();
    Some(format!("the agent refused: {name}: {message}"))
}

fn in_words(error: &h2::Error) -> String {
    line_up_to(&error.to_string(), WORDS_MAX).to_string()
}

/// What a connection waits for.
struct Link<'a> {
    poller: &'a Poller,
    channel: Fd,
    fd: Fd,
    is_full: Rc<Cell<bool>>,
    has_answered: Rc<Cell<bool>>,
}

/// Whether the task has more to do.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Link<'_> {
    fn drive(&self, stream: impl Future<Output = String>) -> io::Result<Ended> {
        let until_ms = process::boottime_ms() + ANSWER_MAX_MS;
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut stream = pin!(stream);
        let mut events = Events::with_capacity(2);
        let mut interest = Interest::READ;
        loop {
            if let Poll::Ready(why) = stream.as_mut().poll(&mut context) {
                return Ok(Ended::Failed(why));
            }
            if woken.0.swap(false, Ordering::Relaxed) {
                continue;
            }
            let wanted = Interest::READ.with(Interest::WRITE, self.is_full.get());
            if wanted != interest {
                self.poller.modify(self.fd, AGENT, wanted)?;
                interest = wanted;
            }
            let left_ms = match self.has_answered.get() {
                true => None,
                false => Some(until_ms.saturating_sub(process::boottime_ms())),
            };
            if left_ms == Some(0) {
                let why = format!(
                    "the agent has not answered within {} s",
                    ANSWER_MAX_MS / 1000
                );
                return Ok(Ended::Failed(why));
            }
            self.poller.wait(&mut events, left_ms)?;
            if !is_main_there(self.channel) {
                return Ok(Ended::MainIsGone);
            }
        }
    }
}

/// Whether main has not closed its end. It sends nothing.
pub(super) fn is_main_there(channel: Fd) -> bool {
    matches!(message::receive::<()>(channel), Ok(None))
}
