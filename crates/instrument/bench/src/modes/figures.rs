//! Figures of several modes.

use crate::model::Run;
use crate::session::Session;
use dormouse_measure::{CpuTime, KernelMemory, TreeSample};

/// Memory at one moment, in the three ways to count it.
pub(super) fn memory(run: &mut Run, name: &str, when: &str, sample: Option<TreeSample>) {
    let Some(sample) = sample else { return };
    let memory = sample.memory;
    for (count, what, bytes) in [
        ("pss", "PSS", memory.pss),
        ("rss", "RSS", memory.rss),
        ("anonymous", "anonymous part of PSS", memory.pss_anonymous),
        ("shared", "shared-memory part of PSS", memory.pss_shared),
    ] {
        let (name, title) = (format!("memory.{name}.{count}"), format!("{when}, {what}"));
        run.figure(&name, &title, bytes as f64, "bytes");
    }
}

/// Server CPU time since `before`, per unit of work, with the generators' beside it.
#[derive(Default)]
pub(super) struct CpuCost {
    pub(super) server: CpuTime,
    pub(super) generators: CpuTime,
}

impl CpuCost {
    /// Returns the CPU times now.
    pub(super) fn now(session: &mut Session<'_>) -> Self {
        Self {
            server: session.server_cpu(),
            generators: session.fleet.cpu(),
        }
    }

    /// Returns the CPU time since.
    pub(super) fn since(&self, session: &mut Session<'_>) -> Self {
        let now = Self::now(session);
        Self {
            server: now.server - self.server,
            generators: now.generators - self.generators,
        }
    }

    /// A figure per event, in microseconds.
    pub(super) fn per_event(&self, session: &mut Session<'_>, name: &str, what: &str, events: u64) {
        let mut put = |whose: &str, title: &str, cpu: CpuTime| {
            let (name, title) = (
                format!("{whose}.per_{name}"),
                format!("{title}, per {what}"),
            );
            let us = cpu.total_ns as f64 / 1e3 / events as f64;
            session.run.figure(&name, &title, us, "us");
        };
        if session.server.is_some() {
            put("cpu.server", "server", self.server);
        }
        put("generator.cpu", "generators", self.generators);
    }
}

/// Adds the kernel's part: both ends of every connection, and the backend's. The kernel counts for
/// the whole machine: sockets that other programs open meanwhile are included, and those that they
/// close could make a difference negative. A negative figure is left out, with a note. Returns the
/// bytes of objects, if they may be read: unlike the buffers, hardly any belong to other programs.
pub(super) fn kernel(
    run: &mut Run,
    before: KernelMemory,
    after: KernelMemory,
    connections: u64,
) -> Option<u64> {
    // With a unix socket, TCP's figures are not this run's.
    let tcp = !run.target.starts_with("unix:");
    let mut grown = |name: &str, title: &str, unit: &str, before: u64, after: u64| {
        let Some(grown) = after.checked_sub(before) else {
            run.note(format!(
                "{title}: not known, because other programs on this machine freed more meanwhile"
            ));
            return None;
        };
        let title = format!("{title} per connection, machine-wide");
        run.figure(name, &title, grown as f64 / connections as f64, unit);
        Some(grown)
    };
    let mut tcp_grown = |name: &str, title: &str, unit: &str, before: u64, after: u64| {
        tcp.then(|| grown(name, title, unit, before, after))?
    };
    let sockets = tcp_grown(
        "kernel.sockets",
        "TCP sockets",
        "1",
        before.tcp_sockets,
        after.tcp_sockets,
    );
    tcp_grown(
        "kernel.buffers",
        "TCP buffers",
        "bytes",
        before.tcp_buffer_bytes,
        after.tcp_buffer_bytes,
    );
    let (Some(slab_before), Some(slab_after)) = (before.slab_bytes, after.slab_bytes) else {
        run.note(
            "the kernel's memory per connection needs /proc/slabinfo, which only root may read",
        );
        return None;
    };
    let slab = grown(
        "kernel.slab",
        "kernel objects",
        "bytes",
        slab_before,
        slab_after,
    )?;
    if let Some(sockets) = sockets.filter(|&sockets| sockets >= connections / 2) {
        let title = "kernel objects per socket, machine-wide";
        let each = slab as f64 / sockets as f64;
        run.figure("kernel.slab_per_socket", title, each, "bytes");
    }
    Some(slab)
}

/// Adds the memory of the generators; returns their growth in bytes.
pub(super) fn generators(session: &mut Session<'_>, before: TreeSample, connections: u64) -> u64 {
    let now = session.fleet.cost();
    let grown = now.memory.pss.saturating_sub(before.memory.pss);
    let (processes, pss) = (now.processes as f64, now.memory.pss as f64);
    let each = grown as f64 / connections as f64;
    session.run.figures([
        ("generator.processes", "generator processes", processes, "1"),
        ("generator.pss", "generators together, PSS", pss, "bytes"),
        (
            "generator.per_connection",
            "generators, per connection",
            each,
            "bytes",
        ),
    ]);
    grown
}
