//! Go with crypto/tls.

use super::program::{Program, advice, echo, on};
use crate::catalogue::FindingId;

pub(super) const PROGRAM: Program = Program {
    is_general: true,
    has_stacks: true,
    causes: &[(
        FindingId::GrowsUnderChurn,
        "not sessions: crypto/tls keeps none on a server. Each connection leaves memory that is never freed, such as an entry of a map or a goroutine that does not end",
    )],
    lab: |_| echo("go"),
    advice: advice! {
        IDLE_MEMORY: "copy with a buffer of 1 kB instead of io.Copy's 32 kB per connection, and set GOGC=25. Tried with {{compare.go}}. The goroutines' stacks remain";
        IDLE_MEMORY if Http: "net/http keeps a buffer of 4 kB in each direction and a goroutine for each connection, and has no setting for them; http.Server.IdleTimeout closes idle connections. GOGC=25 lets Go collect earlier. Neither was tried in the lab with an HTTP server; with an echo server, GOGC=25 and smaller buffers were tried with {{compare.go}}";
        RESUMPTION: "use one tls.Config for all connections, and call SetSessionTicketKeys with the same keys in all processes. Tried with {{advice.go.shared}}";
        OLD_VERSIONS: "set tls.Config.MinVersion = tls.VersionTLS12, or write `go 1.22` or later in go.mod, which makes it the default. Tried: with `go 1.19` in go.mod, a server built by Go 1.26.8 accepts TLS 1.0";
        CLIENT_SESSIONS: "set tls.Config.ClientSessionCache = tls.NewLRUClientSessionCache(64), and use one http.Transport for all requests. Tried with {{advice.go.cache}}";
        KEEP_ALIVE: "use one http.Client, and read each body to its end and close it: otherwise the connection is not reused. Tried with {{advice.go.keep-alive}}";
    },
    ..Program::collecting("Go crypto/tls", |signs| signs.go)
};
