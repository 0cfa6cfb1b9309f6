//! Output of log lines: a file or syslog.

use crate::syslog::{Kind, Severity, Syslog};
use dormouse_reactor::Fd;
use std::io;

/// Errors of a datagram socket: not connected (EDESTADDRREQ), or the kernel's queue is full (ENOBUFS).
const NOT_NOW: [i32; 2] = [89, 105];

pub(super) enum Output {
    File(Fd),
    /// Sends one datagram per line.
    Syslog(Fd, Syslog),
}

impl Output {
    /// Writes the beginning of these lines (to syslog, the first line) and returns the number of bytes written.
    pub(super) fn write(&self, lines: &[u8]) -> io::Result<usize> {
        match self {
            Output::File(file) => file.write(lines),
            Output::Syslog(socket, syslog) => {
                let end = lines.iter().position(|&byte| byte == b'\n');
                let len = end.map_or(lines.len(), |end| end + 1);
                let line = String::from_utf8_lossy(lines.get(..len).unwrap_or_default());
                let time = timestamp(&line);
                let message = syslog.message(Kind::Connection, Severity::Info, time, &line);
                match socket.write(&message) {
                    Ok(_) => Ok(len),
                    Err(error) if is_away(&error) => Err(io::ErrorKind::WouldBlock.into()),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Ends a partially written line. Syslog messages are never partial.
    pub(super) fn end_line(&self) -> io::Result<()> {
        match self {
            Output::File(file) => file.write(b"\n").map(drop),
            Output::Syslog(..) => Ok(()),
        }
    }
}

/// Whether syslog is restarting or busy: the message is retried, and main reconnects the socket meanwhile.
fn is_away(error: &io::Error) -> bool {
    let is_known = matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotConnected | io::ErrorKind::NotFound
    );
    is_known
        || error
            .raw_os_error()
            .is_some_and(|code| NOT_NOW.contains(&code))
}

/// Returns the time when the connection ended: the first word of a line, or the first value of its JSON.
fn timestamp(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("{\"time\":\"").unwrap_or(line);
    let end = rest.find([' ', '"'])?;
    let time = rest.get(..end)?;
    (time.ends_with('Z') && time.starts_with(|c: char| c.is_ascii_digit())).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_config::{SyslogAddress, SyslogFacility};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn each_line_is_a_message_with_its_time() {
        let (ours, theirs) = UnixDatagram::pair().expect("a pair");
        let address = SyslogAddress::Udp(([127, 0, 0, 1], 514).into());
        let syslog = Syslog::new(&address, SyslogFacility::Daemon);
        let output = Output::Syslog(Fd(ours.as_raw_fd()), syslog);
        let lines = b"2026-11-22T08:34:56.007Z id=7f\n{\"time\":\"2026-11-22T08:34:57.000Z\",\"id\":\"80\"}\n";
        let mut written = 0;
        while written < lines.len() {
            written += output.write(&lines[written..]).expect("sent");
        }
        let mut message = [0; 1024];
        for (time, text) in [
            ("2026-11-22T08:34:56.007Z", "Z id=7f"),
            ("2026-11-22T08:34:57.000Z", "\"id\":\"80\"}"),
        ] {
            let len = theirs.recv(&mut message).expect("a message");
            let message = String::from_utf8_lossy(&message[..len]);
            assert!(message.starts_with(&format!("<30>1 {time} ")), "{message}");
            assert!(
                message.contains(" dormouse ") && message.contains(" connection - "),
                "{message}"
            );
            assert!(message.ends_with(text), "{message}");
        }
        drop(theirs);
        // A process that another test starts at this moment has a copy of the socket until it executes its program. The queue
        // has little room, so this ends.
        let gone = loop {
            match output.write(lines) {
                Ok(_) => std::thread::sleep(std::time::Duration::from_millis(20)),
                Err(gone) => break gone,
            }
        };
        assert_eq!(gone.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(timestamp("hello"), None);
    }
}
