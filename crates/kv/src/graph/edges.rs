//! Reads text edge lists as a stream.

use std::io::{self, Read};

use memchr::memchr;

/// Longest line, comments included, in bytes before its line feed.
pub const LINE_BYTES_MAX: usize = 4096;
/// Bytes of a read from the input.
const BUFFER_BYTES: usize = 256 << 10;

/// A user and one follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Edge {
    /// The followed user.
    pub user: u64,
    /// The follower.
    pub follower: u64,
}

/// A line that is neither an edge nor a comment nor empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineError {
    /// The line's number, counted from 1.
    pub line: u64,
    /// The expected text.
    pub expected: &'static str,
    /// The beginning of the line.
    pub found: String,
}

const USER: &str = "the number of a user, of at most 64 bits";
const SEPARATOR: &str = "a tab or blank after the user";
const FOLLOWER: &str = "the number of a follower, of at most 64 bits";
const END: &str = "nothing after the follower";
const LINE_END: &str = "a line of at most 4096 bytes";
/// A line without one may be the beginning of a longer line.
const LINE_FEED: &str = "a line feed at the end of the list";

impl std::fmt::Display for LineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LineError { line, expected, found } = self;
        write!(f, "line {line}: expected {expected}, in {found:?}")
    }
}

/// Why the next edge could not be read.
#[derive(Debug)]
pub enum ReadEdgesError {
    /// The input cannot be read.
    Io(io::Error),
    /// A line is not an edge.
    Line(LineError),
}

impl From<io::Error> for ReadEdgesError {
    fn from(error: io::Error) -> ReadEdgesError {
        ReadEdgesError::Io(error)
    }
}

impl std::fmt::Display for ReadEdgesError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReadEdgesError::Io(error) => write!(f, "cannot be read: {error}"),
            ReadEdgesError::Line(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReadEdgesError {}

/// A position in an input, at the end of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Position {
    /// Bytes, line ends included.
    pub bytes: u64,
    /// Lines, comments and empty ones included.
    pub lines: u64,
    /// Edges.
    pub edges: u64,
    /// CRC-32C of the bytes.
    pub checksum: u32,
}

/// Reads the edges of a text of any length, in constant memory.
///
/// A line is `user<TAB or blanks>follower`, both unsigned decimal numbers of at most 64 bits. The reader ignores
/// blanks around the numbers, empty lines, and lines that begin with `#`. Every line ends in LF or CRLF. A last line
/// without a line feed is an error, as it may be incomplete.
#[derive(Debug)]
pub struct EdgeReader<R> {
    input: R,
    buffer: Box<[u8]>,
    /// Bytes that were read and not yet returned.
    start: usize,
    end: usize,
    /// Bytes of the buffer that the checksum has seen.
    digested: usize,
    ended: bool,
    position: Position,
}

impl<R: Read> EdgeReader<R> {
    /// Reads an input from its beginning.
    pub fn new(input: R) -> EdgeReader<R> {
        EdgeReader {
            input,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            digested: 0,
            ended: false,
            position: Position::default(),
        }
    }

    /// Resumes at the position of an earlier reader of the same input. Reads the bytes before the position again, to
    /// compare the checksum: `None` if the input differs.
    ///
    /// # Errors
    /// When the input cannot be read.
    pub fn resume(input: R, position: Position) -> io::Result<Option<EdgeReader<R>>> {
        let mut reader = EdgeReader::new(input);
        let (mut left, mut checksum) = (position.bytes, 0);
        while left > 0 {
            let most = left.min(BUFFER_BYTES as u64) as usize;
            let read = read(&mut reader.input, &mut reader.buffer[..most])?;
            if read == 0 {
                return Ok(None);
            }
            checksum = crc32c::crc32c_append(checksum, &reader.buffer[..read]);
            left -= read as u64;
        }
        reader.position = position;
        Ok((checksum == position.checksum).then_some(reader))
    }

    /// The position after the last returned edge.
    pub fn position(&mut self) -> Position {
        self.digest();
        self.position
    }

    fn digest(&mut self) {
        let fresh = &self.buffer[self.digested..self.start];
        self.position.checksum = crc32c::crc32c_append(self.position.checksum, fresh);
        self.digested = self.start;
    }

    /// The next edge; `None` at the end.
    ///
    /// # Errors
    /// See [`ReadEdgesError`]. After a wrong line the next call reads the following line.
    pub fn next_edge(&mut self) -> Result<Option<Edge>, ReadEdgesError> {
        loop {
            let rest = &self.buffer[self.start..self.end];
            let (line, taken) = match memchr(b'\n', rest) {
                Some(at) => (&rest[..at], at + 1),
                None if self.ended && rest.is_empty() => return Ok(None),
                None if self.ended || rest.len() > LINE_BYTES_MAX => (rest, rest.len()),
                None => {
                    self.fill()?;
                    continue;
                }
            };
            self.position.lines += 1;
            self.position.bytes += taken as u64;
            let parsed = match line.len() {
                length if length > LINE_BYTES_MAX => Err(LINE_END),
                length if length == taken => Err(LINE_FEED),
                _ => parse(line),
            };
            let parsed = parsed.map_err(|expected| {
                let shown = &line[..line.len().min(60)];
                let found = String::from_utf8_lossy(shown).into_owned();
                ReadEdgesError::Line(LineError { line: self.position.lines, expected, found })
            });
            self.start += taken;
            if let Some(edge) = parsed? {
                self.position.edges += 1;
                return Ok(Some(edge));
            }
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.digest();
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        (self.start, self.digested) = (0, 0);
        let read = read(&mut self.input, &mut self.buffer[self.end..])?;
        self.end += read;
        self.ended = read == 0;
        Ok(())
    }
}

fn read(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

fn parse(line: &[u8]) -> Result<Option<Edge>, &'static str> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = without_blanks(line);
    if line.is_empty() || line[0] == b'#' {
        return Ok(None);
    }
    let (user, rest) = number(line).ok_or(USER)?;
    let follower = without_blanks(rest);
    if follower.len() == rest.len() && !rest.is_empty() {
        return Err(SEPARATOR);
    }
    let (follower, rest) = number(follower).ok_or(FOLLOWER)?;
    if !without_blanks(rest).is_empty() {
        return Err(END);
    }
    Ok(Some(Edge { user, follower }))
}

fn without_blanks(line: &[u8]) -> &[u8] {
    let blanks = line.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    &line[blanks..]
}

/// Splits the text into the number at its front and the rest.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at(digits);
    if number.is_empty() {
        return None;
    }
    let value = number.iter().try_fold(0_u64, |value, digit| {
        value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })?;
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A reader that returns a few bytes at a time.
    struct Pieces<'a> {
        bytes: &'a [u8],
        sizes: std::iter::Cycle<std::slice::Iter<'a, usize>>,
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let size = self.sizes.next().copied().unwrap_or(1);
            let size = size.min(self.bytes.len()).min(buffer.len());
            let (now, later) = self.bytes.split_at(size);
            buffer[..size].copy_from_slice(now);
            self.bytes = later;
            Ok(size)
        }
    }

    /// All edges and wrong lines, and the position at the end.
    fn all(input: impl Read) -> (Vec<Result<Edge, LineError>>, Position) {
        let (mut reader, mut found) = (EdgeReader::new(input), Vec::new());
        loop {
            match reader.next_edge() {
                Ok(Some(edge)) => found.push(Ok(edge)),
                Ok(None) => return (found, reader.position()),
                Err(ReadEdgesError::Line(error)) => found.push(Err(error)),
                Err(ReadEdgesError::Io(error)) => panic!("{error}"),
            }
        }
    }

    fn of_line(line: &str) -> Result<Option<(u64, u64)>, &'static str> {
        parse(line.as_bytes()).map(|edge| edge.map(|edge| (edge.user, edge.follower)))
    }

    #[test]
    fn line_is_an_edge_or_empty_or_wrong() {
        assert_eq!(of_line("1\t2"), Ok(Some((1, 2))));
        assert_eq!(of_line("  1 \t 2 \r"), Ok(Some((1, 2))));
        assert_eq!(of_line("007 18446744073709551615"), Ok(Some((7, u64::MAX))));
        for nothing in ["", "\r", " \t", "#", "# 1 2", "  # user follower"] {
            assert_eq!(of_line(nothing), Ok(None), "{nothing:?}");
        }
        for (line, expected) in [
            ("a 2", USER),
            ("-1 2", USER),
            ("18446744073709551616 2", USER),
            ("1,2", SEPARATOR),
            ("1\r2", SEPARATOR),
            ("1x 2", SEPARATOR),
            ("1", FOLLOWER),
            ("1\t", FOLLOWER),
            ("1 b", FOLLOWER),
            ("1 99999999999999999999", FOLLOWER),
            ("1 2 3", END),
            ("1 2.5", END),
            ("1 2 # friends", END),
        ] {
            assert_eq!(of_line(line), Err(expected), "{line:?}");
        }
    }

    #[test]
    fn wrong_line_is_reported_with_its_number() {
        let (found, _) = all(&b"# twitter\r\n1\t2\r\n\r\n1;3\n2 4\n2 5"[..]);
        assert_eq!(found[0], Ok(Edge { user: 1, follower: 2 }));
        assert_eq!(
            found[1].as_ref().expect_err("no separator").to_string(),
            "line 4: expected a tab or blank after the user, in \"1;3\""
        );
        assert_eq!(found[2], Ok(Edge { user: 2, follower: 4 }));
        assert_eq!(
            found[3].as_ref().expect_err("no line feed").to_string(),
            "line 6: expected a line feed at the end of the list, in \"2 5\""
        );
    }

    #[test]
    fn endless_line_is_refused_in_constant_memory() {
        let mut reader = EdgeReader::new(io::repeat(b'1'));
        let error = reader.next_edge().expect_err("no end of the line");
        assert!(error.to_string().starts_with("line 1: expected a line of at most 4096 bytes"));
        let comment = [b"#".repeat(LINE_BYTES_MAX + 1), b"\n1 2\n".to_vec()].concat();
        let (found, _) = all(&comment[..]);
        assert!(matches!(&found[0], Err(LineError { expected: LINE_END, .. })));
    }

    fn any_text() -> impl Strategy<Value = Vec<u8>> {
        let line = prop_oneof![
            6 => (0..30_u64, any::<u64>(), "[ \t]{1,3}")
                .prop_map(|(user, follower, blanks)| format!("{user}{blanks}{follower}")),
            1 => "#[a-z ]{0,20}",
            1 => "[ \t]{0,3}",
            1 => "[0-9a# \t\r.]{0,30}",
        ];
        let lines = proptest::collection::vec((line, prop_oneof!["\n", "\r\n"]), 0..60);
        let text = lines.prop_map(|lines| {
            lines.into_iter().map(|(line, end)| line + &end).collect::<String>().into_bytes()
        });
        prop_oneof![4 => text, 1 => proptest::collection::vec(any::<u8>(), 0..300)]
    }

    proptest! {
        #[test]
        fn edges_do_not_depend_on_the_size_of_reads(
            text in any_text(), last_end: bool, sizes in proptest::collection::vec(1..20_usize, 1..5),
        ) {
            let text = if last_end { &text[..] } else { text.strip_suffix(b"\n").unwrap_or(&text) };
            let (found, position) = all(text);
            prop_assert_eq!(&(found.clone(), position), &all(Pieces { bytes: text, sizes: sizes.iter().cycle() }));
            // Line by line, with the standard library.
            let mut parsed = Vec::new();
            for (number, line) in (1..).zip(text.split_inclusive(|&byte| byte == b'\n')) {
                let Some(line) = line.strip_suffix(b"\n") else {
                    parsed.push((number, false));
                    continue;
                };
                match parse(line) {
                    Ok(None) => {}
                    Ok(Some(edge)) => {
                        let words = std::str::from_utf8(line).expect("digits and blanks");
                        let numbers: Vec<u64> =
                            words.split_ascii_whitespace().map(|word| word.parse().expect("a number")).collect();
                        prop_assert_eq!(numbers, [edge.user, edge.follower]);
                        parsed.push((number, true));
                    }
                    Err(_) => parsed.push((number, false)),
                }
            }
            prop_assert_eq!(parsed.len(), found.len());
            for ((number, good), found) in parsed.iter().zip(&found) {
                prop_assert_eq!(*good, found.is_ok());
                prop_assert!(found.as_ref().err().is_none_or(|error| error.line == *number));
            }
            prop_assert_eq!(position.bytes, text.len() as u64);
            prop_assert_eq!(position.checksum, crc32c::crc32c(text));
        }

        #[test]
        fn reader_resumes_only_in_the_same_text(
            text in any_text(), after in 0..40_usize, flip: proptest::sample::Index,
        ) {
            let (found, _) = all(&text[..]);
            let mut reader = EdgeReader::new(&text[..]);
            for _ in 0..after {
                let _ = reader.next_edge();
            }
            let position = reader.position();
            let resumed = EdgeReader::resume(&text[..], position).expect("a readable input");
            let mut resumed = resumed.expect("the same input");
            let mut rest = Vec::new();
            while let Some(next) = resumed.next_edge().transpose() {
                rest.push(next.ok());
            }
            let expected: Vec<_> = found.into_iter().skip(after).map(Result::ok).collect();
            prop_assert_eq!(rest, expected);
            if position.bytes > 0 {
                let mut other = text.clone();
                other[flip.index(position.bytes as usize)] ^= 1;
                prop_assert!(EdgeReader::resume(&other[..], position).expect("a readable input").is_none());
                let short = &text[..position.bytes as usize - 1];
                prop_assert!(EdgeReader::resume(short, position).expect("a readable input").is_none());
            }
        }
    }
}
