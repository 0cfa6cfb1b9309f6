//! What main and its workers say to each other, over a pair of unix sockets.
//!
//! Main says "stop" and gives out ticket keys; a worker says "ready". One byte says which; keys
//! have a fixed length. Each message is one write, far below what a socket's buffer takes at once.

use dormouse_engine::TicketKeys;
use dormouse_reactor::Fd;
use dormouse_reactor::socket::{self, Attempt};
use std::io;
use zeroize::Zeroizing;

const STOP: u8 = b'S';
const KEYS: u8 = b'K';
const READY: u8 = b'R';

/// What main can ask of a worker.
pub(crate) enum Order {
    /// Accept nothing more, let pending work end, close everything properly.
    Stop,
    /// Seal and open tickets with these from now on.
    TicketKeys(Box<TicketKeys>),
}

/// Worker: reads an order. `Ok(None)`: none has come.
pub(crate) fn receive(fd: Fd) -> io::Result<Option<Order>> {
    let mut kind = [0];
    match socket::recv(fd, &mut kind)? {
        Attempt::WouldBlock => return Ok(None),
        Attempt::Done(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Attempt::Done(_) => {}
    }
    match kind[0] {
        STOP => Ok(Some(Order::Stop)),
        KEYS => {
            let mut bytes = Zeroizing::new(vec![0; TicketKeys::EXPORT_LEN]);
            match socket::recv(fd, &mut bytes)? {
                Attempt::Done(n) if n == bytes.len() => {}
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
            let keys = TicketKeys::import(&bytes).map_err(io::Error::other)?;
            Ok(Some(Order::TicketKeys(Box::new(keys))))
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Worker: says that it serves. If main is gone there is nobody to tell, and no harm in that.
pub(crate) fn say_ready(fd: Fd) {
    let _ = socket::send(fd, &[READY]);
}

/// Main: has the worker said that it is ready? An error: there is no worker any more, nor a keeper
/// who could start one.
pub(crate) fn heard_ready(fd: Fd) -> io::Result<bool> {
    let mut word = [0; 16];
    match socket::recv(fd, &mut word)? {
        Attempt::WouldBlock => Ok(false),
        Attempt::Done(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Attempt::Done(n) => Ok(word[..n].contains(&READY)),
    }
}

/// Main: asks the worker to stop.
pub(crate) fn stop(fd: Fd) {
    let _ = socket::send(fd, &[STOP]);
}

/// Main: gives out ticket keys.
pub(crate) fn give_ticket_keys(fd: Fd, keys: &TicketKeys) {
    let exported = keys.export();
    let mut message = Zeroizing::new(Vec::with_capacity(1 + exported.len()));
    message.push(KEYS);
    message.extend_from_slice(&exported);
    let _ = socket::send(fd, &message);
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_engine::UnixTime;
    use dormouse_reactor::OnExec;
    use std::time::Duration;

    #[test]
    fn orders_arrive_as_they_were_given() {
        let (main, worker) = socket::pair(OnExec::Close).expect("a pair of sockets");
        assert!(receive(worker).expect("nothing yet").is_none());
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_000_000));
        let keys = TicketKeys::generate(now, 60).expect("random bytes");
        give_ticket_keys(main, &keys);
        stop(main);
        match receive(worker).expect("an order") {
            Some(Order::TicketKeys(got)) => assert_eq!(*got.export(), *keys.export()),
            _ => panic!("not ticket keys"),
        }
        assert!(matches!(receive(worker), Ok(Some(Order::Stop))));
        assert!(!heard_ready(main).expect("nothing yet"));
        say_ready(worker);
        assert!(heard_ready(main).expect("a word"));
        main.close();
        assert!(receive(worker).is_err(), "main is gone");
        worker.close();
    }
}
