//! Parses a client's HTTP requests (RFC 9112) and answers them.

/// Maximum bytes kept of an incomplete request head or of a chunk's first line.
const HEAD_MAX: usize = 64 * 1024;

/// Parser for a client's requests, with the bytes of the incomplete one.
#[derive(Default)]
pub(super) struct Requests {
    kept: Vec<u8>,
    next: ParserState,
    /// The request whose body is being received.
    begun: Request,
    /// Requests received so far.
    pub(super) count: u64,
}

/// Properties of a request that determine the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Request {
    /// The answer must have no body.
    head: bool,
    /// The connection closes after the answer.
    pub(super) close: bool,
    /// An HTTP/1.0 request for keep-alive: the answer must announce that the connection stays open.
    stays: bool,
}

/// Next expected part of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum ParserState {
    #[default]
    Head,
    /// Remaining bytes of the body.
    Body(u64),
    /// The line with a chunk's length.
    ChunkLine,
    /// Remaining bytes of a chunk, including its line end.
    Chunk(u64),
    /// Trailer lines, until an empty line.
    Trailer,
}

/// A message from a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ClientMessage {
    /// A complete request.
    Request(Request),
    /// The client sends its body only after a 100 (Continue) response.
    Expects,
    /// Lines of a client that does not speak HTTP.
    Lines(Vec<u8>),
}

impl Request {
    /// Returns a short answer.
    pub(super) fn answer(self) -> Vec<u8> {
        let connection = match self {
            Self { close: true, .. } => "Connection: close\r\n",
            Self { stays: true, .. } => "Connection: keep-alive\r\n",
            _ => "",
        };
        let body = if self.head { "" } else { "hello\n" };
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n{connection}\r\n{body}"
        )
        .into_bytes()
    }
}

impl Requests {
    /// Parses the next bytes.
    pub(super) fn hear(&mut self, bytes: &[u8]) -> Vec<ClientMessage> {
        self.kept.extend_from_slice(bytes);
        let mut heard = Vec::new();
        while self.step(&mut heard) {}
        if self.kept.len() > HEAD_MAX {
            self.kept.clear();
        }
        heard
    }

    /// Parses one part; returns false if more bytes are needed.
    fn step(&mut self, heard: &mut Vec<ClientMessage>) -> bool {
        match self.next {
            ParserState::Head => return self.head(heard),
            ParserState::Body(left) => {
                let Some(left) = self.skip(left) else {
                    return false;
                };
                self.next = ParserState::Body(left);
                if left > 0 {
                    return false;
                }
                self.complete(heard);
            }
            ParserState::ChunkLine => {
                let Some(line) = self.line() else {
                    return false;
                };
                let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
                let digits = std::str::from_utf8(digits).unwrap_or_default();
                self.next = match u64::from_str_radix(digits.trim(), 16) {
                    Ok(0) | Err(_) => ParserState::Trailer,
                    Ok(length) => ParserState::Chunk(length.saturating_add(2)),
                };
            }
            ParserState::Chunk(left) => {
                let Some(left) = self.skip(left) else {
                    return false;
                };
                self.next = if left > 0 {
                    ParserState::Chunk(left)
                } else {
                    ParserState::ChunkLine
                };
            }
            ParserState::Trailer => match self.line() {
                None => return false,
                Some(line) if line.is_empty() => self.complete(heard),
                Some(_) => {}
            },
        }
        true
    }

    /// Discards up to `left` bytes and returns how many remain; `None` if no bytes are available.
    fn skip(&mut self, left: u64) -> Option<u64> {
        if self.kept.is_empty() && left > 0 {
            return None;
        }
        let here = usize::try_from(left).map_or(self.kept.len(), |left| left.min(self.kept.len()));
        self.kept.drain(..here);
        Some(left - here as u64)
    }

    /// Returns a complete line without its line end.
    fn line(&mut self) -> Option<Vec<u8>> {
        let end = self.kept.windows(2).position(|two| two == b"\r\n")?;
        let mut line: Vec<u8> = self.kept.drain(..end + 2).collect();
        line.truncate(end);
        Some(line)
    }

    fn complete(&mut self, heard: &mut Vec<ClientMessage>) {
        self.next = ParserState::Head;
        self.count += 1;
        heard.push(ClientMessage::Request(self.begun));
    }

    fn head(&mut self, heard: &mut Vec<ClientMessage>) -> bool {
        // RFC 9112 §2.2: a server ignores empty lines before a request.
        while self.kept.starts_with(b"\r\n") {
            self.kept.drain(..2);
        }
        let Some(end) = self.kept.windows(4).position(|four| four == b"\r\n\r\n") else {
            if self.count == 0 && self.kept.ends_with(b"\n") && !self.kept.contains(&b'\r') {
                heard.push(ClientMessage::Lines(std::mem::take(&mut self.kept)));
            }
            return false;
        };
        let head: Vec<u8> = self.kept.drain(..end + 4).collect();
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let (first, fields) = head.split_once("\r\n").unwrap_or((&head, ""));
        let value = |name: &str| {
            let of_line = |line: &'_ str| {
                let (field, value) = line.split_once(':')?;
                (field == name).then(|| value.trim().to_owned())
            };
            fields.lines().find_map(of_line).unwrap_or_default()
        };
        let connection = value("connection");
        let old = first.ends_with("http/1.0");
        self.begun = Request {
            head: first.starts_with("head "),
            close: connection.contains("close") || (old && !connection.contains("keep-alive")),
            stays: old,
        };
        self.next = if value("transfer-encoding").contains("chunked") {
            ParserState::ChunkLine
        } else {
            ParserState::Body(value("content-length").parse().unwrap_or(0))
        };
        if value("expect") == "100-continue" {
            heard.push(ClientMessage::Expects);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TALK: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n\
        POST /a HTTP/1.1\r\nContent-Length: 12\r\nExpect: 100-continue\r\n\r\n1\r\n\r\n3\r\n\r\n56\
        POST /b HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n4;x=y\r\n\r\n\r\n\r\n0\r\nT: 1\r\n\r\n\
        HEAD / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n\
        GET / HTTP/1.0\r\n\r\n";

    /// The parser ignores bodies that look like the end of a head, however the input is divided.
    #[test]
    fn requests_are_counted_however_they_come() {
        for length in [1, 2, 3, 7, TALK.len()] {
            let mut requests = Requests::default();
            let pieces = TALK.chunks(length);
            let heard: Vec<_> = pieces.flat_map(|piece| requests.hear(piece)).collect();
            let plain = Request::default();
            let (head, stays, close) = (true, true, true);
            let expected = [
                ClientMessage::Request(plain),
                ClientMessage::Expects,
                ClientMessage::Request(plain),
                ClientMessage::Request(plain),
                ClientMessage::Request(Request {
                    head,
                    stays,
                    ..plain
                }),
                ClientMessage::Request(Request {
                    close,
                    stays,
                    ..plain
                }),
            ];
            assert_eq!(heard, expected, "in pieces of {length}");
            assert_eq!(requests.count, 5);
        }
    }

    #[test]
    fn what_is_no_http_is_lines() {
        let mut requests = Requests::default();
        assert_eq!(requests.hear(b"hel"), []);
        assert_eq!(
            requests.hear(b"lo\n"),
            [ClientMessage::Lines(b"hello\n".to_vec())]
        );
        assert_eq!(requests.hear(&[b'x'; HEAD_MAX + 1]), []);
        assert_eq!(requests.kept.len(), 0);
    }

    #[test]
    fn an_answer_says_what_becomes_of_the_connection() {
        let says = |request: Request| String::from_utf8(request.answer()).unwrap();
        let (head, stays, close) = (true, true, true);
        let plain = Request::default();
        assert!(says(plain).ends_with("Content-Length: 6\r\n\r\nhello\n"));
        assert!(says(Request { head, ..plain }).ends_with("Content-Length: 6\r\n\r\n"));
        assert!(
            says(Request {
                close,
                stays,
                ..plain
            })
            .contains("Connection: close\r\n")
        );
        assert!(says(Request { stays, ..plain }).contains("Connection: keep-alive\r\n"));
    }
}
