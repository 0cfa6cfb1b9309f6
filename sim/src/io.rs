//! The worker's interface to the simulated kernel, and the steps at which the worker may be killed.

use crate::kernel::Kernel;
use dormouse_dataplane::Io;
use dormouse_engine::{AgreementBatches, UnixTime};
use dormouse_handover::orders::{Order, WorkerReport};
use dormouse_reactor::Fd;
use dormouse_reactor::poller::{Events, Interest};
use dormouse_reactor::socket::{
    Accepted, Addr, Attempt, ConnectOptions, Connecting, Peer, Queues, Received,
};
use dormouse_rest::Message;
use dormouse_routes::socket_options::SocketOptions;
use dormouse_testkit::NOW_S;
use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Range;
use std::panic::resume_unwind;
use std::rc::Rc;
use std::time::Duration;

/// The panic payload of a killed worker.
pub(crate) struct Killed;

/// The number of steps until the worker is killed.
#[derive(Clone, Debug)]
pub(crate) struct Fuse(Rc<Cell<u64>>);

impl Fuse {
    /// A fuse that never kills.
    pub(crate) fn endless() -> Fuse {
        Fuse(Rc::new(Cell::new(u64::MAX)))
    }

    /// Sets the number of steps until the worker is killed.
    pub(crate) fn set(&self, steps: u64) {
        self.0.set(steps);
    }

    /// The number of steps left.
    pub(crate) fn left(&self) -> u64 {
        self.0.get()
    }

    /// The number of steps taken, if the worker is never killed.
    fn taken(&self) -> u64 {
        u64::MAX - self.left()
    }

    /// Counts a step; kills the worker at the last one.
    pub(crate) fn step(&self) {
        let left = self.0.get() - 1;
        if left == 0 {
            self.0.set(u64::MAX);
            // Without a panic message: this death is part of the simulation.
            resume_unwind(Box::new(Killed));
        }
        self.0.set(left);
    }
}

/// The operating system of one worker.
pub(crate) struct SimIo {
    kernel: Rc<RefCell<Kernel>>,
    fuse: Fuse,
}

impl SimIo {
    /// Interface to this kernel.
    pub(crate) fn new(kernel: Rc<RefCell<Kernel>>, fuse: Fuse) -> SimIo {
        SimIo { kernel, fuse }
    }

    /// Makes a call, with a step before it and one after it.
    fn call<T>(&self, name: &str, fd: Fd, call: impl FnOnce(&mut Kernel) -> T) -> T
    where
        T: std::fmt::Debug,
    {
        self.fuse.step();
        let done = {
            let kernel = &mut *self.kernel.borrow_mut();
            let done = call(kernel);
            if kernel.traced {
                eprintln!("{:>12} {name}({}) = {done:?}", kernel.clock_us(), fd.0);
            }
            done
        };
        self.fuse.step();
        done
    }
}

impl Io for SimIo {
    fn recv(&self, fd: Fd, buf: &mut [u8]) -> io::Result<Attempt<usize>> {
        self.call("recv", fd, |kernel| kernel.recv(fd, buf, false))
    }

    fn recv_scattered(
        &self,
        fd: Fd,
        buf: &mut [u8],
        ranges: &[Range<usize>],
    ) -> io::Result<Attempt<usize>> {
        self.call("recv", fd, |kernel| kernel.recv_scattered(fd, buf, ranges))
    }

    fn peek(&self, fd: Fd, buf: &mut [u8]) -> io::Result<Attempt<usize>> {
        self.call("peek", fd, |kernel| kernel.recv(fd, buf, true))
    }

    fn send(&self, fd: Fd, buf: &[u8]) -> io::Result<Attempt<usize>> {
        self.call("send", fd, |kernel| kernel.send(fd, buf))
    }

    fn send_before_more(&self, fd: Fd, buf: &[u8]) -> io::Result<Attempt<usize>> {
        self.call("send", fd, |kernel| kernel.send(fd, buf))
    }

    fn send_gathered(
        &self,
        fd: Fd,
        buf: &[u8],
        ranges: &[Range<usize>],
    ) -> io::Result<Attempt<usize>> {
        let bytes: Vec<u8> = ranges
            .iter()
            .flat_map(|range| &buf[range.clone()])
            .copied()
            .collect();
        self.call("send", fd, |kernel| kernel.send(fd, &bytes))
    }

    fn accept(&self, listener: Fd) -> io::Result<Attempt<Accepted>> {
        self.call("accept", listener, |kernel| kernel.accept(listener))
    }

    fn connect(&self, to: &Addr, options: &ConnectOptions) -> io::Result<Connecting> {
        self.call("connect", Fd::NONE, |kernel| {
            kernel.connect(to, options.source)
        })
    }

    fn take_error(&self, fd: Fd) -> io::Result<()> {
        self.call("take_error", fd, |kernel| kernel.take_error(fd))
    }

    fn shutdown_write(&self, fd: Fd) -> io::Result<()> {
        self.call("shutdown", fd, |kernel| kernel.shutdown_write(fd))
    }

    fn reset(&self, fd: Fd) {
        self.call("reset", fd, |kernel| kernel.reset(fd));
    }

    fn reset_on_close(&self, fd: Fd) {
        self.call("reset_on_close", fd, |kernel| kernel.reset_on_close(fd));
    }

    fn close(&self, fd: Fd) {
        self.call("close", fd, |kernel| kernel.close(fd));
    }

    fn cookie(&self, fd: Fd) -> io::Result<u64> {
        self.call("cookie", fd, |kernel| kernel.cookie(fd))
    }

    fn peer(&self, fd: Fd) -> io::Result<Peer> {
        self.call("peer", fd, |kernel| kernel.peer(fd))
    }

    fn local_address(&self, fd: Fd) -> io::Result<Addr> {
        self.call("local_address", fd, |kernel| kernel.local_address(fd))
    }

    fn joint(&self) -> io::Result<(Fd, Fd)> {
        self.call("joint", Fd::NONE, Kernel::joint)
    }

    fn end_joint(&self, fd: Fd, _: Fd) -> io::Result<()> {
        self.call("end_joint", fd, |kernel| kernel.end_joint(fd))
    }

    fn recv_from_joint(
        &self,
        fd: Fd,
        buf: &mut [u8],
        ranges: &[Range<usize>],
    ) -> io::Result<Attempt<Received>> {
        let call = |kernel: &mut Kernel| kernel.recv_from_joint(fd, buf, ranges);
        self.call("recv_from_joint", fd, call)
    }

    fn unsent(&self, fd: Fd) -> io::Result<usize> {
        self.call("unsent", fd, |kernel| kernel.unsent(fd))
    }

    fn received_unread(&self, fd: Fd) -> io::Result<usize> {
        self.call("unread", fd, |kernel| kernel.unread(fd))
    }

    fn held_back(&self, fd: Fd) -> io::Result<usize> {
        self.call("held_back", fd, |kernel| kernel.unsent(fd))
    }

    fn set_writable_when_drained(&self, fd: Fd, on: bool) -> io::Result<()> {
        let call = |kernel: &mut Kernel| kernel.set_writable_when_drained(fd, on);
        self.call("set_writable_when_drained", fd, call)
    }

    fn queues(&self, fd: Fd) -> io::Result<Queues> {
        self.call("queues", fd, |kernel| kernel.queues(fd))
    }

    fn set_client_options(&self, _: &SocketOptions, _: Fd) {}

    fn set_backend_options(&self, _: &SocketOptions, _: Fd, _: &Addr) {}

    fn set_server_options(&self, _: &SocketOptions, _: Fd) {}

    fn set_buffers(&self, _options: &SocketOptions, _fd: Fd) {}

    fn poller(&self) -> Fd {
        self.kernel.borrow().poller_fd()
    }

    fn watch(&self, fd: Fd, token: u64, interest: Interest) -> io::Result<()> {
        let call = |kernel: &mut Kernel| kernel.watch(fd, token, interest);
        self.call("watch", fd, call)
    }

    fn watch_listener(&self, listener: Fd, token: u64) -> io::Result<()> {
        let call = |kernel: &mut Kernel| kernel.watch(listener, token, Interest::READ);
        self.call("watch_listener", listener, call)
    }

    fn rewatch(&self, fd: Fd, token: u64, interest: Interest) -> io::Result<()> {
        let call = |kernel: &mut Kernel| kernel.rewatch(fd, token, interest);
        self.call("rewatch", fd, call)
    }

    fn unwatch(&self, fd: Fd) -> io::Result<()> {
        self.call("unwatch", fd, |kernel| kernel.unwatch(fd))
    }

    fn wait(&self, events: &mut Events, timeout_ms: Option<u64>) -> io::Result<()> {
        self.kernel.borrow_mut().wait(events, timeout_ms);
        self.fuse.step();
        Ok(())
    }

    fn boottime_ms(&self) -> u64 {
        self.kernel.borrow().clock_us() / 1000
    }

    fn monotonic_us(&self) -> u64 {
        self.kernel.borrow().clock_us()
    }

    fn unix_ms(&self) -> u64 {
        self.unix_time().as_secs() * 1000
    }

    fn unix_time(&self) -> UnixTime {
        let since = Duration::from_secs(NOW_S) + Duration::from_micros(self.monotonic_us());
        UnixTime::since_unix_epoch(since)
    }

    fn descriptors_max(&self) -> u64 {
        self.kernel.borrow().descriptors_max()
    }

    fn close_all_but(&self, known: &mut [Fd]) -> io::Result<()> {
        self.call("close_all_but", Fd::NONE, |kernel| {
            kernel.close_all_but(known)
        });
        Ok(())
    }

    fn return_heap(&self) {}

    fn random(&self) -> u64 {
        self.kernel.borrow_mut().random()
    }

    fn agreement_batches(&self) -> Option<AgreementBatches> {
        // A seed means the same on every CPU.
        let has_batches = self.kernel.borrow().has_batches;
        has_batches.then(AgreementBatches::one_by_one)
    }

    fn receive_order(&self, channel: Fd) -> io::Result<Option<Order>> {
        self.fuse.step();
        let _ = channel;
        Ok(self.kernel.borrow_mut().orders.pop_front())
    }

    fn send_report(&self, _: Fd, report: &WorkerReport) -> bool {
        self.fuse.step();
        self.kernel.borrow_mut().reports.push(report.clone());
        true
    }

    fn send_to_repair(
        &self,
        channel: Fd,
        message: Message,
        fd: Option<Fd>,
    ) -> io::Result<Attempt<()>> {
        let step = self.fuse.taken();
        let call = |kernel: &mut Kernel| {
            kernel.note_rest(message, step);
            kernel.send_to_repair(channel, message, fd)
        };
        self.call("send_to_repair", fd.unwrap_or(Fd::NONE), call)
    }

    fn peek_from_repair(&self, channel: Fd) -> io::Result<Option<(Message, Option<Fd>)>> {
        let call = |kernel: &mut Kernel| kernel.peek_from_repair(channel);
        self.call("peek_from_repair", channel, call)
    }

    fn take_from_repair(&self, channel: Fd) -> io::Result<()> {
        let step = self.fuse.taken();
        let call = |kernel: &mut Kernel| {
            kernel.note_taken(step);
            kernel.take_from_repair(channel)
        };
        self.call("take_from_repair", channel, call)
    }
}
