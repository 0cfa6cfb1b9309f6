//! Flags give the same configuration as a file, and their mistakes name the flag.

use super::*;

fn errors_of(flags: &[(&str, &str)]) -> String {
    match load_flags(flags) {
        Ok(loaded) => panic!("this was accepted: {:?}", loaded.config),
        Err(mistakes) => mistakes.to_string(),
    }
}

const ROUTE: [(&str, &str); 3] = [("listen", ":8443"), ("to", "echo:"), ("self-signed", "x")];

fn with<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    ROUTE.iter().chain(more).copied().collect()
}

#[test]
fn flags_and_file_give_the_same_configuration() {
    let flags = load_flags(&[
        ("listen", "127.0.0.1:8443"),
        ("listen", "[::1]:8443"),
        ("to", "unix:/run/app.sock"),
        ("cert", "/a.pem"),
        ("key", "/a.key"),
        ("cert", "/b.pem"),
        ("key", "/b.key"),
        ("workers", "2"),
        ("pending-memory", "16 MiB"),
        ("idle-timeout", "1h"),
        ("min-version", "1.3"),
    ]);
    let file = load_text(
        "workers = 2\npending_memory = '16 MiB'\nidle_timeout = '1h'\n[[route]]\n\
         listen = ['127.0.0.1:8443', '[::1]:8443']\nto = 'unix:/run/app.sock'\nmin_version = '1.3'\n\
         certificates = [{ cert = '/a.pem', key = '/a.key' }, { cert = '/b.pem', key = '/b.key' }]\n",
    );
    assert_eq!(flags.expect("flags").config, file.expect("file").config);
}

/// As the reference writes them, and as sizes may be written.
#[test]
fn numbers_may_have_underscores() {
    let loaded = load_flags(&with(&[("max-connections", "10_000"), ("tickets", "0_4")]));
    let config = loaded.expect("valid numbers").config;
    assert_eq!(config.limits.max_connections, Count::Exactly(10_000));
    assert_eq!(config.tickets.tickets, 4);
    assert!(errors_of(&with(&[("tickets", "_")])).contains("`_` is not a whole number"));
}

#[test]
fn a_certificate_file_may_have_its_key_in_it() {
    let route = [("listen", ":8443"), ("to", "echo:")];
    let flags = [&route[..], &[("cert", "/a.pem"), ("cert", "/b.pem")]].concat();
    let file = load_text(
        "[[route]]\nlisten = ':8443'\nto = 'echo:'\ncertificates = ['/a.pem', '/b.pem']\n",
    );
    assert_eq!(
        load_flags(&flags).expect("flags").config,
        file.expect("file").config
    );
}

#[test]
fn mistakes_name_their_flag() {
    assert_eq!(
        errors_of(&with(&[("workers", "0"), ("max-connections", "many")])),
        "error: --workers: `0` is too small for `workers`: at least 1\n   \
         = help: the range is 1 to 1024\n\n\
         error: --max-connections: `many` is neither a whole number nor `auto`\n   \
         = help: the range is 1 to 16000000"
    );
    assert_eq!(
        errors_of(&with(&[("keepalive-count", "x")])),
        "error: --keepalive-count: `x` is not a whole number\n   = help: write it like this: 4"
    );
    assert_eq!(
        errors_of(&with(&[("self-signed", "y")])),
        "error: --self-signed: this is given twice\n   = help: give it once"
    );
    assert_eq!(
        errors_of(&[("listen", "x"), ("to", "echo:"), ("self-signed", "x")]),
        "error: --listen: `x` has no port\n   = help: write it like this: \"x:8443\""
    );
    assert_eq!(
        errors_of(&with(&[("banana", "x")])),
        "error: --banana: there is no such flag"
    );
}

#[test]
fn missing_flags_are_reported() {
    assert_eq!(
        errors_of(&[]),
        "error: there is no route, so nothing would be served\n   \
         = help: give --listen, --to and a certificate, or a file with -c"
    );
    assert_eq!(
        errors_of(&[("listen", ":8443")]),
        "error: --to is missing\n   = help: add --to 127.0.0.1:8080\n\n\
         error: this route has no certificate\n   \
         = help: add --cert FILE --key FILE, or --self-signed NAME for a test"
    );
    assert_eq!(
        errors_of(&[
            ("listen", ":8443"),
            ("to", "echo:"),
            ("cert", "a"),
            ("cert", "b"),
            ("key", "a")
        ]),
        "error: --cert: 2 --cert and one --key are given\n   = help: each --cert needs a --key beside it; \
         without any --key, each file has its key in it"
    );
    assert_eq!(
        errors_of(&[("listen", ":8443"), ("to", "echo:"), ("key", "a")]),
        "error: --key: no --cert and one --key are given\n   = help: each --key needs a --cert beside it"
    );
    assert_eq!(
        errors_of(&with(&[("cert", "a"), ("key", "b")])),
        "error: --self-signed: a route has either `certificates` or `self_signed`, not both: remove one of the two"
    );
}

#[test]
fn a_flag_wins_over_the_file_but_routes_do_not_mix() {
    let text = "workers = 'rubbish, but replaced'\n[[route]]\nlisten = ':8443'\nto = 'echo:'\nself_signed = 'x'\n";
    let flags = [Flag::new("workers", "1"), Flag::new("log-level", "debug")];
    let loaded = load_with(text, &flags, &machine()).expect("the flag replaces the invalid option");
    assert_eq!(loaded.config.process.workers, Count::Exactly(1));
    assert_eq!(loaded.config.log.log_level, LogLevel::Debug);

    let flags = [Flag::new("listen", ":9443")];
    let text = "[[route]]\nlisten = ':8443'\nto = 'echo:'\nself_signed = 'x'\n";
    let message = load_with(text, &flags, &machine()).expect_err("routes in both places");
    assert_eq!(
        message.to_string(),
        "error: --listen: with a configuration file, routes come from the file only\n   = help: remove this flag, or the file"
    );
}
