//! TLS clients: 128 bytes and a record each, while they rest.

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use dormouse_embed::at_rest::{ANSWER_MAX, receive, seal, sealed_len};
use dormouse_embed::{
    ClientContext, ClientSettings, Event as TlsEvent, Group, Roots, Session, State, UnixTime,
};
use dormouse_reactor::Fd;
use dormouse_reactor::OnExec;
use dormouse_reactor::socket::{self, Addr, Attempt, ConnectOptions};
use zerocopy::FromBytes as _;

use crate::sleepers::{Event, Sleepers};

/// Threads that shake hands.
const THREADS: u32 = 4;

/// Connections on their way from these threads.
const UNTAKEN_MAX: usize = 256;

/// Awake connections beyond which no more are opened, and no more woken.
const AWAKE_MAX: u32 = 4_000;

/// Echoes under way at once.
const ECHOES_MAX: usize = 256;

/// Wakes between two turns: their answers must fit into the channel, or they are forgotten.
const WAKES_PER_TURN: u32 = 64;

/// No echo takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// The ports of one source address. The kernel would give the port of a resting connection to the next one.
const PORTS: Range<u16> = 2_000..62_000;

const MESSAGE: &[u8; 16] = b"sixteen bytes...";

/// A connection that has echoed once.
struct Opened {
    number: u32,
    fd: Fd,
    state: State,
}

struct Clients {
    gateway: SocketAddr,
    context: ClientContext,
    sleepers: Sleepers,
    states: Vec<State>,
    /// When the echo of a connection began.
    pending: HashMap<u32, Instant>,
    /// The connection whose turn is next.
    next: u32,
    took_us: Vec<u32>,
    lost: u32,
    wrong: u32,
}

pub(crate) fn run(gateway: SocketAddr, count: u32) -> Result<(), Box<dyn Error>> {
    let mut settings = ClientSettings::new(Roots::Insecure);
    settings.groups.retain(|group| *group == Group::X25519);
    settings.resumption = None;
    let mut clients = Clients {
        gateway,
        context: ClientContext::new(settings)?,
        sleepers: Sleepers::new(count)?,
        states: Vec::new(),
        pending: HashMap::new(),
        next: 0,
        took_us: Vec::new(),
        lost: 0,
        wrong: 0,
    };
    let orders = orders();
    loop {
        let order = match orders.try_recv() {
            Ok(order) => order?,
            // The gateway asks whether they live.
            Err(TryRecvError::Empty) => {
                clients.turn(Duration::from_millis(10))?;
                continue;
            }
            Err(TryRecvError::Disconnected) => return Ok(()),
        };
        let begin = Instant::now();
        match order.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["open", more] => clients.open(more.parse()?)?,
            ["echo", echoes] => clients.echo(echoes.parse()?, None)?,
            ["pace", rate, seconds] => {
                let (rate, seconds): (f64, f64) = (rate.parse()?, seconds.parse()?);
                let between = Duration::from_secs_f64(1.0 / rate);
                clients.echo((rate * seconds) as u32, Some(between))?;
            }
            _ => return Err(format!("no order: {order}").into()),
        }
        clients.settle()?;
        clients.report(begin.elapsed());
    }
}

/// The lines of the standard input, until its end.
fn orders() -> Receiver<io::Result<String>> {
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

impl Clients {
    fn open(&mut self, more: u32) -> Result<(), Box<dyn Error>> {
        let first = self.states.len() as u32;
        self.states
            .resize_with((first + more) as usize, State::empty);
        let opened = self.openers(first, more);
        let mut left = more;
        while left > 0 {
            while left > 0 && self.sleepers.awake < AWAKE_MAX {
                match opened.try_recv() {
                    Ok(Ok(Opened { number, fd, state })) => {
                        self.states[number as usize] = state;
                        self.sleepers.take(number, fd)?;
                        self.sleepers.rest(number);
                        left -= 1;
                    }
                    Ok(Err(error)) => return Err(error.into()),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Err("an opener has ended".into()),
                }
            }
            self.turn(Duration::from_millis(1))?;
        }
        Ok(())
    }

    fn openers(&self, first: u32, more: u32) -> Receiver<Result<Opened, String>> {
        let (sender, receiver) = sync_channel(UNTAKEN_MAX);
        for thread in 0..THREADS {
            let (sender, context, gateway) = (sender.clone(), self.context.clone(), self.gateway);
            std::thread::spawn(move || {
                for number in (first + thread..first + more).step_by(THREADS as usize) {
                    let opened = open(number, gateway, &context);
                    let opened = opened.map_err(|error| format!("connection {number}: {error}"));
                    if sender.send(opened).is_err() {
                        return;
                    }
                }
            });
        }
        receiver
    }

    fn echo(&mut self, mut left: u32, between: Option<Duration>) -> Result<(), Box<dyn Error>> {
        let begin = Instant::now();
        let mut begun = 0;
        while left > 0 || !self.pending.is_empty() {
            let is_due = |begun: u32| between.is_none_or(|step| begin.elapsed() >= step * begun);
            let turn_ends = begun + WAKES_PER_TURN;
            while left > 0 && begun < turn_ends && self.pending.len() < ECHOES_MAX && is_due(begun)
            {
                let number = self.next;
                self.next = (self.next + 1) % self.states.len() as u32;
                (left, begun) = (left - 1, begun + 1);
                self.pending.insert(number, Instant::now());
                match self.sleepers.socket(number) {
                    Fd::NONE => self.sleepers.wake(number)?,
                    _ => self.send(number)?,
                }
            }
            self.turn(Duration::from_millis(1))?;
            let is_late = |begin: &mut Instant| begin.elapsed() > PATIENCE;
            let late = self.pending.extract_if(|_, begin| is_late(begin)).count();
            self.lost += late as u32;
        }
        Ok(())
    }

    /// Waits until all rest.
    fn settle(&mut self) -> io::Result<()> {
        let begin = Instant::now();
        while self.sleepers.awake > 0 && begin.elapsed() < PATIENCE {
            self.turn(Duration::from_millis(10))?;
        }
        Ok(())
    }

    fn turn(&mut self, wait: Duration) -> io::Result<()> {
        let mut events = Vec::new();
        self.sleepers.turn(wait, &mut events)?;
        for event in events {
            match event {
                Event::Awake(number) if self.pending.contains_key(&number) => self.send(number)?,
                Event::Awake(number) => self.sleepers.rest(number),
                Event::Readable(number) => self.hear(number)?,
                Event::Gone(number) => {
                    self.pending.remove(&number);
                    self.lost += 1;
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, number: u32) -> io::Result<()> {
        let state = &mut self.states[number as usize];
        let mut record = vec![0; sealed_len(state, MESSAGE.len())];
        let len = seal(state, MESSAGE, &mut record).map_err(io::Error::other)?;
        let _ = socket::send(self.sleepers.socket(number), &record[..len])?;
        Ok(())
    }

    fn hear(&mut self, number: u32) -> io::Result<()> {
        let mut wire = [0; 512];
        let fd = self.sleepers.socket(number);
        if fd == Fd::NONE {
            return Ok(());
        }
        let len = match socket::recv(fd, &mut wire) {
            Ok(Attempt::WouldBlock) => return Ok(()),
            Ok(Attempt::Done(len @ 1..)) => len,
            _ => {
                self.sleepers.end(number);
                self.pending.remove(&number);
                self.lost += 1;
                return Ok(());
            }
        };
        let (state, mut answer) = (&mut self.states[number as usize], [0; ANSWER_MAX]);
        let received = receive(state, now(), &mut wire[..len], &mut answer, None);
        let is_right = received.is_ok_and(|received| {
            received.end.is_none() && wire[..received.plaintext_len] == MESSAGE[..]
        });
        self.wrong += u32::from(!is_right);
        if let Some(begin) = self.pending.remove(&number) {
            self.took_us.push(begin.elapsed().as_micros() as u32);
        }
        self.sleepers.rest(number);
        Ok(())
    }

    fn report(&mut self, took: Duration) {
        self.took_us.sort_unstable();
        let percent = |percent: usize| {
            let place = self.took_us.len() * percent / 100;
            self.took_us.get(place).copied().unwrap_or(0)
        };
        println!(
            "{{\"open\":{},\"resting\":{},\"awake\":{},\"seconds\":{:.1},\"echoes\":{},\"p50_us\":{},\"p99_us\":{},\
             \"lost\":{},\"wrong\":{}}}",
            self.states.len(),
            self.sleepers.resting,
            self.sleepers.awake,
            took.as_secs_f64(),
            self.took_us.len(),
            percent(50),
            percent(99),
            self.lost,
            self.wrong
        );
        self.took_us.clear();
    }
}

/// The source of a connection. Each has its own.
fn source(number: u32) -> SocketAddr {
    let ports = u32::from(PORTS.end - PORTS.start);
    let host = u32::from(Ipv4Addr::new(127, 64, 0, 1)) + number / ports;
    let port = PORTS.start + (number % ports) as u16;
    SocketAddr::new(IpAddr::V4(host.into()), port)
}

fn open(
    number: u32,
    gateway: SocketAddr,
    context: &ClientContext,
) -> Result<Opened, Box<dyn Error>> {
    let options = ConnectOptions {
        source: Some(source(number)),
        on_exec: OnExec::Close,
        ..ConnectOptions::default()
    };
    let fd = socket::connect(&Addr::Tcp(gateway), &options)?.fd();
    socket::set_nodelay(fd, true)?;
    let mut stream = TcpStream::from(fd.into_owned()?);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut session = Session::connect(context, "localhost")?;
    let mut wire = vec![0; 8 * 1024];
    let (mut len, mut has_sent, mut back) = (0, false, Vec::new());
    while back.len() < MESSAGE.len() {
        let mut has_ended = false;
        session.feed(now(), &mut wire[..len], |event| match event {
            TlsEvent::Data(bytes) => back.extend_from_slice(bytes),
            TlsEvent::Ended(_) => has_ended = true,
            _ => {}
        })?;
        if !session.is_handshaking() && !has_sent {
            session.send(MESSAGE)?;
            has_sent = true;
        }
        stream.write_all(session.output())?;
        session.output_sent(session.output().len());
        if has_ended {
            return Err("ended before an echo".into());
        }
        if back.len() < MESSAGE.len() {
            len = stream.read(&mut wire)?;
            if len == 0 {
                return Err("closed before an echo".into());
            }
        }
    }
    if back != MESSAGE {
        return Err("other bytes came back".into());
    }
    let bytes = session.export()?;
    let state = State::read_from_bytes(&bytes).map_err(|_| "bytes are left over")?;
    stream.set_nonblocking(true)?;
    Ok(Opened {
        number,
        fd: Fd::from_owned(stream.into()),
        state,
    })
}

fn now() -> UnixTime {
    UnixTime::now()
}
