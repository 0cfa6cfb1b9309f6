//! The flights of handshakes as sequence diagrams.

use super::pictures::picture;
use crate::model::FlightRow;
use dormouse_bench::model::grouped;
use dormouse_bench::report::html::{Markup, html};

const WIDTH: f64 = 340.0;
const CLIENT: f64 = 30.0;
const SERVER: f64 = WIDTH - 30.0;
const TOP: f64 = 46.0;
const ROW: f64 = 58.0;
const FALL: f64 = 20.0;

/// Draws the diagrams. Time runs downwards; an arrow's thickness shows the magnitude of the bytes.
pub(super) fn sequences(flights: &[FlightRow]) -> Markup {
    if flights.is_empty() {
        return html! {};
    }
    picture(
        "Flights",
        "Bytes of each flight of a handshake, including record headers. In TLS 1.3 the server sends its tickets after the handshake, so they are not included.",
        &html! { div class="flights" { @for flight in flights { (sequence(flight)) } } },
    )
}

fn sequence(flight: &FlightRow) -> Markup {
    let height = TOP + flight.bytes.len() as f64 * ROW;
    let spoken: Vec<_> = flight.bytes.iter().map(u32::to_string).collect();
    html! {
        div {
            h3 { (flight.title()) }
            svg viewBox=(format_args!("0 0 {WIDTH} {height}")) role="img"
                aria-label={ "bytes, the client's flight first: " (spoken.join(", ")) } {
                @for (x, side) in [(CLIENT, "client"), (SERVER, "server")] {
                    text x=(x) y="16" text-anchor="middle" { (side) }
                }
                @for x in [CLIENT, SERVER] { line class="life" x1=(x) x2=(x) y1="24" y2=(height) {} }
                @for index in 0..flight.bytes.len() { (arrow(flight, index)) }
            }
        }
    }
}

fn arrow(flight: &FlightRow, index: usize) -> Markup {
    let bytes = flight.bytes.get(index).copied().map_or(0.0, f64::from);
    let y = TOP + index as f64 * ROW;
    let (class, from, to, head) = if index.is_multiple_of(2) {
        ("c1", CLIENT, SERVER, -10.0)
    } else {
        ("c0", SERVER, CLIENT, 10.0)
    };
    let thick = 1.0 + bytes.max(1.0).log10();
    let (middle, end) = (f64::midpoint(CLIENT, SERVER), y + FALL);
    html! {
        g class=(class) {
            line class="arrow" style=(format_args!("stroke-width:{thick:.1}")) x1=(from) y1=(y) x2=(to + head * 0.8) y2=(end) {}
            path class="head" d=(format_args!("M{to} {end} l{head} -7 l0 14 Z")) {}
        }
        text x=(middle) y=(y - 1.0) text-anchor="middle" { (grouped(bytes, 0)) " bytes" }
        text class="said" x=(middle) y=(end + 12.0) text-anchor="middle" { (said(flight, index)) }
    }
}

/// Names the messages of a flight (RFC 8446 §2, RFC 5246 §7.3); nothing if the handshake took another form.
fn said(flight: &FlightRow, index: usize) -> &'static str {
    let words: &[&str] = match (&*flight.version, flight.resumed, flight.client_certificate) {
        ("TLS 1.3", true, _) => &["ClientHello, ticket", "ServerHello … Finished", "Finished"],
        ("TLS 1.3", false, false) => &[
            "ClientHello",
            "ServerHello, Certificate … Finished",
            "Finished",
        ],
        ("TLS 1.3", false, true) => &[
            "ClientHello",
            "ServerHello, Certificate … Finished",
            "Certificate … Finished",
        ],
        ("TLS 1.2", true, _) => &["ClientHello, session", "ServerHello … Finished", "Finished"],
        ("TLS 1.2", false, false) => &[
            "ClientHello",
            "ServerHello, Certificate, key exchange",
            "key exchange, Finished",
            "ticket, if there is one; Finished",
        ],
        ("TLS 1.2", false, true) => &[
            "ClientHello",
            "ServerHello, Certificate, key exchange",
            "Certificate, key exchange … Finished",
            "ticket, if there is one; Finished",
        ],
        _ => &[],
    };
    if words.len() == flight.bytes.len() {
        words.get(index).copied().unwrap_or_default()
    } else {
        ""
    }
}
