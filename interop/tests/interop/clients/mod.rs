//! Clients of every language, OpenSSL's client for special cases, and peers that are not TLS clients.

mod curl;
mod half_close;
mod key_update;
mod languages;
mod malformed;
mod openssl;
mod stacks;
