//! Every configuration of the README and the guide passes `dormouse check`.

use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::machine::Machine;
use dormouse_interop::wait::PATIENCE;

use super::neighbours::names;
use super::page::{Block, blocks, guide};

/// Completes a partial file, for each section that it does not have itself.
const REST: [(&str, &str); 3] = [
    ("listen", "\"127.0.0.1:8443\""),
    ("to", "\"127.0.0.1:8080\""),
    ("self_signed", "\"localhost\""),
];

#[test]
fn every_configuration_passes_check() {
    let Some(machine) = Machine::start() else {
        return;
    };
    names(&machine);
    let (mut checked, mut wrong) = (0, String::new());
    for page in guide().into_iter().chain(["README.md".to_owned()]) {
        make_directories(&machine, &page);
        for block in blocks(&page)
            .iter()
            .filter(|block| block.language == "toml")
        {
            let judged = check(&machine, &block.text);
            wrong.extend(
                judged
                    .err()
                    .map(|why| format!("{page}:{}: {why}\n", block.line)),
            );
            checked += 1;
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(checked > 20, "only {checked} were found");
}

/// Runs the commands of a page that make directories for its configurations. A new machine has none of them.
fn make_directories(machine: &Machine, page: &str) {
    let commands = blocks(page)
        .iter()
        .flat_map(Block::commands)
        .collect::<Vec<_>>();
    for command in commands
        .iter()
        .filter(|command| command.starts_with("mkdir -p /"))
    {
        machine.run(command);
    }
}

/// Checks a block, as a whole file or as part of one.
pub(super) fn check(machine: &Machine, block: &str) -> Result<(), String> {
    files_of(machine, block);
    let mut complaints = String::new();
    for text in completed(block) {
        machine.write("dormouse.toml", &text);
        let command = "dormouse check dormouse.toml";
        let (status, log) = machine.run_in(&machine.home(), command, PATIENCE);
        if status.success() {
            return Ok(());
        }
        complaints.push_str(&format!("---- as\n{text}\n{log}"));
    }
    Err(format!("not a configuration:\n{complaints}"))
}

/// Writes the files that a configuration names, with contents by their names.
fn files_of(machine: &Machine, block: &str) {
    let read = |file| std::fs::read_to_string(file).expect("a file of the authority");
    let trusted = read(authority().trust());
    for name in block.split('"').skip(1).step_by(2) {
        let file = name.rsplit('/').next().unwrap_or(name);
        let stem = file.split(".both.pem").next().unwrap_or(file);
        let stem = stem.trim_end_matches(".pem").trim_end_matches(".key");
        if file.ends_with("-ca.pem") {
            machine.write(name, &trusted);
        } else if name.ends_with("/certs/") {
            let files = authority().certificate(Kind::EcdsaP256);
            machine.write(&format!("{name}localhost.pem"), &read(files.both.clone()));
        } else if name == "sites/" {
            machine.write("sites/none.toml", "");
        } else if name.ends_with("/crls/") {
            let list = authority().revocation_list(&[]);
            machine.write(&format!("{name}list.pem"), &list);
        } else if file.ends_with(".ocsp") {
            answer_of_the_authority(machine, stem.trim_end_matches(".ocsp"), name);
        } else if file.ends_with(".secret") {
            machine.run(&format!("(umask 077; openssl rand -hex 32 > {name})"));
        } else if let Some(stem) = file.strip_suffix(".pass") {
            machine.run(&format!(
                "set -e; umask 077; openssl rand -hex 16 > {name}
                 openssl pkcs8 -topk8 -passout file:{name} -in {stem}.key -out encrypted && mv encrypted {stem}.key"
            ));
        } else if file.ends_with("dns.key") {
            // As tsig-keygen writes it.
            let key =
                "key \"acme\" { algorithm hmac-sha256; secret \"'$(openssl rand -base64 32)'\"; };";
            machine.run(&format!("(umask 077; echo '{key}' > {name})"));
        } else if file.ends_with(".key") || file.ends_with(".pem") {
            authority().give_out_for(stem, Kind::EcdsaP256, &[stem], &machine.home());
            if let Some((folder, _)) = name.rsplit_once('/').filter(|_| name.starts_with('/')) {
                machine.run(&format!(
                    "mkdir -p {folder} && cp {stem}.pem {stem}.key {folder}/"
                ));
            }
        }
    }
}

/// Writes an OCSP response for a certificate that the CA has issued before.
fn answer_of_the_authority(machine: &Machine, certificate: &str, name: &str) {
    let (ca, key) = (authority().trust(), authority().key());
    let (ca, key) = (ca.display(), key.display());
    machine.run(&format!(
        "set -e; openssl ocsp -issuer {ca} -cert {certificate}.pem -reqout request
         serial=$(openssl x509 -in {certificate}.pem -noout -serial | cut -d = -f 2)
         printf 'V\\t351231235959Z\\t\\t%s\\tunknown\\t/CN=localhost\\n' $serial > index
         openssl ocsp -index index -CA {ca} -rsigner {ca} -rkey {key} -ndays 1 -reqin request -respout {name}"
    ));
}

/// Interpretations of a block: a whole file, a file with its elided part (`# …`) filled in, part of a route,
/// and the options above the routes.
fn completed(block: &str) -> [String; 4] {
    let says = |name: &str| {
        block
            .lines()
            .any(|line| line.split('=').next().is_some_and(|key| key.trim() == name))
    };
    let is_identified = says("certificates") || says("pass_through");
    let missing = REST
        .iter()
        .filter(|(name, _)| !says(name) && (*name != "self_signed" || !is_identified));
    let rest: String = missing
        .map(|(name, value)| format!("{name} = {value}\n"))
        .collect();
    let whole: String = REST
        .iter()
        .map(|(name, value)| format!("{name} = {value}\n"))
        .collect();
    [
        block.to_owned(),
        block.replacen("# …\n", &rest, 1),
        format!("[[route]]\n{rest}{block}"),
        format!("{block}\n[[route]]\n{whole}"),
    ]
}
