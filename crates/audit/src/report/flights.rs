//! The flights of handshakes as sequence diagrams.

use std::fmt::Write;

use super::parts;
use super::section::picture;
use crate::model::FlightRow;
use dormouse_bench::model::grouped;
use dormouse_bench::report::html::escape;

const WIDTH: f64 = 340.0;
const CLIENT: f64 = 30.0;
const SERVER: f64 = WIDTH - 30.0;
const TOP: f64 = 46.0;
const ROW: f64 = 58.0;
const FALL: f64 = 20.0;

/// Draws the diagrams. Time runs downwards; an arrow's thickness shows the magnitude of the bytes.
pub(super) fn sequences(flights: &[FlightRow]) -> String {
    if flights.is_empty() {
        return String::new();
    }
    let diagrams: String = flights.iter().map(sequence).collect();
    picture(
        "Flights",
        "Bytes of each flight of a handshake, including record headers. In TLS 1.3 the server sends its tickets after the handshake, so they are not included.",
        &format!("<div class=\"flights\">{diagrams}</div>"),
    )
}

fn sequence(flight: &FlightRow) -> String {
    let height = TOP + flight.bytes.len() as f64 * ROW;
    let title = escape(&parts::flight_title(flight));
    let spoken: Vec<_> = flight.bytes.iter().map(u32::to_string).collect();
    let mut svg = format!(
        "<div><h3>{title}</h3><svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"bytes, the client's flight first: {}\">\
         <text x=\"{CLIENT}\" y=\"16\" text-anchor=\"middle\">client</text><text x=\"{SERVER}\" y=\"16\" text-anchor=\"middle\">server</text>\
         <line class=\"life\" x1=\"{CLIENT}\" x2=\"{CLIENT}\" y1=\"24\" y2=\"{height}\"/><line class=\"life\" x1=\"{SERVER}\" x2=\"{SERVER}\" y1=\"24\" y2=\"{height}\"/>",
        spoken.join(", ")
    );
    for (index, bytes) in flight.bytes.iter().enumerate() {
        let y = TOP + index as f64 * ROW;
        let (class, from, to, head) = if index.is_multiple_of(2) {
            ("c1", CLIENT, SERVER, -10.0)
        } else {
            ("c0", SERVER, CLIENT, 10.0)
        };
        let thick = 1.0 + f64::from(*bytes).max(1.0).log10();
        let (middle, end) = (f64::midpoint(CLIENT, SERVER), y + FALL);
        let _ = write!(
            svg,
            "<g class=\"{class}\"><line class=\"arrow\" style=\"stroke-width:{thick:.1}\" x1=\"{from}\" y1=\"{y}\" x2=\"{}\" y2=\"{end}\"/><path class=\"head\" d=\"M{to} {end} l{head} -7 l0 14 Z\"/></g>\
             <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{} bytes</text><text class=\"said\" x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            to + head * 0.8,
            y - 1.0,
            grouped(f64::from(*bytes), 0),
            y + FALL + 12.0,
            said(flight, index)
        );
    }
    svg + "</svg></div>"
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
