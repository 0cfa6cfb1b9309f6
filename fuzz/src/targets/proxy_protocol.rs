//! PROXY protocol headers, as a hostile proxy may send them.

use dormouse_dataplane::proxy_protocol::{HEADER_MAX, HeaderProgress, read, v1, v2};

/// One input; the first byte chooses its beginning.
pub(crate) fn run(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else {
        return;
    };
    let start: &[u8] = match choice % 4 {
        0 => b"",
        1 => b"PROXY ",
        2 => b"PROXY TCP4 ",
        _ => b"\r\n\r\n\0\r\nQUIT\n",
    };
    let all = [start, data].concat();
    let mut last = Ok(HeaderProgress::Partial);
    for end in 0..=all.len() {
        let now = read(&all[..end]);
        match last {
            Ok(HeaderProgress::Partial) => {}
            // Complete or refused: more bytes change nothing.
            _ => assert_eq!(now, last),
        }
        last = now;
    }
    match last {
        Ok(HeaderProgress::Partial) => assert!(all.len() < HEADER_MAX),
        Ok(HeaderProgress::Complete { len, endpoints }) => {
            assert!(len <= all.len() && len <= HEADER_MAX);
            if endpoints.is_some() {
                for again in [v1(endpoints), v2(endpoints, None)] {
                    let len = again.len();
                    assert_eq!(
                        read(&again),
                        Ok(HeaderProgress::Complete { len, endpoints })
                    );
                }
            }
        }
        Err(refused) => assert!(!refused.to_string().is_empty()),
    }
}
