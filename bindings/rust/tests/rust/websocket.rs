//! tokio-tungstenite, with this library on both sides.

use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{accept_async, client_async};

use crate::pair::{NAME, pair};

// library: tokio-tungstenite | works | `accept_async`, `client_async` over the stream
#[tokio::test]
async fn messages_are_echoed_until_the_close() {
    let (client, server) = pair(&["http/1.1"]).await.unwrap();
    let serving = tokio::spawn(async move {
        let mut socket = accept_async(server).await.unwrap();
        while let Some(Ok(message)) = socket.next().await {
            if message.is_text() {
                socket.send(message).await.unwrap();
            }
        }
    });
    let (mut socket, _) = client_async(format!("wss://{NAME}/"), client)
        .await
        .unwrap();
    for len in [1, 1_000, 300_000] {
        let sent = Message::text("x".repeat(len));
        socket.send(sent.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), sent);
    }
    socket.close(None).await.unwrap();
    while socket.next().await.is_some_and(|message| message.is_ok()) {}
    drop(socket);
    serving.await.unwrap();
}
