//! A worker with one route and one client at a time, without faults, to count the instructions of its event loop.

use super::pairs::{self, Contexts};
use super::scenario::{RouteKind, Scenario};
use super::setup::{self, Setup};
use crate::io::{Fuse, SimIo};
use crate::kernel::{Buffers, EndId, Kernel};
use crate::peer::codec::Codec;
use dormouse_dataplane::driven::DrivenWorker;
use dormouse_reactor::socket::Attempt;
use dormouse_record::State;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

/// Turns of the event loop within which a client is answered.
const TURNS_MAX: u32 = 20;

/// The content that is echoed.
const CONTENT: [u8; 64] = [7; 64];

/// A worker with one client.
pub struct CountedWorker {
    kernel: Rc<RefCell<Kernel>>,
    worker: DrivenWorker<SimIo>,
    contexts: Contexts,
    client: Option<(EndId, Codec)>,
    /// Number of backends, and the backend's end of the client's connection.
    backends: usize,
    backend: Option<EndId>,
    received: Vec<u8>,
    _setup: Setup,
}

impl CountedWorker {
    /// A worker without connections, whose route echoes by itself or has backends that echo. `resumes`: whether each
    /// client resumes the previous client's session.
    ///
    /// # Errors
    /// When the worker's shared memory can't be created.
    pub fn new(route_kind: RouteKind, resumes: bool) -> io::Result<CountedWorker> {
        let scenario = Scenario {
            route_kind,
            buffers: Buffers {
                send: 1 << 16,
                receive: 1 << 16,
            },
            ..Scenario::calm(1)
        };
        let (kernel, setup) = setup::calm(&scenario)?;
        let kernel = Rc::new(RefCell::new(kernel));
        let io = SimIo::new(Rc::clone(&kernel), Fuse::endless());
        Ok(CountedWorker {
            worker: DrivenWorker::begin(setup.handover, |_| Ok(io))?,
            kernel,
            contexts: Contexts::new(pairs::protocols(false), resumes),
            client: None,
            backends: setup::backends(route_kind).len(),
            backend: None,
            received: vec![0; 1 << 16],
            _setup: setup,
        })
    }

    /// Connects a client and completes its handshake. `count` runs each turn of the worker's event loop.
    /// Returns whether a session was resumed.
    pub fn handshake(&mut self, count: impl FnMut(&mut dyn FnMut())) -> bool {
        let end = self.kernel.borrow_mut().connect_client(0);
        let codec = Codec::tls(self.contexts.client(), State::empty());
        self.client = Some((end, codec));
        let mut resumed = None;
        self.turn_until(count, |worker| {
            worker.exchange(|_| {});
            resumed = worker.is_resumed();
            resumed.is_some() && worker.worker.handshakes() == 0
        });
        resumed.expect("a handshake")
    }

    /// Wipes the keys that the worker has kept, as if other connections had taken their places.
    pub fn forget_keys(&mut self) {
        self.worker.forget_keys();
    }

    /// Echoes 64 bytes of the client.
    pub fn wake(&mut self, count: impl FnMut(&mut dyn FnMut())) {
        let mut wire = Vec::new();
        let (end, codec) = self.client.as_mut().expect("a client");
        codec.send(&CONTENT, &mut wire);
        let sent = self.kernel.borrow_mut().send_from(*end, &wire);
        assert!(matches!(sent, Ok(Attempt::Done(n)) if n == wire.len()));
        let mut echoed = Vec::new();
        self.turn_until(count, |worker| {
            worker.exchange(|content| echoed.extend_from_slice(content));
            echoed.len() == CONTENT.len()
        });
        assert_eq!(echoed, CONTENT);
    }

    /// Closes the client's connection.
    pub fn close(&mut self) {
        let mut wire = Vec::new();
        let (end, mut codec) = self.client.take().expect("a client");
        codec.end(false, &mut wire);
        {
            let kernel = &mut *self.kernel.borrow_mut();
            let _ = kernel.send_from(end, &wire);
            kernel.shutdown_at(end);
            if let Some(end) = self.backend.take() {
                kernel.shutdown_at(end);
            }
        }
        self.turn_until(|turn| turn(), |worker| worker.worker.slots().live() == 0);
        self.kernel.borrow_mut().close_at(end);
    }

    fn turn_until(
        &mut self,
        mut count: impl FnMut(&mut dyn FnMut()),
        mut is_done: impl FnMut(&mut CountedWorker) -> bool,
    ) {
        for _ in 0..TURNS_MAX {
            self.kernel.borrow_mut().deliver();
            count(&mut || {
                let exit = self.worker.turn().expect("a turn");
                assert_eq!(exit, None);
            });
            self.echo_at_backend();
            self.kernel.borrow_mut().deliver();
            if is_done(self) {
                return;
            }
        }
        panic!("not done after {TURNS_MAX} turns");
    }

    /// Accepts the connection to a backend, and sends back what the backend has received.
    fn echo_at_backend(&mut self) {
        let kernel = &mut *self.kernel.borrow_mut();
        let backends = 0..self.backends;
        self.backend = self.backend.or_else(|| {
            let mut accepted = backends.filter_map(|backend| kernel.accept_backend(backend));
            accepted.next()
        });
        kernel.deliver();
        let Some(end) = self.backend else { return };
        if let Ok(Attempt::Done(n)) = kernel.recv_at(end, &mut self.received) {
            let echo = &self.received[..n];
            let sent = kernel.send_from(end, echo);
            assert!(matches!(sent, Ok(Attempt::Done(sent)) if sent == n));
        }
    }

    /// Receives at the client, and sends its TLS output.
    fn exchange(&mut self, on_content: impl FnMut(&[u8])) {
        let kernel = &mut *self.kernel.borrow_mut();
        let (end, codec) = self.client.as_mut().expect("a client");
        let received = match kernel.recv_at(*end, &mut self.received) {
            Ok(Attempt::Done(n)) => n,
            _ => 0,
        };
        codec.handle(&mut self.received[..received], on_content);
        let mut wire = Vec::new();
        codec.flush(&mut wire);
        if !wire.is_empty() {
            let _ = kernel.send_from(*end, &wire);
        }
    }

    fn is_resumed(&self) -> Option<bool> {
        let (_, codec) = self.client.as_ref()?;
        codec.is_resumed()
    }
}
