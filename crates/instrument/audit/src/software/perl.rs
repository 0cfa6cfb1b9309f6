//! Perl with IO::Socket::SSL, such as LWP.

use super::openssl::SMALL_CACHE;
use super::program::{Program, advice, jemalloc, on};
use crate::catalogue::FindingId;

pub(super) const PROGRAM: Program = Program {
    is_interpreted: true,
    interpreter: &["perl"],
    is_done: |id, facts| id == FindingId::BytesPerConnection && facts.buffers_released,
    advice: advice! {
        IDLE_MEMORY: "set SSL_MODE_RELEASE_BUFFERS on the context: Net::SSLeay::CTX_set_mode($ctx->{context}, Net::SSLeay::MODE_RELEASE_BUFFERS()). Tried with IO::Socket::SSL and {{advice.perl.release-buffers}}";
        FRAGMENTATION: jemalloc!("{{allocators.perl}}");
        GROWTH: SMALL_CACHE;
        COMPRESSION: "leave SSL_OP_NO_COMPRESSION set, which is the default of IO::Socket::SSL. Not tried with IO::Socket::SSL; tried with {{advice.openssl.compression}}";
        CLIENT_SESSIONS: "create one context for all connections: my $ctx = IO::Socket::SSL::SSL_Context->new(…, SSL_session_cache_size => 64), passed as ssl_opts => { SSL_reuse_ctx => $ctx }. Tried with {{advice.lwp.context}}. It does not help with TLS 1.2 ({{advice.lwp.context-12}}): LWP closes connections without close_notify, and OpenSSL then drops their sessions. Or leave the script unchanged and connect through `dormouse connect`: {{advice.lwp.connect}}. In the case that started this project, the script's share of the server's CPU fell from 20.5 % to under 1 %. If a session is never renewed, create a new context after a number of requests";
        KEEP_ALIVE: "use one LWP::UserAgent->new(keep_alive => 8) for all requests. Tried with {{advice.lwp.keep-alive}}";
    },
    ..Program::of("Perl IO::Socket::SSL", |signs| signs.program("perl"))
};
