//! `dormouse connections`: lists or counts connections of a running `serve`.

mod by;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use dormouse_config as config;
use dormouse_handover::connections::{AgesPage, ConnectionRow, Page, PagePlace};
use dormouse_printable::lines;
use serde::de::DeserializeOwned;

use crate::admin::{AdminAddress, AdminArgs, Asked, Exit, Retries, encoded};
use crate::exit_status::ExitStatus;
use crate::{table, terminal};
use by::{By, CountedAges};

/// Arguments of `connections`.
#[derive(Debug, Args)]
pub(crate) struct ConnectionsArgs {
    #[command(flatten)]
    filter: FilterArgs,

    /// Print only their number
    #[arg(long)]
    count: bool,

    /// Print only their numbers, for each route, each backend or each age; those of routes and backends with how many are over
    /// an hour, a day and a week old
    #[arg(long, value_name = "WHAT")]
    by: Option<By>,

    #[command(flatten)]
    admin: AdminArgs,
}

/// Which connections: those with all of these properties.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct FilterArgs {
    /// Of the route of this name; routes without a name are numbered from 1
    #[arg(long, value_name = "NAME")]
    route: Option<String>,

    /// To this backend: its address or name, as in the configuration
    #[arg(long, value_name = "BACKEND")]
    backend: Option<String>,

    /// From clients in this network, such as 10.0.0.0/8, or with this address
    #[arg(long, value_name = "NETWORK")]
    client: Option<String>,

    /// For this server name (SNI), or `*.example.com` for all names below it; needs the connection log
    #[arg(long, value_name = "SNI")]
    name: Option<String>,

    /// With this certificate of ours, by a name in it; or with this certificate of ours or of the client, by its SHA-256
    /// fingerprint or the first 16 digits of it; needs the connection log
    #[arg(long, value_name = "NAME|FINGERPRINT")]
    certificate: Option<String>,

    /// Whose client the route would refuse now: by `allow`, `deny`, `client_allow` or `client_crl`, which may have changed
    /// since
    #[arg(long)]
    refused: bool,

    /// The connection with this id, as the logs write it
    #[arg(long, value_name = "ID")]
    id: Option<String>,

    /// Established at least this long ago
    #[arg(long, value_name = "TIME")]
    older: Option<String>,

    /// Idle for at least this long: no byte was received or sent
    #[arg(long, value_name = "TIME")]
    idle: Option<String>,
}

impl FilterArgs {
    /// The connections to this backend.
    pub(crate) fn to_backend(backend: &str) -> FilterArgs {
        FilterArgs {
            backend: Some(backend.to_owned()),
            ..FilterArgs::default()
        }
    }

    /// The connections whose clients would be refused now.
    pub(crate) fn refused_now() -> FilterArgs {
        FilterArgs {
            refused: true,
            ..FilterArgs::default()
        }
    }

    /// Whether no property is given.
    pub(crate) fn is_empty(&self) -> bool {
        *self == FilterArgs::default()
    }

    /// The parameters of a request. `since`: only connections that were there so long ago. `Err` is a mistake in a
    /// value.
    pub(crate) fn query(&self, since: Option<Duration>) -> Result<String, String> {
        let duration = |given: &Option<String>| {
            let read = given.as_deref().map(config::read_duration);
            read.transpose()
        };
        let older = duration(&self.older)?;
        let older = match since {
            Some(since) => Some(older.unwrap_or_default() + since),
            None => older,
        };
        let in_ms = |given: Option<Duration>| given.map(|time| format!("{}ms", time.as_millis()));
        let all = [
            ("route", self.route.clone()),
            ("backend", self.backend.clone()),
            ("client", self.client.clone()),
            ("name", self.name.clone()),
            ("certificate", self.certificate.clone()),
            ("refused", self.refused.then(|| true.to_string())),
            ("id", self.id.clone()),
            ("older", in_ms(older)),
            ("idle", in_ms(duration(&self.idle)?)),
        ];
        let given = all
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        let pairs: Vec<String> = given
            .map(|(name, value)| format!("{name}={}", encoded(value)))
            .collect();
        Ok(pairs.join("&"))
    }

    /// Counts the connections.
    pub(crate) fn count(
        &self,
        address: &AdminAddress,
        since: Option<Duration>,
    ) -> Result<Counted, ExitCode> {
        let mut counted = Counted::default();
        self.pages(address, "/connections/count", since, |page: Page| {
            counted.matched += u64::from(page.matched);
            counted.unknown += u64::from(page.unknown);
            page.next
        })?;
        Ok(counted)
    }

    /// Counts the connections by age, route and backend.
    fn count_ages(&self, address: &AdminAddress, by: By) -> Result<CountedAges, ExitCode> {
        let mut counted = CountedAges::default();
        self.pages(address, "/connections/ages", None, |page: AgesPage| {
            counted.add(&page, by);
            page.next
        })?;
        Ok(counted)
    }

    /// Asks for all pages, one after the other. `take` returns where the next one begins.
    fn pages<T: DeserializeOwned>(
        &self,
        address: &AdminAddress,
        path: &str,
        since: Option<Duration>,
        mut take: impl FnMut(T) -> Option<PagePlace>,
    ) -> Result<(), ExitCode> {
        let mut from = None;
        loop {
            from = take(self.page(address, "GET", path, since, from)?);
            if from.is_none() {
                return Ok(());
            }
        }
    }

    /// Asks for one page, also if a worker or the control process is being replaced. Prints the error, if any.
    pub(crate) fn page<T: DeserializeOwned>(
        &self,
        address: &AdminAddress,
        method: &str,
        path: &str,
        since: Option<Duration>,
        from: Option<impl ToString>,
    ) -> Result<T, ExitCode> {
        let from = from.map_or(String::new(), |place| {
            format!("&from={}", encoded(place.to_string()))
        });
        let separator = if path.contains('?') { '&' } else { '?' };
        let query = self.query(since).map_err(misused)?;
        let request = format!("{path}{separator}{query}{from}");
        let retries = Retries::begin();
        loop {
            match address.page(method, &request) {
                Asked::Answer(page) => return Ok(page),
                Asked::Refused(why) => return Err(misused(why)),
                Asked::Failed(failure) if retries.pause(&failure) => {}
                Asked::Failed(failure) => {
                    terminal::error(failure.why);
                    return Err(ExitStatus::Failed.into());
                }
            }
        }
    }
}

/// Numbers of connections.
#[derive(Default)]
pub(crate) struct Counted {
    /// With the properties.
    pub(crate) matched: u64,
    /// Without a fact that decides.
    pub(crate) unknown: u64,
}

/// Prints a mistake of the user.
pub(crate) fn misused(why: String) -> ExitCode {
    terminal::error(why);
    ExitStatus::Misused.into()
}

/// Returns the exit status. If facts are missing, the answer is incomplete, which this prints.
pub(crate) fn conclude(unknown: u64) -> ExitCode {
    if unknown == 0 {
        return ExitCode::SUCCESS;
    }
    terminal::note(format_args!(
        "{unknown} more may have these properties: only the connection log knows the server names, the certificates, and \
         the clients behind a proxy, of the connections established while it is on (option `connection_log`); of a \
         certificate that is not loaded any more, give the fingerprint"
    ));
    ExitStatus::Lost.into()
}

pub(crate) fn run(args: &ConnectionsArgs) -> Exit {
    let address = AdminAddress::find(&args.admin.instance)?;
    if let Some(by) = args.by {
        let counted = args.filter.count_ages(&address, by)?;
        match args.admin.json {
            true => counted.print_json(by),
            false => counted.print(by),
        }
        return Ok(conclude(counted.unknown));
    }
    if args.count {
        let Counted { matched, unknown } = args.filter.count(&address, None)?;
        match args.admin.json {
            true => terminal::print_json(&serde_json::json!({
                "matched": matched,
                "unknown": unknown,
            })),
            false => terminal::line(matched),
        }
        return Ok(conclude(unknown));
    }
    let (mut from, mut unknown, mut widths) = (None, 0, None);
    loop {
        let page: Page = args
            .filter
            .page(&address, "GET", "/connections", None, from)?;
        unknown += u64::from(page.unknown);
        match args.admin.json {
            true => page.rows.iter().for_each(terminal::print_json_line),
            false => print(&page.rows, &mut widths),
        }
        from = page.next;
        if from.is_none() {
            return Ok(conclude(unknown));
        }
    }
}

const COLUMNS: usize = 11;
const HEAD: [&str; COLUMNS] = [
    "route", "client", "backend", "name", "version", "in", "out", "age", "idle", "state", "id",
];
const ARE_NUMBERS: [bool; COLUMNS] = [
    false, false, false, false, false, true, true, true, true, false, false,
];

/// Prints a page of the list. The first one has the names of the columns, and its widths are the least of the others.
fn print(rows: &[ConnectionRow], widths: &mut Option<[usize; COLUMNS]>) {
    if rows.is_empty() && widths.is_some() {
        return;
    }
    let mut cells: Vec<[String; COLUMNS]> = Vec::with_capacity(rows.len() + 1);
    if widths.is_none() && !rows.is_empty() {
        cells.push(HEAD.map(str::to_owned));
    }
    cells.extend(rows.iter().map(cells_of));
    let least = widths.unwrap_or([0; COLUMNS]);
    for row in &mut cells {
        for ((cell, width), is_number) in row.iter_mut().zip(least).zip(ARE_NUMBERS) {
            *cell = match is_number {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            };
        }
    }
    if !cells.is_empty() {
        let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max();
        *widths = Some(std::array::from_fn(|column| width(column).unwrap_or(0)));
    }
    terminal::print(&lines(&table::columns(&cells, ARE_NUMBERS)).to_string());
}

fn cells_of(row: &ConnectionRow) -> [String; COLUMNS] {
    let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let bytes = |value: Option<u64>| text(value.map(|bytes| bytes.to_string()));
    [
        row.route.clone(),
        text(row.client.map(|client| client.to_string())),
        text(row.backend.clone()),
        text(row.sni.clone()),
        text(row.version.clone()),
        bytes(row.bytes_in),
        bytes(row.bytes_out),
        time(row.age_s),
        time(row.idle_s),
        match row.resting {
            true => "resting".to_owned(),
            false => row.state.name().to_owned(),
        },
        row.id.clone(),
    ]
}

/// A time in its two largest units.
fn time(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{:02}s", seconds % 60),
        3600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_two_units() {
        for (seconds, written) in [
            (0, "0s"),
            (59, "59s"),
            (61, "1m01s"),
            (3_600, "1h00m"),
            (90_000, "1d01h"),
        ] {
            assert_eq!(time(seconds), written);
        }
    }

    #[test]
    fn a_filter_becomes_parameters() {
        let filter = FilterArgs {
            route: Some("shop".to_owned()),
            backend: Some("[::1]:80".to_owned()),
            client: Some("10.0.0.0/8".to_owned()),
            name: Some("*.a.example".to_owned()),
            certificate: Some("01:ab".to_owned()),
            refused: true,
            id: None,
            older: Some("2s".to_owned()),
            idle: None,
        };
        let query = filter.query(Some(Duration::from_millis(5)));
        assert_eq!(
            query.as_deref(),
            Ok(
                "route=shop&backend=%5B::1%5D:80&client=10.0.0.0/8&name=%2A.a.example&certificate=01:ab&refused=true&older=2005ms"
            )
        );
        assert!(!filter.is_empty());
        let wrong = FilterArgs {
            older: Some("long".to_owned()),
            ..filter
        };
        assert!(wrong.query(None).is_err());
    }
}
