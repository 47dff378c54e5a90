//! A multi-get split over several servers: pure, no sockets.
//!
//! Each server gets a run of neighbouring keys. The concatenated answers are then in the order of the keys, and need no
//! parsing.

use knee_proto::encode;

/// Splits the keys of `get KEY…` into `parts` runs, with lengths that differ by at most one. Calls `each` with the
/// number of each part and its request.
///
/// `line` is the whole request with its line end, `keys` the number of its keys, at least `parts`.
pub(crate) fn split(
    line: &[u8],
    keys: usize,
    parts: usize,
    mut each: impl FnMut(usize, Shard<'_>),
) {
    debug_assert!(parts > 0 && keys >= parts);
    let words = line.strip_suffix(b"\n").unwrap_or(line);
    let words = words.strip_suffix(b"\r").unwrap_or(words);
    let mut rest = words.trim_ascii_start().strip_prefix(b"get").unwrap_or_default();
    let mut taken = 0;
    for part in 0..parts {
        let end = (part + 1) * keys / parts;
        let mut length = 0;
        for _ in taken..end {
            length += next_word_end(&rest[length..]);
        }
        taken = end;
        let (keys, behind) = rest.split_at(length);
        rest = behind;
        each(part, Shard { keys });
    }
}

/// The end of the first word of `text`, after any spaces.
fn next_word_end(text: &[u8]) -> usize {
    let start = text.iter().position(|&byte| byte != b' ').unwrap_or(text.len());
    text[start..].iter().position(|&byte| byte == b' ').map_or(text.len(), |at| start + at)
}

/// One server's share of a multi-get.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shard<'a> {
    /// Keys, with a space before each.
    keys: &'a [u8],
}

impl Shard<'_> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"get");
        out.extend_from_slice(self.keys);
        encode::line_end(out);
    }
}

/// Appends the answer to the whole multi-get, from the answers to its parts, in order. All of them
/// are complete retrievals.
pub(crate) fn join<'p>(parts: impl Iterator<Item = &'p [u8]>, out: &mut Vec<u8>) {
    for part in parts {
        out.extend_from_slice(part.strip_suffix(encode::END).unwrap_or(part));
    }
    out.extend_from_slice(encode::END);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The answer to `line` of a server that holds the keys whose entries in `stored` are true.
    fn serve(line: &[u8], stored: &[bool], keys: &[String]) -> Vec<u8> {
        let line = std::str::from_utf8(line).expect("keys are ASCII");
        let mut out = Vec::new();
        for word in line.trim_end().split(' ').filter(|word| !word.is_empty()).skip(1) {
            let place = keys.iter().position(|key| key == word).expect("a key of the request");
            if stored[place] {
                encode::value(word.as_bytes(), 0, format!("of {word}").as_bytes(), None, &mut out);
            }
        }
        out.extend_from_slice(encode::END);
        out
    }

    proptest! {
        /// For all keys, hits and numbers of servers.
        #[test]
        fn sharded_multiget_has_the_answer_of_a_whole_one(
            keys in proptest::collection::vec("[a-z]{1,9}", 1..30),
            hits in proptest::collection::vec(any::<bool>(), 30),
            gaps in proptest::collection::vec(1_usize..3, 31),
            servers in 1_usize..6,
        ) {
            let mut line = b"get".to_vec();
            for (key, gap) in keys.iter().zip(&gaps) {
                line.extend(std::iter::repeat_n(b' ', *gap));
                line.extend_from_slice(key.as_bytes());
            }
            line.extend_from_slice(b"\r\n");
            let parts = servers.min(keys.len());
            let mut answers = Vec::new();
            let mut counts = Vec::new();
            split(&line, keys.len(), parts, |part, shard| {
                assert_eq!(part, answers.len());
                let mut request = Vec::new();
                shard.encode(&mut request);
                counts.push(shard.keys.split(|&b| b == b' ').filter(|w| !w.is_empty()).count());
                answers.push(serve(&request, &hits, &keys));
            });
            let mut joined = Vec::new();
            join(answers.iter().map(Vec::as_slice), &mut joined);
            prop_assert_eq!(joined, serve(&line, &hits, &keys));
            prop_assert_eq!(counts.len(), parts);
            let least = *counts.iter().min().expect("at least one part");
            let most = *counts.iter().max().expect("at least one part");
            prop_assert!(most - least <= 1, "uneven: {:?}", counts);
        }
    }
}
