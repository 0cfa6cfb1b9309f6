//! What goes wrong, and how often.

/// How often the kernel does what is allowed to it and inconvenient, each "once in so many times";
/// 0: never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A call that could move bytes says that it would block.
    pub again: usize,
    /// A call moves fewer bytes than it could.
    pub partial: usize,
    /// An event of a descriptor that is ready is told in a later turn only.
    pub late_event: usize,
    /// No descriptor is left for an accept or a connect.
    pub no_descriptor: usize,
    /// No port is left for a connect.
    pub no_port: usize,
    /// A connect is refused.
    pub refused: usize,
    /// A connect is never answered.
    pub unanswered: usize,
    /// A unix socket takes nothing, although it is empty.
    pub joint_again: usize,
    /// A connect takes a while.
    pub slow_connect: usize,
}

/// A defect of the kernel that no program could live with: each has to be found out by the checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// A byte that the worker sends is lost.
    LoseByte,
    /// A byte that the worker sends is another one.
    ChangeByte,
    /// What the worker sends arrives twice.
    RepeatBytes,
    /// The worker's end of a direction is not passed on.
    ForgetEnd,
    /// The worker's reset arrives as an end.
    EndForReset,
    /// A descriptor that the worker closes stays open.
    KeepDescriptor,
    /// Nothing is ever told to be writable.
    NeverWritable,
    /// A worker that died is followed by one which doesn't hear which connection it was working on.
    ForgetBusy,
}
