//! More clients than a limit admits. All connect at once; an admitted client stays until the test releases
//! it, and in the end every client must have been admitted.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::peer::{self, Peer};
use crate::wait;

/// Maximum time that a client may wait for its admission.
const CROWD_TIME: Duration = Duration::from_secs(60);

/// How a client connects.
pub type Connect = dyn Fn() -> io::Result<TcpStream> + Send + Sync;

/// A crowd of clients.
pub struct Crowd {
    size: usize,
    events: Receiver<Event>,
    leave: Arc<(Mutex<bool>, Condvar)>,
    /// Number of clients that were ever admitted.
    pub came_in: usize,
    /// Attempts that failed before admission, with the reason.
    pub turned_away: Vec<String>,
    /// Clients that lost something after admission.
    pub lost: Vec<String>,
}

enum Event {
    In,
    TurnedAway(String),
    Done,
    Lost(String),
}

impl Crowd {
    /// Starts this number of clients. A client that is refused tries again.
    pub fn gather(size: usize, connect: Box<Connect>) -> Self {
        let (sender, events) = channel();
        let leave = Arc::new((Mutex::new(false), Condvar::new()));
        let connect: Arc<Connect> = connect.into();
        for _ in 0..size {
            let (sender, leave, connect) =
                (sender.clone(), Arc::clone(&leave), Arc::clone(&connect));
            std::thread::spawn(move || live(&*connect, &sender, &leave));
        }
        Self {
            size,
            events,
            leave,
            came_in: 0,
            turned_away: Vec::new(),
            lost: Vec::new(),
        }
    }

    /// Waits until no more clients are admitted, and returns how many are.
    ///
    /// # Panics
    /// When the number keeps changing.
    pub fn wait_until_full(&mut self) -> usize {
        wait::until_still("the number of accepted clients", || {
            self.look();
            self.came_in as u64
        });
        self.came_in
    }

    /// Waits until this number of clients is admitted.
    ///
    /// # Panics
    /// When the number is not reached.
    pub fn wait_until_in(&mut self, count: usize) {
        wait::until(
            &format!("{count} clients to be accepted"),
            CROWD_TIME,
            || {
                self.look();
                (self.came_in >= count).then_some(())
            },
        );
    }

    /// Releases all admitted clients, and waits until every client was admitted and has left.
    ///
    /// # Panics
    /// When a client is never admitted, or has lost something.
    pub fn disperse(mut self) {
        *self.leave.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.leave.1.notify_all();
        let mut left = self.look();
        let end = Instant::now() + CROWD_TIME;
        while left + self.lost.len() < self.size {
            assert!(
                Instant::now() < end,
                "expected all {} clients to be accepted, {} were within {CROWD_TIME:?}; refused: {:?}",
                self.size,
                self.came_in,
                self.turned_away.last()
            );
            std::thread::sleep(Duration::from_millis(10));
            left += self.look();
        }
        assert!(
            self.lost.is_empty(),
            "expected established clients to lose nothing, {} lost data: {:?}",
            self.lost.len(),
            self.lost
        );
    }

    /// Processes the clients' events; returns how many clients have left.
    fn look(&mut self) -> usize {
        let mut left = 0;
        for event in self.events.try_iter() {
            match event {
                Event::In => self.came_in += 1,
                Event::TurnedAway(why) => self.turned_away.push(why),
                Event::Lost(why) => self.lost.push(why),
                Event::Done => left += 1,
            }
        }
        left
    }
}

/// The life of one client. The test may have ended already.
fn live(connect: &Connect, events: &Sender<Event>, leave: &(Mutex<bool>, Condvar)) {
    let end = Instant::now() + CROWD_TIME;
    let mut peer = loop {
        match enter(connect) {
            Ok(peer) => break peer,
            Err(error) => {
                let _ = events.send(Event::TurnedAway(error.to_string()));
                if Instant::now() > end {
                    let _ = events.send(Event::Lost(format!("never accepted: {error}")));
                    return;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    };
    let _ = events.send(Event::In);
    let told = leave.0.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = leave
        .1
        .wait_timeout_while(told, 2 * CROWD_TIME, |told| !*told);
    let _ = events.send(match depart(&mut peer) {
        Ok(()) => Event::Done,
        Err(error) => Event::Lost(error.to_string()),
    });
}

fn enter(connect: &Connect) -> io::Result<Peer> {
    let tcp = connect()?;
    tcp.set_nodelay(true)?;
    tcp.set_read_timeout(Some(CROWD_TIME))?;
    tcp.set_write_timeout(Some(CROWD_TIME))?;
    let mut peer = Peer::over(tcp, peer::client(peer::config()))?;
    peer.stream().write_all(b"echo\n")?;
    peer.echo()?;
    Ok(peer)
}

fn depart(peer: &mut Peer) -> io::Result<()> {
    peer.echo()?;
    peer.end_sending()?;
    peer.receive_all().map(drop)
}
