//! Property: whatever sizes are read and written, and whatever the transport takes, both sides get what the other one
//! has sent, and its end. A failure prints its seed; SEEDS=n tries more.

use std::io;
use std::io::IoSlice;

use dormouse_tokio::embed::Protocols;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, duplex, split};

use crate::pair::{NAME, acceptor, connector, rustls_acceptor, rustls_connector, server_name};
use crate::rough::{Dice, Rough};

/// Bytes of one direction.
fn message(dice: &mut Dice) -> Vec<u8> {
    let len = [0, 5, 1_000, 16_384, 150_000][dice.below(5)] + dice.below(100);
    (0..len).map(|_| dice.below(256) as u8).collect()
}

/// Writes in pieces, sometimes vectored, sometimes flushed, sometimes given up and begun again.
async fn write(
    writer: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
    mut dice: Dice,
) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let len = rest.len().min(1 + dice.below(40_000));
        let piece = &rest[..len];
        let (one, two) = piece.split_at(dice.below(len));
        let parts = [IoSlice::new(one), IoSlice::new(two)];
        let is_vectored = dice.below(2) == 0;
        let writing = async {
            match is_vectored {
                true => writer.write_vectored(&parts).await,
                false => writer.write(piece).await,
            }
        };
        let count = tokio::select! {
            biased;
            () = tokio::task::yield_now(), if dice.below(4) == 0 => 0,
            count = writing => count?,
        };
        rest = &rest[count..];
        if dice.below(3) == 0 {
            writer.flush().await?;
        }
    }
    writer.shutdown().await
}

async fn read(reader: &mut (impl AsyncRead + Unpin), mut dice: Dice) -> io::Result<Vec<u8>> {
    let mut received = Vec::new();
    let mut room = vec![0; 70_000];
    loop {
        let len = [1, 100, 8_192, 70_000][dice.below(4)];
        tokio::select! {
            biased;
            () = tokio::task::yield_now(), if dice.below(3) == 0 => {}
            count = reader.read(&mut room[..len]) => match count? {
                0 => return Ok(received),
                count => received.extend_from_slice(&room[..count]),
            },
        }
    }
}

/// Both directions at once. Returns what was received.
async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    bytes: &[u8],
    seed: u64,
) -> io::Result<Vec<u8>> {
    let (mut reader, mut writer) = split(stream);
    let ((), received) = tokio::try_join!(
        write(&mut writer, bytes, Dice::new(seed)),
        read(&mut reader, Dice::new(seed + 1))
    )?;
    Ok(received)
}

async fn one(seed: u64) -> io::Result<()> {
    let mut dice = Dice::new(seed);
    let room = [1_000, 40_000, 1_000_000][dice.below(3)];
    let (client, server) = duplex(room);
    let (client, server) = (Rough::new(client, seed + 2), Rough::new(server, seed + 3));
    let protocols = [Protocols::TLS12, Protocols::TLS13][dice.below(2)];
    let (ours, theirs) = (message(&mut dice), message(&mut dice));
    let (got, lost) = match dice.below(3) {
        0 => {
            let (connector, acceptor) = (rustls_connector(&[]), acceptor(&[], protocols));
            tokio::try_join!(
                async { talk(acceptor.accept(server).await?, &ours, seed + 4).await },
                async {
                    talk(
                        connector.connect(server_name(), client).await?,
                        &theirs,
                        seed + 6,
                    )
                    .await
                }
            )?
        }
        1 => {
            let (connector, acceptor) = (connector(&[], protocols), rustls_acceptor(&[]));
            tokio::try_join!(
                async { talk(connector.connect(NAME, client).await?, &ours, seed + 4).await },
                async { talk(acceptor.accept(server).await?, &theirs, seed + 6).await }
            )?
        }
        _ => {
            let (connector, acceptor) = (connector(&[], protocols), acceptor(&[], protocols));
            tokio::try_join!(
                async { talk(connector.connect(NAME, client).await?, &ours, seed + 4).await },
                async { talk(acceptor.accept(server).await?, &theirs, seed + 6).await }
            )?
        }
    };
    assert!(got == theirs && lost == ours, "other bytes");
    Ok(())
}

#[tokio::test]
async fn both_sides_get_everything() {
    let seeds = std::env::var("SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok());
    for seed in 0..seeds.unwrap_or(60) {
        println!("seed {seed}");
        let limit = std::time::Duration::from_secs(60);
        let result = tokio::time::timeout(limit, one(seed)).await;
        result.expect("it does not stop").expect("it does not fail");
    }
}
