//! Streams with the libraries that programs use, and with tokio-rustls as their peer.
//!
//! What cannot be tested: rumqttd and rumqttc open their own sockets, and take no stream of the program.

mod axum_server;
mod grpc;
mod http;
mod key_updates;
mod pair;
mod rough;
mod split_anywhere;
mod tokio_rustls_own;
mod websocket;
