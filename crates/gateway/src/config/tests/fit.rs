//! The configuration held against the machine.

use super::*;

fn plan(process: &str, to: &str, machine: &Machine) -> Result<Plan, String> {
    let text = format!(
        "{process}\n[[route]]\nlisten = '127.0.0.1:8443'\nto = '{to}'\nself_signed = 'x'\n"
    );
    load_with(&text, &[], machine, Purpose::Serve)
        .map(|loaded| loaded.plan)
        .map_err(|mistakes| mistakes.to_string())
}

#[test]
fn auto_takes_what_the_machine_gives() {
    let plan = plan("", "127.0.0.1:80", &machine()).expect("it fits");
    assert_eq!((plan.workers, plan.connections_per_worker), (2, 9_967));
    assert_eq!(plan.connections_max, 19_934);
    assert_eq!(plan.descriptors_per_worker, 19_999);
}

#[test]
fn an_echoed_connection_needs_half_the_descriptors() {
    let plan = plan("", "echo:", &machine()).expect("it fits");
    assert_eq!(plan.connections_max, 39_870);
}

#[test]
fn more_connections_mean_more_workers_than_cores() {
    let plan = plan("max_connections = 100_000", "127.0.0.1:80", &machine()).expect("it fits");
    assert_eq!((plan.workers, plan.connections_max), (11, 100_000));
    assert!(plan.descriptors_per_worker <= 20_000, "{plan:?}");
    assert!(plan.connections_per_worker * plan.workers >= 100_000);
}

#[test]
fn few_connections_need_few_workers() {
    assert_eq!(
        plan("max_connections = 1", "echo:", &machine())
            .expect("it fits")
            .workers,
        1
    );
}

#[test]
fn a_machine_without_limit_gets_a_sane_one() {
    let endless = Machine {
        descriptors_max: u64::MAX,
        ..machine()
    };
    let plan = plan("", "echo:", &endless).expect("it fits");
    assert_eq!(plan.connections_per_worker, 1 << 20);
}

#[test]
fn what_does_not_fit_is_refused_with_numbers() {
    let refused = plan(
        "workers = 2\nmax_connections = 40_000",
        "127.0.0.1:80",
        &machine(),
    );
    let refused = refused.expect_err("there is room for 19,934");
    assert!(refused.contains("19934 at most"), "{refused}");
    assert!(refused.contains("at least 5)"), "{refused}");
    let tiny = Machine {
        descriptors_max: 64,
        ..machine()
    };
    let refused = plan("", "echo:", &tiny).expect_err("nothing fits");
    assert!(
        refused.contains("not enough for a single connection"),
        "{refused}"
    );
}

#[test]
fn costs_are_those_of_the_limits() {
    let plan = plan("max_connections = 1000", "echo:", &machine()).expect("it fits");
    let bytes: Vec<u64> = plan.costs.iter().map(|cost| cost.bytes.0).collect();
    assert_eq!(bytes, [192_000, 64 << 20, 1024 * (64 << 10)]);
}

#[test]
fn a_privileged_port_stops_serve_but_not_check() {
    let text = "[[route]]\nlisten = ':443'\nto = 'echo:'\nself_signed = 'x'\n";
    let refused = load_with(text, &[], &machine(), Purpose::Serve).expect_err("not allowed");
    assert!(
        refused.to_string().contains("port 443 needs privileges"),
        "{refused}"
    );
    let loaded = load_with(text, &[], &machine(), Purpose::Check).expect("somebody else may");
    assert_eq!(
        loaded.warnings.list.len(),
        1,
        "two addresses, one item, one warning"
    );
    let root = Machine {
        privileged_below: 0,
        ..machine()
    };
    let loaded = load_with(text, &[], &root, Purpose::Serve).expect("allowed");
    assert!(loaded.warnings.list.is_empty());
}

#[test]
fn there_is_an_end_to_how_many() {
    let route = |port: usize| {
        format!("[[route]]\nlisten = '127.0.0.1:{port}'\nto = 'echo:'\nself_signed = 'x'\n")
    };
    let refused = |text: &str| load_text(text).expect_err("too many").to_string();
    let told = refused(&(2000..3001).map(route).collect::<String>());
    assert!(told.starts_with("error: there are 1001 routes"), "{told}");
    let list = vec!["'127.0.0.1:2000'"; 1001].join(",");
    let told = refused(&format!(
        "[[route]]\nlisten = [{list}]\nto = 'echo:'\nself_signed = 'x'\n"
    ));
    assert!(
        told.starts_with("error: this list has 1001 items"),
        "{told}"
    );
    let list: Vec<String> = (2000..2600).map(|port| format!("':{port}'")).collect();
    let told = refused(&format!(
        "[[route]]\nlisten = [{}]\nto = 'echo:'\nself_signed = 'x'\n",
        list.join(",")
    ));
    assert!(
        told.contains("1200 addresses to listen on, at most 1000"),
        "{told}"
    );
}
