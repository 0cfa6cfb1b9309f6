//! Leaks in the heaps of two more runtimes, with their size, and servers whose memory has a bound.

use super::pairs::{audit, is_clean_in, is_named_in};
use super::runtimes::Runtime;
use super::{Judged, is_named};

#[test]
#[ignore = "a minute: awaits collections of garbage"]
fn a_leak_in_go() {
    if let Some(judged) = audit(Runtime::Go, "leak") {
        is_named(&judged, "leak-per-connection");
        // Each round is followed by connections that make garbage, and these leak as well.
        leaks(&judged, 1_000.0..4_000.0);
    }
}

#[test]
#[ignore = "a minute: awaits collections of garbage"]
fn connections_that_go_keeps() {
    is_named_in(Runtime::Go, "register", &["leak-per-connection"]);
}

#[test]
#[ignore = "a minute: awaits collections of garbage"]
fn a_leak_in_python() {
    if let Some(judged) = audit(Runtime::Python, "leak") {
        is_named(&judged, "leak-per-connection");
        leaks(&judged, 1_900.0..2_600.0);
    }
}

#[test]
#[ignore = "a minute: awaits collections of garbage"]
fn healthy_servers() {
    for runtime in [Runtime::Go, Runtime::Python] {
        is_clean_in(runtime, "healthy");
        is_clean_in(runtime, "bounded");
    }
}

/// Whether the growth of bytes in use per closed connection, with the margin that the audit states,
/// reaches a range, and the margin is small enough to say something.
fn leaks(judged: &Judged, range: std::ops::Range<f64>) {
    let growth = &judged.0["server"]["memory"]["measured"]["growth_in_use"]["measured"];
    let per_connection = |figure: &str| {
        growth["slope"][figure].as_f64().unwrap()
            / growth["connections_per_round"].as_f64().unwrap()
    };
    let (each, margin) = (per_connection("per_unit"), per_connection("plus_minus"));
    assert!(
        margin < each / 2.0 && each + margin > range.start && each - margin < range.end,
        "{each} bytes per connection, plus or minus {margin}: {growth:#}"
    );
}
