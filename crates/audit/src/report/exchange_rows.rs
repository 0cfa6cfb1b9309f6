//! Rows about single connections: the records of answers, and handshakes at a time.

use super::rows::{Row, missing, of};
use crate::model::{Measured, ServerFigures};
use dormouse_bench::model::grouped;

/// Returns the rows about records.
pub(super) fn records(server: &ServerFigures) -> Vec<Row> {
    let whole = |count: u64| grouped(count as f64, 0);
    vec![of("records of answers", &server.records, |records| {
        format!(
            "answers: {}, with {} bytes; records: {}, with {} bytes of overhead, {} of them padding",
            whole(records.answers),
            whole(records.content_bytes),
            whole(records.records),
            whole(records.overhead_bytes()),
            whole(records.padding_bytes())
        )
    })]
}

/// Returns the rows about handshakes at a time.
pub(super) fn at_a_time(server: &ServerFigures) -> Vec<Row> {
    let silent = of(
        "beside clients that say nothing",
        &server.silent_clients,
        |silent| match silent.blocked_by {
            None => format!("answered beside {} of them", silent.tried),
            Some(count) => format!(
                "not answered beside {count} of them within {} ms; alone in {:.1} ms",
                grouped(silent.waited_ms, 0),
                silent.alone_ms
            ),
        },
    );
    let parallel = match &server.cpu {
        Measured::NotMeasured(why) => missing("speed of several clients", why),
        Measured::Value(cpu) => of("speed of several clients", &cpu.parallel, |speed| {
            format!(
                "{} connections per second with one, {} with {}; the server used {:.2} cores{}, the audit's clients {:.2}, {:.2} were idle",
                grouped(speed.alone_per_s, 0),
                grouped(speed.together_per_s, 0),
                speed.clients,
                speed.server_cores,
                speed.quota_cores.map_or_else(String::new, |quota| format!(
                    " of the {quota:.2} that its control group allows"
                )),
                speed.client_cores,
                speed.idle_cores
            )
        }),
    };
    vec![silent, parallel]
}
