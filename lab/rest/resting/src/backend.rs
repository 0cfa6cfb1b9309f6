//! A plain echo server, whose connections rest after every echo.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use dormouse_reactor::socket::{self, Addr, Attempt, ListenOptions};
use dormouse_reactor::{Fd, OnExec};

use crate::sleepers::{Event, Sleepers};

const BACKLOG: i32 = 4096;

/// Connections accepted per turn.
const ACCEPTS: usize = 64;

pub(crate) fn run(address: SocketAddr, count: u32) -> Result<(), Box<dyn Error>> {
    let options = ListenOptions {
        backlog: BACKLOG,
        on_exec: OnExec::Close,
        ..ListenOptions::default()
    };
    let listener = socket::listen(&Addr::Tcp(address), &options)?;
    let mut sleepers = Sleepers::new(count)?;
    sleepers.watch(listener)?;
    let (mut events, mut next) = (Vec::new(), 0);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        sleepers.turn(Duration::from_secs(1), &mut events)?;
        for _ in 0..ACCEPTS {
            let Attempt::Done(accepted) = socket::accept(listener, OnExec::Close)? else {
                break;
            };
            // Numbers of ended connections are not used again.
            if next == count {
                accepted.fd.close();
                continue;
            }
            socket::set_nodelay(accepted.fd, true)?;
            sleepers.take(next, accepted.fd)?;
            next += 1;
        }
        for event in events.drain(..) {
            let Event::Readable(number) = event else {
                continue;
            };
            let fd = sleepers.socket(number);
            // It has ended, or rests again.
            if fd == Fd::NONE {
                continue;
            }
            match socket::recv(fd, &mut buffer) {
                Ok(Attempt::WouldBlock) => {}
                Ok(Attempt::Done(len @ 1..)) => match socket::send(fd, &buffer[..len]) {
                    Ok(Attempt::Done(sent)) if sent == len => sleepers.rest(number),
                    _ => sleepers.end(number),
                },
                _ => sleepers.end(number),
            }
        }
    }
}
