//! Session resumption: by clients of each language, and across machines through Redis.

mod clients;
mod ids;
mod redis;
