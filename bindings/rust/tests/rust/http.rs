//! hyper 1: HTTP/1.1 and HTTP/2, chosen by ALPN, on both sides.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;

use crate::pair::pair;

const LEN: usize = 300_000;

/// Answers with the request's body.
async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await;
    Ok(Response::new(Full::new(body.expect("a body").to_bytes())))
}

fn request() -> Request<Full<Bytes>> {
    let body = Full::new(Bytes::from(vec![5; LEN]));
    let request = Request::post("https://one.test/").header("host", "one.test");
    request.body(body).expect("a request")
}

async fn check(response: Response<Incoming>, version: Version) {
    assert_eq!(response.version(), version);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(body.len() == LEN && body.iter().all(|byte| *byte == 5));
}

async fn serve(alpn: &str) -> TokioIo<crate::pair::Stream> {
    let (client, server) = pair(&[alpn]).await.unwrap();
    assert_eq!(server.get_ref().1.alpn_protocol(), Some(alpn.as_bytes()));
    tokio::spawn(async move {
        auto::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(server), service_fn(echo))
            .await
    });
    TokioIo::new(client)
}

// library: hyper 1, hyper-util | works | `TokioIo::new(stream)`, HTTP/2 too
#[tokio::test]
async fn http_1() {
    let io = serve("http/1.1").await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    let connection = tokio::spawn(connection);
    for _ in 0..3 {
        sender.ready().await.unwrap();
        check(
            sender.send_request(request()).await.unwrap(),
            Version::HTTP_11,
        )
        .await;
    }
    drop(sender);
    connection.await.unwrap().unwrap();
}

#[tokio::test]
async fn http_2() {
    let io = serve("h2").await;
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
    let (sender, connection) = handshake.await.unwrap();
    let connection = tokio::spawn(connection);
    let streams = (0..10).map(|_| {
        let mut sender = sender.clone();
        tokio::spawn(async move {
            check(
                sender.send_request(request()).await.unwrap(),
                Version::HTTP_2,
            )
            .await;
        })
    });
    for stream in streams.collect::<Vec<_>>() {
        stream.await.unwrap();
    }
    drop(sender);
    connection.await.unwrap().unwrap();
}
