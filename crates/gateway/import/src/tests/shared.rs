//! Options of the program, which several services or lines of the other program set.

use super::*;

/// Returns the result of nginx servers of `stream`, each with these lines, and with these lines around them. Server N is
/// on line N + 1.
fn servers(around: &str, each: &[&str]) -> String {
    let mut text = format!("stream {{ {around}\n");
    for (n, more) in each.iter().enumerate() {
        text.push_str(&format!(
            "server {{ listen {} ssl; ssl_certificate a.pem; ssl_certificate_key a.key; proxy_pass 10.0.0.1:1; {more} }}\n",
            n + 1
        ));
    }
    text.push_str("}\n");
    let file = Path::new("/etc/there/there.conf");
    let page = whole(Program::Nginx, &text, file).expect("a valid configuration");
    assert!(!page.text.contains("does not know"), "{}", page.text);
    page.text
}

/// Returns the lines of a result that say that a value is lost.
fn lost(page: &str) -> Vec<&str> {
    let all = page.lines().filter(|line| line.contains("share one"));
    all.collect()
}

/// The value that counts at the end is not lost, however often another one came between.
#[test]
fn a_value_that_comes_again_is_not_lost() {
    let page = servers(
        "ssl_session_timeout 5m;",
        &["", "ssl_session_timeout 1h;", ""],
    );
    assert!(
        page.contains("ticket_lifetime = \"5m\"  # line 1\n"),
        "{page}"
    );
    assert_eq!(
        lost(&page),
        [
            "# line 3: ssl_session_timeout 1h -- all routes share one `ticket_lifetime`: \"1h\" is lost"
        ],
        "{page}"
    );
    for (around, line, option) in [
        ("", "ssl_session_ticket_key A;", "ticket_keys"),
        (
            "ssl_session_tickets off;",
            "ssl_session_cache shared:S:Am;",
            "session_cache",
        ),
    ] {
        let [a, b] = ["7", "8"].map(|value| line.replace('A', value));
        let page = servers(around, &[&a, &b, &a, &b, &a]);
        let value = page.lines().find(|line| line.starts_with(option));
        let value = value.unwrap_or_else(|| panic!("{page}"));
        assert!(value.contains('7') && value.ends_with("2, 4, 6"), "{value}");
        let [lost] = lost(&page)[..] else {
            panic!("{page}");
        };
        assert!(lost.starts_with("# line 3: "), "{lost}");
        assert!(
            lost.contains("; line 5: ") && !lost.contains("line 4"),
            "{lost}"
        );
    }
}

/// Only the cache differs.
#[test]
fn tickets_that_are_off_everywhere_are_not_lost() {
    let off = "ssl_session_tickets off; ssl_session_cache shared:S:";
    let page = servers("", &[&format!("{off}10m;"), &format!("{off}20m;")]);
    let lost = lost(&page);
    assert_eq!(lost.len(), 1, "{page}");
    assert!(
        lost[0].contains("shared:S:10m") && !lost[0].contains("ssl_session_tickets"),
        "{page}"
    );
    assert!(
        page.contains("session_cache = \"20M\"  # lines 2-3\n"),
        "{page}"
    );
}

/// Of several lines in one place, the other program itself takes one: nothing is shared there, and nothing lost.
#[test]
fn lines_that_the_other_program_replaces_are_not_shared() {
    let (later, earlier) = ("a later line replaces it", "an earlier line counts");
    // HAProxy names the second of two lines that it ignores.
    for (first, second, option, why) in [
        ("user a", "user b", "user = \"a\"", earlier),
        ("uid 7", "user b", "user = \"7\"", earlier),
        ("group a", "gid 8", "group = \"a\"", earlier),
        (
            "maxconn 200",
            "maxconn 100",
            "max_connections = 200",
            earlier,
        ),
        ("nbthread 2", "nbthread 3", "workers = 3", later),
        (
            "tune.ssl.lifetime 100",
            "tune.ssl.lifetime 200",
            "ticket_lifetime = \"200s\"",
            later,
        ),
        (
            "maxsslconn 100",
            "maxsslconn 200",
            "max_connections = 200",
            later,
        ),
    ] {
        let text = format!(
            "global\n {first}\n {second}\nlisten l\n mode tcp\n bind :8883 ssl crt a.pem\n server a 10.0.0.1:1883\n"
        );
        let page = converted(Program::Haproxy, &text);
        assert!(lost(&page).is_empty(), "{page}");
        assert!(page.contains(option), "{page}");
        let said = match why == later {
            true => format!("line 2: {first} -- {why}"),
            false => format!("line 3: {second} -- {why}"),
        };
        assert!(page.contains(&said), "{said}: {page}");
    }
    let text = "listen l\n mode tcp\n bind :8883 ssl crt a.pem backlog 10 tcp-ut 5s backlog 20 tcp-ut 3s\n server a 10.0.0.1:1883\n";
    let page = converted(Program::Haproxy, text);
    assert!(
        page.contains("backlog = 20")
            && page.contains("user_timeout = \"3s\"")
            && lost(&page).is_empty(),
        "{page}"
    );
    assert!(
        page.contains(&format!("backlog 10 tcp-ut 5s -- {later}")),
        "{page}"
    );
    let text = "setuid = a\nsetuid = b\n[s]\naccept = 1\nconnect = 2\ncert = a.pem\n\
                socket = l:TCP_KEEPIDLE=5\nsocket = l:TCP_KEEPIDLE=9\n";
    let page = converted(Program::Stunnel, text);
    assert!(
        page.contains("user = \"b\"") && page.contains("keepalive_idle = \"9s\""),
        "{page}"
    );
    assert!(lost(&page).is_empty(), "{page}");
    assert_eq!(page.matches(later).count(), 1, "{page}");
    assert!(
        page.contains("line 1: setuid = a; line 7: socket = l:TCP_KEEPIDLE=5 -- "),
        "{page}"
    );
}

/// HAProxy redirects with 302 where no `code` is set, which is no status of Dormouse.
#[test]
fn a_temporary_redirect_decides_no_status() {
    let site = |port: u16, code: &str| {
        format!(
            "frontend p{port}\n mode http\n bind :{port}\n http-request redirect scheme https{code}\n"
        )
    };
    let with = |codes: [&str; 3]| {
        let redirects: String = (81..).zip(codes).map(|(n, code)| site(n, code)).collect();
        let text = format!(
            "{redirects}listen l\n mode tcp\n bind :8883 ssl crt a.pem\n server a 10.0.0.1:1883\n"
        );
        converted(Program::Haproxy, &text)
    };
    let page = with(["", " code 301", " code 301"]);
    assert!(page.contains("redirect_status = 301"), "{page}");
    assert!(!page.contains("all redirects have one status"), "{page}");
    let page = with(["", " code 308", " code 301"]);
    assert!(!page.contains("redirect_status = "), "{page}");
    assert!(page.contains("all redirects have one status"), "{page}");
}

/// What is said of the limit that counts is not said of the one that is lost.
#[test]
fn a_limit_that_is_lost_is_not_converted() {
    let zone = "limit_conn_zone $binary_remote_addr zone=a:1m;";
    for (first, second) in [
        ("limit_conn a 5;", "limit_conn a 50;"),
        ("limit_conn a 50;", "limit_conn a 5;"),
    ] {
        let page = servers(zone, &[first, second, second]);
        let said: Vec<&str> = (page.lines())
            .filter(|line| line.contains("converted, but it counts"))
            .collect();
        assert_eq!(said.len(), 1, "{page}");
        assert!(
            said[0].contains("limit_conn a 50") && !said[0].contains("limit_conn a 5 "),
            "{page}"
        );
        assert!(!said[0].contains("limit_conn a 5;"), "{page}");
        let lost = lost(&page);
        assert_eq!(lost.len(), 1, "{page}");
        assert!(
            lost[0].contains("limit_conn a 5 ") || lost[0].contains("limit_conn a 5;"),
            "{page}"
        );
    }
}

/// Without tickets nothing is resumed, on any route.
#[test]
fn routes_that_had_tickets_are_named_if_they_lose_them() {
    let said = "also for the routes that had tickets";
    let off = "ssl_session_tickets off;";
    for (each, is_said) in [
        (&[off, ""][..], true),
        (&["", off], true),
        (&[off, off], false),
        (&[off], false),
        (&[off, "ssl_session_tickets on;"], true),
        (
            &[
                off,
                "ssl_session_tickets off; ssl_session_cache shared:S:10m;",
            ],
            false,
        ),
    ] {
        let page = servers("", each);
        assert!(page.contains("tickets = 0"), "{page}");
        assert_eq!(page.contains(said), is_said, "{each:?}: {page}");
    }
    let service = |name: &str, more: &str| {
        format!("[{name}]\naccept = 1{name}\nconnect = 2\ncert = a.pem\n{more}\n")
    };
    let no = "sessionResume = no";
    for (second, is_said) in [("", true), (no, false), ("client = yes", false)] {
        let text = service("1", no) + &service("2", second);
        let page = converted(Program::Stunnel, &text);
        assert!(page.contains("tickets = 0"), "{page}");
        assert_eq!(page.contains(said), is_said, "{second}: {page}");
    }
    for (second, is_said) in [("", true), ("no-tls-tickets", false)] {
        let text = format!(
            "global\n tune.ssl.cachesize 0\nlisten l\n mode tcp\n bind :1 ssl crt a.pem no-tls-tickets\n \
             bind :2 ssl crt a.pem {second}\n server a 10.0.0.1:1883\n"
        );
        let page = converted(Program::Haproxy, &text);
        assert!(page.contains("tickets = 0"), "{page}");
        assert_eq!(page.contains(said), is_said, "{second}: {page}");
    }
}
