//! Written headers are read back; headers that are not exactly valid are refused, at every byte.

use super::read::crc32c_without;
use super::*;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn endpoints(client: &str, server: &str) -> Endpoints {
    Endpoints {
        client: client.parse().unwrap(),
        server: server.parse().unwrap(),
    }
}

fn complete(bytes: &[u8]) -> (usize, Option<Endpoints>) {
    match read(bytes) {
        Ok(HeaderProgress::Complete { len, endpoints }) => (len, endpoints),
        other => panic!("{other:?}: {}", bytes.escape_ascii()),
    }
}

const TLS: Tls<'_> = Tls {
    version: "TLSv1.3",
    suite: "TLS_AES_128_GCM_SHA256",
    group: Some("x25519"),
    signature_scheme: Some("ecdsa_secp256r1_sha256"),
    signature_algorithm: "RSA-SHA256",
    key_algorithm: "EC256",
    alpn: Some(b"h2"),
    server_name: Some("dormouse.test"),
    certificate: None,
    unique_id: b"0123456789abcdef",
};

#[test]
fn reads_and_writes_the_examples_of_the_specification() {
    let four = endpoints("192.168.0.1:56324", "192.168.0.11:443");
    assert_eq!(
        v1(Some(four)),
        b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n"
    );
    assert_eq!(
        complete(b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\nGET / HTTP/1.1\r\n"),
        (47, Some(four))
    );
    assert_eq!(complete(b"PROXY UNKNOWN\r\n"), (15, None));
    let longest = b"PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff \
                    ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n";
    assert_eq!(complete(longest), (V1_MAX, None));
    let six = endpoints("[2001:db8::1]:1", "[2001:db8::2]:65535");
    assert_eq!(complete(&v1(Some(six))).1, Some(six));
    assert_eq!(v1(None), b"PROXY UNKNOWN\r\n");
}

/// Rules and logs see one form of an address, however the proxy writes it.
#[test]
fn ipv4_mapped_addresses_become_ipv4() {
    let four = endpoints("10.0.0.1:1", "10.0.0.2:443");
    let line = b"PROXY TCP6 ::ffff:10.0.0.1 ::ffff:a00:2 1 443\r\n";
    assert_eq!(complete(line).1, Some(four));
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x24".to_vec();
    for ip in [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)] {
        header.extend(ip.to_ipv6_mapped().octets());
    }
    header.extend([0, 1, 1, 187]);
    assert_eq!(complete(&header).1, Some(four));
    // If the families differ, both addresses are written as IPv6.
    let mixed = endpoints("10.0.0.1:1", "[2001:db8::1]:443");
    assert_eq!(
        v1(Some(mixed)),
        b"PROXY TCP6 ::ffff:10.0.0.1 2001:db8::1 1 443\r\n"
    );
    assert_eq!(complete(&v1(Some(mixed))).1, Some(mixed));
    assert_eq!(complete(&v2(Some(mixed), None)).1, Some(mixed));
}

#[test]
fn refuses_malformed_lines() {
    for line in [
        "PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2 3\r\n",
        "PROXY TCP4 1.2.3.4  5.6.7.8 1 2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 +1 2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 65536\r\n",
        "PROXY TCP4 1.2.3.04 5.6.7.8 1 2\r\n",
        "PROXY TCP4 ::1 ::2 1 2\r\n",
        "PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY tcp4 1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2 \r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n\r\n",
        "PROXY \u{e4}\r\n",
        "PROXY \r\n",
    ] {
        assert_eq!(read(line.as_bytes()), Err(HeaderError::BadLine), "{line:?}");
    }
    assert_eq!(read(b"PROXX"), Err(HeaderError::NoHeader));
    assert_eq!(read(b"\x16\x03\x01"), Err(HeaderError::NoHeader));
    assert_eq!(
        read(&[&b"PROXY "[..], &[b'x'; 101]].concat()),
        Err(HeaderError::EndlessLine)
    );
    assert_eq!(
        read(&[&b"PROXY "[..], &[b'x'; 100]].concat()),
        Ok(HeaderProgress::Partial)
    );
}

/// Compares the bytes, so that the same mistake in writer and reader can't go unnoticed.
#[test]
fn version_2_on_the_wire() {
    let endpoints = endpoints("1.2.3.4:258", "5.6.7.8:443");
    let header = v2(Some(endpoints), Some(&TLS));
    let mut expected = b"\r\n\r\n\0\r\nQUIT\n\x21\x11".to_vec();
    let mut body = vec![1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 1, 187];
    body.extend(b"\x01\0\x02h2");
    body.extend(b"\x02\0\x0ddormouse.test");
    body.extend(b"\x05\0\x100123456789abcdef");
    let version = b"\x21\0\x07TLSv1.3";
    let cipher = b"\x23\0\x16TLS_AES_128_GCM_SHA256";
    let certificate = b"\x24\0\x0aRSA-SHA256\x25\0\x05EC256";
    let exchange = b"\x26\0\x06x25519\x27\0\x16ecdsa_secp256r1_sha256";
    let parts: [&[u8]; 4] = [version, cipher, certificate, exchange];
    body.extend([0x20, 0, (5 + parts.concat().len()) as u8]);
    body.extend([1, 0, 0, 0, 1]);
    body.extend(parts.concat());
    expected.extend((body.len() as u16).to_be_bytes());
    expected.extend(body);
    assert_eq!(header, expected, "{}", header.escape_ascii());
    assert_eq!(complete(&header), (header.len(), Some(endpoints)));
}

#[test]
fn sends_client_certificates_also_of_resumed_sessions() {
    for (resumed, flags) in [(false, 7), (true, 5)] {
        let certificate = ClientCertificate {
            common_name: Some("alice"),
            resumed,
            ..ClientCertificate::default()
        };
        let tls = Tls {
            certificate: Some(certificate),
            ..TLS
        };
        let header = v2(None, Some(&tls));
        let expected = [flags, 0, 0, 0, 0, 0x21];
        assert!(
            header.windows(6).any(|part| part == expected),
            "{}",
            header.escape_ascii()
        );
        assert!(header.windows(8).any(|part| part == b"\x22\0\x05alice"));
        assert_eq!(complete(&header), (header.len(), None));
    }
}

/// The value of a TLV of version 2, at the top level or within the SSL TLV.
fn part(header: &[u8], searched: u8) -> Option<Vec<u8>> {
    fn find(mut parts: &[u8], searched: u8) -> Option<Vec<u8>> {
        while let [kind, high, low, rest @ ..] = parts {
            let (value, behind) = rest.split_at(usize::from(u16::from_be_bytes([*high, *low])));
            if *kind == searched {
                return Some(value.to_vec());
            }
            if *kind == tlv::SSL
                && let Some(found) = find(&value[5..], searched)
            {
                return Some(found);
            }
            parts = behind;
        }
        None
    }
    find(&header[16..], searched)
}

/// A certificate is sent whole or left out; the other TLVs are sent either way. The longest header
/// that we write is one that we would read.
#[test]
fn a_certificate_is_sent_whole_or_not_at_all() {
    let long = vec![b'x'; 255];
    let words = std::str::from_utf8(&long).unwrap();
    for (len, is_sent) in [
        (0, false),
        (1_200, true),
        (CERTIFICATE_MAX, true),
        (CERTIFICATE_MAX + 1, false),
    ] {
        let der: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let tls = Tls {
            alpn: Some(&long),
            server_name: Some(words),
            group: Some(words),
            signature_scheme: Some(words),
            signature_algorithm: words,
            key_algorithm: words,
            unique_id: &long[..128],
            certificate: Some(ClientCertificate {
                common_name: Some(words),
                der: Some(&der),
                resumed: true,
            }),
            ..TLS
        };
        let header = v2(
            Some(endpoints("[2001:db8::1]:1", "[2001:db8::2]:2")),
            Some(&tls),
        );
        assert_eq!(complete(&header).0, header.len());
        assert!(header.len() <= HEADER_MAX);
        let header = v2(None, Some(&tls));
        assert_eq!(part(&header, tlv::SSL_CLIENT_CERT), is_sent.then_some(der));
        assert_eq!(part(&header, tlv::SSL_CN).as_deref(), Some(&long[..]));
        assert_eq!(
            part(&header, tlv::SSL_SIG_SCHEME).as_deref(),
            Some(&long[..])
        );
    }
}

#[test]
fn suites_have_openssl_names() {
    for (iana, openssl) in [
        ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
        (
            "TLS_CHACHA20_POLY1305_SHA256",
            "TLS_CHACHA20_POLY1305_SHA256",
        ),
        (
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "ECDHE-RSA-AES128-GCM-SHA256",
        ),
        (
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "ECDHE-ECDSA-AES256-GCM-SHA384",
        ),
        (
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            "ECDHE-RSA-CHACHA20-POLY1305",
        ),
    ] {
        let tls = Tls { suite: iana, ..TLS };
        let header = v2(None, Some(&tls));
        let name = part(&header, tlv::SSL_CIPHER);
        assert_eq!(name.as_deref(), Some(openssl.as_bytes()));
    }
}

fn raw_v2(version_command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u16).to_be_bytes();
    [&SIGNATURE[..], &[version_command, family], &len, body].concat()
}

/// A header with a correct checksum and a second checksum.
fn twice_summed() -> Vec<u8> {
    let mut header = raw_v2(0x21, 0x00, &[3, 0, 4, 0, 0, 0, 0, 3, 0, 4, 0, 0, 0, 0]);
    let sum = crc32c_without(&header, 19).to_be_bytes();
    header[19..23].copy_from_slice(&sum);
    header
}

#[test]
fn refuses_malformed_headers_of_version_2() {
    let four = [1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 0, 2];
    let with = |tlvs: &[u8]| raw_v2(0x21, 0x11, &[&four[..], tlvs].concat());
    for (header, why) in [
        (raw_v2(0x11, 0x11, &four), HeaderError::BadVersion),
        (raw_v2(0x22, 0x11, &four), HeaderError::BadCommand),
        (raw_v2(0x21, 0x12, &four), HeaderError::BadFamily),
        (raw_v2(0x21, 0x41, &four), HeaderError::BadFamily),
        (raw_v2(0x21, 0x11, &four[..11]), HeaderError::TooShort),
        (raw_v2(0x21, 0x21, &[0; 35]), HeaderError::TooShort),
        (
            raw_v2(0x21, 0x11, &[0; HEADER_MAX - 15]),
            HeaderError::TooLong,
        ),
        (with(&[1]), HeaderError::BadTlv),
        (with(&[1, 0, 2, 9]), HeaderError::BadTlv),
        (with(&[3, 0, 3, 0, 0, 0]), HeaderError::BadTlv),
        (with(&[3, 0, 4, 0, 0, 0, 0]), HeaderError::BadChecksum),
        (twice_summed(), HeaderError::BadTlv),
    ] {
        assert_eq!(read(&header), Err(why), "{}", header.escape_ascii());
    }
    // LOCAL with and without addresses and with any family, PROXY with an unspecified family, a unix socket.
    assert_eq!(complete(&raw_v2(0x20, 0x00, &[])), (16, None));
    assert_eq!(complete(&raw_v2(0x20, 0x11, &four)), (28, None));
    for family in [0x01, 0x12, 0xff] {
        assert_eq!(complete(&raw_v2(0x20, family, &four)), (28, None));
    }
    assert_eq!(complete(&raw_v2(0x21, 0x00, &[])), (16, None));
    assert_eq!(complete(&raw_v2(0x21, 0x31, &[0; 216])), (232, None));
    // An unspecified family, with addresses all the same: of IPv4, of IPv6, of an unknown kind.
    assert_eq!(complete(&raw_v2(0x21, 0x00, &four)), (28, None));
    assert_eq!(complete(&raw_v2(0x21, 0x00, &[0xfd; 36])), (52, None));
    assert_eq!(complete(&raw_v2(0x21, 0x00, &[10])), (17, None));
}

#[test]
fn the_checksum_is_crc32c() {
    // RFC 3720 B.4: 32 bytes of zeros, 32 bytes of ones.
    assert_eq!(crc32c_without(&[0; 32], 99), 0x8a91_36aa);
    assert_eq!(crc32c_without(&[0xff; 32], 99), 0x62a8_ab43);
    let mut header = raw_v2(0x21, 0x00, &[3, 0, 4, 0, 0, 0, 0, 4, 0, 1, 7]);
    let sum = crc32c_without(&header, 19).to_be_bytes();
    header[19..23].copy_from_slice(&sum);
    assert_eq!(complete(&header), (header.len(), None));
    for at in [14, 19, 22, 26] {
        let mut wrong = header.clone();
        wrong[at] ^= 1;
        assert!(read(&wrong).is_err() || read(&wrong) == Ok(HeaderProgress::Partial));
    }
}

fn any_endpoints() -> impl Strategy<Value = Endpoints> {
    let four = (any::<[u32; 2]>(), any::<[u16; 2]>()).prop_map(|(ips, ports)| Endpoints {
        client: SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ips[0])), ports[0]),
        server: SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ips[1])), ports[1]),
    });
    let six = (any::<[u128; 2]>(), any::<[u16; 2]>()).prop_map(|(ips, ports)| Endpoints {
        client: SocketAddr::new(IpAddr::V6(Ipv6Addr::from(ips[0])), ports[0]),
        server: SocketAddr::new(IpAddr::V6(Ipv6Addr::from(ips[1])), ports[1]),
    });
    prop_oneof![four, six]
}

proptest! {
    /// A header cut anywhere is partial; a whole header is read as it was written, and the bytes
    /// after it are not touched.
    #[test]
    fn written_headers_are_read_back(endpoints in any_endpoints(), second in any::<bool>(), behind in any::<[u8; 5]>()) {
        let header = if second { v2(Some(endpoints), Some(&TLS)) } else { v1(Some(endpoints)) };
        for cut in 0..header.len() {
            prop_assert_eq!(read(&header[..cut]), Ok(HeaderProgress::Partial));
        }
        let all = [&header[..], &behind].concat();
        prop_assert_eq!(complete(&all), (header.len(), Some(endpoints)));
    }

    /// No input makes the parser panic, wait beyond its limit, or claim more bytes than it got.
    #[test]
    fn survives_arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300), start in 0..3) {
        let start: &[u8] = match start { 0 => b"", 1 => b"PROXY ", _ => &SIGNATURE };
        let all = [start, &bytes].concat();
        match read(&all) {
            Ok(HeaderProgress::Complete { len, .. }) => prop_assert!(len <= all.len()),
            Ok(HeaderProgress::Partial) => prop_assert!(all.len() < HEADER_MAX),
            Err(refused) => {
                // More bytes can't make a refused header valid.
                let more = [&all[..], b"more\r\n"].concat();
                prop_assert!(read(&more).is_err(), "{}", refused);
            }
        }
    }
}
