//! Programs that misuse the API: each call has its status, and the process survives.

use std::process::Command;

use crate::build::{Watch, c};
use crate::process::{certificate, run, succeed, text};

#[test]
fn every_misuse_has_its_status() {
    let folder = tempfile::tempdir().unwrap();
    for watch in [Watch::Nothing, Watch::Sanitizers] {
        let program = c(folder.path(), "tests/c/misuse.c", watch);
        assert_eq!(succeed(&mut Command::new(program), ""), "done\n");
    }
}

#[test]
fn an_encrypted_key_needs_its_passphrase() {
    let folder = tempfile::tempdir().unwrap();
    let files = certificate();
    let encrypted = folder.path().join("encrypted.key");
    let mut openssl = Command::new("openssl");
    openssl.args([
        "pkcs8",
        "-topk8",
        "-v2",
        "aes-256-cbc",
        "-passout",
        "pass:secret",
    ]);
    openssl
        .arg("-in")
        .arg(files.key())
        .arg("-out")
        .arg(&encrypted);
    succeed(&mut openssl, "");
    let program = c(folder.path(), "tests/c/encrypted_key.c", Watch::Sanitizers);
    let mut command = Command::new(program);
    command.arg(files.certificate()).arg(&encrypted);
    assert_eq!(succeed(&mut command, ""), "done\n");
}

#[test]
fn random_calls_do_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let program = c(folder.path(), "tests/c/random.c", Watch::Sanitizers);
    for seed in 1..=4 {
        let arguments = [seed.to_string(), "1500".to_owned()];
        let done = succeed(Command::new(&program).args(arguments), "");
        assert_eq!(done, "done\n", "seed {seed}");
    }
}

/// The sanitizers see C and every allocation; valgrind also checks the library's own reads.
#[test]
fn valgrind_finds_nothing_in_random_calls() {
    let folder = tempfile::tempdir().unwrap();
    let program = c(folder.path(), "tests/c/random.c", Watch::Nothing);
    let mut valgrind = Command::new("valgrind");
    valgrind.args([
        "--error-exitcode=9",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
    ]);
    let output = run(valgrind.arg(program).args(["5", "150"]), "");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "done\n");
}
