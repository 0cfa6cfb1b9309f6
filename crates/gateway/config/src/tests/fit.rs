//! The configuration checked against the machine.

use super::*;

fn plan(process: &str, to: &str, machine: &Machine) -> Result<Plan, String> {
    let text = format!(
        "{process}\n[[route]]\nlisten = '127.0.0.1:8443'\nto = '{to}'\nself_signed = 'x'\n"
    );
    load_with(&text, &[], machine)
        .map(|loaded| loaded.plan)
        .map_err(|mistakes| mistakes.to_string())
}

#[test]
fn auto_uses_what_the_machine_has() {
    let plan = plan("", "127.0.0.1:80", &machine()).expect("the limits fit");
    assert_eq!((plan.workers, plan.connections_per_worker), (2, 9_967));
    assert_eq!(plan.connections_max, 19_934);
    assert_eq!(plan.descriptors_per_worker, 20_000);
}

/// A reload gives a worker all listeners once more, also when it has as many connections as fit.
#[test]
fn listeners_have_room_twice() {
    let address = |n: u16| format!("'127.0.0.1:{}'", 5_000 + n);
    let listen: Vec<String> = (0..1_000).map(address).collect();
    let text = format!(
        "[[route]]\nlisten = [{}]\nto = 'echo:'\nself_signed = 'x'\n",
        listen.join(", ")
    );
    let loaded = load_with(&text, &[], &machine()).unwrap_or_else(|found| panic!("{found}"));
    let most = u64::from(loaded.plan.connections_per_worker);
    assert_eq!(most, 20_000 - 64 - 2 * 1_000);
}

#[test]
fn an_echoed_connection_needs_half_the_descriptors() {
    let plan = plan("", "echo:", &machine()).expect("the limits fit");
    assert_eq!(plan.connections_max, 39_868);
}

#[test]
fn more_connections_mean_more_workers_than_cores() {
    let plan =
        plan("max_connections = 100_000", "127.0.0.1:80", &machine()).expect("the limits fit");
    assert_eq!((plan.workers, plan.connections_max), (11, 100_000));
    assert!(plan.descriptors_per_worker <= 20_000, "{plan:?}");
    assert!(plan.connections_per_worker * plan.workers >= 100_000);
}

#[test]
fn few_connections_need_few_workers() {
    assert_eq!(
        plan("max_connections = 1", "echo:", &machine())
            .expect("the limits fit")
            .workers,
        1
    );
}

/// A client whose backend speaks TLS takes two slots of one worker.
#[test]
fn each_worker_has_room_for_a_client_with_tls_to_its_backend() {
    let with = |process: &str| plan(process, "127.0.0.1:80'\nbackend_tls = true #", &machine());
    let plan = with("workers = 4\nmax_connections = 4").expect("the limits fit");
    assert_eq!((plan.workers, plan.connections_per_worker), (2, 2));
    let refused = with("max_connections = 1").expect_err("half a client");
    assert!(refused.contains("max_connections = 2"), "{refused}");
}

#[test]
fn auto_is_bounded_on_a_machine_without_limits() {
    let endless = Machine {
        descriptors_max: u64::MAX,
        ..machine()
    };
    let plan = plan("", "echo:", &endless).expect("the limits fit");
    assert_eq!(plan.connections_per_worker, 1 << 20);
}

/// Only `auto` has a bound of its own; an explicit number needs descriptors and slots.
#[test]
fn a_worker_has_as_many_connections_as_the_configuration_says() {
    let with = |descriptors_max| {
        let wide = Machine {
            descriptors_max,
            ..machine()
        };
        plan("workers = 2\nmax_connections = 4_000_000", "echo:", &wide)
    };
    let plan = with(u64::MAX).expect("two million descriptors for each");
    assert_eq!(plan.connections_per_worker, 2_000_000);
    let refused = with(1_500_000).expect_err("too few descriptors");
    assert!(
        refused.contains("may have 1500000 descriptors here, which is 1499934 connections"),
        "{refused}"
    );
}

#[test]
fn low_limits_of_the_kernel_are_named_with_their_remedy() {
    let warnings = |process: &str, machine: &Machine| {
        let text = format!(
            "{process}\n[[route]]\nlisten = ':8443'\nto = '127.0.0.1:80'\nself_signed = 'x'\n"
        );
        let loaded = load_with(&text, &[], machine).unwrap_or_else(|found| panic!("{found}"));
        loaded.warnings.to_string()
    };
    let low = Machine {
        watches_max: 150_000,
        files_max: 199_999,
        ..machine()
    };
    let warned = warnings("max_connections = 100_000", &low);
    for part in [
        "100,000 connections need 200,000 epoll watches, and all processes of a user together may have 150,000 here",
        "sysctl fs.epoll.max_user_watches=250000",
        "200,000 open files, and all processes of the machine together may have 199,999 here",
        "sysctl fs.file-max=250000",
    ] {
        assert!(warned.contains(part), "{part}: {warned}");
    }
    let enough = Machine {
        watches_max: 200_000,
        files_max: 200_000,
        ..machine()
    };
    assert_eq!(warnings("max_connections = 100_000", &enough), "");
    assert_eq!(
        warnings(
            "",
            &Machine {
                files_max: 1,
                ..machine()
            }
        ),
        ""
    );
}

/// There are at most 1,024 workers, and machines with more cores.
#[test]
fn workers_are_bounded_on_a_machine_with_many_cores() {
    let many = Machine {
        cores: 1_536,
        ..machine()
    };
    assert_eq!(
        plan("", "echo:", &many).expect("the limits fit").workers,
        1_024
    );
    let few = Machine {
        descriptors_max: 100,
        ..machine()
    };
    let refused = plan("max_connections = 100_000", "echo:", &few);
    let refused = refused.expect_err("1,024 workers have too few descriptors");
    assert!(refused.contains("in each of 1024 workers"), "{refused}");
    assert!(refused.contains("= help: raise the limit"), "{refused}");
}

#[test]
fn ports_may_be_few_where_descriptors_are_unlimited() {
    let machine = Machine {
        descriptors_max: u64::MAX,
        local_ports: 1_000,
        ..machine()
    };
    let plan = plan("", "192.0.2.1:80", &machine).expect("the limits fit");
    assert_eq!(plan.connections_max, 900);
}

#[test]
fn a_configuration_that_does_not_fit_is_refused_with_numbers() {
    let refused = plan(
        "workers = 2\nmax_connections = 40_000",
        "127.0.0.1:80",
        &machine(),
    );
    let refused = refused.expect_err("19,934 connections fit");
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

fn cost(plan: &Plan, what: &str) -> u64 {
    let found = plan.costs.iter().find(|cost| cost.what == what);
    found.expect("a cost of this name").bytes.0
}

fn sum(plan: &Plan) -> u64 {
    plan.costs.iter().map(|cost| cost.bytes.0).sum()
}

#[test]
fn costs_are_those_of_the_limits() {
    let plan = plan("max_connections = 1000", "echo:", &machine()).expect("the limits fit");
    assert_eq!(cost(&plan, "connections at rest"), 192_000);
    assert_eq!(cost(&plan, "pending bytes"), 64 << 20);
    assert_eq!(cost(&plan, "handshakes"), 1024 * (152 << 10));
    assert_eq!(cost(&plan, "kernel: sockets"), 1000 * 4_100);
    assert_eq!(cost(&plan, "kernel: slow readers"), 256 << 20);
}

/// With any budget and any number of connections, the sum of all limits is within the budget, and
/// `auto` limits are large enough to work with.
#[test]
fn limits_fit_the_budget() {
    for (memory, least) in [
        ("128 MiB", 500),
        ("512 MiB", 2_500),
        ("2 GiB", 15_000),
        ("1 TiB", 19_934),
    ] {
        let text = format!("memory = '{memory}'");
        let plan = plan(&text, "127.0.0.1:80", &machine()).expect("the limits fit");
        let config = load_text(&format!(
            "{text}\n[[route]]\nlisten = ':8443'\nto = 'echo:'\nself_signed = 'x'"
        ));
        let budget = config
            .expect("a valid configuration")
            .config
            .limits
            .memory
            .expect("the option memory");
        assert!(sum(&plan) <= budget.0, "{memory}: {plan:?}");
        assert!(plan.connections_max >= least, "{memory}: {plan:?}");
        assert!(plan.handshakes_max >= 32 && plan.backlog >= 64, "{plan:?}");
        assert!(plan.receive_buffer.0 >= 4096 && plan.pending_memory.0 >= 2 << 20);
    }
}

#[test]
fn receive_buffers_shrink_with_more_connections() {
    let receive = |connections: u32| {
        let text = format!("memory = '512 MiB'\nmax_connections = {connections}");
        let plan = plan(&text, "127.0.0.1:80", &machine()).expect("the limits fit");
        assert_eq!(plan.connections_max, connections);
        assert!(sum(&plan) <= 512 << 20, "{plan:?}");
        plan.receive_buffer.0
    };
    assert_eq!(receive(100), 256 << 10);
    assert_eq!(receive(5_000), 8 << 10);
    let message = plan(
        "memory = '512 MiB'\nmax_connections = 100_000",
        "127.0.0.1:80",
        &machine(),
    );
    let message = message.expect_err("100,000 do not fit");
    assert!(message.contains("more than memory (512 MiB)"), "{message}");
    assert!(message.contains("lower max_connections to"), "{message}");
    assert!(message.contains("kernel: sockets"), "{message}");
}

/// Main and each worker hold all certificates, and twice as much while they are replaced.
#[test]
fn certificates_are_part_of_the_budget() {
    let with = |limits: &str, material: u64| {
        let text = format!(
            "{limits}\n[[route]]\nlisten = ':8443'\nto = '127.0.0.1:80'\nself_signed = 'x'\n"
        );
        let config = load_text(&text).unwrap_or_else(|found| panic!("{found}"));
        plan_with(&config.config, &machine(), material)
    };
    let (few, many) = (
        with("memory = '512 MiB'", 20_000),
        with("memory = '512 MiB'", 4 << 20),
    );
    let (few, many) = (few.expect("fits"), many.expect("fits"));
    assert_eq!(cost(&many, "certificates"), (8 + 2 * 7) * (4 << 20));
    assert!(few.costs.iter().all(|cost| cost.what != "certificates"));
    assert!(many.connections_max < few.connections_max);
    assert!(sum(&many) <= 512 << 20 && sum(&few) <= 512 << 20);
    let fixed = "memory = '512 MiB'\nmax_connections = 6_000";
    assert!(with(fixed, 20_000).is_ok());
    let refused = with(fixed, 16 << 20).expect_err("22 times 16 MiB leave too little");
    assert!(refused.contains("more than memory (512 MiB)"), "{refused}");
    assert!(
        refused.contains("certificates") && refused.contains("22 x 16 MiB of files"),
        "{refused}"
    );
}

/// Routes without certificates take memory, too; a few are part of the program itself.
#[test]
fn many_routes_are_part_of_the_budget() {
    let with = |count: usize| {
        let mut text = "memory = '512 MiB'\n".to_owned();
        for n in 0..count {
            text += &format!(
                "[[route]]\nlisten = ':8443'\nserver_names = ['{n}.example']\npass_through = true\nto = '127.0.0.1:80'\n"
            );
        }
        let config = load_text(&text).unwrap_or_else(|found| panic!("{found}"));
        plan_with(&config.config, &machine(), 0)
    };
    let (few, many) = (with(10).expect("fits"), with(1_000).expect("fits"));
    assert!(few.costs.iter().all(|cost| cost.what != "routes"));
    assert_eq!(cost(&many, "routes"), (1_000 * (18 + 2 * 14)) << 10);
    assert!(many.connections_max < few.connections_max);
    assert!(sum(&many) <= 512 << 20 && sum(&few) <= 512 << 20);
}

#[test]
fn a_configured_limit_is_kept() {
    let text = "memory = '512 MiB'\nmax_handshakes = 7\npending_memory = '9 MiB'\n\
                kernel_memory = '11 MiB'\nreceive_buffer = '32 KiB'\nbacklog = 13";
    let plan = plan(text, "127.0.0.1:80", &machine()).expect("the limits fit");
    assert_eq!((plan.handshakes_max, plan.backlog), (7, 13));
    assert_eq!(plan.pending_memory, ByteSize(9 << 20));
    assert_eq!(plan.kernel_memory, ByteSize(11 << 20));
    assert_eq!(plan.receive_buffer, ByteSize(32 << 10));
    assert!(sum(&plan) <= 512 << 20);
}

/// A backend on this machine is reached from as many addresses as it needs; for another backend
/// they must be configured.
#[test]
fn plans_for_local_ports() {
    let wide = Machine {
        descriptors_max: 1 << 20,
        ..machine()
    };
    let plan_of = |text: &str, to: &str| plan(text, to, &wide);
    let many = "max_connections = 100_000";
    assert_eq!(
        plan_of(many, "127.0.0.1:80")
            .expect("the limits fit")
            .sources,
        9
    );
    let one = plan_of("max_connections = 25_000", "127.0.0.1:80").expect("the limits fit");
    assert_eq!(one.sources, 1);
    assert_eq!(
        plan_of(many, "unix:/run/x")
            .expect("the limits fit")
            .connections_max,
        100_000
    );
    let message = plan_of(many, "192.0.2.1:80").expect_err("one address is not enough");
    assert!(
        message.contains("local ports allow 25408 to 192.0.2.1:80"),
        "{message}"
    );
    assert!(
        message.contains("to 4 addresses of this machine"),
        "{message}"
    );
    // Without `max_connections`, nothing is refused.
    let plan = plan_of("", "192.0.2.1:80").expect("the limits fit");
    assert_eq!(plan.connections_max, 25_408);
    let text = "max_connections = 50_000\n[[route]]\nlisten = ':8443'\nto = '192.0.2.1:80'\n\
                self_signed = 'x'\nsource_addresses = ['192.0.2.7', '192.0.2.8']";
    let loaded = load_with(text, &[], &wide).expect("two addresses are enough");
    assert_eq!(loaded.plan.connections_max, 50_000);
    // With TLS to the backend, a client counts as two connections, of which one needs a port.
    let text = "max_connections = 50_000\n[[route]]\nlisten = ':8443'\nto = '192.0.2.1:80'\n\
                self_signed = 'x'\nbackend_tls = true";
    let loaded = load_with(text, &[], &wide).expect("25,000 ports are enough");
    assert_eq!(loaded.plan.connections_max, 50_000);
}

/// An origination has neither source addresses nor servers on unix sockets.
#[test]
fn local_ports_of_an_origination_have_a_remedy_of_their_own() {
    let wide = Machine {
        descriptors_max: 1 << 20,
        ..machine()
    };
    let text =
        "max_connections = 100_000\n[[originate]]\nlisten = '127.0.0.1:8080'\nto = '192.0.2.7:443'";
    let message = load_with(text, &[], &wide).expect_err("too few ports");
    let message = message.to_string();
    assert!(
        message.contains("local ports allow 25408 to 192.0.2.7:443"),
        "{message}"
    );
    assert!(!message.contains("source_addresses"), "{message}");
}

#[test]
fn lists_have_a_maximum_length() {
    let at = |port: usize, more: &str| {
        format!("[[route]]\nlisten = '127.0.0.1:{port}'\nto = 'echo:'\nself_signed = 'x'\n{more}\n")
    };
    let refused = |text: &str| load_text(text).expect_err("too many").to_string();
    let message = refused(&(2000..3001).map(|port| at(port, "")).collect::<String>());
    assert!(
        message.contains("1001 addresses to listen on, but at most 1000"),
        "{message}"
    );
    let named = |n: usize| at(2000, &format!("server_names = 'n{n}.example'"));
    let message = refused(&(0..10_001).map(named).collect::<String>());
    assert!(
        message.starts_with("error: there are 10001 routes"),
        "{message}"
    );
    let list = vec!["'127.0.0.1:2000'"; 1001].join(",");
    let message = refused(&format!(
        "[[route]]\nlisten = [{list}]\nto = 'echo:'\nself_signed = 'x'\n"
    ));
    assert!(
        message.starts_with("error: this list has 1001 items"),
        "{message}"
    );
    let list: Vec<String> = (2000..2600).map(|port| format!("':{port}'")).collect();
    let message = refused(&format!(
        "[[route]]\nlisten = [{}]\nto = 'echo:'\nself_signed = 'x'\n",
        list.join(",")
    ));
    assert!(
        message.contains("1200 addresses to listen on, but at most 1000"),
        "{message}"
    );
}

fn quiet(process: &str, machine: &Machine) -> Result<Plan, String> {
    let text = format!(
        "{process}\n[[route]]\nlisten = '127.0.0.1:8443'\nto = '127.0.0.1:80'\nself_signed = 'x'\n\
         rest_after = '1m'\n"
    );
    load_with(&text, &[], machine)
        .map(|loaded| loaded.plan)
        .map_err(|mistakes| mistakes.to_string())
}

/// Connections that may rest count with their bytes, and those that are awake with their sockets.
#[test]
fn half_a_million_quiet_connections_fit_into_512_mib() {
    for (text, receive) in [
        ("memory = '512 MiB'\nmax_connections = 500_000", 16 << 10),
        ("memory = '512 MiB'", 16 << 10),
        (
            "memory = '512 MiB'\nmax_connections = 500_000\nmax_awake = 100",
            64 << 10,
        ),
        (
            "memory = '512 MiB'\nmax_connections = 500_000\nmax_awake = 1_400",
            4 << 10,
        ),
        ("memory = '512 MiB'\nmax_awake = 1_000", 16 << 10),
    ] {
        let plan = quiet(text, &machine()).unwrap_or_else(|found| panic!("{text}: {found}"));
        assert!(sum(&plan) <= 512 << 20, "{text}: {plan:?}");
        assert!(plan.connections_max >= 400_000, "{text}: {plan:?}");
        assert_eq!(plan.receive_buffer.0, receive, "{text}");
        let awake = u64::from(plan.awake_max);
        assert!((100..=2_000).contains(&awake), "{text}: {plan:?}");
        assert_eq!(
            cost(&plan, "kernel: sockets"),
            awake * 2 * (4_100 + 4_096 + 2 * receive)
        );
        assert_eq!(plan.descriptors_per_worker, awake.div_ceil(2) * 2 + 66);
    }
    for (text, remedy) in [
        (
            "memory = '512 MiB'\nmax_connections = 1_000_000",
            "or lower max_connections to 6",
        ),
        (
            "memory = '512 MiB'\nmax_connections = 100_000\nmax_awake = 10_000",
            "or lower max_awake",
        ),
    ] {
        let refused = quiet(text, &machine()).expect_err("too many");
        assert!(refused.contains("more than memory (512 MiB)"), "{refused}");
        assert!(refused.contains(remedy), "{refused}");
        assert!(refused.contains("deep rest"), "{refused}");
    }
}

/// Descriptors limit the connections that are awake.
#[test]
fn descriptors_are_for_awake_connections() {
    let plan = quiet("max_connections = 1_000_000", &machine()).expect("the limits fit");
    assert_eq!((plan.workers, plan.connections_max), (2, 1_000_000));
    assert_eq!(plan.awake_max, 19_934);
    assert_eq!(plan.descriptors_per_worker, 20_000);
    // Without a number of connections there are as many as descriptors.
    let plan = quiet("", &machine()).expect("the limits fit");
    assert_eq!((plan.connections_max, plan.awake_max), (19_934, 19_934));
    let plan = quiet(
        "max_connections = 1_000_000\nmax_awake = 30_000",
        &machine(),
    );
    let plan = plan.expect("more workers have more descriptors");
    assert_eq!((plan.workers, plan.awake_max), (4, 30_000));
    let refused = quiet(
        "workers = 2\nmax_connections = 1_000_000\nmax_awake = 30_000",
        &machine(),
    );
    let refused = refused.expect_err("two workers have too few");
    assert!(
        refused.contains("30000 connections do not fit"),
        "{refused}"
    );
    // Without a route that rests it has no effect.
    let plan = plan_of_awake_alone();
    assert_eq!((plan.connections_max, plan.awake_max), (1_000, 1_000));
}

fn plan_of_awake_alone() -> Plan {
    let text = "max_connections = 1000\nmax_awake = 16";
    let loaded = load_with(
        &format!("{text}\n[[route]]\nlisten = '127.0.0.1:8443'\nto = 'echo:'\nself_signed = 'x'\n"),
        &[],
        &machine(),
    );
    let loaded = loaded.unwrap_or_else(|found| panic!("{found}"));
    let warnings = loaded.warnings.to_string();
    assert!(warnings.contains("`max_awake` has no effect"), "{warnings}");
    loaded.plan
}
