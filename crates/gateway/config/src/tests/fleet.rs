//! Configurations of many files and machines: included files, variables, the schema for editors.

use super::*;
use std::ffi::OsString;
use std::fs;
use tempfile::TempDir;

/// Creates a directory with these files; `dormouse.toml` is the configuration's own.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in files {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(file, text).expect("a file");
    }
    folder
}

fn load_in(folder: &Path, flags: &[Flag]) -> Result<Loaded, Mistakes> {
    let file = folder.join("dormouse.toml");
    let text = fs::read_to_string(&file).expect("the configuration");
    load_as(&file, &text, flags, &|_| None)
}

fn load_as(
    file: &Path,
    text: &str,
    flags: &[Flag],
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Loaded, Mistakes> {
    Loader {
        file: Some(file),
        flags,
        environment,
        ..loader(text, &machine())
    }
    .load()
}

/// Returns the mistakes in a folder, without the folder's own name.
fn mistakes_in(folder: &TempDir) -> String {
    let mistakes = load_in(folder.path(), &[]).expect_err("a mistake");
    let own = folder.path().display().to_string();
    mistakes.to_string().replace(&own, "DIR")
}

const ROUTE: &str = "[[route]]\nlisten = ':8443'\nto = 'echo:'\nself_signed = 'x'\n";

#[test]
fn a_directory_adds_its_files_in_the_order_of_their_names() {
    let route = |port: u16| {
        format!("[[route]]\nlisten = '127.0.0.1:{port}'\nto = 'echo:'\ncertificates = 'site.pem'\n")
    };
    let folder = folder(&[
        (
            "dormouse.toml",
            &format!("include = ['conf.d', 'more.toml']\n{}", route(5001)),
        ),
        (
            "conf.d/20-b.toml",
            &format!("idle_timeout = '1h'\n{}", route(5003)),
        ),
        ("conf.d/10-a.toml", &route(5002)),
        ("conf.d/README.md", "not TOML"),
        ("conf.d/.10-a.toml.swp.toml", "not TOML"),
        ("more.toml", &route(5004)),
    ]);
    let config = load_in(folder.path(), &[])
        .unwrap_or_else(|m| panic!("{m}"))
        .config;
    let ports: Vec<u16> = config
        .routes
        .iter()
        .map(|route| route.listen[0].address.port())
        .collect();
    assert_eq!(ports, [5001, 5002, 5003, 5004]);
    assert_eq!(
        config.timeouts.idle_timeout.map(|t| t.as_secs()),
        Some(3600)
    );
    // Paths are relative to their file.
    let certificates: Vec<_> = config
        .routes
        .iter()
        .map(|route| route.certificates[0].cert.clone())
        .collect();
    let at = |name: &str| folder.path().join(name);
    let (own, beside) = (at("site.pem"), at("conf.d").join("site.pem"));
    assert_eq!(certificates, [own.clone(), beside.clone(), beside, own]);
}

#[test]
fn mistakes_in_an_included_file_have_its_name_and_line() {
    let folder = folder(&[
        (
            "dormouse.toml",
            &format!("include = 'conf.d'\nwokers = 1\n{ROUTE}"),
        ),
        (
            "conf.d/a.toml",
            "# nothing\n[[route]]\nlisten = '127.0.0.1:x'\nto = 'echo:'\nself_signed = 'x'\n",
        ),
        (
            "conf.d/b.toml",
            "\n[[route]]\nlisten = ':8443'\nto = 'echo:'\nself_signed = 'x'\n",
        ),
    ]);
    let message = mistakes_in(&folder);
    assert!(message.contains("--> DIR/dormouse.toml:2:1"), "{message}");
    assert!(message.contains("--> DIR/conf.d/a.toml:3:10"), "{message}");
    fs::write(folder.path().join("conf.d/a.toml"), "").expect("an empty file");
    fs::write(
        folder.path().join("dormouse.toml"),
        format!("include = 'conf.d'\n{ROUTE}"),
    )
    .expect("written");
    let message = mistakes_in(&folder);
    assert!(message.contains("--> DIR/conf.d/b.toml:3:10"), "{message}");
    assert!(
        message.contains("it is listed already (line 3)"),
        "{message}"
    );
}

#[test]
fn a_failed_include_is_reported_at_the_include() {
    let of = |main: &str, more: &[(&str, &str)]| {
        let own = format!("{main}\n{ROUTE}");
        let files = [&[("dormouse.toml", own.as_str())], more].concat();
        mistakes_in(&folder(&files))
    };
    let message = of("include = 'nowhere'", &[]);
    assert!(
        message.contains("DIR/nowhere cannot be read: No such file or directory"),
        "{message}"
    );
    assert!(message.contains("--> DIR/dormouse.toml:1:11"), "{message}");
    let message = of("include = 'a.toml'", &[("a.toml", "include = 'b.toml'\n")]);
    assert!(
        message.contains("an included file cannot include others"),
        "{message}"
    );
    assert!(message.contains("--> DIR/a.toml:1:1"), "{message}");
    let message = of(
        "workers = 1\ninclude = 'a.toml'",
        &[("a.toml", "\nworkers = 2\n")],
    );
    assert!(message.contains("`workers` is given twice"), "{message}");
    assert!(
        message.contains("it is set already in the configuration's own file, line 1"),
        "{message}"
    );
    assert!(message.contains("--> DIR/a.toml:2:1"), "{message}");
    let message = of("include = 'a.toml'", &[("a.toml", "workers = \n")]);
    assert!(
        message.contains("this is not TOML") && message.contains("--> DIR/a.toml:1:"),
        "{message}"
    );
    let message = of("include = 3", &[]);
    assert!(
        message.contains("expected a list of paths, found a number"),
        "{message}"
    );
}

#[test]
fn paths_in_flags_are_relative_to_the_current_directory() {
    let folder = folder(&[("dormouse.toml", "workers = 1\n"), ("conf.d/a.toml", ROUTE)]);
    let conf_d = folder.path().join("conf.d").display().to_string();
    let flags = [
        Flag::new("include", conf_d),
        Flag::new("acme-folder", "here"),
    ];
    let loaded = load_in(folder.path(), &flags).unwrap_or_else(|m| panic!("{m}"));
    assert_eq!(loaded.config.routes.len(), 1);
    assert_eq!(loaded.config.acme.acme_folder, Path::new("here"));
}

/// Loads a configuration with these variables.
fn with_variables(text: &str) -> Result<Loaded, Mistakes> {
    let variables = |name: &str| match name {
        "PORT" => Some("5001".into()),
        "EMPTY" => Some("".into()),
        _ => None,
    };
    load_as(Path::new("etc/dormouse.toml"), text, &[], &variables)
}

#[test]
fn variables_are_filled_in() {
    let text = "workers = '${WORKERS:-2}'\nocsp_fetch = \"${FETCH:-false}\"\n\
        [[route]]\nlisten = ['127.0.0.1:${PORT}', '127.0.0.${EMPTY:-1}:5002']\n\
        to = { address = '${HOST:-192.0.2.9}:${PORT}', weight = '${WEIGHT:-3}' }\n\
        certificates = '${KEYS:-/keys}/both.pem'\nalpn = ['a$${b}', '$5']\n";
    let config = with_variables(text)
        .unwrap_or_else(|m| panic!("{m}"))
        .config;
    assert_eq!(config.process.workers, Count::Exactly(2));
    assert!(!config.process.ocsp_fetch);
    let route = &config.routes[0];
    let listen: Vec<String> = route.listen.iter().map(ToString::to_string).collect();
    assert_eq!(listen, ["127.0.0.1:5001", "127.0.0.1:5002"]);
    assert_eq!(
        (route.to[0].to_string(), route.to[0].weight),
        ("192.0.2.9:5001".to_owned(), 3)
    );
    assert_eq!(route.certificates[0].cert, Path::new("/keys/both.pem"));
    assert_eq!(route.alpn, ["a${b}", "$5"]);
}

#[test]
fn a_variable_that_is_not_set_hides_no_other_mistake() {
    let text = "[[route]]\nlisten = '${UNSET}'\nto = 'echo'\ncertificates = [{ cert = 'a', key = '${UNSET}' }]\nalpm = 'h2'\n\
                [[route]]\nlisten = ':x'\nto = 'echo:'\nself_signed = 'x'\n";
    let mistakes = with_variables(text).expect_err("four mistakes");
    let lines = mistakes.list.iter().map(|mistake| match mistake.source {
        Source::Line { line, .. } => line,
        _ => 0,
    });
    assert_eq!(lines.collect::<Vec<_>>(), [2, 4, 5, 7], "{mistakes}");
}

/// An empty variable must not mean "no list", which for `allow` is everyone.
#[test]
fn an_empty_variable_is_no_empty_list() {
    for option in [
        "allow",
        "server_names",
        "client_crl",
        "backend_crl",
        "alpn",
        "certificates",
    ] {
        let text = format!("{ROUTE}{option} = '${{EMPTY}}'\n");
        let message = with_variables(&text).expect_err(option).to_string();
        assert!(message.contains(":5:"), "{message}");
    }
    let text = format!("include = '${{EMPTY}}'\n{ROUTE}");
    assert!(with_variables(&text).is_err(), "an empty path");
}

#[test]
fn unresolved_variables_are_reported_at_their_location() {
    let errors_of = |value: &str| {
        let text =
            format!("[[route]]\nlisten = \"127.0.0.1:{value}\"\nto = 'echo:'\nself_signed = 'x'\n");
        with_variables(&text).expect_err("a mistake").to_string()
    };
    assert_eq!(
        errors_of("${PROT}"),
        "error: the environment variable `PROT` is not set\n --> etc/dormouse.toml:2:21\n  |\n\
         2 | listen = \"127.0.0.1:${PROT}\"\n  |                     ^^^^^^^\n  |\n  \
         = help: set it, or give a default: ${PROT:-…}"
    );
    assert!(errors_of("${PORT").contains("this variable is not closed"));
    assert!(errors_of("${9}").contains("`9` is not the name of a variable"));
    assert!(errors_of("${}").contains("`` is not the name of a variable"));
    assert!(errors_of("${A:-${PORT}}").contains("the default of `A` has a variable"));
    // The result is read like any other value.
    let text = "[[route]]\nlisten = '${LISTEN:-nonsense}'\nto = 'echo:'\nself_signed = 'x'\n";
    let message = with_variables(text).expect_err("no address").to_string();
    assert!(
        message.contains("`nonsense` has no port") && message.contains(":2:10"),
        "{message}"
    );
    let text = format!("workers = '${{EMPTY}}'\n{ROUTE}");
    assert!(
        with_variables(&text).is_err(),
        "an empty string is not a number"
    );
}

/// The schema in the guide is that of this version.
#[test]
fn the_schema_matches_the_options() {
    let text = schema();
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../docs/guide/dormouse.schema.json"
    );
    if std::env::var_os("DORMOUSE_BLESS").is_some() {
        fs::write(path, &text).expect("the schema written");
    }
    let there = fs::read_to_string(path).expect("the schema read");
    assert!(
        text == there,
        "run: DORMOUSE_BLESS=1 cargo test -p dormouse-config"
    );
}
