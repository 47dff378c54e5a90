//! Invariants of the codec, for any input: property tests and fuzz targets check them.

use knee_nbd::{
    Command, Dial, Dialed, Export, Negotiation, REPLY_BYTES, REQUEST_BYTES, Reply, Request, Step,
};

/// What one side of a handshake says and decides.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Heard {
    said: Vec<u8>,
    /// Input bytes that were consumed.
    consumed: usize,
    end: Option<String>,
}

/// The server's handshake with this input, which arrives in pieces.
pub(super) fn server(bytes: &[u8], pieces: &[usize], export: &Export) -> Heard {
    let mut said = Vec::new();
    let mut negotiation = Negotiation::begin(&mut said);
    heard(bytes, pieces, said, |input, said| match negotiation.take(input, export, said) {
        Ok(Step::Incomplete) => None,
        Ok(Step::Next(consumed)) => Some((consumed, None)),
        Ok(Step::Transmit(consumed)) => Some((consumed, Some("transmits".to_owned()))),
        Ok(Step::Leave) => Some((0, Some("leaves".to_owned()))),
        Err(malformed) => Some((0, Some(malformed.0.to_owned()))),
    })
}

/// The client's handshake with this input, which arrives in pieces.
pub(super) fn client(bytes: &[u8], pieces: &[usize]) -> Heard {
    let mut dial = Dial::default();
    heard(bytes, pieces, Vec::new(), |input, said| match dial.take(input, said) {
        Ok(Dialed::Incomplete) => None,
        Ok(Dialed::Next(consumed)) => Some((consumed, None)),
        Ok(Dialed::Done(consumed, offer)) => Some((consumed, Some(format!("{offer:?}")))),
        Err(why) => Some((0, Some(why.to_owned()))),
    })
}

/// A header decodes to a value that encodes to the same bytes.
pub(super) fn headers(bytes: &[u8]) {
    let mut again = Vec::new();
    if let Ok(Some(request)) = Request::decode(bytes) {
        request.encode(&mut again);
        assert_eq!(again, bytes[..REQUEST_BYTES]);
        assert_eq!(
            request.data_bytes() > 0,
            request.command == Command::Write && request.length > 0
        );
        again.clear();
    }
    if let Ok(Some(reply)) = Reply::decode(bytes) {
        reply.encode(&mut again);
        assert_eq!(again, bytes[..REPLY_BYTES]);
    }
}

fn heard(
    bytes: &[u8],
    pieces: &[usize],
    mut said: Vec<u8>,
    mut take: impl FnMut(&[u8], &mut Vec<u8>) -> Option<(usize, Option<String>)>,
) -> Heard {
    let (mut consumed, mut there) = (0, 0);
    let all = pieces.iter().copied().chain([bytes.len()]);
    for piece in all {
        there = bytes.len().min(there + piece);
        while let Some((more, end)) = take(&bytes[consumed..there], &mut said) {
            consumed += more;
            assert!(consumed <= there, "more was consumed than there is");
            if end.is_some() {
                return Heard { said, consumed, end };
            }
            assert!(more > 0, "a message has no bytes");
        }
    }
    Heard { said, consumed, end: None }
}
