//! Large amounts of data, which only a server that echoes can be made to send.

use super::running::{Partly, RunningPart};
use dormouse_bench::load::{Cycle, Order};
use dormouse_measure::Error;

/// A large record: 16 kB of plaintext, close to the maximum of 2^14 bytes.
pub(super) const LARGE_BYTES: u64 = 16_000;
/// Maximum number of streams.
const STREAMS: u32 = 4;

/// Whether a server echoes 16 kB sent at once.
#[derive(Clone, Default)]
pub(super) enum LargeEcho {
    /// It does not echo, or there was no time to try.
    #[default]
    NotTried,
    Returned,
    /// It does not, for this reason, although it echoes.
    Refused(String),
}

impl LargeEcho {
    /// Why the server was not sent 16 kB at once.
    pub(super) fn why_not(&self) -> &str {
        match self {
            Self::Refused(why) => why,
            _ => "the server does not echo, so the audit cannot make it send 16 kB records",
        }
    }
}

impl RunningPart<'_, '_> {
    /// Tries one connection of its own with a large message: a server of lines may have a limit, and would end all held
    /// connections.
    pub(super) fn try_large(&mut self) -> Result<LargeEcho, Error> {
        if !self.echoes || self.is_late() {
            return Ok(LargeEcho::NotTried);
        }
        let order = Order::Cycle(Cycle {
            bulk_bytes: LARGE_BYTES,
            ..Cycle::once(1, 1)
        });
        let report = self
            .session
            .order("16 kB on one", Some(1), &order, |tally| tally.answers)?;
        self.go_on()?;
        if report.of.tally.answers > 0 {
            return Ok(LargeEcho::Returned);
        }
        let why = report.of.failures.keys().next();
        let why = why.map_or("no answer", String::as_str);
        Ok(LargeEcho::Refused(format!(
            "the server does not echo 16 kB sent at once ({why})"
        )))
    }

    /// Streams bytes over echo connections: CPU seconds per gigabyte. `large`: whether the server is known to refuse
    /// 16 kB at once.
    pub(super) fn stream(&mut self, large: LargeEcho) -> Partly<(LargeEcho, Option<f64>)> {
        if matches!(large, LargeEcho::Refused(_)) {
            return ((large, None), Ok(()));
        }
        let large = match self.try_large() {
            Ok(LargeEcho::Returned) => LargeEcho::Returned,
            Ok(large) => return ((large, None), Ok(())),
            Err(error) => return ((large, None), Err(error)),
        };
        match self.per_gigabyte_s() {
            Ok(seconds) => ((large, seconds), Ok(())),
            Err(error) => ((large, None), Err(error)),
        }
    }

    fn per_gigabyte_s(&mut self) -> Result<Option<f64>, Error> {
        let lanes = STREAMS.min(self.sizes.lanes);
        let order = Order::Cycle(Cycle {
            bulk_bytes: self.sizes.bulk_bytes,
            ..Cycle::once(u64::from(lanes), lanes)
        });
        let before = self.session.server_cpu();
        let report = self
            .session
            .order("streaming", None, &order, |tally| tally.bytes_heard)?;
        report.ensure_complete()?;
        let spent = self.session.server_cpu() - before;
        let heard = report.of.tally.bytes_heard;
        Ok((heard > 0).then(|| spent.total_ns as f64 / heard as f64))
    }
}
