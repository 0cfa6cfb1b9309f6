//! Figures that several modes have.

use crate::load::Harvest;
use crate::measure::{CpuTime, KernelMemory, TreeSample};
use crate::model::Run;
use crate::session::Session;
use crate::trouble::Trouble;

/// Memory at one moment, in the three ways to count it.
pub(super) fn memory(run: &mut Run, name: &str, when: &str, sample: Option<TreeSample>) {
    let Some(sample) = sample else { return };
    run.figure(
        &format!("memory.{name}.pss"),
        &format!("{when}, PSS"),
        sample.memory.pss as f64,
        "bytes",
    );
    run.figure(
        &format!("memory.{name}.rss"),
        &format!("{when}, RSS"),
        sample.memory.rss as f64,
        "bytes",
    );
    let anonymous = sample.memory.pss_anonymous as f64;
    run.figure(
        &format!("memory.{name}.anonymous"),
        &format!("{when}, anonymous part of PSS"),
        anonymous,
        "bytes",
    );
    let shared = sample.memory.pss_shared as f64;
    run.figure(
        &format!("memory.{name}.shared"),
        &format!("{when}, shared-memory part of PSS"),
        shared,
        "bytes",
    );
}

/// Server CPU time since `before`, divided by what was done with it; the generators' beside it.
pub(super) struct CpuCost {
    pub(super) server: CpuTime,
    pub(super) generators: CpuTime,
}

impl CpuCost {
    /// The CPU times now.
    pub(super) fn now(session: &mut Session<'_>) -> Self {
        Self {
            server: session.server_cpu(),
            generators: session.fleet.cpu(),
        }
    }

    /// What was used since.
    pub(super) fn since(&self, session: &mut Session<'_>) -> Self {
        let now = Self::now(session);
        Self {
            server: now.server - self.server,
            generators: now.generators - self.generators,
        }
    }

    /// A figure per event, in microseconds.
    pub(super) fn per_event(&self, session: &mut Session<'_>, name: &str, what: &str, events: u64) {
        let per = |cpu: CpuTime| cpu.total_ns as f64 / 1e3 / events as f64;
        if session.server.is_some() {
            session.run.figure(
                &format!("cpu.per_{name}"),
                &format!("server, per {what}"),
                per(self.server),
                "us",
            );
        }
        let (name, title) = (
            format!("generator.cpu.per_{name}"),
            format!("generators, per {what}"),
        );
        session
            .run
            .figure(&name, &title, per(self.generators), "us");
    }
}

/// The kernel's part, machine-wide: both ends of every connection, and the backend's.
pub(super) fn kernel(run: &mut Run, before: KernelMemory, after: KernelMemory, connections: u64) {
    let per = |before: u64, after: u64| (after as f64 - before as f64) / connections as f64;
    let sockets = per(before.tcp_sockets, after.tcp_sockets);
    run.figure(
        "kernel.sockets",
        "TCP sockets per connection, all ends on this machine",
        sockets,
        "1",
    );
    let buffers = per(before.tcp_buffer_bytes, after.tcp_buffer_bytes);
    run.figure(
        "kernel.buffers",
        "TCP buffers per connection",
        buffers,
        "bytes",
    );
    let (Some(slab_before), Some(slab_after)) = (before.slab_bytes, after.slab_bytes) else {
        return run.note(
            "the kernel's memory per connection needs /proc/slabinfo, which only root may read",
        );
    };
    let slab = per(slab_before, slab_after);
    run.figure(
        "kernel.slab",
        "kernel objects per connection, all ends",
        slab,
        "bytes",
    );
    if sockets >= 0.5 {
        run.figure(
            "kernel.slab_per_socket",
            "kernel objects per socket",
            slab / sockets,
            "bytes",
        );
    }
}

/// What the generators themselves take.
pub(super) fn generators(session: &mut Session<'_>, before: TreeSample, connections: u64) {
    let now = session.fleet.cost();
    let grown = now.memory.pss as f64 - before.memory.pss as f64;
    session.run.figure(
        "generator.processes",
        "generator processes",
        now.processes as f64,
        "1",
    );
    session.run.figure(
        "generator.pss",
        "generators together, PSS",
        now.memory.pss as f64,
        "bytes",
    );
    let title = "generators, per connection";
    session.run.figure(
        "generator.per_connection",
        title,
        grown / connections as f64,
        "bytes",
    );
}

/// A part that ended before it was done ends the run: what follows would measure something else.
pub(super) fn must_be_whole(harvest: &Harvest) -> Result<(), Trouble> {
    match &harvest.of.gave_up {
        None => Ok(()),
        Some(why) => {
            let reason = harvest.of.failures.iter().max_by_key(|(_, count)| **count);
            let reason = reason.map_or_else(String::new, |(reason, _)| format!(": {reason}"));
            Err(Trouble::target(format!("{why}{reason}")))
        }
    }
}
