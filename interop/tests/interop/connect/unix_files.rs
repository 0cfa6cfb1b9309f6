//! The files of unix sockets.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use dormouse_interop::admin::Admin;
use dormouse_interop::originator::{Originator, Settings};
use dormouse_interop::process::signal;
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;

use super::local_clients::server;

/// Unix sockets whose files somebody has removed can be reached again after a reload.
#[test]
fn a_reload_recreates_the_files_of_unix_sockets() {
    let server = server();
    let mut connect =
        Originator::start(&Settings::new(&[server.address]).top("admin = \"admin.sock\""));
    let [plain, socket] = ["plain.sock", "admin.sock"].map(|name| connect.folder.path().join(name));
    let admin = Admin::at(&socket);
    let reloads = || admin.order("/reload");
    let echo = || {
        let mut unix = UnixStream::connect(&plain).expect("a unix listener");
        unix.write_all(b"echo\nhello").expect("a write");
        let mut back = [0; 5];
        unix.read_exact(&mut back).expect("an echo");
    };
    fs::remove_file(&plain).expect("the listener's file");
    reloads().expect("a reload");
    echo();

    let before = inode(&plain);
    fs::remove_file(&socket).expect("the admin socket");
    signal(connect.process.pid(), Signal::HUP);
    wait::until("the admin socket", PATIENCE, || {
        UnixStream::connect(&socket).ok().map(drop)
    });
    assert_eq!(admin.status()["configuration"]["edition"], 3);
    assert_eq!(inode(&plain), before, "the listener stays");
    echo();

    // Another program's listener is left alone, and so is its file when this program ends.
    fs::remove_file(&plain).expect("the listener's file");
    let theirs = UnixListener::bind(&plain).expect("another listener");
    let why = reloads().expect_err("the path is in use");
    assert!(
        why.contains("plain.sock") && why.contains("in use"),
        "{why}"
    );
    signal(connect.process.pid(), Signal::TERM);
    connect.process.wait_for_end(PATIENCE);
    assert!(plain.exists() && !socket.exists());
    drop(theirs);
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).expect("a file").ino()
}
