//! Faults of the simulated kernel.

/// Frequencies of legitimate but inconvenient behaviour. Each value n means once in n calls; 0: never.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// A call that could move bytes would block.
    pub would_block: usize,
    /// A call moves fewer bytes than it could.
    pub partial: usize,
    /// A ready descriptor is reported only by a later wait.
    pub late_event: usize,
    /// No free descriptor for an accept or a connect.
    pub no_descriptor: usize,
    /// No free port for a connect.
    pub no_port: usize,
    /// The poller has no room for another connection.
    pub no_watch: usize,
    /// A connect is refused.
    pub refused: usize,
    /// A connect is never answered.
    pub unanswered: usize,
    /// A send to an empty unix socket would block.
    pub joint_would_block: usize,
    /// A connect takes up to 300 ms.
    pub slow_connect: usize,
}

/// Deliberate defects of the kernel, which the checks must detect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// A byte that the worker sends is lost.
    LoseByte,
    /// A byte that the worker sends is changed.
    ChangeByte,
    /// A byte that the worker sends is repeated.
    RepeatBytes,
    /// The worker's shutdown of a direction has no effect.
    ForgetEnd,
    /// The peer receives a FIN instead of the worker's reset.
    EndForReset,
    /// A descriptor that the worker closes stays open.
    KeepDescriptor,
    /// A descriptor that the worker removes from the poller is still reported.
    KeepWatch,
    /// No descriptor is ever reported as writable.
    NeverWritable,
    /// After a worker's death, its successor can't find out which connection the worker was busy with.
    ForgetBusy,
}
