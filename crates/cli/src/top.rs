//! `dormouse top`: the status of a running `serve` on the whole screen, refreshed.

mod page;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use dormouse_handover::status::Status;
use dormouse_reactor::OnExec;
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::signal::{Signal, Signals};
use dormouse_reactor::socket::Attempt;
use dormouse_reactor::terminal::Keyboard;

use crate::admin::{AdminAddress, Exit, InstanceArgs, failed};
use crate::exit_status::ExitStatus;
use crate::paint::Screen;
use crate::terminal;
use page::Dashboard;

/// Arguments of `top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) instance: InstanceArgs,

    /// Seconds between two updates
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) every: u64,
}

const TOKEN_SIGNALS: u64 = 1;
const TOKEN_KEYS: u64 = 2;

pub(crate) fn run(args: &TopArgs) -> Exit {
    let address = AdminAddress::find(&args.instance)?;
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() || !terminal::can_draw() {
        terminal::error("`top` needs a terminal that can move the cursor");
        terminal::note("   = help: use `dormouse status`, which prints the status once");
        return Err(ExitStatus::Misused.into());
    }
    let first = address.question("/status").map_err(failed)?;
    watch(&address, first, Duration::from_secs(args.every))
        .map_err(|error| failed(format!("cannot use the terminal: {error}")))?;
    Ok(ExitCode::SUCCESS)
}

fn watch(address: &AdminAddress, first: Status, every: Duration) -> io::Result<()> {
    let ends = [
        Signal::Interrupt,
        Signal::Terminate,
        Signal::Hangup,
        Signal::Resized,
    ];
    let signals = Signals::open(&ends, OnExec::Close)?;
    let keyboard = Keyboard::take()?;
    let poller = Poller::create(OnExec::Close)?;
    poller.add(signals.fd(), TOKEN_SIGNALS, Interest::READ)?;
    poller.add(keyboard.fd(), TOKEN_KEYS, Interest::READ)?;
    let screen = Screen::enter();
    let mut events = Events::with_capacity(8);
    let mut dashboard = Dashboard::new(first);
    let mut next = Instant::now() + every;
    loop {
        screen.show(&dashboard.page(terminal::size(), terminal::colours_on(&io::stdout())));
        let left = next.saturating_duration_since(Instant::now());
        poller.wait(&mut events, Some(left.as_millis() as u64 + 1))?;
        for event in events.iter() {
            let is_over = match event.token() {
                TOKEN_SIGNALS => has_ended(&signals)?,
                _ => has_quit(&keyboard)? || event.is_hung_up(),
            };
            if is_over {
                return Ok(());
            }
        }
        if Instant::now() >= next {
            next = Instant::now() + every;
            dashboard.update(address.question("/status"));
        }
    }
}

/// Returns whether a signal ends the program: every signal does, except a change of the terminal's
/// size.
fn has_ended(signals: &Signals) -> io::Result<bool> {
    while let Attempt::Done(received) = signals.receive()? {
        if received.signal != Signal::Resized {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_quit(keyboard: &Keyboard) -> io::Result<bool> {
    while let Attempt::Done(key) = keyboard.read()? {
        if matches!(key, b'q' | b'Q') {
            return Ok(true);
        }
    }
    Ok(false)
}
