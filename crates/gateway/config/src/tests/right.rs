//! Valid configurations are read as intended.
use std::{fmt::Write as _, path::PathBuf, time::Duration};

use super::*;
use crate::option::spec::Applies;

fn read(text: &str) -> Config {
    match load_text(text) {
        Ok(loaded) => loaded.config,
        Err(mistakes) => panic!("{mistakes}"),
    }
}

#[test]
fn a_route_leaves_all_other_options_at_their_defaults() {
    let config = read(
        "[[route]]\nlisten = '127.0.0.1:8443'\nto = '127.0.0.1:8080'\nself_signed = 'a.example'\n",
    );
    let mut expected = Config::blank();
    expected.routes = vec![Route {
        self_signed: Some("a.example".to_owned()),
        ..Route::blank()
    }];
    expected.routes[0].to = vec![Upstream::plain(Backend::Tcp {
        given: "127.0.0.1:8080".to_owned(),
        addresses: vec!["127.0.0.1:8080".parse().expect("an address")],
    })];
    assert_eq!(config, expected);
    assert_eq!(config.limits.pending_memory, Amount::Auto);
    assert_eq!(config.limits.memory, None);
    assert_eq!(config.process.workers, Count::Auto);
    assert_eq!(config.timeouts.idle_timeout, None);
    assert_eq!(config.sockets.user_timeout, Some(Duration::from_secs(180)));
}

#[test]
fn reads_every_notation_of_an_address() {
    let listen = |text: &str| {
        let text = format!("[[route]]\nlisten = '{text}'\nto = 'echo:'\nself_signed = 'x'\n");
        let addresses = read(&text).routes.remove(0).listen.into_iter();
        addresses
            .map(|listen| listen.address.to_string())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(listen("127.0.0.1:8443"), "127.0.0.1:8443");
    assert_eq!(listen("[::1]:8443"), "[::1]:8443");
    assert_eq!(listen(":8443"), "0.0.0.0:8443 [::]:8443");
    assert_eq!(listen("*:8443"), "0.0.0.0:8443 [::]:8443");
    assert_eq!(listen("localhost:8443"), "127.0.0.1:8443", "IPv4 first");
    assert_eq!(listen("six:8443"), "[fd00::6]:8443");

    let to = |text: &str| {
        read(&format!(
            "[[route]]\nlisten = ':8443'\nto = '{text}'\nself_signed = 'x'\n"
        ))
        .routes
        .remove(0)
        .to
        .remove(0)
        .backend
    };
    assert_eq!(to("echo:"), Backend::Echo);
    assert_eq!(
        to("unix:/run/app.sock"),
        Backend::Unix("/run/app.sock".into())
    );
    assert_eq!(to("unix:app.sock"), Backend::Unix("etc/app.sock".into()));
    assert_eq!(to("localhost:80").to_string(), "127.0.0.1:80");
    assert_eq!(to("[fd00::1]:80").to_string(), "[fd00::1]:80");
}

#[test]
fn the_two_families_do_not_collide() {
    read(
        "[[route]]\nlisten = ['0.0.0.0:8443', '[::]:8443']\nto = '127.0.0.1:80'\nself_signed = 'x'\n",
    );
    // A listener on [::] does not accept IPv4, so this is not a loop.
    read("[[route]]\nlisten = '[::]:8443'\nto = '127.0.0.1:8443'\nself_signed = 'x'\n");
}

#[test]
fn without_ipv6_a_port_alone_means_ipv4() {
    let machine = Machine {
        ipv6: false,
        ..machine()
    };
    let text = "[[route]]\nlisten = ':8443'\nto = 'echo:'\nself_signed = 'x'\n";
    let loaded = load_with(text, &[], &machine).expect("a valid configuration");
    let listen = &loaded.config.routes[0].listen;
    assert_eq!(listen.len(), 1);
    assert_eq!(listen[0].address.to_string(), "0.0.0.0:8443");
}

#[test]
fn reads_all_units_of_sizes_and_durations() {
    use crate::values::units::{QuantityError, duration, show_number, show_size, size};
    for (text, bytes) in [
        ("0", 0),
        ("1024", 1024),
        ("1_000", 1000),
        ("64k", 64 << 10),
        ("64 KiB", 64 << 10),
        ("64KB", 64 << 10),
        ("16 MiB", 16 << 20),
        ("1G", 1 << 30),
        (" 2 TiB ", 2 << 40),
        ("7 b", 7),
    ] {
        assert_eq!(size(text), Ok(bytes), "{text}");
    }
    for (text, ms) in [
        ("250ms", 250),
        ("10s", 10_000),
        ("5m", 300_000),
        ("5 min", 300_000),
        ("12h", 43_200_000),
        ("7d", 604_800_000),
    ] {
        assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
    }
    for (text, error) in [
        ("", QuantityError::NoNumber),
        ("_", QuantityError::NoNumber),
        ("k", QuantityError::NoNumber),
        ("-1", QuantityError::Negative),
        ("1.5k", QuantityError::Fraction),
        ("1 k k", QuantityError::UnknownUnit),
        ("1kibi", QuantityError::UnknownUnit),
        ("99999999999999999999", QuantityError::TooLarge),
        ("99999999 TiB", QuantityError::TooLarge),
        ("٣", QuantityError::NoNumber),
    ] {
        assert_eq!(size(text), Err(error), "{text}");
    }
    assert_eq!(duration("10"), Err(QuantityError::NoUnit));
    assert_eq!(show_size(0), "0");
    assert_eq!(show_size(1 << 20), "1 MiB");
    assert_eq!(show_size(1025), "1025");
    assert_eq!(show_duration(Duration::from_secs(90)), "90s");
    assert_eq!(show_duration(Duration::from_secs(86_400)), "1d");
    assert_eq!(show_duration(Duration::ZERO), "0ms");
    assert_eq!(show_number(999), "999");
    assert_eq!(show_number(1_234_567), "1,234,567");
}

#[test]
fn the_admin_socket_may_have_the_prefix_of_other_addresses() {
    let route = "[[route]]\nlisten = ':8443'\nto = 'echo:'\nself_signed = 'x'\n";
    let admin = |text: &str| read(&format!("admin = '{text}'\n{route}")).process.admin;
    assert_eq!(
        admin("unix:/run/edge.sock"),
        Admin::Unix("/run/edge.sock".into())
    );
    assert_eq!(
        admin("/run/edge.sock"),
        Admin::Unix("/run/edge.sock".into())
    );
}

/// Former configurations still work: a TCP address in `admin` becomes `metrics`.
#[test]
fn a_former_admin_address_becomes_metrics() {
    let route = "[[route]]\nlisten = ':8443'\nto = 'echo:'\nself_signed = 'x'\n";
    let loaded =
        load_text(&format!("admin = 'localhost:9901'\n{route}")).expect("a valid configuration");
    let process = &loaded.config.process;
    assert_eq!(process.admin, Admin::Auto);
    let address = "127.0.0.1:9901".parse().expect("an address");
    assert_eq!(process.metrics, Some(MetricsAddress(address)));
    assert_eq!(loaded.warnings.list.len(), 1);
    let mapped = read(&format!("metrics = '[::ffff:127.0.0.1]:9901'\n{route}"));
    assert_eq!(mapped.process.metrics, process.metrics);
    let all = read(&format!("metrics = ':9901'\n{route}")).process.metrics;
    assert_eq!(all.map(|one| one.to_string()).as_deref(), Some("[::]:9901"));
    assert_eq!(
        read(&format!("metrics = 'off'\n{route}")).process.metrics,
        None
    );
}

#[test]
fn routes_are_identified_by_name_or_number() {
    let route = |name: &str, port: u16| {
        format!("[[route]]\n{name}\nlisten = ':{port}'\nto = 'echo:'\nself_signed = 'x'\n")
    };
    let originate = "[[originate]]\nlisten = '127.0.0.1:7000'\nto = '10.0.0.1:443'\n";
    let text = route("", 8443) + &route("name = 'shop.eu-1'", 8444) + originate;
    let names = read(&text).route_names();
    assert_eq!(names, ["1", "shop.eu-1", "originate-1"]);
}

/// Each option at another value than its default, so that no option is stored in the field of
/// another.
const EVERY_OPTION: &str = "
        include = '/dev/null'
        workers = 3
        user = 'dormouse'
        group = 'tls'
        admin = '/run/edge.sock'
        ctl_file = '/var/lib/dormouse/kept'
        metrics = '127.0.0.1:9901'
        pkcs11_user = 'signer'
        spiffe_agent = 'unix:/run/agent.sock'
        spiffe_user = 'gateway'
        sandbox = 'required'
        memory = '2 GiB'
        resolve_every = '5s'
        resolve = 'lazy'
        resolve_ttl_min = '2s'
        resolve_ttl_max = '2h'
        reload_certificates = 'off'
        max_connections = 1000
        max_awake = 500
        max_handshakes = 10
        connections_per_client = 7
        handshakes_per_client = 8
        bytes_per_client = '10 MiB'
        burst_per_client = '2 MiB'
        max_bytes_per_second = '1 GiB'
        handshake_bytes_max = '32 KiB'
        pending_memory = '16 MiB'
        pending_per_connection = '64k'
        kernel_memory = '32 MiB'
        handshake_timeout = '1s'
        idle_timeout = '1h'
        total_timeout = '1d'
        timeout_jitter = 20
        partial_record_timeout = '2s'
        stall_timeout = '20s'
        backend_connect_timeout = '3s'
        hang_timeout = '20s'
        handshake_grace = '3s'
        drain_timeout = '4s'
        shutdown_grace = '9s'
        shutdown_drain = '2m'
        socket_buffer = '128 KiB'
        receive_buffer = '64 KiB'
        backlog = 100
        keepalive_idle = 'off'
        keepalive_interval = '5s'
        keepalive_count = 6
        user_timeout = 'off'
        tickets = 0
        ticket_lifetime = '1h'
        ticket_rotation = '2h'
        session_cache = '1 MiB'
        ticket_keys = 'rediss://store:7000'
        ticket_secret_file = 'fleet.secret'
        ticket_store_ca = 'store-ca.pem'
        ticket_store_certificates = { cert = 'store.pem', key = 'store.key' }
        ocsp_fetch = false
        recheck = 'established'
        acme_server = 'https://ca.example/dir'
        acme_terms_agreed = true
        acme_email = 'a@b.example'
        acme_folder = 'acme'
        acme_ca = 'acme-ca.pem'
        acme_certificates = { cert = 'store.pem', key = 'store.key' }
        acme_eab_id = 'me'
        acme_eab_key_file = 'eab.key'
        acme_challenge = 'http-01'
        acme_dns_server = '192.0.2.53:5353'
        acme_dns_key_file = 'dns.key'
        acme_dns_wait = '1s'
        acme_dns_hook = '/bin/hook'
        acme_dns_hook_user = 'nobody'
        acme_profile = 'shortlived'
        redirect = ':80'
        redirect_status = 301
        redirect_port = 8443
        log_level = 'debug'
        log_format = 'json'
        log_to = 'syslog://127.0.0.1:514'
        syslog_facility = 'local3'
        log_handshakes = true
        connection_log = 'connections.log'
        connection_log_format = 'json'
        connection_log_begin = true
        connection_log_one_in = 10
        [[route]]
        listen = ['127.0.0.1:1', '[::1]:2']
        to = 'unix:b.sock'
        truncation = 'close'
        alpn = ['h2', 'http/1.1']
        acme = 'a.example'
        min_version = '1.3'
        max_version = '1.3'
        [[route.certificates]]
        cert = 'a.pem'
        key = '/k/a.key'
        ocsp = 'a.ocsp'
        passphrase = 'a.pass'
    ";

#[test]
fn every_option_can_be_set() {
    let config = load_with(EVERY_OPTION, &[], &machine())
        .unwrap_or_else(|m| panic!("{m}"))
        .config;
    let (given, blank) = (
        serde_json::to_value(&config),
        serde_json::to_value(Config::blank()),
    );
    let (given, blank) = (given.expect("plain data"), blank.expect("plain data"));
    for group in [
        "process", "limits", "timeouts", "sockets", "tickets", "acme", "redirect", "log",
    ] {
        for (name, value) in given[group].as_object().expect("a group") {
            // With any item of it, a configuration is refused.
            if name == "todo" {
                continue;
            }
            assert_ne!(*value, blank[group][name], "{name} was not set");
            let lines = EVERY_OPTION
                .lines()
                .filter(|line| line.trim().starts_with(&format!("{name} =")));
            assert_eq!(lines.count(), 1, "{name} is not in this test");
        }
    }
    let route = &config.routes[0];
    assert_eq!(route.listen.len(), 2);
    assert_eq!(route.to[0].backend, Backend::Unix("etc/b.sock".into()));
    assert_eq!(
        route.certificates,
        [CertificateFiles {
            cert: PathBuf::from("etc/a.pem"),
            key: PathBuf::from("/k/a.key"),
            ocsp: Some(PathBuf::from("etc/a.ocsp")),
            passphrase: Some(PathBuf::from("etc/a.pass")),
        }]
    );
    assert_eq!(
        (route.truncation, route.min_version),
        (Truncation::Close, TlsVersion::Tls13)
    );
    assert_eq!(route.alpn, ["h2", "http/1.1"]);
}

#[test]
fn a_configuration_survives_serialisation() {
    let config = read(
        "[[route]]\nlisten = ['127.0.0.1:8443', '[::1]:8443']\nto = 'unix:x'\nself_signed = 'x'\nalpn = 'h2'\n",
    );
    let text = serde_json::to_string(&config).expect("plain data");
    let mut back: Config = serde_json::from_str(&text).expect("the same data");
    assert!(back.routes.is_empty(), "they pass one by one");
    let text = serde_json::to_string(&config.routes[0]).expect("plain data");
    back.routes = vec![serde_json::from_str(&text).expect("the same data")];
    assert_eq!(back, config);
}

#[test]
fn examples_in_the_guide_are_valid() {
    let guide = include_str!("../../../../../docs/guide/configuration.md");
    let mut examples = 0;
    for block in guide.split("```toml\n").skip(1) {
        let example = block.split("```").next().expect("a block ends");
        if let Err(mistakes) = load_with(example, &[], &machine()) {
            panic!("{mistakes}\nin\n{example}");
        }
        examples += 1;
    }
    assert!(examples >= 3, "there are {examples}");
}

#[test]
fn the_reference_is_current_and_complete() {
    let page = reference();
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../docs/guide/reference.md"
    );
    if std::env::var_os("DORMOUSE_BLESS").is_some() {
        std::fs::write(path, &page).expect("the page written");
    }
    assert!(
        page == std::fs::read_to_string(path).expect("the page read"),
        "run: DORMOUSE_BLESS=1 cargo test -p dormouse-config"
    );
    let groups = Config::PROCESS_OPTIONS
        .iter()
        .copied()
        .chain(Section::ALL.map(Section::options));
    for spec in groups.flat_map(|group| group.options) {
        assert!(
            page.contains(&format!("\n### `{}`\n", spec.name)),
            "{}",
            spec.name
        );
        assert!(
            spec.doc.trim().len() > 20,
            "{} needs a better explanation",
            spec.name
        );
    }
}

/// The table in the guide of the options that a reload leaves as they are.
fn options_that_wait() -> String {
    let mut table =
        "\n| | wait for a restart | wait if `memory` has changed, too |\n|---|---|---|\n"
            .to_owned();
    for group in Config::PROCESS_OPTIONS {
        let that_apply = |when| {
            let options = group.options.iter().filter(|spec| spec.applies == when);
            let names: Vec<String> = options.map(|spec| format!("`{}`", spec.name)).collect();
            names.join(", ")
        };
        let (always, with_memory) = (
            that_apply(Applies::Start),
            that_apply(Applies::ReloadIfSameMemory),
        );
        if !always.is_empty() || !with_memory.is_empty() {
            table += &format!("| {} | {always} | {with_memory} |\n", group.title);
        }
    }
    table + "\n"
}

#[test]
fn the_table_of_options_that_wait_for_a_restart_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/guide/reload.md");
    let page = std::fs::read_to_string(path).expect("the page read");
    let begin = "<!-- begin: options that wait for a restart -->\n";
    let end = "<!-- end: options that wait for a restart -->\n";
    let (before, rest) = page.split_once(begin).expect("the beginning of the table");
    let (table, after) = rest.split_once(end).expect("the end of the table");
    let current = options_that_wait();
    if std::env::var_os("DORMOUSE_BLESS").is_some() {
        let page = [before, begin, &current, end, after].concat();
        std::fs::write(path, page).expect("the page written");
    }
    assert!(
        table == current,
        "run: DORMOUSE_BLESS=1 cargo test -p dormouse-config"
    );
}

#[test]
fn examples_in_the_reference_are_valid() {
    let page = reference();
    let (of_both, of_program) = page.split_once("\n## Process\n").expect("both parts");
    let (of_routes, of_originations) = of_both.split_once("\n## Originate\n").expect("both parts");
    let examples = |part: &str| -> Vec<String> {
        let lines = part
            .lines()
            .filter_map(|line| line.strip_prefix("| example | `"));
        // Those of a trust domain, in place of files.
        let lines = lines.filter(|line| !line.contains("_ids = "));
        lines
            .filter_map(|line| line.strip_suffix("` |"))
            .map(str::to_owned)
            .collect()
    };
    let check = |text: &str| {
        if let Err(mistakes) = load_with(text, &[], &machine()) {
            panic!("{mistakes}");
        }
    };
    let sites = tempfile::tempdir().expect("a directory to include");
    let sites = sites.path().display().to_string();
    for example in examples(of_program) {
        // Its purpose is to be refused.
        if example.starts_with("todo = ") {
            continue;
        }
        let example = example.replace("conf.d/", &sites);
        check(&format!(
            "{example}\n[[route]]\nlisten = ':1'\nto = 'echo:'\nself_signed = 'x'\n"
        ));
    }
    check(&format!(
        "[[originate]]\n{}\n",
        examples(of_originations).join("\n")
    ));
    // `self_signed` and `certificates` are alternatives, and so are `half_close` and `backend_tls`, `starttls` and
    // `acme`; `acme` needs accepted terms.
    let alternatives = ["self_signed", "half_close", "starttls"];
    let (one, other): (Vec<String>, Vec<String>) = (examples(of_routes).into_iter())
        .partition(|line| !alternatives.iter().any(|name| line.starts_with(name)));
    check(&format!(
        "acme_terms_agreed = true\n[[route]]\n{}\n",
        one.join("\n")
    ));
    check(&format!(
        "[[route]]\nlisten = ':1'\nto = 'echo:'\n{}\n",
        other.join("\n")
    ));
}

#[test]
fn routes_on_an_address_may_list_their_proxies_in_any_order() {
    let route = |name: &str, proxies: &str| {
        format!(
            "[[route]]\nlisten = ':8443'\nto = 'echo:'\nself_signed = 'x'\nserver_names = '{name}'\n\
             accept_proxy_from = [{proxies}]\n"
        )
    };
    let (one, other) = ("'10.0.0.0/8', '192.0.2.7'", "'192.0.2.7', '10.0.0.0/8'");
    read(&(route("a.example", one) + &route("b.example", other)));
    let different = route("a.example", one) + &route("b.example", "'10.0.0.0/8'");
    assert!(errors_of(&different).contains("different `accept_proxy_from`"));
}

/// The word that the reference gives as the default may be written.
#[test]
fn self_signed_none_may_stand_beside_certificates() {
    let route = read(
        "[[route]]\nlisten = ':8443'\nto = 'echo:'\ncertificates = 'site.pem'\nself_signed = 'none'\n",
    );
    assert_eq!(route.routes[0].self_signed, None);
}

/// `::ffff:127.0.0.1` is 127.0.0.1, for backends as for listeners.
#[test]
fn an_ipv4_address_in_ipv6_notation_is_that_address() {
    let message = errors_of(
        "[[route]]\nlisten = '127.0.0.1:8443'\nto = '[::ffff:127.0.0.1]:8443'\nself_signed = 'x'\n",
    );
    assert!(message.contains("this program's own listener"), "{message}");
}

#[test]
fn reads_several_backends_with_their_shares() {
    let config = read(
        "[[route]]\nlisten = ':8443'\nself_signed = 'x'\nbalance = 'client-hash'\nto = [\n'unix:/a.sock',\n\
         { address = '127.0.0.1:80', weight = 3, backup = true, max_connections = 9 }]\n",
    );
    let to = &config.routes[0].to;
    assert_eq!(to[0], Upstream::plain(Backend::Unix("/a.sock".into())));
    let shares = (to[1].weight, to[1].backup, to[1].max_connections);
    assert_eq!(shares, (3, true, Some(9)));
    assert_eq!(config.routes[0].balance, Balance::ClientHash);
}

#[test]
fn mistakes_in_backends_are_reported() {
    let errors_of = |to: &str| {
        errors_of(&format!(
            "[[route]]\nlisten = ':8443'\nself_signed = 'x'\nto = {to}\n"
        ))
    };
    for (to, what) in [
        ("['echo:', '127.0.0.1:80']", "`echo:` answers by itself"),
        (
            "['127.0.0.1:80', '127.0.0.1:80']",
            "127.0.0.1:80 is listed twice",
        ),
        (
            "['www.example.com:80', 'www.example.com.:80']",
            "192.0.2.7:80 is listed twice",
        ),
        (
            "[{ address = '127.0.0.1:80', backup = true }]",
            "every backend of this route is a backup",
        ),
        ("[{ weight = 3 }]", "a backend needs `address`"),
        (
            "[{ address = '127.0.0.1:80', weight = 0 }]",
            "`0` is not a valid weight",
        ),
        (
            "[{ address = '127.0.0.1:80', wight = 2 }]",
            "did you mean `weight`?",
        ),
        (
            "['127.0.0.1:80', { address = '127.0.0.1:8443' }]",
            "this program's own listener",
        ),
        ("[]", "this list is empty"),
    ] {
        assert!(errors_of(to).contains(what), "{}", errors_of(to));
    }
}

#[test]
fn no_list_has_an_item_twice() {
    for (option, first, same) in [
        ("allow", "10.0.0.1", "10.0.0.1/32"),
        ("deny", "10.0.0.0/8", "::ffff:10.0.0.0/104"),
        ("accept_proxy_from", "::1", "::1"),
        ("suites", "TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
        ("groups", "x25519", "x25519"),
        ("client_allow", "cn=a", "CN=a"),
        ("client_crl", "a.pem", "a.pem"),
        ("server_names", "a.example", "A.example"),
        ("backend_alpn", "h2", "h2"),
    ] {
        let message = errors_of(&format!(
            "[[route]]\nlisten = ':8443'\nto = '10.0.0.1:80'\nself_signed = 'x'\nmin_version = '1.3'\n\
             backend_tls = true\nclient_certificates = 'required'\nclient_ca = 'a.pem'\n\
             {option} = ['{first}', '{same}']\n"
        ));
        assert!(message.contains("is listed twice"), "{message}");
        assert!(message.contains("remove one of the two"), "{message}");
        assert_eq!(message.matches("error: ").count(), 1, "{message}");
    }
    let keys = "ticket_keys = ['file:a', 'file:a']\n[[route]]\nlisten = ':1'\nto = '10.0.0.1:80'\nself_signed = 'x'\n";
    assert!(errors_of(keys).contains("a` is listed twice"));
    let servers = "[[originate]]\nlisten = ':8080'\nto = ['10.0.0.1:443', '10.0.0.1:443']\n";
    assert!(errors_of(servers).contains("`10.0.0.1:443` is listed twice"));
    let servers =
        "[[originate]]\nlisten = ':8080'\nto = ['www.example.com:443', 'www.example.com.:443']\n";
    assert!(errors_of(servers).contains("`www.example.com:443` is listed twice"));
}

/// Without room, new clients would be closed.
#[test]
fn headers_of_silent_clients_need_pending_memory() {
    let warnings = |lines: &str, connections: u32| {
        let text = format!(
            "workers = 1\nmax_connections = {connections}\npending_memory = '1 MiB'\npending_per_connection = '64 KiB'
             [[route]]\nlisten = ':8443'\nself_signed = 'x'\nto = '127.0.0.1:1'\n{lines}"
        );
        let loaded = load_text(&text).expect("a valid configuration");
        loaded.warnings.to_string()
    };
    const LATE: &str = "backend_connect = 'first-data'\nproxy_protocol = 'v2'";
    let said = warnings(LATE, 4000);
    assert!(
        said.contains("has room for 2048 of 4000 connections"),
        "{said}"
    );
    assert!(said.contains("pending_memory at least 2 MiB"), "{said}");
    assert_eq!(warnings(LATE, 2000), "");
    assert_eq!(warnings("proxy_protocol = 'v2'", 4000), "");
}

#[test]
fn ten_thousand_sites_share_an_address_and_a_backend() {
    let mut text = String::new();
    for number in 0..10_000 {
        let _ = writeln!(
            text,
            "[[route]]\nlisten = '127.0.0.1:8443'\nserver_names = ['site{number}.example']\n\
             to = '127.0.0.1:8080'\nself_signed = 'site{number}.example'"
        );
    }
    assert_eq!(read(&text).routes.len(), 10_000);
    let others = (0..2001).map(|number| format!("'10.0.{}.{}:80'", number / 250, number % 250));
    let others: Vec<String> = others.collect();
    let route = |(n, to): (usize, &[String])| {
        let to = to.join(", ");
        format!("[[route]]\nlisten = ':844{n}'\nto = [{to}]\nself_signed = 'a.example'\n")
    };
    let text: String = others.chunks(1000).enumerate().map(route).collect();
    let message = load_text(&text).expect_err("too many").to_string();
    assert!(
        message.contains("there are 2001 different backends, but at most 2000"),
        "{message}"
    );
}

/// Each address of a name has its own place in the table of backends.
#[test]
fn a_name_counts_by_its_addresses() {
    let names: Vec<String> = (1..=999).map(|port| format!("'pair:{port}'")).collect();
    let text = format!(
        "[[route]]\nlisten = '127.0.0.1:8443'\nto = [{}, 'pair:1000']\nself_signed = 'a.example'\n\
         [[route]]\nlisten = '127.0.0.1:8444'\nto = 'pair:1001'\nself_signed = 'a.example'\n",
        names.join(", ")
    );
    let pair = |_: &str, port| {
        Ok([1, 2]
            .map(|n| SocketAddr::from(([10, 0, 0, n], port)))
            .to_vec())
    };
    let machine = machine();
    let loader = Loader {
        resolve: &pair,
        ..loader(&text, &machine)
    };
    let refused = loader.load().map(drop).expect_err("too many").to_string();
    assert!(refused.contains("there are 2002 different"), "{refused}");
}

/// Commands find the running program although its file cannot be used now.
#[test]
fn the_admin_socket_is_found_in_a_file_with_mistakes() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dormouse.toml");
    let admin = |text: &str| {
        std::fs::write(&file, text).expect("written");
        admin_of(&file).map_err(|mistakes| mistakes.to_string())
    };
    let route = "[[route]]\nto = 'nowhere.invalid:1'\ncertificates = '${DORMOUSE_UNSET}'\n";
    let socket = Admin::Unix("/run/edge.sock".into());
    let text = format!("admin = '/run/edge.sock'\nworkers = 0\n{route}");
    assert_eq!(admin(&text), Ok(socket));
    assert_eq!(admin(route), Ok(Admin::Auto));
    assert_eq!(admin("admin = '127.0.0.1:9901'"), Ok(Admin::Auto));
    assert_eq!(admin("admin = 'none'"), Ok(Admin::None));
    let refused = admin("admin = '${DORMOUSE_UNSET}'").expect_err("no path");
    assert!(refused.contains("is not set"), "{refused}");
    let refused = admin("admin = 7").expect_err("no path");
    assert!(refused.contains("admin"), "{refused}");
    let refused = admin("workers = 1\nadmin = '/run").expect_err("unreadable");
    assert!(!refused.is_empty());
}
