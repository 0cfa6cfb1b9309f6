//! The one reader of PEM, beside OpenSSL's: what OpenSSL reads is read too, or refused with its line.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use dormouse_engine::{IdentityError, IdentityProblem, PemFile, pem_chain};
use dormouse_testkit::Authority;
use proptest::prelude::*;

use crate::pem_keys::problem_of_key;

/// Two certificates, and a key.
pub(crate) struct Texts {
    pub(crate) one: String,
    pub(crate) two: String,
    pub(crate) key: String,
}

pub(crate) static TEXTS: LazyLock<Texts> = LazyLock::new(|| Texts {
    one: Authority::shared().certificate_pem(),
    two: Authority::new("another").certificate_pem(),
    key: Authority::shared().ecdsa(&["a.test"]).key_pem,
});

/// Returns the certificates that OpenSSL reads of a file of authorities; none if it refuses the file.
fn read_by_openssl(text: &[u8]) -> Vec<Vec<u8>> {
    let printed = openssl(
        "openssl crl2pkcs7 -nocrl -certfile /dev/stdin | openssl pkcs7 -print_certs",
        text,
    );
    pem_chain(&printed, "openssl").unwrap_or_default()
}

/// Runs a command with this input, and returns what it printed.
pub(crate) fn openssl(command: &str, input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It reads no further than its first error.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap().stdout
}

/// Checks the rule: what we accept has everything that OpenSSL reads, in its order.
fn check_beside_openssl(text: &[u8]) -> Result<(), String> {
    let Ok(ours) = pem_chain(text, "text") else {
        return Ok(());
    };
    let theirs = read_by_openssl(text);
    let mut ours = ours.iter();
    match theirs.iter().all(|one| ours.any(|other| other == one)) {
        true => Ok(()),
        false => Err(format!(
            "OpenSSL reads more:\n{}",
            String::from_utf8_lossy(text)
        )),
    }
}

/// A text that has both certificates, and what is expected of it.
struct Shape {
    name: &'static str,
    text: Vec<u8>,
    /// `None`: both are read. Otherwise the line that is refused (0: the text as a whole), and words of the error.
    refused: Option<(usize, &'static str)>,
}

#[derive(Default)]
struct Shapes(Vec<Shape>);

impl Shapes {
    fn read(&mut self, name: &'static str, text: impl Into<Vec<u8>>) {
        self.add(name, text.into(), None);
    }

    fn refused(
        &mut self,
        name: &'static str,
        text: impl Into<Vec<u8>>,
        line: usize,
        words: &'static str,
    ) {
        self.add(name, text.into(), Some((line, words)));
    }

    fn add(&mut self, name: &'static str, text: Vec<u8>, refused: Option<(usize, &'static str)>) {
        self.0.push(Shape {
            name,
            text,
            refused,
        });
    }

    fn check(self) {
        let wrong: Vec<String> = self
            .0
            .iter()
            .filter_map(|shape| shape.check().err())
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

impl Shape {
    fn check(&self) -> Result<(), String> {
        let name = self.name;
        let Texts { one, two, .. } = &*TEXTS;
        let both = [one, two].map(|one| pem_chain(one.as_bytes(), name).unwrap());
        let chain = pem_chain(&self.text, "site.pem");
        // A chain and a bundle of authorities are read alike.
        let authorities = PemFile::of(&self.text, "site.pem").authorities();
        let authorities = authorities.and_then(|text| pem_chain(text.as_bytes(), "authorities"));
        if chain != authorities {
            return Err(format!("{name}: {chain:?} {authorities:?}"));
        }
        match (&chain, self.refused) {
            (Ok(found), None) if *found == both.concat() => {}
            (Err(refused), Some((line, words))) => {
                let found = match &refused.problem {
                    IdentityProblem::BadPem { line, .. } => *line,
                    _ => 0,
                };
                let shown = refused.to_string();
                if found != line || !shown.contains(words) {
                    return Err(format!("{name}: {shown}, but not {line} {words}"));
                }
            }
            (Ok(found), _) => return Err(format!("{name}: {} are read", found.len())),
            (Err(refused), None) => return Err(format!("{name}: {refused}")),
        }
        check_beside_openssl(&self.text).map_err(|why| format!("{name}: {why}"))
    }
}

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Lines of the first certificate, and of both.
fn lines() -> (usize, usize) {
    let Texts { one, two, .. } = &*TEXTS;
    let one = one.lines().count();
    (one, one + two.lines().count())
}

fn both() -> String {
    format!("{}{}", TEXTS.one, TEXTS.two)
}

/// Both certificates, with this between them.
fn between(text: impl AsRef<[u8]>) -> Vec<u8> {
    let Texts { one, two, .. } = &*TEXTS;
    [one.as_bytes(), text.as_ref(), two.as_bytes()].concat()
}

/// Both certificates, with this before them.
fn before(text: &str) -> String {
    format!("{text}{}", both())
}

/// Both certificates, with a change in the second.
fn in_second(from: &str, to: &str) -> String {
    format!("{}{}", TEXTS.one, TEXTS.two.replace(from, to))
}

/// The base64 of the second certificate.
fn body() -> String {
    let lines = TEXTS.two.lines();
    lines.filter(|line| !line.starts_with('-')).collect()
}

#[test]
fn no_certificate_of_joined_or_truncated_files_is_passed_over() {
    let ((first, all), body) = (lines(), body());
    let trimmed = TEXTS.one.trim_end();
    let glued = |between: &str| format!("{trimmed}{between}{}", TEXTS.two);
    let mut shapes = Shapes::default();
    shapes.read("joined", both());
    shapes.refused("glued", glued(""), first, "-----END and other text");
    shapes.refused(
        "text behind",
        glued(" # the first\n"),
        first,
        "-----END and other text",
    );
    shapes.read("a comment", between("# the next one\n"));
    shapes.refused(
        "a glued comment",
        between("# the next one"),
        all,
        "ends a section",
    );
    shapes.refused(
        "glued text",
        between("a CA: "),
        first + 1,
        "does not begin its line",
    );
    shapes.read("no last line break", both().trim_end());
    shapes.refused(
        "no end",
        both().replacen(END, "", 1),
        first + 1,
        "no line ends it before",
    );
    shapes.refused("no last end", in_second(END, ""), first + 1, "cut off");
    shapes.refused(
        "cut off",
        &both()[..both().len() - 40],
        first + 1,
        "cut off",
    );
    shapes.refused("a lone beginning", both() + BEGIN, all + 1, "cut off");
    shapes.refused("a lone end", between(END), first + 1, "no line begins");
    shapes.refused("no beginning", in_second(BEGIN, ""), all, "no line begins");
    shapes.refused(
        "another end",
        in_second("END C", "END X509 C"),
        all,
        "ends another section",
    );
    let empty = between(format!("{BEGIN}\n{END}\n"));
    shapes.refused("an empty section", empty, first + 1, "it is empty");
    let half = between(format!("{BEGIN}\n{}\n{END}\n", &body[..body.len() / 8 * 4]));
    shapes.refused("half a certificate", half, first + 1, "DER is invalid");
    shapes.check();
}

#[test]
fn no_certificate_is_passed_over_for_its_line_ends_and_white_space() {
    let ((first, _), body) = (lines(), body());
    let mut shapes = Shapes::default();
    shapes.read("CRLF", both().replace('\n', "\r\n"));
    shapes.read("CR CRLF", both().replace('\n', "\r\r\n"));
    shapes.read("CR", both().replace('\n', "\r"));
    shapes.read("LF, then CR", in_second("\n", "\r"));
    shapes.read("blank lines", both().replace('\n', "\n\n"));
    shapes.read("spaces behind", both().replace('\n', "  \t\n"));
    shapes.read(
        "control characters",
        both().replace("-----\n", "-----\u{1a}\u{c}\n"),
    );
    shapes.read("indented base64", both().replace("\nM", "\n   M"));
    let indented: String = both().lines().map(|line| format!("    {line}\n")).collect();
    shapes.refused("indented", indented, 1, "does not begin its line");
    shapes.refused(
        "one indented",
        between(" "),
        first + 1,
        "does not begin its line",
    );
    shapes.read(
        "a long line",
        format!("{}{BEGIN}\n{body}\n{END}\n", TEXTS.one),
    );
    let one_line = in_second("\n", "");
    shapes.refused(
        "all in one line",
        one_line,
        first + 1,
        "-----BEGIN and other text",
    );
    let escaped = in_second("\n", "\\n");
    shapes.refused(
        "as in JSON",
        escaped,
        first + 1,
        "-----BEGIN and other text",
    );
    shapes.check();
}

#[test]
fn no_certificate_is_passed_over_for_its_encoding() {
    let ((first, all), body) = (lines(), body());
    let utf16 = |mark: &str, of: fn(u16) -> [u8; 2]| -> Vec<u8> {
        let units: Vec<u16> = before(mark).encode_utf16().collect();
        units.into_iter().flat_map(of).collect()
    };
    let mut shapes = Shapes::default();
    shapes.read("a byte order mark", before("\u{feff}"));
    shapes.read("two of them", before("\u{feff}\u{feff}"));
    shapes.read("one before a later section", between("\u{feff}"));
    shapes.read("one behind a blank line", between("\n\u{feff}"));
    let glued = format!("{}\u{feff}{}", TEXTS.one.trim_end(), TEXTS.two);
    shapes.refused(
        "one in glued files",
        glued,
        first,
        "-----END and other text",
    );
    shapes.refused(
        "one within",
        both().replace("\nM", "\n\u{feff}M"),
        2,
        "neither base64",
    );
    shapes.read("Latin-1 in a comment", between(b"subject=O = F\xf5o\n"));
    shapes.read("UTF-8 in a comment", between("subject=O = Fõo\n"));
    let behind = [TEXTS.one.as_bytes(), &utf16("", u16::to_le_bytes)].concat();
    shapes.refused("UTF-16 behind", behind, first + 1, "NUL byte");
    shapes.refused(
        "UTF-16",
        utf16("\u{feff}", u16::to_le_bytes),
        0,
        "iconv -f UTF-16 ",
    );
    shapes.refused(
        "UTF-16, turned",
        utf16("\u{feff}", u16::to_be_bytes),
        0,
        "iconv -f UTF-16 ",
    );
    shapes.refused(
        "UTF-16, no mark",
        utf16("", u16::to_le_bytes),
        0,
        "iconv -f UTF-16LE ",
    );
    shapes.refused(
        "the same, turned",
        utf16("", u16::to_be_bytes),
        0,
        "iconv -f UTF-16BE ",
    );
    shapes.refused("NUL bytes", between("\0\0\0\n"), first + 1, "NUL byte");
    shapes.refused(
        "NUL bytes behind",
        both() + &"\0".repeat(512),
        all + 1,
        "NUL byte",
    );
    let again = openssl("openssl base64", both().as_bytes());
    shapes.refused("base64 once more", again, 0, "base64 -d FILE");
    shapes.read("no padding", both().replace('=', ""));
    let padded = between(format!(
        "{BEGIN}\n{}===\n{END}\n",
        body.trim_end_matches('=')
    ));
    shapes.refused("wrong padding", padded, first + 1, "base64 is incomplete");
    let for_urls = between(format!("{BEGIN}\n-_{body}\n{END}\n"));
    shapes.refused("base64 for URLs", for_urls, first + 2, "neither base64");
    shapes.check();
}

#[test]
fn no_certificate_is_passed_over_for_its_label_or_marker() {
    let ((first, _), body) = (lines(), body());
    let labelled = |label: &str| in_second("CERTIFICATE", label);
    let mut shapes = Shapes::default();
    shapes.read("X509 CERTIFICATE", labelled("X509 CERTIFICATE"));
    shapes.read("TRUSTED CERTIFICATE", labelled("TRUSTED CERTIFICATE"));
    for label in [
        "FOO CERTIFICATE",
        "certificate",
        "CERTIFICATE ",
        " CERTIFICATE",
        "",
    ] {
        shapes.refused("a label", labelled(label), first + 1, "is not known");
    }
    shapes.refused(
        "PKCS #7",
        labelled("PKCS7"),
        first + 1,
        "openssl pkcs7 -print_certs",
    );
    let begin = |marker: &str| in_second("-----BEGIN", marker);
    let four = begin("----BEGIN");
    shapes.refused("four dashes", four, first + 1, "damaged marker");
    shapes.refused(
        "six dashes",
        begin("------BEGIN"),
        first + 1,
        "does not begin its line",
    );
    shapes.refused("a space", begin("----- BEGIN"), first + 1, "damaged marker");
    let small = begin("-----begin");
    shapes.refused("small", small, first + 1, "damaged marker");
    shapes.refused(
        "a long dash",
        begin("\u{2014}BEGIN"),
        first + 1,
        "damaged marker",
    );
    let four = TEXTS.two.replacen("E-----", "E----", 1);
    let four = format!("{}{four}", TEXTS.one);
    shapes.refused(
        "four dashes behind",
        four,
        first + 1,
        "-----BEGIN and other text",
    );
    let headed = between(format!("{BEGIN}\nComment: mine\n\n{body}\n{END}\n"));
    shapes.refused("a header", headed, first + 2, "a header");
    shapes.check();
}

/// What programs write beside certificates.
#[test]
fn commentary_and_other_sections_hide_no_certificate() {
    let Texts { one, two, key } = &*TEXTS;
    let mut shapes = Shapes::default();
    shapes.read("a key first", before(key));
    shapes.read("a key last", both() + key);
    let parameters =
        "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
    shapes.read("parameters", before(parameters));
    let attributes = "Bag Attributes\n    localKeyID: 01 02\nsubject=CN = a\n\nissuer=CN = b\n";
    shapes.read("openssl pkcs12", before(attributes));
    let annotated = openssl("openssl x509 -text", one.as_bytes());
    shapes.read("openssl x509 -text", [&annotated, two.as_bytes()].concat());
    let commented: String = one.lines().map(|line| format!("# {line}\n")).collect();
    shapes.read("a certificate that is commented out", before(&commented));
    shapes.read(
        "a marker in a comment",
        before(&format!("# from {BEGIN} on\n")),
    );
    shapes.read(
        "dashes in a comment",
        before("subject=O = WEST-END, OU = --x--\n-------\n"),
    );
    shapes.check();
}

#[test]
fn each_other_format_is_named_with_the_command_that_converts_it() {
    let Texts { one, key, .. } = &*TEXTS;
    let leaf = Authority::shared().ecdsa(&["a.test"]);
    let pair = format!("{}{}", leaf.key_pem, leaf.certificate_pem);
    let list = Authority::shared().revocation_list(&[]);
    for (command, input, words) in [
        ("openssl x509 -outform DER", one, "openssl x509 -inform DER"),
        ("openssl pkey -outform DER", key, "openssl pkey -inform DER"),
        ("openssl ec -outform DER", key, "openssl pkey -inform DER"),
        (
            "openssl pkcs8 -topk8 -outform DER -passout pass:x",
            key,
            "openssl pkey -inform DER",
        ),
        ("openssl crl -outform DER", &list, "openssl crl -inform DER"),
        (
            "openssl crl2pkcs7 -nocrl -certfile /dev/stdin -outform DER",
            one,
            "openssl pkcs7 -inform DER -print_certs",
        ),
        (
            "openssl pkcs12 -export -passout pass:x",
            &pair,
            "openssl pkcs12 -in FILE",
        ),
        (
            "openssl pkcs12 -export -nokeys -passout pass:x",
            one,
            "openssl pkcs12 -in FILE",
        ),
        (
            r"printf '\376\355\376\355\0\0\0\2'",
            one,
            "keytool -importkeystore",
        ),
    ] {
        let made = openssl(command, input.as_bytes());
        let of_chain = pem_chain(&made, "site.p12").unwrap_err().to_string();
        for problem in [of_chain, problem_of_key(&made)] {
            assert!(problem.contains("is not PEM but"), "{command}: {problem}");
            assert!(problem.contains(words), "{command}: {problem}");
        }
        // The commands work.
        let back = match words.strip_suffix("-in FILE") {
            Some(pkcs12) => format!("{pkcs12} -nodes -passin pass:x"),
            None if command.contains("pass:x") => format!("{words} -passin pass:x"),
            None if words.starts_with("keytool") => continue,
            None => words.to_owned(),
        };
        let back = PemFile::of(&openssl(&back, &made), "site.pem");
        let found = [
            back.chain().is_ok(),
            back.key().is_ok(),
            back.revocation_lists().is_ok(),
        ];
        assert!(found.contains(&true), "{command}");
    }
    let problem = pem_chain(b"#!/bin/sh\nexit\n", "README")
        .unwrap_err()
        .to_string();
    assert!(problem.contains("no line begins a section"), "{problem}");
}

/// What OpenSSL trusts for other purposes only is no authority here.
#[test]
fn settings_of_trust_are_not_passed_over() {
    let Texts { one, .. } = &*TEXTS;
    for (options, is_restricted) in [
        ("-trustout", false),
        ("-trustout -setalias mine", false),
        ("-addtrust clientAuth", true),
        ("-addtrust serverAuth -setalias mine", true),
        ("-addreject serverAuth", true),
    ] {
        let made = openssl(&format!("openssl x509 {options}"), one.as_bytes());
        assert!(
            made.starts_with(b"-----BEGIN TRUSTED CERTIFICATE-----"),
            "{options}"
        );
        let chain = pem_chain(&made, "chain").unwrap();
        assert_eq!(
            chain,
            pem_chain(one.as_bytes(), "chain").unwrap(),
            "{options}"
        );
        match PemFile::of(&made, "ca.pem").authorities() {
            Ok(_) => assert!(!is_restricted, "{options}"),
            Err(refused) => {
                assert!(is_restricted, "{options}: {refused}");
                let shown = refused.to_string();
                assert!(
                    shown.starts_with("ca.pem:1: the certificate has settings"),
                    "{shown}"
                );
                let cleared = openssl("openssl x509 -clrtrust -clrreject", &made);
                PemFile::of(&cleared, "ca.pem").authorities().unwrap();
            }
        }
    }
}

fn lists_in(text: &[u8]) -> Result<usize, String> {
    let lists = PemFile::of(text, "revoked.pem").revocation_lists();
    let lists = lists.map_err(|refused| refused.to_string())?;
    Ok(lists.matches("-----BEGIN X509 CRL-----\n").count())
}

#[test]
fn no_revocation_list_is_passed_over() {
    let Texts { one, .. } = &*TEXTS;
    let authority = Authority::shared();
    let list = authority.revocation_list(&[]);
    let newer = authority.revocation_list(&[&authority.ecdsa(&["a.test"])]);
    let lines = list.lines().count();
    let trimmed = list.trim_end();
    assert_eq!(lists_in(format!("{list}{newer}").as_bytes()), Ok(2));
    assert_eq!(lists_in(format!("{one}\u{feff}{list}").as_bytes()), Ok(1));
    let by_key = "openssl crl -inform DER".to_owned();
    let der = openssl("openssl crl -outform DER", list.as_bytes());
    for (text, words) in [
        (
            format!("{trimmed}{newer}").into_bytes(),
            format!("revoked.pem:{lines}: -----END"),
        ),
        (
            format!("{list} {newer}").into_bytes(),
            format!("revoked.pem:{}: a marker", lines + 1),
        ),
        (
            format!("{list}{}", newer.replace("X509 ", "")).into_bytes(),
            "CRL is not known".to_owned(),
        ),
        (
            one.clone().into_bytes(),
            "contains no revocation list".to_owned(),
        ),
        (der, by_key),
        (
            list.replacen("\nM", "\nA", 1).into_bytes(),
            "is not a revocation list".to_owned(),
        ),
    ] {
        let refused = lists_in(&text).unwrap_err();
        assert!(refused.contains(&words), "{refused}");
    }
    // Among authorities it has no effect.
    let bundle = format!("{one}{list}");
    let refused = PemFile::of(bundle.as_bytes(), "ca.pem")
        .authorities()
        .unwrap_err();
    let place = format!("ca.pem:{}: a revocation list", one.lines().count() + 1);
    assert!(refused.to_string().starts_with(&place), "{refused}");
}

/// As `openssl ca` writes them without extensions.
#[test]
fn a_revocation_list_of_version_1_is_named() {
    const MADE: &str = r#"
        cd "$(mktemp -d)" && trap 'rm -r "$PWD"' EXIT
        printf '[ca]\ndefault_ca=d\n[d]\ndatabase=index\ndefault_md=sha256\ndefault_crl_days=30\n' >cnf
        : >index
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=ca -keyout key -out pem
        openssl ca -gencrl -config cnf -keyfile key -cert pem
    "#;
    let list = openssl(MADE, b"");
    assert_eq!(list.trim_ascii_start().get(..10), Some(&b"-----BEGIN"[..]));
    let refused = lists_in(&[TEXTS.one.as_bytes(), &list].concat()).unwrap_err();
    let place = format!(
        "revoked.pem:{}: a revocation list of version 1",
        lines().0 + 1
    );
    assert!(refused.starts_with(&place), "{refused}");
    assert!(refused.contains("crl_extensions"), "{refused}");
}

#[test]
fn a_pipe_is_read_to_its_end() {
    use std::os::fd::AsRawFd as _;
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(TEXTS.one.as_bytes()).unwrap();
    drop(writer);
    let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
    assert_eq!(
        PemFile::read(Path::new(&path)).unwrap().text(),
        TEXTS.one.as_bytes()
    );
}

#[test]
fn each_kind_of_file_has_a_limit_that_its_error_names() {
    let path = std::env::temp_dir().join(format!("dormouse-pem-{}", std::process::id()));
    let read = |len: usize| {
        std::fs::write(&path, vec![b'x'; len]).unwrap();
        let words = |file: Result<PemFile, IdentityError>| match file {
            Ok(file) => file.text().len().to_string(),
            Err(refused) => refused.problem.to_string(),
        };
        (
            words(PemFile::read(&path)),
            words(PemFile::read_trust(&path)),
        )
    };
    let (pair, trust) = read((1 << 20) + 1);
    assert!(pair.starts_with("is larger than 1 MiB"), "{pair}");
    assert_eq!(trust, ((1 << 20) + 1).to_string());
    let (_, trust) = read((32 << 20) + 1);
    assert!(trust.starts_with("is larger than 32 MiB"), "{trust}");
    std::fs::remove_file(path).unwrap();
}

/// A part of a text, and what may be between two parts.
const SEPARATORS: [&str; 12] = [
    "",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    " ",
    "\u{feff}",
    "\n\u{feff}",
    "# a comment\n",
    "# a comment",
    "subject=CN = a\n",
    "-----",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Texts of many files, and damaged ones.
    #[test]
    fn openssl_reads_nothing_that_is_not_read(
        parts in proptest::collection::vec((0..4_usize, 0..SEPARATORS.len()), 1..5),
        damage in proptest::option::of((any::<prop::sample::Index>(), 0..4_usize, any::<u8>())),
    ) {
        let Texts { one, two, key } = &*TEXTS;
        let list = Authority::shared().revocation_list(&[]);
        let mut text = Vec::new();
        for (part, separator) in parts {
            text.extend_from_slice([one, two, key, &list][part].trim_end().as_bytes());
            // Mostly, files end with a line break.
            text.extend_from_slice(if separator % 3 > 0 { b"\n" } else { b"" });
            text.extend_from_slice(SEPARATORS[separator].as_bytes());
        }
        if let Some((place, how, byte)) = damage {
            let at = place.index(text.len());
            match how {
                0 => text[at] = byte,
                1 => text.insert(at, byte),
                2 => drop(text.remove(at)),
                _ => text.truncate(at),
            }
        }
        check_beside_openssl(&text).map_err(TestCaseError::fail)?;
        // Whatever is read has the same form, in which it is read again.
        let file = PemFile::of(&text, "text");
        if let Ok(chain) = file.chain() {
            let markers = text.windows(22).filter(|part| part.starts_with(b"BEGIN CERTIFICATE-----")).count();
            prop_assert_eq!(chain.matches("BEGIN CERTIFICATE-----").count(), markers);
            prop_assert!(!chain.contains("KEY"));
            prop_assert_eq!(PemFile::of(chain.as_bytes(), "again").chain().unwrap(), chain);
        }
        if let Ok(key) = file.key() {
            prop_assert_eq!(&*PemFile::of(key.as_bytes(), "again").key().unwrap(), &*key);
        }
    }
}
