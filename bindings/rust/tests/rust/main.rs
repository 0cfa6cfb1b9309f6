//! Streams with the libraries that programs use, and with tokio-rustls as their peer.
//!
//! Not tried: rumqttd and rumqttc, which open their own sockets.

mod axum_server;
mod grpc;
mod http;
mod key_updates;
mod pair;
mod rough;
mod split_anywhere;
mod tokio_rustls_own;
mod websocket;
