//! What the audit knows about one kind of software.

use super::signs::Signs;
use crate::catalogue::FindingId;

/// A kind of software.
pub(crate) struct Program {
    /// Its name in reports.
    pub(crate) name: &'static str,
    /// Whether these are its signs.
    pub(super) is: fn(&Signs) -> bool,
    /// A word in the banner of a server whose process is not known.
    pub(super) banner: Option<&'static str>,
    /// Whether its name is that of a library or language, so that the program's own name says more.
    pub(super) is_general: bool,
    /// Whether its runtime collects garbage.
    pub(crate) collects: bool,
    /// Whether an interpreter or runtime accounts for much of its CPU time.
    pub(crate) is_interpreted: bool,
    /// Whether its runtime compiles code while it serves.
    pub(crate) compiles: bool,
    /// Whether it has a stack for each connection by its design, and not by that of a program that uses it.
    pub(crate) has_stacks: bool,
    /// Whether advice is about calls of a TLS library, which an operator cannot make.
    pub(crate) is_library: bool,
    /// Beginnings of the names of its interpreter's program and library.
    pub(crate) interpreter: &'static [&'static str],
    /// Parts of the names of classes with an instance for every connection and for nothing else.
    pub(crate) connection_classes: &'static [&'static str],
    /// The lab's server, whose figures say what is usual.
    pub(crate) lab: fn(&Facts) -> Option<LabServer>,
    /// Causes that are not the usual ones of their finding.
    pub(crate) causes: &'static [(FindingId, &'static str)],
    /// Begins the cause of blocks that grow, if they may be garbage: its objects are blocks of malloc.
    pub(crate) garbage_blocks: Option<&'static str>,
    /// Begins the cause of buffers that are kept, if they may be garbage: the audit could not make its runtime collect.
    pub(crate) garbage_buffers: Option<&'static str>,
    /// Whether the audit saw that the change for a finding is already made.
    pub(crate) is_done: fn(FindingId, &Facts) -> bool,
    /// What to change.
    pub(super) advice: &'static [Advice],
}

/// What the advice on a finding is, in one case of it.
pub(super) struct Advice {
    pub(super) on: &'static [FindingId],
    pub(super) case: Case,
    pub(super) text: &'static str,
}

/// A case of a finding with advice of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Case {
    /// Any other.
    Usual,
    /// The server speaks HTTP, where the usual advice is about one that copies.
    Http,
    /// Handshakes parse no certificates.
    NothingParsed,
    /// Each connection has a thread; this is said in addition to the usual advice.
    Threads,
    /// Each connection of a client has a context of its own.
    ContextEach,
    /// A client discards its sessions.
    Discarded,
}

/// Observations on which advice depends.
#[derive(Clone, Copy, Default)]
pub(crate) struct Facts {
    /// The certificate's key signs quickly.
    pub(crate) signs_quickly: bool,
    /// No connection keeps a buffer as large as a record.
    pub(crate) buffers_released: bool,
    /// The process runs asyncio's event loop.
    pub(crate) asyncio: bool,
}

/// A server of the lab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LabServer {
    /// Its name in the lab's results.
    pub(crate) name: &'static str,
    /// Whether it is not the program itself but an echo server in its language.
    pub(crate) is_echo: bool,
}

/// Findings on which the advice is the same.
pub(super) mod on {
    use crate::catalogue::FindingId::{self, *};

    pub(in super::super) const IDLE_MEMORY: &[FindingId] = &[RecordBuffersKept, BytesPerConnection];
    pub(in super::super) const BUFFERS: &[FindingId] = &[RecordBuffersKept];
    pub(in super::super) const FRAGMENTATION: &[FindingId] = &[HeapFragmented];
    pub(in super::super) const FREE_PAGES: &[FindingId] = &[FreeMemoryRetained];
    pub(in super::super) const SESSION_CACHE: &[FindingId] = &[SessionCacheGrows];
    pub(in super::super) const GROWTH: &[FindingId] = &[SessionCacheGrows, GrowsUnderChurn];
    pub(in super::super) const REFUSED_SESSIONS: &[FindingId] = &[SessionOfferRefused];
    pub(in super::super) const RESUMPTION: &[FindingId] = &[
        NoResumption,
        NoTickets,
        NoResumptionInOneVersion,
        ResumptionPartial,
    ];
    pub(in super::super) const COMPRESSION: &[FindingId] =
        &[CompressionAccepted, ClientCompressionOffered];
    pub(in super::super) const OLD_VERSIONS: &[FindingId] = &[OldVersions];
    pub(in super::super) const RENEGOTIATION: &[FindingId] = &[RenegotiationByClient];
    pub(in super::super) const HANDSHAKE_COST: &[FindingId] =
        &[HandshakeCpu, SignatureDear, ResumptionNotCheaper];
    pub(in super::super) const HANDSHAKES_AT_A_TIME: &[FindingId] = &[HandshakesSerialised];
    pub(in super::super) const CLIENT_SESSIONS: &[FindingId] = &[
        ClientNeverResumes,
        ClientSeldomResumes,
        ClientSameSessionForEver,
        ClientTicketsReused,
    ];
    pub(in super::super) const KEEP_ALIVE: &[FindingId] = &[ClientNoKeepAlive];
    pub(in super::super) const CLIENT_COST: &[FindingId] = &[ClientCpu];
}

/// Advice: findings, the case if it is not the usual one, and the text.
macro_rules! advice {
    ($($on:ident $(if $case:ident)?: $text:expr;)*) => {
        &[$($crate::software::program::Advice {
            on: on::$on,
            case: [$($crate::software::Case::$case,)? $crate::software::Case::Usual][0],
            text: $text,
        }),*]
    };
}
pub(super) use advice;

/// Advice to use jemalloc.
macro_rules! jemalloc {
    ($tried:literal) => {
        concat!(
            "start the server with jemalloc instead of glibc's malloc: LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0. Tried with ",
            $tried
        )
    };
}
pub(super) use jemalloc;

/// Advice on free memory that an allocator keeps.
macro_rules! unless_bursts_recur {
    ($otherwise:expr) => {
        concat!(
            "if bursts recur, change nothing: the next burst uses the pages. Otherwise ",
            $otherwise
        )
    };
}
pub(super) use unless_bursts_recur;

impl Program {
    /// A program of which nothing else is known.
    pub(super) const fn of(name: &'static str, is: fn(&Signs) -> bool) -> Self {
        Self {
            name,
            is,
            banner: None,
            is_general: false,
            collects: false,
            is_interpreted: false,
            compiles: false,
            has_stacks: false,
            is_library: false,
            interpreter: &[],
            connection_classes: &[],
            lab: |_| None,
            causes: &[],
            garbage_blocks: None,
            garbage_buffers: None,
            is_done: |_, _| false,
            advice: &[],
        }
    }

    /// A program in a language whose runtime collects garbage.
    pub(super) const fn collecting(name: &'static str, is: fn(&Signs) -> bool) -> Self {
        Self {
            collects: true,
            is_interpreted: true,
            ..Self::of(name, is)
        }
    }

    /// What to change in it.
    pub(crate) fn advice(&self, id: FindingId, case: Case) -> Option<&'static str> {
        let found = self
            .advice
            .iter()
            .find(|advice| advice.case == case && advice.on.contains(&id));
        found.map(|advice| advice.text)
    }

    /// All its advice, for a test of what it quotes.
    #[cfg(test)]
    pub(crate) fn texts(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.advice.iter().map(|advice| advice.text)
    }

    /// The cause of a finding, if it is not the usual one.
    pub(crate) fn cause(&self, id: FindingId) -> Option<&'static str> {
        let found = self.causes.iter().find(|(of, _)| *of == id);
        found.map(|(_, cause)| *cause)
    }
}

/// The lab's server that is the program itself.
pub(super) const fn itself(name: &'static str) -> Option<LabServer> {
    Some(LabServer {
        name,
        is_echo: false,
    })
}

/// The lab's server that echoes, in this language.
pub(super) const fn echo(name: &'static str) -> Option<LabServer> {
    Some(LabServer {
        name,
        is_echo: true,
    })
}
