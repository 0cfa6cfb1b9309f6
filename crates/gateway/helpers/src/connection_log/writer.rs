//! From the workers' sockets to the file: whole lines, in order for each worker.

use super::messages::{DroppedLines, LastLines, report};
use super::output::Output;
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::socket::{self, Attempt};
use dormouse_reactor::{Fd, OnExec, process};
use std::io;

/// Bytes received at once.
const CHUNK: usize = 64 << 10;
/// Maximum bytes that wait to be written; above it, nothing is received.
const WAITING_MAX: usize = 256 << 10;
/// Maximum length of a line.
const LINE_MAX: usize = 8 << 10;
/// Pause before the next write to a file that would block.
const RETRY_MS: u64 = 50;
/// Minimum time between two reports of dropped lines.
const REPORT_MS: u64 = 1_000;

const TOKEN_MAIN: u64 = 1;
/// First token of the sources.
const TOKEN_SOURCES: u64 = 1000;

/// A worker's socket, and the beginning of an incomplete line from it.
struct Source {
    fd: Fd,
    partial: Vec<u8>,
    is_watched: bool,
}

pub(super) struct Writer {
    poller: Poller,
    sources: Vec<Source>,
    output: Output,
    main: Fd,
    /// Whole lines that wait to be written, and the number of their bytes already written.
    waiting: Vec<u8>,
    written: usize,
    /// Whether the file ends in the middle of a line.
    is_torn: bool,
    retry_ms: Option<u64>,
    dropped: u64,
    why: String,
    report_ms: u64,
    is_ending: bool,
    /// Another process with another file follows: nothing but the rest of lines is received.
    is_replaced: bool,
    /// Main has died: the workers are draining, and this process ends after them.
    is_orphaned: bool,
}

impl Writer {
    pub(super) fn new(sources: Vec<Fd>, output: Output, main: Fd) -> io::Result<Writer> {
        let poller = Poller::create(OnExec::Close)?;
        poller.add(main, TOKEN_MAIN, Interest::READ)?;
        for (fd, token) in sources.iter().zip(TOKEN_SOURCES..) {
            poller.add(*fd, token, Interest::READ)?;
        }
        let source = |fd| Source {
            fd,
            partial: Vec::new(),
            is_watched: true,
        };
        Ok(Writer {
            poller,
            sources: sources.into_iter().map(source).collect(),
            output,
            main,
            waiting: Vec::new(),
            written: 0,
            is_torn: false,
            retry_ms: None,
            dropped: 0,
            why: String::new(),
            report_ms: 0,
            is_ending: false,
            is_replaced: false,
            is_orphaned: false,
        })
    }

    /// Writes lines until main ends the process, or has died and the last worker is gone; then the remaining ones.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(64);
        loop {
            self.poller.wait(&mut events, self.timeout_ms())?;
            let mut received = 0;
            if events.iter().any(|event| event.token() == TOKEN_MAIN) {
                self.attend_to_main();
            }
            for event in events.iter() {
                match event.token() {
                    TOKEN_MAIN => {}
                    token => {
                        received += self.receive(token.saturating_sub(TOKEN_SOURCES) as usize);
                    }
                }
            }
            if self
                .retry_ms
                .is_none_or(|at_ms| at_ms <= process::boottime_ms())
            {
                self.write();
            }
            self.watch()?;
            self.report();
            let is_any_left = self.sources.iter().any(|source| source.is_watched);
            self.is_ending |= self.is_orphaned && !is_any_left;
            if self.is_ending && received == 0 && self.is_done() {
                return Ok(());
            }
        }
    }

    fn attend_to_main(&mut self) {
        let mut message = [0; 64];
        match socket::recv(self.main, &mut message) {
            Ok(Attempt::WouldBlock) => {}
            Ok(Attempt::Done(count)) if count > 0 => {
                let message = message.get(..count).unwrap_or_default();
                let last: Result<LastLines, _> = serde_json::from_slice(message);
                self.is_replaced = last.is_ok_and(|last| last.another_follows);
                self.is_ending = true;
            }
            Ok(Attempt::Done(_)) | Err(_) => {
                let _ = self.poller.remove(self.main);
                self.is_orphaned = true;
            }
        }
    }

    fn timeout_ms(&self) -> Option<u64> {
        let now_ms = process::boottime_ms();
        let report_ms = (self.dropped > 0).then_some(self.report_ms);
        let next = [self.retry_ms, report_ms].into_iter().flatten().min();
        // While ending, do not wait: the loop ends when nothing is left to receive.
        let look_ms = self.is_ending.then_some(0);
        next.map(|at_ms| at_ms.saturating_sub(now_ms)).or(look_ms)
    }

    /// Writes what is left, incomplete lines included. Returns `false` while the file still takes whole
    /// lines.
    fn is_done(&mut self) -> bool {
        let is_stuck = self.retry_ms.is_some();
        if self.waiting.is_empty() || is_stuck {
            // The next writer appends the rest of an incomplete line.
            for source in &mut self.sources {
                self.waiting.append(&mut source.partial);
            }
            self.write();
            return true;
        }
        false
    }

    /// Receives from a source. Returns the number of bytes.
    fn receive(&mut self, index: usize) -> usize {
        let Some(source) = self.sources.get_mut(index) else {
            return 0;
        };
        let is_needed = !self.is_replaced || !source.partial.is_empty();
        if self.waiting.len() >= WAITING_MAX || !is_needed {
            return 0;
        }
        let mut chunk = vec![0; CHUNK];
        let count = match socket::recv(source.fd, &mut chunk) {
            Ok(Attempt::Done(count)) if count > 0 => count,
            Ok(Attempt::WouldBlock) => return 0,
            // The worker and its keeper are gone for good.
            Ok(Attempt::Done(_)) | Err(_) => {
                let _ = self.poller.remove(source.fd);
                source.is_watched = false;
                return 0;
            }
        };
        let received = chunk.get(..count).unwrap_or_default();
        match received.iter().rposition(|&byte| byte == b'\n') {
            Some(end) => {
                let (whole, rest) = received.split_at(end + 1);
                self.waiting.append(&mut source.partial);
                self.waiting.extend_from_slice(whole);
                source.partial = rest.to_vec();
            }
            None => source.partial.extend_from_slice(received),
        }
        if source.partial.len() > LINE_MAX {
            source.partial = Vec::new();
            self.dropped += 1;
            self.why = "a line is longer than 8 KiB".to_owned();
        }
        count
    }

    /// Writes waiting lines until the file would block.
    fn write(&mut self) {
        self.retry_ms = None;
        while let Some(rest) = self
            .waiting
            .get(self.written..)
            .filter(|rest| !rest.is_empty())
        {
            let result = match self.is_torn {
                true => self.output.end_line().map(|()| 0),
                false => self.output.write(rest),
            };
            match result {
                Ok(count) => {
                    self.is_torn = false;
                    self.written += count;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.retry_ms = Some(process::boottime_ms() + RETRY_MS);
                    break;
                }
                Err(error) => {
                    self.drop_waiting(&error);
                    break;
                }
            }
        }
        self.waiting.drain(..self.written.min(self.waiting.len()));
        self.written = 0;
        if self.waiting.is_empty() {
            self.waiting = Vec::new();
        }
    }

    /// Drops the waiting lines after a failed write. If a line was written in part, a line feed is due
    /// before the next line.
    fn drop_waiting(&mut self, error: &io::Error) {
        let rest = self.waiting.get(self.written..).unwrap_or_default();
        let lines = rest.iter().filter(|&&byte| byte == b'\n').count();
        let last = self
            .written
            .checked_sub(1)
            .and_then(|at| self.waiting.get(at));
        self.is_torn |= last.is_some_and(|&byte| byte != b'\n');
        self.dropped += lines as u64;
        self.why = error.to_string();
        self.written = self.waiting.len();
    }

    /// Polls the sources only while there is room for their lines.
    fn watch(&mut self) -> io::Result<()> {
        let has_room = self.waiting.len() < WAITING_MAX;
        for (source, token) in self.sources.iter().zip(TOKEN_SOURCES..) {
            if source.is_watched {
                let interest = if has_room {
                    Interest::READ
                } else {
                    Interest::NONE
                };
                self.poller.modify(source.fd, token, interest)?;
            }
        }
        Ok(())
    }

    fn report(&mut self) {
        let now_ms = process::boottime_ms();
        if self.dropped == 0 || now_ms < self.report_ms {
            return;
        }
        self.report_ms = now_ms + REPORT_MS;
        let dropped = DroppedLines {
            lines: self.dropped,
            error: self.why.clone(),
        };
        if self.is_ending || self.is_orphaned || report(self.main, &dropped) {
            self.dropped = 0;
        }
    }
}
