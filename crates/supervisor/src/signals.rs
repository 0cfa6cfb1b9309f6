//! What signals mean to the main process.

use super::Supervisor;
use super::error::{ServeError, system};
use super::listeners;
use dormouse_handover::orders::Order;
use dormouse_reactor::OnExec;
use dormouse_reactor::signal::{Signal, Signals};
use dormouse_reactor::socket::Attempt;

/// Those that main acts on. They are blocked from here on in every process that is started.
pub(super) fn open() -> Result<Signals, ServeError> {
    Signals::open(
        &[
            Signal::Terminate,
            Signal::Interrupt,
            Signal::Hangup,
            Signal::Child,
            Signal::User2,
        ],
        OnExec::Close,
    )
    .map_err(system("listen for signals"))
}

impl Supervisor {
    pub(super) fn on_signals(&mut self) -> Result<(), ServeError> {
        while let Attempt::Done(received) =
            self.signals.receive().map_err(system("receive a signal"))?
        {
            match received.signal {
                Signal::Child => self.reap()?,
                Signal::Terminate | Signal::Interrupt => self.stop(),
                Signal::User2 => self.begin_upgrade(None, None),
                Signal::Hangup => self.reload(None),
                _ => {}
            }
        }
        Ok(())
    }

    /// No more is accepted, what is pending may end, everything is closed; then the workers end.
    pub(super) fn stop(&mut self) {
        self.fail_upgrade("the program is to stop");
        if !self.stopping {
            self.notify.stopping();
            tracing::info!("stopping: no more is accepted, what is pending may end");
        }
        self.stopping = true;
        self.call_back_errand();
        for pair in &self.pairs {
            pair.order(&Order::Stop);
        }
        // After the order, so that no worker polls a listener that does not listen.
        listeners::leave(&self.listeners, &self.config);
    }
}
