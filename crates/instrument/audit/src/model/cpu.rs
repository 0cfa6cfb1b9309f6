//! A server's CPU time, and how many handshakes it makes at a time.

use std::collections::BTreeMap;

use super::figures::{Premises, Row, figures, row, shown_as};
use super::measured::Measured;
use super::words::{bytes, us};
use dormouse_bench::model::grouped;
use dormouse_census::HotSpot;

/// Kind of key whose signature measures the speed of the machine.
pub(crate) const USUAL_KEY: &str = "ECDSA 256";
/// Maximum number of functions and libraries in a report.
const SPOTS_MAX: usize = 6;

figures! {
    /// A server's CPU time.
    CpuFigures at "server.cpu" {
        /// per connection with a full handshake: accept, handshake, exchange, close
        full_us: f64, "per connection with a full handshake" => |of, full| {
            format!("{}, {} of it system", us(*full), us(of.full_system_us))
        };
        full_system_us: f64;
        /// by version; each may be missing
        resumed_us: BTreeMap<String, Measured<f64>>, also resumed;
        reference: Reference, also needed;
        /// of full handshakes, by share
        profile: Measured<Vec<HotSpot>>, "most of it in" => |_, profile| hot_spots(profile);
        parallel: Measured<ParallelHandshakes>;
        /// per echoed gigabyte
        per_gigabyte_s: Measured<f64>, "per GB echoed" => |_, seconds| format!("{seconds:.2} s");
        /// threads that used CPU time and never slept while all connections were idle
        polling_threads: Measured<u64>;
        /// of a JVM without its compilers and collectors, which may still be at work after the load
        idle_us_per_connection_s: Measured<f64>, "per idle connection and second" => |_, us| format!("{us:.1} µs");
    }

    /// CPU time of the parts of a handshake on this machine, measured in the audit's own process.
    Reference at "server.cpu.reference", "of this machine" {
        /// kind of the key in the certificate
        key: String = USUAL_KEY.into();
        signature_us: f64;
        /// one X25519 key exchange, server side
        exchange_us: f64;
        /// one full handshake of `dormouse` in TLS 1.3, server side, without sockets
        handshake_us: f64;
        /// system time for a TCP connection that carries a handshake's bytes
        tcp_us: f64;
    }

    /// The first connection after the server's start, compared with later ones.
    FirstConnection at "server.first" | "server.first.larger" {
        first_ms: f64, "the first handshake" => |of, _| of.words(), also with_larger;
        first_cpu_ms: f64;
        later_ms: f64;
        later_cpu_ms: f64;
        held_bytes: u64;
        /// the same with `--cmd-larger`
        larger: Option<Box<FirstConnection>>;
    }

    /// Another client's handshake, beside clients that connect and say nothing.
    SilentClients at "server.silent_clients" {
        tried: u64, "beside clients that say nothing" => |of, tried| match of.blocked_by {
            None => format!("answered beside {tried} of them"),
            Some(count) => {
                let waited = grouped(of.waited_ms, 0);
                format!("not answered beside {count} of them within {waited} ms; alone in {:.1} ms", of.alone_ms)
            }
        };
        /// silent clients beside which another got no answer, null: it always got one
        blocked_by: Option<u64>;
        waited_ms: f64;
        /// time to the answer without them
        alone_ms: f64;
        /// whether an established idle connection blocks others too, null: not tried
        established_blocks: Option<bool>;
    }

    /// Connections per second of one client and of several, and the cores in use meanwhile.
    ParallelHandshakes at "server.cpu.parallel" {
        clients: u32;
        /// connections per second of one client
        alone_per_s: f64, "speed of several clients" => |of, _| of.words();
        /// the same of all together
        together_per_s: f64;
        server_cores: f64;
        client_cores: f64;
        /// of those that the server may use
        idle_cores: f64;
        /// what the server's control group (cgroup v2) allows, null: it sets no limit
        quota_cores: Option<f64>;
        lock: Measured<LockWaits>;
    }

    /// Threads that waited for the same lock, sampled.
    #[derive(Copy)]
    LockWaits at "server.cpu.parallel.lock" {
        samples: u64;
        /// of the samples, those in which two or more threads waited for the same lock
        share: f64;
        /// mean number of them
        threads: f64;
        /// share of the samples in which they did and no thread of the server ran or waited for a core; null: not looked at
        asleep_share: Option<f64>;
    }
}

impl CpuFigures {
    fn resumed(&self, _: Premises) -> Vec<Row> {
        let of = |(version, value): (&String, &Measured<f64>)| {
            shown_as(
                self,
                value,
                &format!("the same resumed, {version}"),
                |_, value| us(*value),
            )
        };
        self.resumed_us.iter().filter_map(of).collect()
    }

    fn needed(&self, _: Premises) -> Option<Row> {
        let r = &self.reference;
        let value = format!(
            "{} for a signature ({}), {} for a key exchange; Dormouse's handshake takes {}, a TCP connection {}",
            us(r.signature_us),
            r.key,
            us(r.exchange_us),
            us(r.handshake_us),
            us(r.tcp_us)
        );
        Some(row("this machine needs", value))
    }
}

fn hot_spots(profile: &[HotSpot]) -> String {
    let spot = |spot: &HotSpot| {
        let function = spot.function.as_deref();
        let function = function.map_or_else(String::new, |name| format!(" ({name})"));
        format!("{:.0} % {}{function}", 100.0 * spot.share, spot.object)
    };
    profile
        .iter()
        .take(SPOTS_MAX)
        .map(spot)
        .collect::<Vec<_>>()
        .join(", ")
}

impl FirstConnection {
    fn words(&self) -> String {
        format!(
            "{:.1} ms, {:.1} ms of CPU time; later ones {:.1} ms and {:.2} ms; the process held {}",
            self.first_ms,
            self.first_cpu_ms,
            self.later_ms,
            self.later_cpu_ms,
            bytes(self.held_bytes as f64)
        )
    }

    fn with_larger(&self, _: Premises) -> Option<Row> {
        Some(row("with --cmd-larger", self.larger.as_ref()?.words()))
    }
}

impl ParallelHandshakes {
    fn words(&self) -> String {
        let quota = self.quota_cores.map_or_else(String::new, |quota| {
            format!(" of the {quota:.2} that its control group allows")
        });
        format!(
            "{} connections per second with one, {} with {}; the server used {:.2} cores{quota}, the audit's clients {:.2}, {:.2} were idle",
            grouped(self.alone_per_s, 0),
            grouped(self.together_per_s, 0),
            self.clients,
            self.server_cores,
            self.client_cores,
            self.idle_cores
        )
    }
}

#[cfg(test)]
impl CpuFigures {
    /// Creates figures in which only the profile is measured.
    pub(crate) fn with_profile(profile: Vec<HotSpot>) -> Self {
        Self {
            profile: Measured::Value(profile),
            ..Self::default()
        }
    }
}
