//! Limits of an origination: its local clients, and its warm connections.

use std::io::Write as _;

use dormouse_interop::counts::Counts;
use dormouse_interop::originator::{Client, Originator, Settings};
use dormouse_interop::process::signal;
use dormouse_interop::wait;
use rustix::process::Signal;

use super::local_clients::{echoed, server};

fn count(connect: &Originator, name: &str) -> u64 {
    Counts::at(&connect.folder.path().join("admin.sock")).get(name)
}

/// All of them are accepted before one has its connection to the server.
#[test]
fn limits_of_an_origination_hold_for_clients_that_come_together() {
    const CLIENTS: usize = 30;
    const MOST: usize = 4;
    let server = server();
    for line in ["route_max_connections = 4", "route_memory_share = 10"] {
        let settings = Settings::new(&[server.address])
            .top("admin = \"admin.sock\"\nmax_connections = 40")
            .line(line);
        let connect = Originator::start(&settings);
        let workers = server.terminator.workers();
        workers.iter().for_each(|&pid| signal(pid, Signal::STOP));
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| connect.client()).collect();
        wait::until_true("all to be accepted", || {
            count(&connect, "accepted") == CLIENTS as u64
        });
        workers.iter().for_each(|&pid| signal(pid, Signal::CONT));
        let mut served: Vec<&mut Client> = clients
            .iter_mut()
            .filter_map(|client| {
                client.tcp.write_all(b"echo\n").ok()?;
                client.echo().ok().map(|()| client)
            })
            .collect();
        assert_eq!(served.len(), MOST, "{line}");
        for client in &mut served {
            client
                .echo()
                .expect("an echo beside those that were refused");
        }
    }
}

/// They are among those that the limit counts.
#[test]
fn warm_connections_are_given_away_at_the_limit_and_do_not_exceed_it() {
    const MOST: usize = 4;
    let server = server();
    let settings = Settings::new(&[server.address])
        .top("admin = \"admin.sock\"")
        .line("warm = 6")
        .line("route_max_connections = 4");
    let connect = Originator::start(&settings);
    connect.wait_for_count("warm", MOST as u64);
    let mut clients: Vec<Client> = (0..MOST).map(|_| echoed(&connect)).collect();
    assert_eq!(count(&connect, "warm_given"), MOST as u64);
    let mut one_more = connect.client();
    let refused = one_more
        .tcp
        .write_all(b"echo\n")
        .and_then(|()| one_more.echo());
    refused.expect_err("beyond the limit");
    assert_eq!(count(&connect, "connections"), MOST as u64);
    drop(clients.pop());
    connect.wait_for_count("warm", 1);
    clients.push(echoed(&connect));
    for client in &mut clients {
        client.echo().expect("an echo");
    }
    assert_eq!(count(&connect, "connections"), MOST as u64);
}
