//! Hold: the cost of a quiet connection.
//!
//! What a connection uses is counted by the structures of the server's allocators, where these can be read. Beside it
//! stands how resident memory grew: `(PSS at N − PSS after the first connections) / (N − first)`, because the first
//! hundred pay for what a server sets up once. That figure is too small when the heap was larger before: free heap is
//! used again without becoming resident. The slope from N/2 to N shows whether the rest is even.

use std::time::{Duration, Instant};

use crate::load::{FleetReport, Messages, Order};
use crate::session::Session;
use crate::spec::Hold;
use dormouse_census::Snapshot;
use dormouse_measure::Error;
use dormouse_measure::{CpuTime, KernelMemory, Memory, TreeSample, page_bytes};

use super::figures::{self, CpuCost};

/// Connections that warm the server up and stay open.
const WARM_UP: u64 = 100;
/// How long a collection of garbage is awaited before a census.
const COLLECTION: Duration = Duration::from_secs(20);
/// With fewer connections, a page or two would distort the bytes per connection.
const COARSE_BELOW: u64 = 1_000;

pub(super) fn run(session: &mut Session<'_>, hold: &Hold) -> Result<(), Error> {
    let kernel_before = Session::kernel();
    let before = session.settled(0);
    figures::memory(&mut session.run, "before", "before", before);
    let (at_n, alive) = open_all(session, hold, before, kernel_before)?;

    let lost_before = session.lost;
    keep(session, hold, alive)?;
    if !session.is_over() {
        let idle = session.now(alive);
        let when = "after holding";
        figures::memory(&mut session.run, "after_idle", when, idle);
    }
    echo(session, hold, alive)?;

    // Also after an interrupt: connections are closed properly, not reset.
    session.order("closing", Some(alive), &Order::Close, |tally| tally.closed)?;
    let lost = (session.lost - lost_before) as f64;
    session
        .run
        .figure("connections.lost", "lost while held", lost, "1");
    session.pause("after closing", Duration::from_secs_f64(hold.after_s), 0);
    let after = session.settled(0);
    if session.is_over() {
        // Memory right after closing differs from memory after a while.
        return Ok(());
    }
    let when = "after all have closed";
    figures::memory(&mut session.run, "after_close", when, after);
    left_behind(session, before, at_n, after);
    Ok(())
}

/// Opens all connections in three parts, and reads the memory in between. Returns the memory and
/// the number of established connections.
fn open_all(
    session: &mut Session<'_>,
    hold: &Hold,
    before: Option<TreeSample>,
    kernel_before: KernelMemory,
) -> Result<(Option<TreeSample>, u64), Error> {
    let n = hold.connections;
    let generators_before = session.fleet.cost();
    let (warm_up, left_warm_up) = open(session, hold, WARM_UP.min(n / 10))?;
    left_warm_up?;
    let at_first = session.settled(warm_up.of.tally.alive);
    let census_first = census(session, warm_up.of.tally.alive);

    let (half, left_half, spent_half) = open_measured(session, hold, n / 2)?;
    let at_half = session.settled(half.of.tally.alive);
    let (mut whole, left_whole, mut spent) = open_measured(session, hold, n)?;
    spent.server += spent_half.server;
    spent.generators += spent_half.generators;
    let opening_s = half.of.duration_s + whole.of.duration_s;
    for (name, latencies) in &half.latencies {
        let all = whole.latencies.entry(name.clone()).or_default();
        all.add(&latencies.to_sparse());
    }
    session.keep_latencies(&whole.latencies);
    let tallies = [&warm_up, &half, &whole].map(|harvest| harvest.of.tally);
    let failed = tallies.iter().map(|tally| tally.failed + tally.lost).sum();
    let [alive_first, alive_half, alive] = tallies.map(|tally| tally.alive);
    let opened = half.of.tally.established + whole.of.tally.established;
    connections(session, hold, (alive, failed), opened, opening_s);
    spent.per_event(session, "open", "connection opened", opened);

    let at_n = session.settled(alive);
    let when = if alive == n {
        "all open".into()
    } else {
        format!("{alive} open")
    };
    figures::memory(&mut session.run, "at_n", &when, at_n);
    let counts = (alive_first, alive_half, alive);
    if session.server.is_some() {
        let census_n = census(session, alive);
        used(session, census_first, census_n);
    }
    per_connection(session, at_first, at_half, at_n, counts);
    let kernel = figures::kernel(&mut session.run, kernel_before, Session::kernel(), alive);
    let generators = figures::generators(session, generators_before, alive);
    let server = before.zip(at_n).map(|(before, at_n)| {
        let grown = at_n.memory.data().saturating_sub(before.memory.data());
        (grown, spent.server)
    });
    let parts = Parts {
        kernel_bytes: kernel,
        generators_bytes: generators,
        generators_cpu: spent.generators,
        server,
        alive,
        opened,
    };
    apart(session, &parts);
    left_half.and(left_whole)?;
    Ok((at_n, alive))
}

/// Opens connections until `alive` are established, and measures the cost.
fn open_measured(
    session: &mut Session<'_>,
    hold: &Hold,
    alive: u64,
) -> Result<(FleetReport, Result<(), Error>, CpuCost), Error> {
    let cost = CpuCost::now(session);
    let (harvest, whole) = open(session, hold, alive)?;
    let spent = cost.since(session);
    Ok((harvest, whole, spent))
}

/// Opens connections until `alive` are established. The second value says why the fleet gave up, if
/// it did; the figures so far are still computed.
fn open(
    session: &mut Session<'_>,
    hold: &Hold,
    alive: u64,
) -> Result<(FleetReport, Result<(), Error>), Error> {
    let order = Order::Open {
        alive,
        per_s: hold.rate_per_s,
        in_flight_max: hold.in_flight,
    };
    let total = Some(hold.connections);
    let harvest = session.order("opening", total, &order, |tally| tally.alive)?;
    let whole = harvest.ensure_complete();
    Ok((harvest, whole))
}

fn connections(
    session: &mut Session<'_>,
    hold: &Hold,
    (alive, failed): (u64, u64),
    opened: u64,
    took_s: f64,
) {
    let (asked, rate) = (hold.connections as f64, opened as f64 / took_s);
    session.run.figures([
        ("connections.asked", "requested", asked, "1"),
        ("connections.alive", "alive", alive as f64, "1"),
        ("connections.failed", "failed", failed as f64, "1"),
        ("connections.per_second", "opened per second", rate, "1/s"),
    ]);
}

/// Memory of all these connections, by kernel, generators and server.
struct Parts {
    /// `None` if it may not be read.
    kernel_bytes: Option<u64>,
    generators_bytes: u64,
    generators_cpu: CpuTime,
    /// Bytes and CPU time; `None` if the server is not measured.
    server: Option<(u64, CpuTime)>,
    alive: u64,
    opened: u64,
}

/// Memory since before the first connection, and CPU time of opening. The kernel's time is the
/// system time of server and generators, which is then not theirs.
fn apart(session: &mut Session<'_>, parts: &Parts) {
    let run = &mut session.run;
    let mut row = |name: &str, title: &str, bytes: Option<u64>, cpu_ns: Option<u64>| {
        let mut put = |count: &str, of: &str, value: f64, unit: &str| {
            let name = format!("apart.{name}.{count}");
            run.figure(&name, &format!("{title}, {of}"), value, unit);
        };
        if let Some(bytes) = bytes {
            let each = bytes as f64 / parts.alive as f64;
            put("per_connection", "per connection", each, "bytes");
            put("together", "together", bytes as f64, "bytes");
        }
        if let Some(cpu_ns) = cpu_ns {
            let each = cpu_ns as f64 / 1e3 / parts.opened as f64;
            put("cpu_per_open", "CPU time per connection opened", each, "us");
        }
    };
    let user = |cpu: CpuTime| cpu.total_ns.saturating_sub(cpu.system_ns);
    let generators = parts.generators_cpu;
    // Without the server's part, the kernel's time would be incomplete.
    let system = parts
        .server
        .map(|(_, cpu)| cpu.system_ns + generators.system_ns);
    let title = "kernel, for all ends on this machine";
    row("kernel", title, parts.kernel_bytes, system);
    let bytes = Some(parts.generators_bytes);
    row("generators", "generators", bytes, Some(user(generators)));
    if let Some((bytes, cpu)) = parts.server {
        row("server", "server", Some(bytes), Some(user(cpu)));
    }
}

/// Counts the blocks in use, after a collection of garbage where there is a collector.
fn census(session: &mut Session<'_>, alive: u64) -> Result<Snapshot, String> {
    if !session.await_collection(alive, COLLECTION) {
        return Err("the server did not collect its garbage in time".into());
    }
    session.census(alive)
}

/// What a connection uses, by the structures of the server's allocators.
fn used(session: &mut Session<'_>, first: Result<Snapshot, String>, all: Result<Snapshot, String>) {
    let both = first.and_then(|first| Ok((first, all?)));
    let used = both.and_then(|(first, all)| {
        if all.connections <= first.connections {
            return Err("too few connections were open".to_owned());
        }
        let used = dormouse_census::used_per_connection((&first, None), (&all, None))?;
        Ok((used, first.free_bytes))
    });
    let run = &mut session.run;
    match used {
        Ok((used, free)) => {
            let title = "bytes per connection in use";
            run.figure("memory.per_connection.used", title, used, "bytes");
            let title = "free heap before these connections";
            run.figure("memory.free_before", title, free as f64, "bytes");
        }
        Err(why) => run.note(format!(
            "bytes per connection in use were not counted, because {why}"
        )),
    }
}

fn per_connection(
    session: &mut Session<'_>,
    first: Option<TreeSample>,
    half: Option<TreeSample>,
    all: Option<TreeSample>,
    (n_first, n_half, n): (u64, u64, u64),
) {
    let (Some(first), Some(half), Some(all)) = (first, half, all) else {
        return;
    };
    let run = &mut session.run;
    if n <= n_first || n_first == 0 {
        return run.note(
            "too few connections to calculate bytes per connection (at least 10 are needed)",
        );
    }
    if n < COARSE_BELOW {
        let each = page_bytes() / (n - n_first);
        run.note(format!(
            "memory comes in pages: with {n} connections, one more page is {each} bytes per connection; \
             measure with thousands"
        ));
    }
    let per =
        |of: fn(&TreeSample) -> u64| (of(&all) as f64 - of(&first) as f64) / (n - n_first) as f64;
    let mut put = |count: &str, what: &str, of: fn(&TreeSample) -> u64| {
        let name = format!("memory.per_connection.{count}");
        let title = format!("growth of resident memory per connection, {what}");
        run.figure(&name, &title, per(of), "bytes");
    };
    put("pss", "PSS", |s| s.memory.pss);
    put("rss", "RSS", |s| s.memory.rss);
    put("anonymous", "anonymous", |s| s.memory.pss_anonymous);
    put("shared", "shared", |s| s.memory.pss_shared);
    // Program text that generators of the same program map too changes the server's share.
    put("file", "program text", |s| s.memory.pss_file);
    if n_half <= n_first || n <= n_half {
        return;
    }
    let slope = (all.memory.pss as f64 - half.memory.pss as f64) / (n - n_half) as f64;
    let (name, title) = ("memory.per_connection.slope", "slope from N/2 to N (PSS)");
    run.figure(name, title, slope, "bytes");
}

/// Holds the connections for the configured time, quiet or with messages.
fn keep(session: &mut Session<'_>, hold: &Hold, alive: u64) -> Result<(), Error> {
    if session.is_over() {
        return Ok(());
    }
    let cost = CpuCost::now(session);
    let began = Instant::now();
    match hold.every_s {
        None => session.pause("holding", Duration::from_secs_f64(hold.for_s), alive),
        Some(every_s) => {
            let speak = Messages {
                per_s: alive as f64 / every_s.max(0.001),
                messages: 0,
                for_ms: (hold.for_s * 1000.0) as u64,
                among: 0,
                bytes: 0,
                name: "echo".into(),
            };
            let total = (speak.per_s * hold.for_s) as u64;
            let order = Order::Messages(speak);
            let stage = "holding, talking";
            let harvest = session.order(stage, Some(total), &order, |tally| tally.answers)?;
            session.keep_latencies(&harvest.latencies);
            let (title, answers) = ("messages answered", harvest.of.tally.answers as f64);
            session
                .run
                .figure("connections.answers", title, answers, "1");
        }
    }
    let spent = cost.since(session);
    let per_second = spent.server.total_ns as f64 / 1e9 / began.elapsed().as_secs_f64().max(0.001);
    if session.server.is_some() && hold.for_s > 0.0 {
        let title = "server, per second of holding all";
        session
            .run
            .figure("cpu.server.per_second_held", title, per_second * 1e6, "us");
    }
    Ok(())
}

/// Exchanges a message on every connection after its rest.
fn echo(session: &mut Session<'_>, hold: &Hold, alive: u64) -> Result<(), Error> {
    for round in 1..=hold.echoes {
        let name = format!("echo {round}");
        let speak = Messages {
            per_s: hold.echo_rate_per_s,
            messages: alive,
            for_ms: 0,
            among: 0,
            bytes: 0,
            name: name.clone(),
        };
        let harvest = session.order(&name, Some(alive), &Order::Messages(speak), |tally| {
            tally.answers
        })?;
        session.keep_latencies(&harvest.latencies);
        let title = format!("answered in round {round} of echoes");
        let (name, answers) = (
            format!("connections.echoed.{round}"),
            harvest.of.tally.answers,
        );
        session.run.figure(&name, &title, answers as f64, "1");
        // Lost connections have a reason of their own already.
        let heard_of = harvest.of.tally.answers + harvest.of.tally.lost;
        if heard_of < alive && !session.is_over() {
            let silent = session.run.failures.entry("did not echo".into());
            *silent.or_default() += alive - heard_of;
        }
    }
    Ok(())
}

fn left_behind(
    session: &mut Session<'_>,
    before: Option<TreeSample>,
    at_n: Option<TreeSample>,
    after: Option<TreeSample>,
) {
    let (Some(before), Some(at_n), Some(after)) = (before, at_n, after) else {
        return;
    };
    if let Some(share) = share_left(before.memory, at_n.memory, after.memory) {
        let title = "retained after all have closed";
        session.run.figure("memory.left", title, share, "%");
    }
}

/// What is left of the growth, in percent; `None` if the connections brought none.
fn share_left(before: Memory, at_n: Memory, after: Memory) -> Option<f64> {
    let grown = at_n.data() as f64 - before.data() as f64;
    let left = after.data() as f64 - before.data() as f64;
    (grown > 0.0).then(|| 100.0 * left / grown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_with_the_same_program_do_not_hide_what_is_left() {
        let memory = |pss_anonymous, pss_file| Memory {
            pss: pss_anonymous + pss_file,
            pss_anonymous,
            pss_file,
            ..Memory::default()
        };
        // Two more processes of the program have started when the connections are open.
        let (before, at_n, after) = (
            memory(1_000_000, 30_000_000),
            memory(1_200_000, 10_000_000),
            memory(1_100_000, 30_000_000),
        );
        assert_eq!(share_left(before, at_n, after), Some(50.0));
        assert_eq!(share_left(before, before, after), None);
    }
}
