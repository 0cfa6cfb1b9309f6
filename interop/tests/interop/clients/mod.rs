//! Clients of every language, OpenSSL's own with what no other lets one ask for, and peers that are no TLS clients.

mod curl;
mod key_update;
mod languages;
mod malformed;
mod openssl;
mod stacks;
