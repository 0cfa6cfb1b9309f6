//! The whole worker over a simulated kernel: its turns, from what epoll reports to what it sends.

use dormouse_sim::CountedWorker;

use crate::watch::Once;

/// A connection at rest on an echo wakes up for 64 bytes.
pub(super) fn wake() -> Once {
    let mut worker = CountedWorker::new(false).expect("a worker");
    worker.handshake(|turn| turn());
    Box::new(move |watch| worker.wake(|turn| watch.count(turn)))
}

/// From the connect in the listener's queue to the connection at rest.
pub(super) fn handshake(resumes: bool) -> Once {
    let mut worker = CountedWorker::new(resumes).expect("a worker");
    let mut is_first = true;
    Box::new(move |watch| {
        let resumed = worker.handshake(|turn| watch.count(turn));
        assert_eq!(
            resumed,
            resumes && !is_first,
            "not the handshake to be counted"
        );
        is_first = false;
        worker.close();
    })
}
