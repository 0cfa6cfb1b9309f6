//! A complete worker over a simulated kernel: turns of its event loop, from epoll's report to the last send.

use dormouse_sim::{CountedWorker, RouteKind};

use crate::watch::Once;

/// A connection at rest on an echo route receives 64 bytes.
pub(super) fn wake() -> Once {
    let mut worker = CountedWorker::new(RouteKind::Echo, false).expect("a worker");
    worker.handshake(|turn| turn());
    Box::new(move |watch| worker.wake(|turn| watch.count(turn)))
}

/// A connection with a backend receives 64 bytes, and then their echo, after it has lost its kept keys to others.
pub(super) fn wake_after_rest() -> Once {
    let mut worker = CountedWorker::new(RouteKind::Terminate, false).expect("a worker");
    worker.handshake(|turn| turn());
    Box::new(move |watch| {
        worker.forget_keys();
        worker.wake(|turn| watch.count(turn));
    })
}

/// A connection from the listener's queue until it is at rest.
pub(super) fn handshake(resumes: bool) -> Once {
    let mut worker = CountedWorker::new(RouteKind::Echo, resumes).expect("a worker");
    let mut is_first = true;
    Box::new(move |watch| {
        let resumed = worker.handshake(|turn| watch.count(turn));
        assert_eq!(resumed, resumes && !is_first, "the wrong kind of handshake");
        is_first = false;
        worker.close();
    })
}
