//! Variants: parts of two files of the corpus in one. None of their results runs and is less strict than its source.

use super::judge::{of_result, of_source};
use super::*;

/// Returns the variants of two files: all of both, the parts of both in turn, and the lines of one among those of the
/// other.
fn variants(one: &CorpusFile, other: &CorpusFile) -> Vec<String> {
    match one.program {
        Program::Nginx => nginx(&one.text, &other.text),
        Program::Haproxy | Program::Stunnel => sections(&one.text, &other.text),
        Program::Hitch => lines(&one.text, &other.text),
    }
}

/// Puts the blocks in `stream` and `http` of the second file into the first, where it has such a block.
fn nginx(one: &str, other: &str) -> Vec<String> {
    let mut text = one.to_owned();
    for kind in ["stream {", "http {"] {
        let Some(start) = other.find(kind).map(|at| at + kind.len()) else {
            continue;
        };
        let end = other[start..]
            .find("\n}")
            .map_or(other.len(), |end| start + end);
        let inner = &other[start..end];
        match text.find(kind).map(|at| at + kind.len()) {
            Some(at) => text.insert_str(at, inner),
            None => text.push_str(&format!("\n{kind}{inner}\n}}\n")),
        }
    }
    vec![text]
}

fn sections(one: &str, other: &str) -> Vec<String> {
    let both = format!("{one}\n{other}");
    let parts = |text: &str| -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for line in text.split_inclusive('\n') {
            let begins =
                !line.starts_with([' ', '\t', '#', '\n', '.', ';']) && !line.contains(" = ");
            match all.last_mut() {
                Some(part) if !begins => part.push_str(line),
                _ => all.push(line.to_owned()),
            }
        }
        all
    };
    // The first half of one with the second half of the other: backends of one name may now be those of the other.
    let (first, second) = (parts(one), parts(other));
    let mixed = first
        .iter()
        .take(first.len().div_ceil(2))
        .chain(second.iter().skip(second.len() / 2));
    vec![both, mixed.cloned().collect()]
}

fn lines(one: &str, other: &str) -> Vec<String> {
    let mut turns = Vec::new();
    let (first, second): (Vec<&str>, Vec<&str>) = (one.lines().collect(), other.lines().collect());
    turns.push([one, other].concat());
    turns.push(format!("{other}{one}"));
    // Lines outside of blocks only.
    let simple = second
        .iter()
        .filter(|line| !line.contains(['{', '}']) && !line.starts_with(' '));
    turns.push(
        first
            .iter()
            .chain(simple)
            .map(|line| format!("{line}\n"))
            .collect(),
    );
    turns
}

/// Returns words, one of which a step about a lost demand has.
fn words_for(demand: &str) -> &'static [&'static str] {
    match demand {
        "requires a certificate" | "verifies the server" => &["verif", "psk"],
        "checks revocation" | "checks revocation of servers" => &["crl", "ocsp", "revo"],
        "sends a header" | "expects a header" => &[
            "send-proxy",
            "proxy_protocol",
            "proxy protocol",
            "proxy header",
            "write-",
        ],
        "uses TLS to a backend" => &["ssl", "tls"],
        "limits networks" | "refuses some clients" => {
            &["allow", "deny", "reject", "network", "runs none"]
        }
        "refuses unknown names" => &["strict-sni", "nomatch"],
        "limits certificates" => &["checkhost"],
        _ => &["psk"],
    }
}

#[test]
fn no_variant_runs_and_is_less_strict_than_its_source() {
    let all = corpus();
    let (mut count, mut run, mut demanded) = (0, 0, 0);
    for file in &all {
        let own = [file.text.clone()];
        let others = all
            .iter()
            .filter(|other| other.program == file.program && other.name != file.name);
        // Some of all pairs, always the same: each file with the next ones.
        let step = 1 + file.text.len() % 3;
        let variants = others
            .step_by(step)
            .take(3)
            .flat_map(|other| variants(file, other));
        for text in own.into_iter().chain(variants) {
            let Ok(page) = import(file.program, &text) else {
                continue;
            };
            count += 1;
            run += usize::from(page.to_do == 0);
            let (source, result) = (of_source(file.program, &text), of_result(&page.text));
            let steps = steps(&page.text).to_lowercase();
            // Two servers without names on one address, of which the second serves nobody; and a file that HAProxy
            // refuses.
            let beside = ["no client reaches this server", "HAProxy refuses this file"];
            if beside.iter().any(|words| page.text.contains(words)) {
                continue;
            }
            for (port, demands) in source {
                let Some(done) = result.get(&port) else {
                    continue;
                };
                demanded += demands.len();
                // Also with steps to do: what is lost is one of them.
                let is_said = |demand: &str| {
                    let is_step = words_for(demand).iter().any(|word| steps.contains(word));
                    // Two stages of one program are one route now.
                    let is_between = page.text.contains("PROXY header, which is not needed now");
                    is_step || is_between && demand.ends_with("a header")
                };
                let lost: Vec<_> = demands
                    .difference(done)
                    .filter(|one| !is_said(one))
                    .collect();
                assert!(
                    lost.is_empty(),
                    "{}: port {port}: lost: {lost:?}\n{text}\n----\n{}",
                    file.name,
                    page.text
                );
            }
        }
    }
    assert!(
        count >= 200 && run >= 20 && demanded >= 500,
        "{count} {run} {demanded}"
    );
}

/// The judge finds what is missing: without each protection in turn, a result is less strict than its source.
#[test]
fn the_judge_sees_a_lost_protection() {
    let sources = [
        (
            Program::Stunnel,
            "[a]\naccept = 443\nconnect = 80\ncert = a.pem\nverifyChain = yes\nCAfile = ca.pem\nCRLfile = r.pem\ncheckHost = a.test\nprotocol = proxy\n",
        ),
        (
            Program::Hitch,
            "frontend = \"[*]:443\"\npem-file = \"a.pem\"\nclient-verify = required\nclient-verify-ca = \"ca.pem\"\nsni-nomatch-abort = on\nwrite-proxy-v2 = on\n",
        ),
        (
            Program::Haproxy,
            "listen l\n bind :443 ssl crt a.pem verify required ca-file ca.pem crl-file r.pem strict-sni\n tcp-request connection expect-proxy layer4 if { src 10.0.0.0/8 }\n tcp-request connection reject if { src 192.0.2.1 }\n server s 10.0.0.1:80 ssl verify required ca-file b.pem send-proxy\n",
        ),
        (
            Program::Nginx,
            "stream { server { listen 443 ssl proxy_protocol; set_real_ip_from 10.0.0.0/8; ssl_certificate a.pem; ssl_certificate_key a.key; ssl_verify_client on; ssl_client_certificate ca.pem; ssl_crl r.pem; allow 10.0.0.0/8; deny all; proxy_pass 10.0.0.1:1; proxy_protocol on; proxy_ssl on; proxy_ssl_verify on; proxy_ssl_trusted_certificate b.pem; } }",
        ),
    ];
    for (program, text) in sources {
        let page = import(program, text).expect("a valid configuration");
        assert_eq!(page.to_do, 0, "{}", page.text);
        let source = of_source(program, text);
        let is_less = |page: &str| {
            let result = of_result(page);
            source.iter().any(|(port, demands)| {
                !demands.is_subset(&result.get(port).cloned().unwrap_or_default())
            })
        };
        assert!(!is_less(&page.text), "{source:?}\n{}", page.text);
        let protections = [
            "client_certificates",
            "client_crl",
            "client_allow",
            "unknown_name",
            "proxy_protocol",
            "allow",
            "deny",
            "backend_tls",
        ];
        let mut seen = 0;
        for name in protections {
            let start = format!("{name} = ");
            let rest: Vec<&str> = page
                .text
                .lines()
                .filter(|line| !line.starts_with(&start))
                .collect();
            if rest.len() < page.text.lines().count()
                && !(name == "deny" && page.text.contains("\nallow = "))
            {
                seen += 1;
                assert!(is_less(&rest.join("\n")), "{program:?} without {name}");
            }
        }
        assert!(seen >= 3, "{program:?}: {seen}");
    }
}
