//! Files that cannot be read or parsed, and files that include others.

use super::*;

/// Invalid files, each with the line to blame.
#[test]
fn invalid_files_are_reported_with_their_line() {
    let cases = [
        (
            Program::Nginx,
            "stream {\n server {\n listen 1 ssl;\n",
            2,
            "is not closed",
        ),
        (Program::Nginx, "stream {\n}\n}\n", 3, "has no `{`"),
        (
            Program::Nginx,
            "stream {\n listen 443 ssl\n}\n",
            2,
            "end with `;`",
        ),
        (Program::Nginx, "a;\nstream", 2, "end with `;`"),
        (Program::Nginx, "a \"b\n;\n", 1, "is not closed"),
        (Program::Nginx, "a;\n;", 2, "ends nothing"),
        (Program::Haproxy, "global\n user 'x\n", 2, "is not closed"),
        (Program::Haproxy, "\nbind :443 ssl\n", 2, "in no section"),
        (
            Program::Hitch,
            "backend = \"x\nfrontend = {\n",
            1,
            "is not closed",
        ),
        (
            Program::Hitch,
            "\nfrontend = {\n host = \"*\"\n",
            2,
            "is not closed",
        ),
        (Program::Hitch, "}\n", 1, "has no `{`"),
        (Program::Stunnel, "a = b\n[x\n", 2, "is not closed"),
    ];
    for (program, text, line, what) in cases {
        let fault = import(program, text).map(|page| page.text).expect_err(text);
        assert_eq!(fault.position.line, line, "{text}: {fault}");
        assert!(fault.what.contains(what), "{text}: {fault}");
    }
    let deep = "x { ".repeat(100_000);
    let fault = import(Program::Nginx, &deep).map(|page| page.text);
    assert!(fault.expect_err("too deep").what.contains("more than 30"));
}

/// Files that are not configurations, and their includes.
#[test]
fn refuses_files_that_are_not_configurations() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    let write = |name: &str, bytes: &[u8]| std::fs::write(at(name), bytes).expect("written");
    let refused = |program, name: &str| match read(program, &at(name)) {
        Ok(_) => panic!("{name} was read"),
        Err(fault) => fault.to_string(),
    };
    write("binary", b"frontend\n\x7fELF\x00\x01");
    write("key", b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n");
    write("long", &vec![b'x'; 200_000]);
    write("huge", &vec![b'\n'; 10 << 20]);
    for program in [
        Program::Hitch,
        Program::Stunnel,
        Program::Nginx,
        Program::Haproxy,
    ] {
        assert!(refused(program, "binary").contains("binary:2"));
        let said = refused(program, "key");
        assert!(said.contains("key:1") && !said.contains("c2Vj"), "{said}");
        assert!(refused(program, "long").contains("this line has 200000 bytes"));
        assert!(refused(program, "huge").contains("larger than 4 MiB"));
        assert!(refused(program, "missing").contains("cannot be read"));
        assert!(refused(program, ".").contains("cannot be read"));
    }
    // A file that includes itself, directly or through another file.
    write("loop.conf", b"a;\ninclude loop.conf;\n");
    assert!(refused(Program::Nginx, "loop.conf").contains("loop.conf:2"));
    write("one.conf", b"include two*.conf;\n");
    write("two.conf", b"\ninclude one.conf;\n");
    let said = refused(Program::Nginx, "one.conf");
    assert!(
        said.contains("two.conf:2") && said.contains("includes itself"),
        "{said}"
    );
    // A mistake in an included file has that file's position.
    write("bad.conf", b"\n\nserver {\n");
    write("main.conf", b"stream {\ninclude bad.conf;\n}\n");
    assert!(refused(Program::Nginx, "main.conf").contains("bad.conf:3"));
    // The same for stunnel's folders.
    std::fs::create_dir(at("d")).expect("a folder");
    write("d/loop", b"include = d\n");
    write("stunnel.conf", b"include = d\n");
    assert!(refused(Program::Stunnel, "stunnel.conf").contains("one file too many"));
}

/// Includes are followed, and remarks name the included file.
#[test]
fn converts_included_files() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write =
        |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
    std::fs::create_dir(folder.path().join("conf.d")).expect("a folder");
    write(
        "nginx.conf",
        "stream {\n include conf.d/*.conf;\n include missing.conf;\n include sites/*/tls[0-9].conf;\n}\n",
    );
    write(
        "conf.d/a.conf",
        "server { listen 443 ssl; proxy_pass 10.0.0.1:80;\n js_filter x; }\n",
    );
    write(
        "conf.d/a.conf~",
        "server { listen 444 ssl; proxy_pass 10.0.0.1:80; }\n",
    );
    for (number, site) in ["one", "two"].into_iter().enumerate() {
        std::fs::create_dir_all(folder.path().join("sites").join(site)).expect("a folder");
        let server = format!("server {{ listen 445{number} ssl; proxy_pass 10.0.0.1:80; }}\n");
        write(&format!("sites/{site}/tls{number}.conf"), &server);
    }
    let page = read(Program::Nginx, &folder.path().join("nginx.conf"))
        .expect("read")
        .finish("x");
    for part in [
        "listen = \"0.0.0.0:443\"",
        "listen = \"0.0.0.0:4450\"",
        "listen = \"0.0.0.0:4451\"",
        "conf.d/a.conf:2: js_filter x",
        "line 3: include missing.conf -- this file does not exist",
    ] {
        assert!(page.text.contains(part), "{part} in {}", page.text);
    }
    assert!(!page.text.contains(":444"), "{}", page.text);
}

/// Twice as long a file takes four times as long at most, with some room: each server meets each other one.
#[test]
#[ignore = "computes for ten seconds, and compares durations: part of the long run"]
fn long_files_take_no_cubic_time() {
    let nginx = |n: usize| {
        let server = |n: usize| {
            format!(
                "server {{ listen 443 ssl; server_name s{n}.test; ssl_certificate a.pem; ssl_certificate_key a.key;
                 location / {{ proxy_pass http://10.0.0.1; proxy_set_header Host $host; }} }}\n"
            )
        };
        let servers: String = (0..n).map(server).collect();
        (Program::Nginx, format!("http {{ {servers} }}"))
    };
    let haproxy = |n: usize| {
        let rule = |n: usize| format!(" use_backend b{n} if {{ req.ssl_sni s{n}.test }}\n");
        let backend = |n: usize| format!("backend b{n}\n server s 10.0.0.1:1\n");
        let (rules, backends): (String, String) =
            ((0..n).map(rule).collect(), (0..n).map(backend).collect());
        let text = format!("frontend f\n mode tcp\n bind :443\n{rules}{backends}");
        (Program::Haproxy, text)
    };
    let once = |(program, text): &(Program, String)| {
        let start = std::time::Instant::now();
        let draft = parse(*program, text, &Position::new("x"), Path::new("/x/x"));
        let page = draft.expect("a valid configuration").unchecked("x");
        assert_eq!(page.text.matches("[[route]]").count() % 40, 0);
        start.elapsed()
    };
    // The shortest of several, because the machine is busy with other tests.
    let time = |file: (Program, String)| (0..4).map(|_| once(&file)).min();
    for of in [&nginx as &dyn Fn(usize) -> (Program, String), &haproxy] {
        let (short, long) = (
            time(of(40)).unwrap_or_default(),
            time(of(320)).unwrap_or_default(),
        );
        // Eight times as long: 64 times at most, and 512 times if it were cubic.
        assert!(long < short * 200, "{short:?} {long:?}");
    }
}

/// Work that grows with the square of a file has a limit of its own.
#[test]
fn what_no_configuration_needs_is_refused_or_a_step() {
    let parsed = |program, text: &str| {
        let draft = parse(program, text, &Position::new("x"), Path::new("/x/x"));
        draft.map(|draft| draft.unchecked("x").text)
    };
    let refused = |program, text: String, words: &str| {
        let error = parsed(program, &text).expect_err("a limit").to_string();
        assert!(error.contains(words), "{error}");
    };
    let settings = "pid x;\n".repeat(50_001);
    refused(Program::Nginx, settings, "more than 50000 settings");
    let services = "[s]\naccept = 1\nconnect = 2\n".repeat(600);
    let defaults = "options = NO_SSLv2\n".repeat(1000);
    let text = format!("{defaults}{services}");
    refused(Program::Stunnel, text, "take over too many defaults");
    let parts = "backend b\n server s 10.0.0.1:1\n".repeat(600);
    let defaults = format!("defaults\n{}", " timeout tunnel 1m\n".repeat(1000));
    let text = format!("{defaults}{parts}");
    refused(Program::Haproxy, text, "take over too many defaults");

    let numbered =
        |count: usize, one: &dyn Fn(usize) -> String| (0..count).map(one).collect::<String>();
    let names = numbered(6000, &|n| format!("n{n}.test 10.0.0.1:1;\n"));
    let map = format!(
        "stream {{ map $ssl_preread_server_name $to {{ {names} }} server {{ listen 443; ssl_preread on; proxy_pass $to; }} }}"
    );
    let rules = numbered(6000, &|n| {
        format!(" use_backend b if {{ ssl_fc_sni n{n}.test }}\n")
    });
    let rules =
        format!("frontend f\n bind :443 ssl crt a.pem\n{rules}backend b\n server s 10.0.0.1:1\n");
    let networks = numbered(1001, &|n| format!(" 10.{}.{}.0/24", n / 250, n % 250));
    let networks = format!(
        "listen l\n bind :443 ssl crt a.pem\n tcp-request connection reject if {{ src{networks} }}\n server s 10.0.0.1:1\n"
    );
    let servers = numbered(20_000, &|n| {
        format!("server 10.{}.{}.1:1;\n", n / 250, n % 250)
    });
    let servers = format!(
        "stream {{ upstream u {{ {servers} }} server {{ listen 443 ssl; proxy_pass u; }} }}"
    );
    for (program, text, words) in [
        (Program::Nginx, map, "too many names"),
        (Program::Haproxy, rules, "too many names"),
        (Program::Haproxy, networks, "set `allow` and `deny`"),
        (
            Program::Nginx,
            servers,
            "more than a configuration of Dormouse holds",
        ),
    ] {
        let page = parsed(program, &text).expect("a valid configuration");
        assert!(steps(&page).contains(words), "{words}");
    }
}

/// Files that include each other, or one file often, are read to a limit.
#[test]
fn included_files_have_a_limit_together() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("long.inc"), "# long\n".repeat(400_000)).expect("written");
    let text = format!("include {};\n", at("long.inc").display()).repeat(9);
    std::fs::write(at("nginx.conf"), text).expect("written");
    let error = read(Program::Nginx, &at("nginx.conf")).expect_err("a limit");
    assert!(error.to_string().contains("16 MiB together"), "{error}");
}

/// nginx refuses such a file. Servers would be left out, without their rules for clients.
#[test]
fn a_part_of_nginx_conf_is_refused() {
    let server = "server { listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key; }";
    for text in [
        format!("\n{server}\n"),
        format!("http {{ {server} }}\n# configuration file /etc/nginx/conf.d/a.conf:\n{server}"),
        "\nupstream a { server 10.0.0.1:1; }".to_owned(),
    ] {
        let fault = import(Program::Nginx, &text)
            .map(|page| page.text)
            .expect_err(&text);
        assert!(fault.position.line >= 2, "{text}: {fault}");
        assert!(fault.what.contains("outside of `http`"), "{text}: {fault}");
        assert!(fault.help.contains("nginx -T"), "{text}: {fault}");
    }
}

/// A pipe that nobody writes to would never end.
#[test]
fn pipes_that_a_configuration_names_are_not_read() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo runs").success());
    let pipe = pipe.display();
    let haproxy = format!(
        "frontend f\n mode tcp\n bind :1 ssl crt-list {pipe}\n bind :2 ssl crt a.pem\n \
         tcp-request connection reject if {{ src -f {pipe} }}\n default_backend b\n\
         backend b\n mode tcp\n server s 10.0.0.1:1\n"
    );
    let page = import(Program::Haproxy, &haproxy).expect("a valid configuration");
    let steps = steps(&page.text);
    assert!(steps.contains("it cannot be read"), "{steps}");
    assert!(steps.contains("tcp-request connection reject"), "{steps}");
    let nginx = format!(
        "stream {{ include {pipe}; server {{ listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key; \
         proxy_pass 10.0.0.1:1; }} }}"
    );
    let page = import(Program::Nginx, &nginx).expect("a valid configuration");
    assert!(page.text.contains("this is a pipe"), "{}", page.text);
}
