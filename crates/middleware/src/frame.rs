//! Whole answers of servers, as bytes: pure, no sockets.

use knee_proto::{Decoded, Expect, Response, ResponseDecoder};

/// Reads a complete answer.
pub(crate) fn parse(frame: &[u8], expect: Expect) -> Option<Response<'_>> {
    match ResponseDecoder::new(frame.len()).decode(frame, expect) {
        Decoded::Complete { item, .. } => Some(item),
        Decoded::Incomplete { .. } | Decoded::Invalid { .. } => None,
    }
}

/// The error line at the end of a retrieval. The values before it are not an answer.
pub(crate) fn error_line(answer: &[u8]) -> &[u8] {
    let before_end = answer.strip_suffix(b"\n").unwrap_or(answer);
    let start = before_end.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    &answer[start..]
}
