//! Recorded programs and what they were recognised as.

use std::collections::BTreeSet;

use super::signs::called_name;
use super::*;
use dormouse_measure::ProcessInfo;

fn signs(program: &str, files: &[&str], words: &str) -> Signs {
    Signs {
        programs: BTreeSet::from([program.to_owned()]),
        words: words.into(),
        files: files.iter().map(|file| (*file).to_owned()).collect(),
        ..Signs::default()
    }
}

#[test]
fn programs_in_go_are_not_what_their_names_begin_with() {
    for name in [
        "node_exporter",
        "gitea",
        "nginx-prometheus-exporter",
        "curlie",
    ] {
        let go = Signs {
            go: true,
            ..signs(name, &[], "")
        };
        assert_eq!(kind_of(&go, None), SoftwareKind::Go, "{name}");
    }
}

#[test]
fn the_package_cryptography_alone_does_not_make_it_twisted() {
    let rust = "/x/cryptography/hazmat/bindings/_rust.abi3.so";
    let found = |files: &[&str]| kind_of(&signs("python3.11", files, ""), None);
    assert_eq!(found(&[rust]), SoftwareKind::Twisted);
    let asyncio = "/x/lib-dynload/_asyncio.cpython-311.so";
    assert_eq!(found(&[rust, asyncio]), SoftwareKind::Python);
}

#[test]
fn software_is_recognised_by_its_signs() {
    let kind = |program, files: &[&str], words| conclude(&signs(program, files, words), None).kind;
    assert_eq!(
        kind("nginx", &["/lib/libssl.so.3"], "nginx: worker"),
        SoftwareKind::Nginx
    );
    assert_eq!(
        kind(
            "java",
            &["/jvm/libjvm.so", "/tmp/libnetty_tcnative_linux_x86_64.so"],
            ""
        ),
        SoftwareKind::NettyTcnative
    );
    assert_eq!(
        kind("java", &["/jvm/libjvm.so"], "java -jar lab-netty.jar"),
        SoftwareKind::NettyJdk
    );
    assert_eq!(
        kind("python3.11", &["/lib/libssl.so.3"], "python3 echo.py"),
        SoftwareKind::Python
    );
    assert_eq!(
        kind(
            "python3.11",
            &["/x/cryptography/hazmat/bindings/_rust.abi3.so"],
            ""
        ),
        SoftwareKind::Twisted
    );
    assert_eq!(
        kind("something", &["/lib/libssl.so.3"], ""),
        SoftwareKind::OpenSsl
    );
    assert_eq!(
        kind("git-remote-http", &["/lib/libcurl-gnutls.so.4"], ""),
        SoftwareKind::Git
    );
    assert_eq!(
        kind("abc", &["/lib/libssl.so.3"], ""),
        SoftwareKind::OpenSsl
    );
    assert_eq!(kind("something", &[], ""), SoftwareKind::Unknown);
    let mut envoy = signs("envoy-linux", &[], "");
    envoy.rustls = true;
    assert_eq!(conclude(&envoy, None).kind, SoftwareKind::Envoy);
    assert_eq!(
        kind("beam.smp", &["/lib/crypto.so"], ""),
        SoftwareKind::Erlang
    );
    assert_eq!(kind("lua5.4", &["/lib/libssl.so.3"], ""), SoftwareKind::Lua);
}

#[test]
fn a_program_that_only_its_library_describes_is_called_by_its_name() {
    let mut postgres = signs("postgres", &["/lib/libssl.so.3"], "");
    postgres.first = Some("postgres".into());
    let title = conclude(&postgres, None).title();
    assert_eq!(title, "postgres, OpenSSL program (libssl.so.3)");
    let mut nginx = signs("nginx", &["/lib/libssl.so.3"], "");
    nginx.first = Some("nginx".into());
    assert_eq!(conclude(&nginx, None).title(), "nginx (libssl.so.3)");
}

/// Recorded: Debian's redis-server is a symbolic link to redis-check-rdb.
#[test]
fn a_program_has_the_name_by_which_it_was_started() {
    assert_eq!(
        called_name("redis-server", "redis-check-rdb"),
        "redis-server"
    );
    let long = "postgres-exporter";
    assert_eq!(called_name("postgres-export", long), long);
    assert_eq!(called_name("", "slapd"), "slapd");
}

#[test]
fn a_banner_gives_the_version() {
    let software = conclude(&Signs::default(), Some("nginx/1.22.1"));
    assert_eq!(
        (software.kind, software.version.as_deref()),
        (SoftwareKind::Nginx, Some("1.22.1"))
    );
    let behind = conclude(&signs("dormouse", &[], ""), Some("Apache/2.4.71 (Debian)"));
    assert_eq!(
        (behind.kind, behind.version),
        (SoftwareKind::Dormouse, None)
    );
    let python = version_of(SoftwareKind::Python, "SimpleHTTP/0.6 Python/3.11.7");
    assert_eq!(python.as_deref(), Some("3.11.7"));
    let twisted = version_of(SoftwareKind::Twisted, "TwistedWeb/26.10.0");
    assert_eq!(twisted.as_deref(), Some("26.10.0"));
    assert!(recognise(&[], None).is_err());
}

#[test]
fn this_program_is_recognised() {
    let own = ProcessInfo {
        pid: i32::try_from(std::process::id()).unwrap(),
        command: "test".into(),
    };
    let software = recognise(&[own], None).unwrap();
    assert!(
        matches!(software.kind, SoftwareKind::Rustls | SoftwareKind::Dormouse),
        "{software:?}"
    );
}
