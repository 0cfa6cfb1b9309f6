//! Figures of a server: what it offers and resumes, and its answers.

use std::collections::BTreeMap;

use super::cpu::{CpuFigures, FirstConnection, SilentClients};
use super::figures::{Premises, Row, figures, missing, row, shown_as};
use super::measured::Measured;
use super::memory::MemoryFigures;
use super::words::{list, plain, whole, yes_or_no};
use dormouse_bench::model::grouped;
use dormouse_census::CensusReport;
use dormouse_record::CONTENT_MAX;

figures! {
    /// All figures of a server.
    ServerFigures at "server", "all but `resumption` and `flights` may be missing" {
        offer: Measured<Offer>;
        resumption: Vec<Resumption>;
        addresses: Measured<Vec<AddressTrials>>;
        aged: Measured<Vec<AgedTicket>>;
        flights: Vec<FlightRow>;
        records: Measured<RecordFigures>;
        silent_clients: Measured<SilentClients>;
        memory: Measured<MemoryFigures>;
        census: Measured<CensusReport>;
        cpu: Measured<CpuFigures>;
        first: Measured<FirstConnection>;
    }

    /// Offer of a server: versions, suites, extensions, certificates.
    Offer at "server.offer", "null: unknown, and `not_measured` says why" {
        versions: BTreeMap<String, bool>, "versions" => |_, versions| {
            let accepted = versions.iter().filter(|(_, is_accepted)| **is_accepted);
            accepted.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
        };
        /// in the server's order of preference, as in the next ones
        suites_13: Vec<String>, "suites of TLS 1.3" => list;
        suites_12: Vec<String>, "suites of TLS 1.2" => list;
        groups: Vec<String>, "groups" => list;
        /// whether the server chooses DEFLATE
        compression: Option<bool>, "compression (DEFLATE, TLS 1.2)" => yes_or_no;
        /// whether it is announced (RFC 5746)
        secure_renegotiation: Option<bool>, "secure renegotiation (TLS 1.2)" => yes_or_no;
        tickets_12: Option<bool>, "tickets (TLS 1.2)" => yes_or_no;
        session_ids_12: Option<bool>, "session ids (TLS 1.2, without tickets)" => yes_or_no;
        client_certificate_asked: Option<bool>, "asks for a client certificate (TLS 1.2)" => yes_or_no;
        /// whether the server starts a second handshake
        client_renegotiation: Option<bool>, "renegotiation begun by the client (TLS 1.2)" => |of, accepted| {
            let did = if *accepted { "accepted" } else { "refused" };
            format!("{did} ({})", of.client_renegotiation_answer.as_deref().unwrap_or("no details"))
        };
        client_renegotiation_answer: Option<String>;
        tickets_13: Option<u32>, "tickets after a handshake (TLS 1.3)" => plain;
        tickets_13_resumed: Option<u32>, "tickets after a resumed one (TLS 1.3)" => plain;
        ticket_lifetime_s: Option<u32>, "lifetime of tickets" => |_, s| format!("{s} s");
        early_data_max_bytes: Option<u32>, "0-RTT data" => |_, bytes| format!("{bytes} bytes");
        chain: Vec<Certificate>, also certificates;
        not_measured: BTreeMap<String, String>, also why_not;
    }

    /// A certificate.
    Certificate at "server.offer.chain[]" {
        subject: String;
        /// kind and size: `ECDSA 256`, `RSA 2048`
        key: String;
        bytes: u64;
        expires_at_s: i64;
    }

    /// Whether the server resumes sessions, for one version and one mechanism.
    Resumption at "server.resumption[]" {
        version: String;
        /// `ticket` or `session id`
        by: String;
        /// may be missing
        trials: Measured<Trials>;
    }

    /// Results of the connections that offered a session.
    Trials at "server.resumption[].trials" | "server.addresses[].trials" {
        offered: u64;
        resumed: u64;
        /// one entry per trial, in order
        outcomes: Vec<bool>;
        /// why every connection that offers a session fails, null: it does not
        refusal: Option<String>;
    }

    /// Whether one address of a name accepts the tickets of another.
    AddressTrials at "server.addresses[]", "a ticket of one address, offered to another or to itself" {
        version: String;
        from: String;
        to: String;
        trials: Measured<Trials>;
    }

    /// Whether the server still accepts a ticket after a delay.
    AgedTicket at "server.aged[]", "a ticket, offered at this age" {
        version: String;
        age_s: f64;
        /// as announced; 0: the server announced none
        lifetime_s: u32;
        load_between: bool;
        resumed: Measured<bool>;
    }

    /// Bytes of each flight of one kind of handshake.
    FlightRow at "server.flights[]" {
        version: String;
        resumed: bool;
        client_certificate: bool;
        /// of each flight, the client's first one first
        bytes: Vec<u32>;
    }

    /// Records of a server's answers.
    #[derive(Copy)]
    RecordFigures at "server.records", "of application data" {
        answers: u64, "records of answers" => |of, answers| format!(
            "answers: {}, with {} bytes; records: {}, with {} bytes of overhead, {} of them padding",
            whole(*answers),
            whole(of.content_bytes),
            whole(of.records),
            whole(of.overhead_bytes()),
            whole(of.padding_bytes())
        );
        content_bytes: u64;
        records: u64;
        /// with headers, tags and padding
        wire_bytes: u64;
        /// header and tag of one record
        least_bytes: u64;
    }
}

impl Offer {
    /// Kind and size of the key in the server's own certificate.
    pub fn key(&self) -> Option<String> {
        self.chain.first().map(|first| first.key.clone())
    }

    fn certificates(&self, premises: Premises) -> Vec<Row> {
        let words = |of: &Certificate| {
            let left = of.left_words(premises.at_s);
            row(
                "certificate",
                format!("{}, {}, {} bytes, {left}", of.subject, of.key, of.bytes),
            )
        };
        self.chain.iter().map(words).collect()
    }

    fn why_not(&self, _: Premises) -> Vec<Row> {
        let all = self.not_measured.iter();
        all.map(|(what, why)| missing(what.replace('_', " "), why))
            .collect()
    }
}

impl Certificate {
    /// Seconds until the certificate expires, from this time on; negative if it has expired by then.
    pub(crate) fn left_s(&self, at_s: u64) -> i64 {
        let at_s = i64::try_from(at_s).unwrap_or(i64::MAX);
        self.expires_at_s.saturating_sub(at_s)
    }

    /// Describes the time that is left.
    pub(crate) fn left_words(&self, at_s: u64) -> String {
        const DAY_S: i64 = 86_400;
        match self.left_s(at_s) {
            left_s @ 0.. => format!("{} days left", left_s / DAY_S),
            left_s => format!("expired {} days ago", left_s.unsigned_abs() / DAY_S as u64),
        }
    }
}

impl Resumption {
    /// The best share of each version: by ticket, or by session id where a server resumes more sessions in that way.
    pub(crate) fn best_shares(all: &[Self]) -> Vec<(&str, f64)> {
        let mut best: Vec<(&str, f64)> = Vec::new();
        for entry in all {
            let Some(share) = entry.trials.value().map(Trials::share) else {
                continue;
            };
            match best.iter_mut().find(|known| known.0 == entry.version) {
                Some(known) => known.1 = known.1.max(share),
                None => best.push((&entry.version, share)),
            }
        }
        best
    }
}

impl Trials {
    /// The share of connections that were resumed.
    pub fn share(&self) -> f64 {
        self.resumed as f64 / (self.offered.max(1)) as f64
    }

    fn words(&self) -> String {
        match (self.offered, &self.refusal) {
            (offered, Some(why)) => {
                format!(
                    "0 of {offered}: no connection that offers a session is established ({why})"
                )
            }
            (0, None) => "the server sent no ticket, so there was no session to offer".to_owned(),
            (offered, None) => format!(
                "{} of {offered} ({:.0} %)",
                self.resumed,
                100.0 * self.share()
            ),
        }
    }

    /// The 95 % confidence interval (Wilson) of the share that is resumed in the long run; 0 to 1 without trials.
    pub fn interval(&self) -> (f64, f64) {
        const Z: f64 = 1.96;
        if self.offered == 0 {
            return (0.0, 1.0);
        }
        let (n, share) = (self.offered as f64, self.share());
        let scale = 1.0 + Z * Z / n;
        let middle = (share + Z * Z / (2.0 * n)) / scale;
        let half = Z / scale * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
        ((middle - half).max(0.0), (middle + half).min(1.0))
    }
}

impl RecordFigures {
    /// Records beyond those that the answers need.
    pub(crate) fn extra_records(&self) -> u64 {
        let needed = self.answers + self.content_bytes / CONTENT_MAX as u64;
        self.records.saturating_sub(needed)
    }

    /// Bytes that are neither content nor a record's header and tag.
    pub(crate) fn padding_bytes(&self) -> u64 {
        let least = self.content_bytes + self.records * self.least_bytes;
        self.wire_bytes.saturating_sub(least)
    }

    /// Bytes that are not content.
    pub(crate) fn overhead_bytes(&self) -> u64 {
        self.wire_bytes.saturating_sub(self.content_bytes)
    }
}

impl ServerFigures {
    /// Rows about resumption: by version and mechanism, after a delay, and across the addresses of a name.
    pub(crate) fn resumption_rows(&self) -> Vec<Row> {
        let of = |entry: &Resumption| {
            let title = format!("{} by {}", entry.version, entry.by);
            shown_as(entry, &entry.trials, &title, |_, trials| trials.words())
        };
        let mut rows: Vec<Row> = self.resumption.iter().filter_map(of).collect();
        match &self.aged {
            Measured::Value(aged) => rows.extend(aged.iter().filter_map(|ticket| ticket.row(aged))),
            Measured::NotMeasured(why) => rows.push(missing("older tickets", why)),
        }
        match &self.addresses {
            Measured::Value(all) => rows.extend(AddressTrials::rows_of(all)),
            Measured::NotMeasured(why) => rows.push(missing("across addresses", why)),
        }
        rows
    }

    /// Rows about the flights of handshakes.
    pub(crate) fn flight_rows(&self) -> Vec<Row> {
        let of = |flight: &FlightRow| row(format!("{}, bytes", flight.title()), flight.words());
        let mut rows: Vec<Row> = self.flights.iter().map(of).collect();
        let by_client = self
            .flights
            .iter()
            .flat_map(|flight| flight.bytes.iter().step_by(2));
        rows.extend(
            by_client
                .max()
                .map(|most| row("buffer that a server needs", format!("{most} bytes"))),
        );
        let asked = self
            .offer
            .value()
            .and_then(|offer| offer.client_certificate_asked);
        if !self.flights.iter().any(|flight| flight.client_certificate) {
            let why = match asked {
                Some(false) => "the server does not ask for one",
                _ => "none was given; --cert and --key set one, if the server asks for it",
            };
            rows.push(missing("with a client certificate", why));
        }
        rows
    }
}

impl AgedTicket {
    fn row(&self, all: &[Self]) -> Option<Row> {
        let same = all.iter().filter(|ticket| ticket.version == self.version);
        let is_oldest = self.age_s >= same.map(|ticket| ticket.age_s).fold(0.0, f64::max);
        let title = format!("{}, a ticket of {:.0} s", self.version, self.age_s);
        shown_as(self, &self.resumed, &title, |_, resumed| {
            match (resumed, self.lifetime_s) {
                (false, _) => "refused".to_owned(),
                (true, _) if !is_oldest => "resumed".to_owned(),
                (true, 0) => "resumed; the server announces no lifetime; older ones were not tried"
                    .to_owned(),
                (true, s) => format!(
                    "resumed; the announced lifetime is {} s; older ones were not tried",
                    grouped(s.into(), 0)
                ),
            }
        })
    }
}

impl AddressTrials {
    /// Rows that show which address accepts which tickets, one per address and version.
    fn rows_of(all: &[Self]) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        for entry in all {
            let title = format!("{}, tickets of {}", entry.version, entry.from);
            let at = if entry.from == entry.to {
                "at itself"
            } else {
                &entry.to
            };
            let came = match &entry.trials {
                Measured::NotMeasured(why) => format!("{at}: not measured, because {why}"),
                Measured::Value(trials) if trials.offered == 0 => "it sent no ticket".into(),
                Measured::Value(trials) => format!("{at} {} of {}", trials.resumed, trials.offered),
            };
            match rows.last_mut().filter(|row| row.title == title) {
                Some(row) if row.value == came => {}
                Some(row) => row.value += &format!("; {came}"),
                None => rows.push(row(title, came)),
            }
        }
        rows
    }
}

impl FlightRow {
    /// Returns the name of its kind of handshake.
    pub(crate) fn title(&self) -> String {
        let kind = if self.resumed { "resumed" } else { "full" };
        let shown = if self.client_certificate {
            ", client certificate"
        } else {
            ""
        };
        format!("{}, {kind}{shown}", self.version)
    }

    fn words(&self) -> String {
        let sides = ["client", "server"].into_iter().cycle();
        let each = sides
            .zip(&self.bytes)
            .map(|(side, bytes)| format!("{side} {bytes}"));
        each.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded: HAProxy with Debian's `no-tls-tickets` resumes sessions of TLS 1.2 by id.
    #[test]
    fn a_version_counts_by_its_best_way_to_resume() {
        let entry = |version: &str, by: &str, offered, resumed| Resumption {
            version: version.into(),
            by: by.into(),
            trials: Measured::Value(Trials {
                offered,
                resumed,
                ..Trials::default()
            }),
        };
        let all = [
            entry("TLS 1.3", "ticket", 40, 40),
            entry("TLS 1.2", "ticket", 0, 0),
            entry("TLS 1.2", "session id", 40, 38),
        ];
        let best = Resumption::best_shares(&all);
        assert_eq!(best, [("TLS 1.3", 1.0), ("TLS 1.2", 0.95)]);
    }
}
