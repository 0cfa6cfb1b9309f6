//! Programs that the audit recognises by their names, and of which it knows little else.

use super::program::Program;

// It contains some rustls, which it does not serve with.
pub(super) const ENVOY: Program = Program::of("Envoy", |signs| signs.program("envoy"));
pub(super) const DENO: Program = Program::collecting("Deno", |signs| signs.program("deno"));
pub(super) const BUN: Program = Program::collecting("Bun", |signs| signs.is_called("bun"));
pub(super) const ERLANG: Program =
    Program::collecting("Erlang program", |signs| signs.program("beam"));
pub(super) const LUA: Program = Program {
    garbage_blocks: Some("garbage that Lua has not collected yet, or "),
    ..Program::collecting("Lua program", |signs| signs.program("lua"))
};
pub(super) const RUBY: Program = Program {
    interpreter: &["ruby"],
    ..Program::collecting("Ruby program", |signs| signs.program("ruby"))
};
pub(super) const CURL: Program = Program::of("curl", |signs| signs.program("curl"));
pub(super) const WGET: Program = Program::of("wget", |signs| signs.program("wget"));
pub(super) const AB: Program = Program::of("ApacheBench", |signs| signs.is_called("ab"));
pub(super) const GIT: Program = Program::of("git", |signs| signs.program("git"));
pub(super) const PSQL: Program = Program::of("psql", |signs| signs.is_called("psql"));
pub(super) const MYSQL: Program = Program::of("MySQL client", |signs| {
    signs.is_called("mysql") || signs.is_called("mariadb")
});
pub(super) const UNKNOWN: Program = Program {
    is_general: true,
    ..Program::of("unknown software", |_| false)
};
