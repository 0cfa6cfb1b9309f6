//! Enough of HTTP/1.1 (RFC 9112) to know where a response ends.

/// Most bytes of status line and headers.
const HEAD_MAX: usize = 64 * 1024;
/// Most bytes of one chunk-size line, extensions included.
const CHUNK_LINE_MAX: usize = 1024;

/// A server's text in an error: a head has up to 64 KiB.
fn quoted(text: &str) -> String {
    format!("{:?}", dormouse_printable::line(text).to_string())
}

/// Reads one response from bytes split anywhere.
#[derive(Debug)]
pub(crate) struct Response {
    part: ParserState,
    line: Vec<u8>,
    status: u16,
    keep_alive: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum ParserState {
    Head,
    /// This many bytes of the body are missing.
    Sized(u64),
    ChunkSize,
    Chunk(u64),
    /// The line end after a chunk.
    ChunkEnd,
    /// Lines after the last chunk, up to an empty one.
    Trailer,
    UntilClose,
    Done,
}

/// Status of a complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseEnd {
    pub(crate) status: u16,
    /// Whether another request may follow on the connection.
    pub(crate) keep_alive: bool,
}

impl Response {
    pub(crate) fn new() -> Self {
        Self {
            part: ParserState::Head,
            line: Vec::new(),
            status: 0,
            keep_alive: true,
        }
    }

    /// Takes bytes; returns `Some` when the response is complete. Bytes after it are an error:
    /// nothing else was requested.
    pub(crate) fn take(&mut self, mut bytes: &[u8]) -> Result<Option<ResponseEnd>, String> {
        while !bytes.is_empty() {
            if self.part == ParserState::Done {
                return Err("HTTP: bytes after the response".into());
            }
            let used = self.step(bytes)?;
            bytes = bytes.get(used..).unwrap_or_default();
        }
        Ok(self.outcome())
    }

    /// The connection has ended.
    pub(crate) fn end(&mut self) -> Result<ResponseEnd, String> {
        if self.part == ParserState::UntilClose {
            self.part = ParserState::Done;
        }
        self.keep_alive = false;
        self.outcome()
            .ok_or_else(|| "the connection ended within an HTTP response".into())
    }

    fn outcome(&self) -> Option<ResponseEnd> {
        (self.part == ParserState::Done).then_some(ResponseEnd {
            status: self.status,
            keep_alive: self.keep_alive,
        })
    }

    /// Consumes at least one byte.
    fn step(&mut self, bytes: &[u8]) -> Result<usize, String> {
        match self.part {
            ParserState::Sized(left) => {
                let used = left.min(bytes.len() as u64);
                self.part = if used == left {
                    ParserState::Done
                } else {
                    ParserState::Sized(left - used)
                };
                Ok(used as usize)
            }
            ParserState::Chunk(left) => {
                let used = left.min(bytes.len() as u64);
                self.part = if used == left {
                    ParserState::ChunkEnd
                } else {
                    ParserState::Chunk(left - used)
                };
                Ok(used as usize)
            }
            ParserState::UntilClose => Ok(bytes.len()),
            ParserState::Done => Err("HTTP: bytes after the response".into()),
            ParserState::Head
            | ParserState::ChunkSize
            | ParserState::ChunkEnd
            | ParserState::Trailer => self.line_step(bytes),
        }
    }

    fn line_step(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let used = end.map_or(bytes.len(), |end| end + 1);
        self.line
            .extend_from_slice(bytes.get(..used).unwrap_or_default());
        let max = if self.part == ParserState::Head {
            HEAD_MAX
        } else {
            CHUNK_LINE_MAX
        };
        if self.line.len() > max {
            return Err(format!("HTTP: head or chunk line longer than {max} bytes"));
        }
        if end.is_some() {
            self.line_complete()?;
        }
        Ok(used)
    }

    fn line_complete(&mut self) -> Result<(), String> {
        if self.part == ParserState::Head {
            // The head is collected as a whole, up to its empty line.
            if self.line.ends_with(b"\r\n\r\n") || self.line.ends_with(b"\n\n") {
                let head = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
                self.head_complete(&head)?;
            }
            return Ok(());
        }
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.line))
            .trim()
            .to_owned();
        self.part = match self.part {
            ParserState::ChunkSize => {
                let size = line.split(';').next().unwrap_or_default().trim();
                match u64::from_str_radix(size, 16)
                    .map_err(|_| format!("HTTP: bad chunk size {}", quoted(size)))?
                {
                    0 => ParserState::Trailer,
                    size => ParserState::Chunk(size),
                }
            }
            ParserState::ChunkEnd => ParserState::ChunkSize,
            _ if line.is_empty() => ParserState::Done,
            _ => ParserState::Trailer,
        };
        Ok(())
    }

    fn head_complete(&mut self, head: &str) -> Result<(), String> {
        let mut lines = head.lines();
        let status_line = lines.next().unwrap_or_default();
        let mut words = status_line.split_whitespace();
        let version = words.next().unwrap_or_default();
        let status = words.next().and_then(|status| status.parse::<u16>().ok());
        let (true, Some(status)) = (version.starts_with("HTTP/1."), status) else {
            return Err("the answer is not HTTP/1.x".into());
        };
        self.status = status;
        self.keep_alive = version == "HTTP/1.1";
        let mut length = None;
        let mut chunked = false;
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(
                    value
                        .parse::<u64>()
                        .map_err(|_| format!("HTTP: bad Content-Length {}", quoted(value)))?,
                );
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                chunked = value.to_ascii_lowercase().ends_with("chunked");
            } else if name.eq_ignore_ascii_case("connection") {
                self.keep_alive = !value.eq_ignore_ascii_case("close")
                    && (self.keep_alive || value.eq_ignore_ascii_case("keep-alive"));
            }
        }
        self.part = match (status, chunked, length) {
            // Interim responses are followed by the real one (RFC 9110 §15.2).
            (100..=199, ..) => ParserState::Head,
            (204 | 304, ..) => ParserState::Done,
            (_, true, _) => ParserState::ChunkSize,
            (_, false, Some(0)) => ParserState::Done,
            (_, false, Some(length)) => ParserState::Sized(length),
            (_, false, None) => ParserState::UntilClose,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole_and_cut(text: &str) -> Result<Option<ResponseEnd>, String> {
        let whole = Response::new().take(text.as_bytes());
        for at in 1..text.len() {
            let mut response = Response::new();
            let (left, right) = text.as_bytes().split_at(at);
            let cut = response.take(left).and_then(|first| match first {
                Some(_) => Err("too early".into()),
                None => response.take(right),
            });
            assert_eq!(cut, whole, "cut at {at}");
        }
        whole
    }

    #[test]
    fn finds_the_end_of_every_kind_of_body() {
        let kept = Ok(Some(ResponseEnd {
            status: 200,
            keep_alive: true,
        }));
        assert_eq!(
            whole_and_cut("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"),
            kept
        );
        assert_eq!(
            whole_and_cut(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: 1\r\n\r\n"
            ),
            kept
        );
        assert_eq!(
            whole_and_cut(
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n"
            ),
            kept
        );
        let closed = Ok(Some(ResponseEnd {
            status: 404,
            keep_alive: false,
        }));
        assert_eq!(
            whole_and_cut("HTTP/1.1 404 No\r\nConnection: close\r\nContent-Length: 1\r\n\r\n!"),
            closed
        );
    }

    #[test]
    fn a_body_without_length_ends_with_the_connection() {
        let mut response = Response::new();
        assert_eq!(
            response.take(b"HTTP/1.0 200 OK\r\n\r\nsome bytes"),
            Ok(None)
        );
        assert_eq!(
            response.end(),
            Ok(ResponseEnd {
                status: 200,
                keep_alive: false
            })
        );
        let mut cut = Response::new();
        assert_eq!(
            cut.take(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"),
            Ok(None)
        );
        assert!(cut.end().is_err());
    }

    #[test]
    fn refuses_invalid_responses() {
        for text in [
            "SSH-2.0-x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 204 No\r\n\r\nx",
        ] {
            assert!(Response::new().take(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(Response::new().take(&vec![b'a'; HEAD_MAX + 1]).is_err());
        let long = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            "9".repeat(HEAD_MAX / 2)
        );
        let why = Response::new().take(long.as_bytes()).unwrap_err();
        assert!(
            why.len() < 300 && why.contains("Content-Length \"999"),
            "{why}"
        );
        let endless = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            .iter()
            .chain(&[b'0'; 2000]);
        assert!(
            Response::new()
                .take(&endless.copied().collect::<Vec<_>>())
                .is_err()
        );
    }
}
