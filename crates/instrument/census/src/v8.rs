//! The objects in V8's heap, obtained through the inspector if the process offers it.
//!
//! Node.js offers it if it was started with `--inspect`. V8 collects its garbage and tells the size of its heap in
//! milliseconds. The classes take one heap snapshot (Chrome DevTools Protocol, `HeapProfiler.takeHeapSnapshot`), for which
//! V8 stops the program for up to some seconds. The audit does not enable the inspector, because any client of its port
//! controls the process.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use dormouse_measure::{limits, proc_files, sockets};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::snapshot::{Detail, ObjectCounts, add_objects, class_name};
use crate::time_limit::limited;

const HTTP_PATIENCE: Duration = Duration::from_secs(2);
const HTTP_MAX: u64 = 64 * 1024;
/// Maximum size of a snapshot in bytes; a sixteenth of the free memory if that is less, because an empty text takes
/// three bytes in it, and 24 in this program.
const SNAPSHOT_MAX: u64 = 1 << 30;
/// Maximum size of one message. V8 sends a snapshot in parts of 100 kB.
const MESSAGE_MAX: u64 = 4 << 20;
/// Maximum number of kinds of nodes; V8 has some twenty.
const KINDS_MAX: usize = 256;

const COLLECT: &str = "HeapProfiler.collectGarbage";
const SNAPSHOT: &str = "HeapProfiler.takeHeapSnapshot";
const USAGE: &str = "Runtime.getHeapUsage";

/// Objects that survived a collection.
pub(super) struct Survivors {
    pub(super) bytes: u64,
    /// Empty if they were not asked for.
    pub(super) classes: Result<ObjectCounts, String>,
}

/// Makes a process collect its garbage and counts the objects that survive, by class if that is asked for; `None` if it
/// has no inspector.
pub(super) fn living(
    pid: i32,
    detail: Detail,
    patience: Duration,
) -> Option<Result<Survivors, String>> {
    let until = Instant::now() + patience;
    let found = find(pid)?;
    Some(found.and_then(|(address, path)| survivors(address, &path, detail, until)))
}

fn survivors(
    address: SocketAddr,
    path: &str,
    detail: Detail,
    until: Instant,
) -> Result<Survivors, String> {
    let left = || until.saturating_duration_since(Instant::now());
    let usage = ask(address, path, &[COLLECT, COLLECT, USAGE], left())?.result;
    let bytes = usage.get("usedSize").and_then(Value::as_f64);
    let bytes = bytes.ok_or("the inspector does not tell the size of V8's heap")?;
    // The size is known even if the snapshot is too large.
    let classes = match detail {
        Detail::Bytes => Ok(ObjectCounts::new()),
        Detail::Classes => {
            ask(address, path, &[SNAPSHOT], left()).and_then(|answer| count(&answer.events))
        }
    };
    Ok(Survivors {
        bytes: bytes as u64,
        classes,
    })
}

/// Makes a process collect its garbage; `None` if it has no inspector. What the first collection finds unreachable may
/// hold buffers of malloc, which Node.js frees before the second one.
pub(super) fn collect(pid: i32, patience: Duration) -> Option<Result<(), String>> {
    let until = Instant::now() + patience;
    Some(find(pid)?.and_then(|(address, path)| {
        let left = until.saturating_duration_since(Instant::now());
        ask(address, &path, &[COLLECT, COLLECT], left).map(drop)
    }))
}

/// An inspector's answer to several commands.
struct Answer {
    /// Text of the events, which is that of a snapshot.
    events: String,
    /// Result of the last command.
    result: Value,
}

/// Returns the address of a process's inspector, and the path of its WebSocket.
fn find(pid: i32) -> Option<Result<(SocketAddr, String), String>> {
    // The words and the environment of a process are in its memory.
    if limited(HTTP_PATIENCE, move || offers(pid)) != Ok(true) {
        return None;
    }
    if !shares_network(pid) {
        return Some(Err(
            "it is in a network of its own (a container), where its inspector cannot be reached from here".into(),
        ));
    }
    let found = listening(pid).into_iter().find_map(|port| {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Some((address, path_of(address)?))
    });
    Some(found.ok_or_else(|| {
        "the process was started with --inspect, but no inspector listens on 127.0.0.1".into()
    }))
}

fn offers(pid: i32) -> bool {
    let of = |name: &str| proc_files::read_beginning(pid, name).unwrap_or_default();
    let (words, environment) = (of("cmdline"), of("environ"));
    let options = environment.split(|byte| *byte == 0);
    let mut options = options.filter(|entry| entry.starts_with(b"NODE_OPTIONS="));
    let asks = |words: &[u8]| words.windows(9).any(|nine| nine == b"--inspect");
    asks(&words) || options.any(asks)
}

/// Whether the process shares this program's network namespace. Otherwise 127.0.0.1 is another host, and another
/// program may listen on the same port here.
fn shares_network(pid: i32) -> bool {
    let network = |of: &str| fs::read_link(format!("/proc/{of}/ns/net")).ok();
    let own = network("self");
    own.is_some() && own == network(&pid.to_string())
}

/// Returns the TCP ports on which a process listens.
fn listening(pid: i32) -> Vec<u16> {
    let listening = sockets::all(pid).filter(|socket| socket.listens && socket.local.is_ipv4());
    listening
        .filter(|socket| sockets::holds_any(pid, std::slice::from_ref(&socket.inode)))
        .map(|socket| socket.local.port())
        .collect()
}

/// Returns the path of the inspector's WebSocket if an inspector listens at this address.
fn path_of(address: SocketAddr) -> Option<String> {
    #[derive(Deserialize)]
    struct InspectorTarget {
        #[serde(rename = "webSocketDebuggerUrl")]
        url: String,
    }
    let mut stream = Inspector::connect(address, HTTP_PATIENCE).ok()?;
    let request = format!("GET /json/list HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let (mut answer, mut room) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut room) {
        answer.extend_from_slice(room.get(..count)?);
        let text = String::from_utf8_lossy(&answer);
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        if let Ok(entries) = serde_json::from_str::<Vec<InspectorTarget>>(body) {
            let url = &entries.first()?.url;
            let (_, path) = url.strip_prefix("ws://")?.split_once('/')?;
            // The path becomes part of a request, so it must not contain spaces or line breaks.
            let is_path = path.bytes().all(|byte| byte.is_ascii_graphic());
            return is_path.then(|| format!("/{path}"));
        }
        if answer.len() as u64 > HTTP_MAX || !text.starts_with("HTTP/") {
            return None;
        }
    }
    None
}

/// A connection to an inspector with an overall deadline, however slowly the inspector answers.
struct Inspector {
    stream: TcpStream,
    until: Instant,
    snapshot_max: u64,
}

impl Inspector {
    fn connect(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, patience.min(HTTP_PATIENCE))?;
        stream.set_write_timeout(Some(HTTP_PATIENCE))?;
        let until = Instant::now() + patience;
        Ok(Self {
            stream,
            until,
            snapshot_max: SNAPSHOT_MAX.min(limits::free_bytes() / 16),
        })
    }
}

impl Read for Inspector {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(room)
    }
}

impl Write for Inspector {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Sends commands to an inspector, each after the answer to the one before.
fn ask(
    address: SocketAddr,
    path: &str,
    methods: &[&str],
    patience: Duration,
) -> Result<Answer, String> {
    let words = |error: io::Error| format!("the inspector: {error}");
    let mut stream = Inspector::connect(address, patience).map_err(words)?;
    stream.upgrade(address, path)?;
    let mut answer = Answer {
        events: String::new(),
        result: Value::Null,
    };
    for (id, method) in (1..).zip(methods) {
        let order = format!(r#"{{"id":{id},"method":"{method}"}}"#);
        stream.write_all(&frame(order.as_bytes())).map_err(words)?;
        answer.result = stream.result(&mut answer.events)?;
    }
    Ok(answer)
}

impl Inspector {
    /// Changes from HTTP to a WebSocket.
    fn upgrade(&mut self, address: SocketAddr, path: &str) -> Result<(), String> {
        let words = |error: io::Error| format!("the inspector: {error}");
        // The key protects against caches (RFC 6455 §1.3), and none is in between.
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: ZG9ybW91c2UgYXVkaXQhIQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        );
        self.write_all(request.as_bytes()).map_err(words)?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.read_exact(&mut byte).map_err(words)?;
            head.extend_from_slice(&byte);
            if head.len() as u64 > HTTP_MAX {
                return Err("the inspector's answer is too long".into());
            }
        }
        if head.starts_with(b"HTTP/1.1 101") {
            Ok(())
        } else {
            Err("the inspector refused the connection: another client may be connected".into())
        }
    }

    /// Waits for the result of a command, and appends the text of the events before it.
    fn result(&mut self, events: &mut String) -> Result<Value, String> {
        loop {
            let message = receive(self).map_err(|error| format!("the inspector: {error}"))?;
            let mut message: Value =
                serde_json::from_slice(&message).map_err(|error| error.to_string())?;
            if let Some(chunk) = message.pointer("/params/chunk").and_then(Value::as_str) {
                events.push_str(chunk);
                let max = self.snapshot_max;
                if events.len() as u64 > max {
                    return Err(format!(
                        "its heap snapshot is larger than {max} bytes, which is the limit here (a sixteenth of the free memory): run the audit where more is free"
                    ));
                }
            } else if message.get("id").is_some() {
                let refused = message.pointer("/error/message").and_then(Value::as_str);
                return match refused {
                    Some(why) => Err(format!("the inspector: {why}")),
                    None => Ok(message.get_mut("result").map_or(Value::Null, Value::take)),
                };
            }
        }
    }
}

/// Builds a short text frame from a client (RFC 6455 §5.2), masked with zeros.
fn frame(text: &[u8]) -> Vec<u8> {
    let length = u8::try_from(text.len().min(125)).unwrap_or(125);
    let mut frame = vec![0x81, 0x80 | length, 0, 0, 0, 0];
    frame.extend_from_slice(text);
    frame
}

/// Receives one message, which may consist of several frames.
pub(super) fn receive(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut message = Vec::new();
    loop {
        let mut head = [0; 2];
        stream.read_exact(&mut head)?;
        let [first, second] = head;
        let length = match second & 0x7f {
            126 => {
                let mut long = [0; 2];
                stream.read_exact(&mut long)?;
                u64::from(u16::from_be_bytes(long))
            }
            127 => {
                let mut long = [0; 8];
                stream.read_exact(&mut long)?;
                u64::from_be_bytes(long)
            }
            short => u64::from(short),
        };
        let whole = length.saturating_add(message.len() as u64);
        if whole > MESSAGE_MAX || second & 0x80 != 0 || first & 0x0f == 8 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut content = vec![0; usize::try_from(length).unwrap_or(0)];
        stream.read_exact(&mut content)?;
        // Control frames such as ping and pong may come in between.
        if first & 0x0f <= 2 {
            message.extend_from_slice(&content);
            if first & 0x80 != 0 {
                return Ok(message);
            }
        }
    }
}

/// The type of a node's field: the names of its values, or none if the values are numbers or texts. Whatever else an
/// inspector sends is not kept.
struct FieldType(Vec<String>);

impl<'de> Deserialize<'de> for FieldType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = FieldType;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a type, or at most {KINDS_MAX} names")
            }

            fn visit_str<E>(self, _: &str) -> Result<FieldType, E> {
                Ok(FieldType(Vec::new()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<FieldType, A::Error> {
                let mut kept = Vec::new();
                while let Some(name) = names.next_element()? {
                    if kept.len() == KINDS_MAX {
                        return Err(A::Error::invalid_length(KINDS_MAX + 1, &self));
                    }
                    kept.push(name);
                }
                Ok(FieldType(kept))
            }
        }
        deserializer.deserialize_any(Names)
    }
}

/// Counts a snapshot's nodes by class.
pub(super) fn count(text: &str) -> Result<ObjectCounts, String> {
    #[derive(Deserialize)]
    struct HeapSnapshot {
        snapshot: SnapshotHead,
        nodes: Vec<u64>,
        strings: Vec<String>,
    }
    #[derive(Deserialize)]
    struct SnapshotHead {
        meta: SnapshotMeta,
    }
    #[derive(Deserialize)]
    struct SnapshotMeta {
        node_fields: Vec<String>,
        node_types: Vec<FieldType>,
    }
    let read: HeapSnapshot =
        serde_json::from_str(text).map_err(|error| format!("the heap snapshot: {error}"))?;
    let meta = &read.snapshot.meta;
    let place = |name: &str| meta.node_fields.iter().position(|field| field == name);
    let (Some(kind), Some(name), Some(size)) = (place("type"), place("name"), place("self_size"))
    else {
        return Err("the heap snapshot has an unknown format".into());
    };
    let kinds = meta.node_types.get(kind).map(|of| &of.0);
    let mut classes = ObjectCounts::new();
    for node in read.nodes.chunks_exact(meta.node_fields.len()) {
        let field = |place: usize| node.get(place).copied().unwrap_or(0);
        let index = |place: usize| usize::try_from(field(place)).unwrap_or(usize::MAX);
        let kind = kinds.and_then(|kinds| kinds.get(index(kind)));
        let kind = kind.map_or("?", String::as_str);
        let class = match kind {
            "object" | "native" => {
                let name = read.strings.get(index(name));
                name.map_or_else(String::new, |name| class_name(name))
            }
            other => format!("({other})"),
        };
        add_objects(&mut classes, class, 1, field(size));
    }
    Ok(classes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_snapshot_is_counted_by_class() {
        let text = r#"{"snapshot":{"meta":{"node_fields":["type","name","id","self_size"],
            "node_types":[["hidden","object","string"],"string","number","number"]}},
            "nodes":[1,0,1,100, 1,0,3,100, 2,1,5,24],"edges":[0,1],"strings":["TLSSocket","text"]}"#;
        let classes = count(text).unwrap();
        assert_eq!(classes["TLSSocket"], (2, 200));
        assert_eq!(classes["(string)"], (1, 24));
        let most = format!("1,0,1,{0}, 1,0,3,{0},", u64::MAX);
        let classes = count(&text.replace("1,0,1,100, 1,0,3,100,", &most)).unwrap();
        assert_eq!(classes["TLSSocket"], (2, u64::MAX));
        assert!(count("{}").is_err());
        for kinds in ["0,".repeat(1000), r#""","#.repeat(1000)] {
            let text = text.replace(r#"["hidden","#, &format!(r#"[{kinds}"hidden","#));
            let why = count(&text).unwrap_err();
            assert!(why.contains("heap snapshot"), "{why}");
        }
    }

    #[test]
    fn a_slow_inspector_is_given_up() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let slow = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Sends a byte now and then, without end.
            while stream.write_all(b"H").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let mut inspector = Inspector::connect(address, Duration::from_millis(300)).unwrap();
        let refused = inspector.read_to_end(&mut Vec::new()).unwrap_err();
        let waited = [io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock];
        assert!(waited.contains(&refused.kind()), "{refused}");
        drop(inspector);
        slow.join().unwrap();
    }

    /// Accepts a connection as an inspector does, and sends these messages.
    fn inspect(listener: &TcpListener, messages: &[&str]) {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]).unwrap();
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
            .unwrap();
        for text in messages {
            let length = u8::try_from(text.len()).unwrap();
            let head: &[u8] = &[0x81, length];
            stream.write_all(&[head, text.as_bytes()].concat()).unwrap();
        }
        let _ = stream.read_to_end(&mut Vec::new());
    }

    const DONE: [&str; 2] = [r#"{"id":1,"result":{}}"#, r#"{"id":2,"result":{}}"#];
    const USED: &str = r#"{"id":3,"result":{"usedSize":4711.5}}"#;

    /// An inspector that answers three commands; the second one with a snapshot in two chunks.
    #[test]
    fn commands_are_answered_one_after_the_other() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let inspector = std::thread::spawn(move || {
            let parts = [
                r#"{"method":"e","params":{"chunk":"{\"a\":"}}"#,
                r#"{"method":"e","params":{"chunk":"1}"}}"#,
            ];
            inspect(&listener, &[DONE[0], parts[0], parts[1], DONE[1], USED]);
        });
        let answer = ask(
            address,
            "/",
            &[COLLECT, SNAPSHOT, USAGE],
            Duration::from_secs(5),
        );
        let answer = answer.unwrap();
        assert_eq!(answer.events, r#"{"a":1}"#);
        assert_eq!(answer.result["usedSize"], 4711.5);
        inspector.join().unwrap();
    }

    #[test]
    fn the_size_of_a_heap_needs_no_snapshot() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let inspector = std::thread::spawn(move || {
            inspect(&listener, &[DONE[0], DONE[1], USED]);
            inspect(&listener, &[r#"{"id":1,"error":{"message":"too large"}}"#]);
        });
        let until = Instant::now() + Duration::from_secs(5);
        let found = survivors(address, "/", Detail::Classes, until).unwrap();
        assert_eq!(found.bytes, 4711);
        assert!(found.classes.unwrap_err().contains("too large"));
        inspector.join().unwrap();
    }

    #[test]
    fn a_large_snapshot_is_refused() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let mut inspector = Inspector::connect(address, Duration::from_secs(5)).unwrap();
        inspector.snapshot_max = 5;
        let (mut stream, _) = listener.accept().unwrap();
        let part = br#"{"params":{"chunk":"abc"}}"#;
        for _ in 0..2 {
            stream.write_all(&[0x81, part.len() as u8]).unwrap();
            stream.write_all(part).unwrap();
        }
        let refused = inspector.result(&mut String::new()).unwrap_err();
        assert!(refused.contains("larger than 5 bytes"), "{refused}");
    }

    #[test]
    fn another_network_namespace_is_recognised() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(shares_network(own));
        assert!(!shares_network(i32::MAX));
    }

    #[test]
    fn messages_come_in_frames() {
        let mut bytes = vec![0x01, 2, b'a', b'b', 0x89, 0, 0x80, 126, 0, 1, b'c'];
        assert_eq!(receive(&mut bytes.as_slice()).unwrap(), b"abc");
        bytes.truncate(3);
        assert!(receive(&mut bytes.as_slice()).is_err());
        let endless = [0x82, 127, 0xff, 0, 0, 0, 0, 0, 0, 0];
        assert!(receive(&mut endless.as_slice()).is_err());
    }

    #[test]
    fn the_listeners_of_a_process_are_found() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(listening(own).contains(&port));
        drop(listener);
        assert!(!listening(own).contains(&port));
        assert!(listening(i32::MAX).is_empty());
    }
}
