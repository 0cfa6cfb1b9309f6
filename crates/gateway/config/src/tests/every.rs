//! Every option, from its own definition: invalid values are refused with a helpful message. No
//! option is named here, so that a new one is tested too.

use super::*;

/// An option and its section; `None`: an option of the program.
type Place = (Option<Section>, &'static OptionSpec);

fn all() -> Vec<Place> {
    let of_process = Config::PROCESS_OPTIONS
        .iter()
        .flat_map(|group| group.options);
    let of_sections = Section::ALL.into_iter().flat_map(|section| {
        section
            .options()
            .options
            .iter()
            .map(move |spec| (Some(section), spec))
    });
    of_process
        .map(|spec| (None, spec))
        .chain(of_sections)
        .collect()
}

/// Returns a file in which the option has this value and nothing else is wrong, and the number of
/// the option's line.
fn file((section, spec): Place, value: &str) -> (String, usize) {
    let mut text = String::new();
    if section.is_none() {
        text.push_str(&format!("{} = {value}\n", spec.name));
    }
    let mut line = 1;
    for each in Section::ALL {
        if section.is_some_and(|section| section != each) {
            continue;
        }
        text.push_str(&format!("[[{}]]\n", each.name()));
        for (name, given) in [
            (
                "listen",
                if each == Section::Route {
                    "':8443'"
                } else {
                    "':8080'"
                },
            ),
            ("to", "'192.0.2.7:80'"),
            ("self_signed", "'localhost'"),
        ] {
            let has = each.options().options.iter().any(|one| one.name == name);
            let is_asked = section.is_some() && spec.name == name;
            if has && !is_asked {
                text.push_str(&format!("{name} = {given}\n"));
            }
        }
        if section.is_some() {
            line = text.lines().count() + 1;
            text.push_str(&format!("{} = {value}\n", spec.name));
        }
    }
    (text, line)
}

/// Returns the mistakes that a value causes in the option's line.
fn mistakes_of(place: Place, value: &str) -> Vec<Mistake> {
    let (text, line) = file(place, value);
    let answer = match load_text(&text) {
        Ok(loaded) => loaded.warnings,
        Err(mistakes) => mistakes,
    };
    assert_eq!(answer.file.as_deref(), Some(Path::new("etc/dormouse.toml")));
    let is_there = |mistake: &Mistake| match &mistake.source {
        Source::Line { line: there, .. } => *there == line,
        _ => false,
    };
    let errors = answer
        .list
        .into_iter()
        .filter(|one| one.severity == Severity::Error);
    errors.filter(is_there).collect()
}

/// Returns whether a mistake says what to write instead.
fn helps(mistake: &Mistake) -> bool {
    let says = |text: &str| text.split_whitespace().count() >= 2;
    !mistake.what.is_empty() && (says(&mistake.label) || mistake.help.as_deref().is_some_and(says))
}

/// Values that no option accepts: every other kind of value is valid for some option, a date for
/// none.
const INVALID: [&str; 3] = ["1979-05-27", "[[1979-05-27]]", "{ x = 1979-05-27 }"];

#[test]
fn every_option_refuses_an_invalid_value_with_help() {
    for place in all() {
        let (_, spec) = place;
        for value in INVALID {
            let mistakes = mistakes_of(place, value);
            assert!(!mistakes.is_empty(), "{} = {value} was accepted", spec.name);
            for mistake in mistakes {
                assert!(helps(&mistake), "{} = {value}: {mistake:?}", spec.name);
            }
        }
    }
}

/// Values that some options accept: an option that refuses one says what would be right.
#[test]
fn every_refusal_helps() {
    let values = [
        "''",
        "\"\\u0000\"",
        "'?'",
        "0",
        "-1",
        "1.5",
        "true",
        "[]",
        "{}",
        "99999999999999999999",
    ];
    for place in all() {
        for value in values {
            for mistake in mistakes_of(place, value) {
                assert!(helps(&mistake), "{} = {value}: {mistake:?}", place.1.name);
            }
        }
    }
}

/// A value that can't be read is one mistake: no other check compares what stands in for it.
#[test]
fn an_unreadable_value_causes_no_other_mistake() {
    let lines: Vec<&str> = RICH.lines().collect();
    if let Err(mistakes) = load_text(RICH) {
        panic!("{mistakes}");
    }
    for (at, line) in lines.iter().enumerate() {
        let Some((name, _)) = line.split_once(" = ") else {
            continue;
        };
        let mut broken = lines.clone();
        let date = format!("{name} = 1979-05-27");
        broken[at] = &date;
        let mistakes = load_text(&broken.join("\n")).expect_err(name);
        let is_there = |mistake: &Mistake| {
            let line = match &mistake.source {
                Source::Line { line, .. } => *line,
                _ => 0,
            };
            line == at + 1
        };
        assert!(mistakes.list.iter().all(is_there), "{date}:\n{mistakes}");
    }
}

/// A configuration in which options depend on others.
const RICH: &str = "\
workers = 2
user = 'dormouse'
group = 'tls'
admin = '/run/edge.sock'
metrics = '127.0.0.1:9901'
memory = '8 GiB'
resolve_ttl_min = '2s'
resolve_ttl_max = '2h'
max_connections = 1000
bytes_per_client = '10 MiB'
burst_per_client = '2 MiB'
max_bytes_per_second = '1 GiB'
pending_memory = '128 MiB'
pending_per_connection = '64 MiB'
keepalive_idle = '1h'
keepalive_interval = '5s'
keepalive_count = 6
user_timeout = '2h'
tickets = 1
ticket_lifetime = '1d'
ticket_rotation = '2d'
ticket_keys = 'rediss://store:7000'
ticket_secret_file = 'fleet.secret'
ticket_store_ca = 'store-ca.pem'
ticket_store_certificates = { cert = 'a.pem', key = 'a.key' }
acme_server = 'https://ca.example/dir'
acme_terms_agreed = true
acme_email = 'a@b.example'
acme_eab_id = 'me'
acme_eab_key_file = 'eab.key'
acme_certificates = { cert = 'a.pem', key = 'a.key' }
acme_challenge = 'http-01'
acme_profile = 'shortlived'
redirect = '127.0.0.1:2001'
redirect_status = 301
log_level = 'debug'
log_to = 'syslog'
syslog_facility = 'local3'
log_handshakes = true
connection_log = 'connections.log'
connection_log_one_in = 10
connection_log_begin = true
[[route]]
name = 'first'
listen = ['127.0.0.1:2002', '[::1]:2002']
server_names = 'a.example'
to = ['unix:b.sock', 'unix:c.sock']
balance = 'client-hash'
backend_connect = 'first-data'
backend_tls = true
backend_name = 'b.example'
backend_ca = 'ca.pem'
backend_crl = 'revoked.pem'
backend_ocsp = 'required'
backend_certificates = { cert = 'a.pem', key = 'a.key' }
check = 'tls'
check_every = '5s'
proxy_protocol = 'v2-certificate'
certificates = { cert = 'a.pem', key = 'a.key' }
acme = 'a.example'
client_certificates = 'required'
client_ca = 'clients.pem'
client_crl = 'revoked.pem'
client_allow = 'cn=a'
min_version = '1.3'
max_version = '1.3'
suites = 'TLS_AES_128_GCM_SHA256'
groups = 'X25519MLKEM768'
[[route]]
name = 'second'
listen = ['127.0.0.1:2002', '[::1]:2002']
server_names = 'b.example'
to = '10.0.0.7:443'
pass_through = true
check = 'GET /'
check_status = 204
source_addresses = '10.0.0.5'
[[route]]
listen = '127.0.0.1:2003'
to = '10.0.0.7:80'
accept_proxy_from = '10.0.0.0/8'
self_signed = 'x'
half_close = false
profile = 'modern'
[[originate]]
listen = ['127.0.0.1:2004', 'unix:d.sock']
to = '10.0.0.7:443'
insecure = false
ca = 'ca.pem'
crl = 'revoked.pem'
ocsp = 'required'
certificates = { cert = 'a.pem', key = 'a.key' }
server_name = 'b.example'
resume_uses = 3
resume_age = '1h'
session_file = 'sessions'
min_version = '1.3'
max_version = '1.3'
";

/// Tries the next value below the range, and the next above it.
#[test]
fn every_option_refuses_values_out_of_range_and_shows_the_range() {
    let mut tried = 0;
    for place in all() {
        let (_, spec) = place;
        let Some((least, greatest)) = spec.range else {
            continue;
        };
        for value in below(least).into_iter().chain([above(greatest)]) {
            let mistakes = mistakes_of(place, &value);
            let text = format!("the range is {least} to {greatest}");
            let shows_range = mistakes
                .iter()
                .any(|mistake| mistake.help.as_deref() == Some(text.as_str()));
            assert!(shows_range, "{} = {value}: {mistakes:?}", spec.name);
            tried += 1;
        }
    }
    assert!(tried > 50, "only {tried} values were tried");
}

fn below(least: &str) -> Option<String> {
    match parts(least) {
        (0, _) => None,
        (number, "") => Some((number - 1).to_string()),
        (number, unit) => Some(format!("\"{}{unit}\"", number - 1)),
    }
}

fn above(greatest: &str) -> String {
    match parts(greatest) {
        (number, "") => (number + 1).to_string(),
        (number, unit) => format!("\"{}{unit}\"", number + 1),
    }
}

/// A number and its unit.
fn parts(text: &str) -> (u64, &str) {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    (
        number.parse().expect("a number in the table of options"),
        unit,
    )
}

#[test]
fn every_misspelt_choice_is_corrected() {
    for place in all() {
        let (_, spec) = place;
        for choice in spec.kind.choices {
            let misspelt = format!("\"{choice}x\"");
            let mistakes = mistakes_of(place, &misspelt);
            let is_corrected = |mistake: &Mistake| {
                let text = format!("{} {:?}", mistake.label, mistake.help);
                text.contains("did you mean")
                    || spec.kind.choices.iter().all(|one| text.contains(one))
            };
            assert!(
                mistakes.iter().any(is_corrected),
                "{} = {misspelt}: {mistakes:?}",
                spec.name
            );
        }
    }
}

/// Every option has a description, an example and, if it is a size or a duration, a range.
#[test]
fn every_option_is_documented() {
    for (_, spec) in all() {
        assert!(
            spec.summary().split_whitespace().count() >= 3,
            "{} has no description",
            spec.name
        );
        assert!(
            spec.doc.trim_end().ends_with('.'),
            "{}: no full stop",
            spec.name
        );
        assert!(
            !spec.kind.example.is_empty(),
            "{} has no example",
            spec.name
        );
        let measured = spec.kind.name.contains("size") || spec.kind.name.contains("duration");
        let ranged = spec.range.is_some();
        assert!(!measured || ranged, "{} has no range", spec.name);
    }
}

#[test]
fn no_two_options_have_the_same_name() {
    for section in Section::ALL {
        let mut names = Config::option_names();
        names.extend(section.options().options.iter().map(|spec| spec.name));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
