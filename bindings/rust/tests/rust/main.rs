//! Streams with the libraries that programs use, and with tokio-rustls as their peer.
// library: rumqttd, rumqttc | can't | they open their sockets and use rustls or native-tls themselves: a program can give them no stream

mod axum_server;
mod failures;
mod grpc;
mod http;
mod key_updates;
mod pair;
mod rough;
mod split_anywhere;
mod tokio_rustls_own;
mod websocket;
