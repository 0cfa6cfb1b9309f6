//! Originations: valid and invalid ones.

use super::*;

fn originate(lines: &str) -> String {
    format!("[[originate]]\nlisten = '127.0.0.1:8080'\nto = 'www.example.com:443'\n{lines}")
}

#[test]
fn reads_an_origination() {
    let loaded = load_text(
        "[[originate]]
         listen = ['127.0.0.1:8080', 'unix:/run/app.sock', ':8081']
         to = ['www.example.com:443', '[::1]:4433']
         ca = 'authority.pem'
         starttls = 'imap'
         resume_uses = 7
         warm = 3",
    )
    .expect("a valid configuration");
    let [originate] = &loaded.config.originate[..] else {
        panic!("{:?}", loaded.config.originate);
    };
    let listen: Vec<String> = originate.listen.iter().map(ToString::to_string).collect();
    let want = [
        "127.0.0.1:8080",
        "unix:/run/app.sock",
        "0.0.0.0:8081",
        "[::]:8081",
    ];
    assert_eq!(listen, want);
    assert_eq!(originate.to[0].host, "www.example.com");
    assert_eq!(originate.to[1].addresses[0].to_string(), "[::1]:4433");
    assert_eq!(originate.ca, Ca::File("etc/authority.pem".into()));
    assert_eq!((originate.resume_uses, originate.warm), (7, 3));
    assert_eq!(originate.starttls, Starttls::Imap);
    assert!(loaded.warnings.list.is_empty());
}

#[test]
fn a_route_and_an_origination_may_coexist() {
    let text = format!(
        "[[route]]\nlisten = ':1443'\nto = 'echo:'\nself_signed = 'x'\n{}",
        originate("")
    );
    let loaded = load_text(&text).expect("a valid configuration");
    assert_eq!(
        (loaded.config.routes.len(), loaded.config.originate.len()),
        (1, 1)
    );
}

#[test]
fn accepting_any_certificate_is_a_loud_warning() {
    let loaded = load_text(&originate("insecure = true")).expect("a valid configuration");
    assert!(
        loaded.warnings.to_string().contains("ANY certificate"),
        "{}",
        loaded.warnings
    );
}

#[test]
fn limits_of_routes_have_no_effect_on_originations() {
    let limits = [
        "connections_per_client = 5",
        "handshakes_per_client = 10",
        "bytes_per_client = '1MiB'",
        "max_bytes_per_second = '1MiB'",
    ];
    let text = format!("{}\n{}", limits.join("\n"), originate(""));
    let warnings = load_text(&text).expect("a valid configuration").warnings;
    let shown = warnings.to_string();
    assert_eq!(shown.matches("there is no [[route]]").count(), 4, "{shown}");
}

#[test]
fn flags_of_connect_make_an_origination() {
    let flags = [
        Flag::new("listen", "unix:/run/a.sock"),
        Flag::new("to", "www.example.com:443"),
        Flag::new("to", "192.0.2.8:443"),
        Flag::new("insecure", "true"),
        Flag::new("idle-timeout", "5s"),
    ];
    let loaded = Loader {
        file: None,
        section: Section::Originate,
        flags: &flags,
        ..loader("", &machine())
    }
    .load()
    .expect("a valid configuration");
    let originate = &loaded.config.originate[0];
    assert_eq!((originate.to.len(), originate.insecure), (2, true));
    assert!(loaded.config.routes.is_empty());
}

/// A warm connection occupies a slot, and a client can only be accepted into a free one.
#[test]
fn warm_connections_leave_room_for_clients() {
    let with = |warm: u32| {
        let text = format!(
            "max_connections = 4\n{}",
            originate(&format!("warm = {warm}"))
        );
        load_text(&text)
    };
    assert!(with(2).is_ok());
    let message = with(4).expect_err("no room").to_string();
    assert!(
        message.contains("4 warm connections leave no room for clients")
            && message.contains("--> etc/dormouse.toml:5:8"),
        "{message}"
    );
}

#[test]
fn mistakes_in_an_origination_are_reported() {
    for (lines, words) in [
        ("server_name = '*.example.com'", "neither a host name nor"),
        ("insecure = true\nca = 'a.pem'", "whatever `ca` says"),
        (
            "min_version = 1.3\nmax_version = 1.2",
            "is above max_version",
        ),
        ("resume_use = 3", "did you mean `resume_uses`?"),
        ("self_signed = 'x'", "of an origination"),
    ] {
        let message = errors_of(&originate(lines));
        assert!(message.contains(words), "{message}");
    }
    let message = errors_of("[[originate]]\nlisten = '127.0.0.1:1080'\nto = 'unknown.example:1'");
    assert!(
        message.contains("`unknown.example` cannot be looked up"),
        "{message}"
    );
    let twice = format!("{}{}", originate(""), originate(""));
    assert!(errors_of(&twice).contains("two listeners have the address 127.0.0.1"));
    let message = errors_of("[[originate]]\nlisten = '127.0.0.1:1080'");
    assert!(
        message.contains("this origination has no `to`"),
        "{message}"
    );
}

/// The resolver gets the dot, so that it tries no search domain. TLS has names without it (RFC 6066 §3).
#[test]
fn a_dot_ends_the_name_of_a_host() {
    let to = "to = 'www.example.com.:443'";
    let text = format!(
        "[[route]]\nlisten = ':8443'\n{to}\nself_signed = 'x'\n[[originate]]\nlisten = ':80'\n{to}\n"
    );
    let config = load_text(&text).expect("a valid configuration").config;
    let backend = &config.routes[0].to[0].backend;
    assert_eq!(backend.host(), Some("www.example.com"));
    assert_eq!(backend.name(), Some("www.example.com.:443"));
    let server = &config.originate[0].to[0];
    assert_eq!(
        (server.host.as_str(), server.given.as_str()),
        ("www.example.com", "www.example.com.:443")
    );
}
