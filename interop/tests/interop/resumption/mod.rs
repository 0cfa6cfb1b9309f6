//! Sessions that are resumed: by the clients of each language, and across machines through Redis.

mod clients;
mod redis;
