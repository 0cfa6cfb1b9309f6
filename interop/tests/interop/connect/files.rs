//! Files of the program: unix sockets and sessions.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Instant;

use dormouse_interop::admin::Admin;
use dormouse_interop::originator::{Originator, Settings};
use dormouse_interop::process::signal;
use dormouse_interop::strace::{DELAY, Strace};
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;

use super::local_clients::server;

/// Unix sockets whose files somebody has removed can be reached again after a reload or an upgrade.
#[test]
fn lost_files_of_unix_sockets_are_created_again() {
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

    // An upgrade does the same.
    for file in [&plain, &socket] {
        fs::remove_file(file).expect("a socket's file");
    }
    signal(connect.process.pid(), Signal::USR2);
    for file in [&plain, &socket] {
        wait::until("the sockets", PATIENCE, || {
            UnixStream::connect(file).ok().map(drop)
        });
    }
    echo();

    // Another program's listener is left alone, and so is its file when this program ends, also after an upgrade.
    fs::remove_file(&plain).expect("the listener's file");
    let theirs = UnixListener::bind(&plain).expect("another listener");
    let is_refused = || {
        let why = reloads().expect_err("the path is in use");
        let names_it = why.contains("plain.sock") && why.contains("in use");
        assert!(names_it, "{why}");
    };
    is_refused();
    admin.order("/upgrade").expect("an upgrade");
    is_refused();
    connect.process.terminate();
    assert!(plain.exists() && !socket.exists());
    drop(theirs);
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).expect("a file").ino()
}

/// A disk that takes long to write does not hold up main when it saves sessions.
#[test]
fn a_slow_disk_under_the_session_file_holds_nothing_up() {
    let server = server();
    let settings = Settings::new(&[server.address])
        .top("admin = \"admin.sock\"")
        .line("session_file = \"sessions\"");
    let connect = Originator::start(&settings);
    let Some(slow) = Strace::slow_disk(connect.process.pid()) else {
        return;
    };
    let mut client = connect.saying("echo");
    client.echo().expect("an echo");
    let is_there = |name: &str| connect.folder.path().join(name).exists();
    wait::until_true("sessions to be saved", || {
        is_there("sessions") || is_there("sessions.new")
    });
    let begun = Instant::now();
    let reloaded = Admin::at(&connect.folder.path().join("admin.sock")).order("/reload");
    let took = begun.elapsed();
    drop(slow);
    reloaded.expect("a reload");
    assert!(took < DELAY / 2, "{took:?}");
    assert!(is_there("sessions"));
}
