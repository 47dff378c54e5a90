//! Merges the answers of all servers, if they have tokens or values: pure, no sockets.
//!
//! A key counts as found if every server that answered has it. The token for the client stands for the tokens of all
//! servers. The token is void if a server has another value. A later `cas` is then refused, and the replicas do not
//! diverge further.

use knee_proto::{Asked, Expect, Response, Value, encode};

use crate::cas;
use crate::frame::{error_line, parse};
use crate::verdict::Severity;

/// The result of merged answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gathered {
    pub(crate) hits: u32,
    pub(crate) severity: Severity,
}

/// Appends the answer to `gets`, `gat` or `gats`. `absent` is the bit set of the servers without an answer in `frames`.
pub(crate) fn retrieval(
    asked: Asked<'_>,
    frames: &[&[u8]],
    absent: u64,
    out: &mut Vec<u8>,
) -> Gathered {
    let mut answers = Vec::with_capacity(frames.len());
    for frame in frames {
        match parse(frame, Expect::Retrieval) {
            Some(answer) if !answer.status.is_error() => answers.push(answer.values().peekable()),
            _ => {
                out.extend_from_slice(error_line(frame));
                return Gathered { hits: 0, severity: Severity::Error };
            }
        }
    }
    let mut hits = 0;
    let mut copies: Vec<Value<'_>> = Vec::with_capacity(frames.len());
    for key in asked.keys.split(|&byte| byte == b' ') {
        copies.clear();
        copies.extend(answers.iter_mut().filter_map(|values| values.next_if(|v| v.key == key)));
        if copies.len() < frames.len() {
            continue;
        }
        let Some(first) = copies.first() else { continue };
        let same = |copy: &Value<'_>| copy.value == first.value && copy.flags == first.flags;
        let tokens = copies.iter().filter_map(|copy| copy.cas);
        let token = if copies.iter().all(same) {
            cas::token(absent, tokens)
        } else {
            cas::void_token(tokens)
        };
        let token = asked.with_cas.then_some(token);
        encode::value(key, first.flags, first.value, token, out);
        hits += 1;
    }
    out.extend_from_slice(encode::END);
    Gathered { hits, severity: Severity::Success }
}

/// Appends the answer to a meta command: the most severe answer, with the common token if it has a token.
pub(crate) fn meta(frames: &[&[u8]], absent: u64, out: &mut Vec<u8>) -> Gathered {
    let answers: Vec<_> =
        frames.iter().filter_map(|frame| Some((frame, parse(frame, Expect::Meta)?))).collect();
    let severity = |answer: &Response<'_>| Severity::of(&answer.status);
    let worst = answers.iter().map(|(_, answer)| severity(answer)).max().unwrap_or_default();
    let Some((frame, first)) = answers.iter().find(|(_, answer)| severity(answer) == worst) else {
        return Gathered { hits: 0, severity: Severity::Nothing };
    };
    let tokens = || answers.iter().filter_map(|(_, answer)| cas::meta_token(answer));
    if worst == Severity::Success && tokens().next().is_some() {
        let same = answers.iter().all(|(_, answer)| answer.meta_value() == first.meta_value());
        let token = if same { cas::token(absent, tokens()) } else { cas::void_token(tokens()) };
        cas::replace_token(frame, token, out);
    } else {
        out.extend_from_slice(frame);
    }
    Gathered { hits: u32::from(worst == Severity::Success), severity: worst }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::Form;
    use knee_proto::GetVerb;

    fn merged(line: &str, frames: &[&str], absent: u64) -> (String, Gathered) {
        let verb = match line.split(' ').next() {
            Some("gets") => GetVerb::Gets,
            _ => GetVerb::Gat,
        };
        let asked = Form::Retrieval(verb).asked(line.as_bytes()).expect("a retrieval");
        let frames: Vec<_> = frames.iter().map(|frame| frame.as_bytes()).collect();
        let mut out = Vec::new();
        let gathered = retrieval(asked, &frames, absent, &mut out);
        (String::from_utf8(out).expect("ASCII"), gathered)
    }

    fn meta_merged(frames: &[&str]) -> String {
        let frames: Vec<_> = frames.iter().map(|frame| frame.as_bytes()).collect();
        let mut out = Vec::new();
        meta(&frames, 0, &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn token_stands_for_the_tokens_of_all_servers() {
        let frames = [
            "VALUE a 0 1 5\r\nx\r\nVALUE b 0 1 6\r\ny\r\nEND\r\n",
            "VALUE a 0 1 7\r\nx\r\nVALUE b 0 1 8\r\ny\r\nEND\r\n",
        ];
        let (a, b) = (cas::token(0, [5, 7].into_iter()), cas::token(0, [6, 8].into_iter()));
        let expected = format!("VALUE a 0 1 {a}\r\nx\r\nVALUE b 0 1 {b}\r\ny\r\nEND\r\n");
        let gathered = Gathered { hits: 2, severity: Severity::Success };
        assert_eq!(merged("gets a b\r\n", &frames, 0), (expected, gathered));
    }

    #[test]
    fn token_is_void_if_values_differ() {
        let differing = ["VALUE a 0 1 5\r\nx\r\nEND\r\n", "VALUE a 0 1 7\r\nX\r\nEND\r\n"];
        let void = cas::void_token([5, 7].into_iter());
        let expected = format!("VALUE a 0 1 {void}\r\nx\r\nEND\r\n");
        assert_eq!(merged("gets a\r\n", &differing, 0).0, expected);
        let token = cas::token(0b10, [5].into_iter());
        let expected = format!("VALUE a 0 1 {token}\r\nx\r\nEND\r\n");
        assert_eq!(merged("gets a\r\n", &differing[..1], 0b10).0, expected);
    }

    #[test]
    fn key_is_found_when_all_servers_have_it() {
        let frames = [
            "VALUE a 0 1\r\nx\r\nVALUE b 0 1\r\ny\r\nVALUE b 0 1\r\ny\r\nEND\r\n",
            "VALUE b 0 1\r\ny\r\nVALUE b 0 1\r\ny\r\nEND\r\n",
        ];
        let expected = "VALUE b 0 1\r\ny\r\nVALUE b 0 1\r\ny\r\nEND\r\n";
        assert_eq!(merged("gat 0 a b b\r\n", &frames, 0).0, expected);
    }

    #[test]
    fn error_is_relayed() {
        let gathered = Gathered { hits: 0, severity: Severity::Error };
        let expected = ("SERVER_ERROR no\r\n".to_owned(), gathered);
        for second in ["SERVER_ERROR no\r\n", "VALUE a 0 1 5\r\nx\r\nSERVER_ERROR no\r\n"] {
            assert_eq!(merged("gets a\r\n", &["END\r\n", second], 0), expected);
        }
    }

    #[test]
    fn meta_answers_are_merged() {
        let (good, void) = (cas::token(0, [5, 7].into_iter()), cas::void_token([5, 7].into_iter()));
        // (answers, merged)
        let rows = [
            (["HD c5\r\n", "HD c7\r\n"], format!("HD c{good}\r\n")),
            (["VA 1 c5\r\nx\r\n", "VA 1 c7\r\ny\r\n"], format!("VA 1 c{void}\r\nx\r\n")),
            (["HD s3 c5\r\n", "HD s3 c7\r\n"], format!("HD s3 c{good}\r\n")),
            (["HD c5\r\n", "NS\r\n"], "NS\r\n".to_owned()),
            (["EN\r\n", "HD\r\n"], "EN\r\n".to_owned()),
            (["HD t30\r\n", "HD t29\r\n"], "HD t30\r\n".to_owned()),
        ];
        for (frames, expected) in rows {
            assert_eq!(meta_merged(&frames), expected);
        }
    }
}
