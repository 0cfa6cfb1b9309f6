//! Parsers for option values: addresses, times, amounts, text with escapes.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dormouse_measure::Error;

/// Returns the address, and the host's name as written.
pub(crate) fn resolve(target: &str) -> Result<(String, String), Error> {
    let (mut all, host) = resolve_all(target, &[])?;
    Ok((all.swap_remove(0), host))
}

/// Returns all addresses of the name, at least one, and the host's name. `given` are values of
/// `--resolve` in curl's notation, `NAME:PORT:ADDR[,ADDR]`, which take precedence over the
/// resolver.
pub(crate) fn resolve_all(target: &str, given: &[String]) -> Result<(Vec<String>, String), Error> {
    use std::net::ToSocketAddrs;
    let mut found = Vec::new();
    for word in given {
        if let Some(addresses) = addresses_given(word, target)? {
            found.extend(addresses);
        }
    }
    if found.is_empty() && !given.is_empty() {
        let given = given.join(" ");
        return Err(Error::usage(format!(
            "--resolve {given}: no entry for {target}"
        )));
    }
    if target.starts_with("unix:") {
        return Ok((vec![target.to_owned()], "localhost".into()));
    }
    if let Ok(address) = target.parse::<SocketAddr>() {
        return Ok((vec![target.to_owned()], address.ip().to_string()));
    }
    let wrong = |why: String| {
        Error::usage(format!(
            "{target:?} is not an address ({why}): write 127.0.0.1:8443, localhost:8443 or unix:/path"
        ))
    };
    let (host, _) = target
        .rsplit_once(':')
        .ok_or_else(|| wrong("there is no port".into()))?;
    if found.is_empty() {
        found.extend(
            target
                .to_socket_addrs()
                .map_err(|error| wrong(error.to_string()))?,
        );
        // IPv4 loopback has 16 million source addresses, IPv6 loopback has one.
        found.sort_by_key(SocketAddr::is_ipv6);
    }
    if found.is_empty() {
        return Err(wrong("the name has no address".into()));
    }
    let all = found.iter().map(SocketAddr::to_string).collect();
    Ok((all, host.to_owned()))
}

/// Returns the addresses in a value of `--resolve`, if it is for this target.
fn addresses_given(word: &str, target: &str) -> Result<Option<Vec<SocketAddr>>, Error> {
    let wrong = || {
        Error::usage(format!(
            "--resolve {word:?}: write NAME:PORT:ADDR[,ADDR…], as in example.org:443:192.0.2.1,192.0.2.2"
        ))
    };
    let mut parts = word.splitn(3, ':');
    let (Some(name), Some(port), Some(list)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(wrong());
    };
    let port: u16 = port.parse().map_err(|_| wrong())?;
    let mut addresses = Vec::new();
    for address in list.split(',') {
        let bare = address.trim_start_matches('[').trim_end_matches(']');
        let address: IpAddr = bare.parse().map_err(|_| wrong())?;
        addresses.push(SocketAddr::new(address, port));
    }
    Ok((target == format!("{name}:{port}")).then_some(addresses))
}

pub(crate) fn unescape(text: &str) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let c = match c {
            '\\' => match chars.next() {
                Some('x') => {
                    let digits: String = chars.by_ref().take(2).collect();
                    out.push(hexadecimal(&digits)?);
                    continue;
                }
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('0') => '\0',
                Some('\\') => '\\',
                other => {
                    let other = other.map_or_else(String::new, String::from);
                    return Err(Error::usage(format!(
                        "--send: unknown escape \\{other}; use \\n \\r \\t \\0 \\xNN \\\\"
                    )));
                }
            },
            c => c,
        };
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
    if out.is_empty() {
        return Err(Error::usage("--send: the text is empty"));
    }
    Ok(out)
}

fn hexadecimal(digits: &str) -> Result<u8, Error> {
    let is_hex = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let byte = is_hex
        .then(|| u8::from_str_radix(digits, 16).ok())
        .flatten();
    byte.ok_or_else(|| {
        Error::usage(format!(
            "--send: \\x{digits} is not a byte; write two hexadecimal digits, as in \\x0a"
        ))
    })
}

/// Returns the text of `--send` with control characters as escapes, for a command line that a terminal shows and a shell
/// accepts.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            c if c.is_ascii_control() => out += &format!("\\x{:02x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out
}

/// Maximum time: the clock cannot add any number of seconds.
const TIME_MAX: Duration = Duration::from_secs(365 * 86_400);

/// `500ms`, `5s`, `2m`, or seconds without a unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => {
            return Err(format!(
                "{unit:?} is not a unit of time: write 500ms, 5s, 2m or 1h"
            ));
        }
    };
    let seconds: f64 = number
        .parse()
        .map_err(|_| format!("{number:?} is not a number: write 500ms, 5s or 2m"))?;
    let time = Duration::try_from_secs_f64(seconds * factor);
    let time = time.map_err(|_| format!("{text} is not a valid time"))?;
    if time > TIME_MAX {
        return Err(format!("{text} is longer than a year"));
    }
    Ok(time)
}

/// A time after which something fails: not 0, which would be no time at all.
pub(crate) fn timeout(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => {
            Err("a timeout of 0 leaves no time for an answer: write 500ms, 5s or 2m".to_owned())
        }
        time => Ok(time),
    }
}

/// `1000000`, `512k`, `256M`, `2G` (powers of ten), or as in the configuration `512 KiB`, `256 MiB`, `2 GiB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let (plain, base) = match text.strip_suffix("iB") {
        Some(plain) => (plain, 1024_u64),
        None => (text.strip_suffix('B').unwrap_or(text), 1000),
    };
    let (number, factor) = match plain.chars().last() {
        Some('k' | 'K') => (&plain[..plain.len() - 1], base),
        Some('M') => (&plain[..plain.len() - 1], base.pow(2)),
        Some('G') => (&plain[..plain.len() - 1], base.pow(3)),
        _ if base == 1024 => ("", base),
        _ => (plain, 1),
    };
    let number: u64 = number
        .trim_end()
        .parse()
        .map_err(|_| format!("{text:?} is not a number of bytes: write 512k, 256M or 2G"))?;
    number
        .checked_mul(factor)
        .filter(|&bytes| bytes > 0)
        .ok_or_else(|| format!("{text} is out of range: 1 byte to 18 EB"))
}

/// Maximum number of connections: more than any machine has descriptors, and few enough to be
/// multiplied by what each of them needs.
const COUNT_MAX: u64 = 1_000_000_000;

/// `10000`, `10_000`, `10k`, `1M`.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let count = bytes(&text.replace(['_', ','], ""))
        .map_err(|_| format!("{text:?} is not a number of connections: write 10000, 10k or 1M"))?;
    match count {
        ..=COUNT_MAX => Ok(count),
        _ => Err(format!("{text} is out of range: 1 to 1000M connections")),
    }
}

pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text
        .parse()
        .map_err(|_| format!("{text:?} is not a number"))?;
    (rate.is_finite() && rate >= 0.0)
        .then_some(rate)
        .ok_or_else(|| format!("{text} is out of range: 0 or more per second"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_times_and_amounts() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!((bytes("4 MiB"), bytes("2KiB")), (Ok(4 << 20), Ok(2 << 10)));
        assert!(
            duration("5 parsecs").is_err() && duration("-1s").is_err() && duration("").is_err()
        );
        assert!(duration("8760h").is_ok() && duration("10000000000000000000s").is_err());
        assert_eq!(bytes("256M"), Ok(256_000_000));
        assert_eq!(bytes("256MB"), Ok(256_000_000));
        assert!(bytes("7iB").is_err() && bytes("iB").is_err());
        assert!(bytes("0").is_err() && bytes("M").is_err() && bytes("99999999999G").is_err());
        assert_eq!(count("10_000"), Ok(10_000));
        assert!(count("1000M").is_ok() && count("18446744073709551615").is_err());
    }

    #[test]
    fn unescapes_line_ends() {
        assert_eq!(unescape("a\\r\\nb").unwrap(), b"a\r\nb");
        assert_eq!(unescape("\\x10MQTT\\xff").unwrap(), b"\x10MQTT\xff");
        let text = "\x10\x0cMQTT\\0\\r";
        assert_eq!(escaped(text), "\\x10\\x0cMQTT\\0\\r");
        assert_eq!(unescape(&escaped(text)).unwrap(), unescape(text).unwrap());
        assert!(unescape("\\xg0").is_err() && unescape("\\x1").is_err());
        assert!(unescape("\\x").is_err() && unescape("a\\").is_err() && unescape("").is_err());
    }

    #[test]
    fn given_addresses_are_used_or_refused() {
        let resolve = |target: &str, given: &str| resolve_all(target, &[given.to_owned()]);
        let (addresses, host) = resolve("a.example:443", "a.example:443:192.0.2.1,::1").unwrap();
        assert_eq!(addresses, ["192.0.2.1:443", "[::1]:443"]);
        assert_eq!(host, "a.example");
        for target in ["b.example:443", "192.0.2.7:443", "unix:/run/app.sock"] {
            let refused = resolve(target, "a.example:443:192.0.2.1").unwrap_err();
            assert!(
                refused.message.contains("no entry for"),
                "{}",
                refused.message
            );
        }
    }

    #[test]
    fn explains_an_address_without_port() {
        assert!(
            resolve("localhost")
                .unwrap_err()
                .message
                .contains("no port")
        );
        let (address, host) = resolve("localhost:8443").unwrap();
        assert_eq!(
            (address.as_str(), host.as_str()),
            ("127.0.0.1:8443", "localhost")
        );
    }
}
