//! Which answers can belong to a request: pure, no sockets.

use memchr::memchr;

use knee_proto::{Asked, Expect, GetVerb, MetaVerb, Response, Status, is_base64_of};

/// The form of a request's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Retrieval(GetVerb),
    Store,
    Cas,
    Delete,
    Arith,
    Touch,
    /// `OK`
    Done,
    /// `OK`, or a line for this command alone.
    Memlimit,
    Version,
    Stats,
    Meta(MetaVerb),
}

impl Form {
    /// How to decode the answer.
    #[inline]
    pub(crate) fn expect(self) -> Expect {
        match self {
            Form::Retrieval(_) => Expect::Retrieval,
            Form::Stats => Expect::Stats,
            Form::Meta(_) => Expect::Meta,
            _ => Expect::Line,
        }
    }

    /// Whether the answer can only be checked against the request itself.
    pub(crate) fn needs_request(self) -> bool {
        matches!(self, Form::Retrieval(_) | Form::Meta(MetaVerb::Debug))
    }

    /// The keys of a retrieval, from its canonical form.
    #[inline]
    pub(crate) fn asked(self, request: &[u8]) -> Option<Asked<'_>> {
        let Form::Retrieval(verb) = self else { return None };
        let line = request.strip_suffix(b"\r\n").unwrap_or(request);
        // After `get ` or `gat `; verbs with tokens have one more letter.
        let mut keys = line.get(4 + usize::from(verb.with_cas())..).unwrap_or_default();
        if verb.with_exptime() {
            keys = memchr(b' ', keys).map_or(b"", |at| &keys[at + 1..]);
        }
        Some(Asked { keys, with_cas: verb.with_cas() })
    }

    /// Whether a status can answer a request of this form. Error lines answer every request.
    #[inline]
    pub(crate) fn fits(self, status: &Status<'_>) -> bool {
        if status.is_error() {
            return true;
        }
        match self {
            Form::Retrieval(_) => matches!(status, Status::Values),
            Form::Store => matches!(status, Status::Stored | Status::NotStored),
            Form::Cas => {
                matches!(status, Status::Stored | Status::Exists | Status::NotFound)
            }
            Form::Delete => matches!(status, Status::Deleted | Status::NotFound),
            Form::Arith => matches!(status, Status::Number(_) | Status::NotFound),
            Form::Touch => matches!(status, Status::Touched | Status::NotFound),
            Form::Done => matches!(status, Status::Ok),
            Form::Memlimit => matches!(status, Status::Ok | Status::Other(_)),
            Form::Version => matches!(status, Status::Version(_)),
            Form::Stats => matches!(status, Status::Stats | Status::Reset),
            Form::Meta(verb) => fits_meta(verb, status),
        }
    }

    /// Whether a server may have read a request's value as commands, because it refused the line before the value.
    #[inline]
    pub(crate) fn may_desynchronise(self, status: &Status<'_>) -> bool {
        match self {
            Form::Store | Form::Cas => {
                matches!(status, Status::Error(_) | Status::ClientError(_))
            }
            // Versions refuse different flags, but all of them drop the value then.
            Form::Meta(MetaVerb::Set) => matches!(status, Status::Error(_)),
            _ => false,
        }
    }
}

fn fits_meta(verb: MetaVerb, status: &Status<'_>) -> bool {
    use Status::{
        MetaDebug, MetaDone, MetaExists, MetaMiss, MetaNotFound, MetaNotStored, MetaValue,
    };
    match verb {
        MetaVerb::Get => matches!(status, MetaValue | MetaDone | MetaMiss),
        MetaVerb::Set => matches!(status, MetaDone | MetaNotStored | MetaExists | MetaNotFound),
        MetaVerb::Delete => matches!(status, MetaDone | MetaExists | MetaNotFound),
        MetaVerb::Arith => {
            matches!(status, MetaValue | MetaDone | MetaNotStored | MetaExists | MetaNotFound)
        }
        MetaVerb::Debug => matches!(status, MetaDebug | MetaMiss),
    }
}

/// Whether an answer to `me` is about the key of `request`. The answer has the key in base64 if it was stored with the
/// flag `b`. Requests in base64 are not compared.
pub(crate) fn debugs_key_of(request: &[u8], response: &Response<'_>) -> bool {
    let word = |bytes: &[u8], place| {
        let line = bytes.split(|&byte| byte == b'\r' || byte == b'\n').next()?;
        line.split(|&byte| byte == b' ').nth(place).map(<[u8]>::to_vec)
    };
    if response.status != Status::MetaDebug || word(request, 2).is_some() {
        return true;
    }
    let (asked, answered) = (word(request, 1), word(response.raw, 1));
    asked == answered
        || asked.zip(answered).is_some_and(|(asked, answered)| is_base64_of(&answered, &asked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::parse;

    #[test]
    fn answer_of_another_command_does_not_fit() {
        // (form, answers that fit)
        let rows: [(Form, &[&str]); 9] = [
            (Form::Store, &["STORED", "NOT_STORED"]),
            (Form::Cas, &["STORED", "EXISTS", "NOT_FOUND"]),
            (Form::Delete, &["DELETED", "NOT_FOUND"]),
            (Form::Arith, &["7", "NOT_FOUND"]),
            (Form::Touch, &["TOUCHED", "NOT_FOUND"]),
            (Form::Done, &["OK"]),
            (Form::Memlimit, &["OK", "MEMLIMIT_TOO_SMALL cannot"]),
            (Form::Version, &["VERSION 1.6.18"]),
            (Form::Stats, &["RESET"]),
        ];
        let known = rows.iter().flat_map(|(_, answers)| *answers);
        for answer in known.filter(|answer| !answer.starts_with("MEMLIMIT")) {
            let line = format!("{answer}\r\n");
            for (form, fitting) in rows {
                let response = parse(line.as_bytes(), form.expect()).expect("an answer");
                let fits = fitting.contains(answer);
                assert_eq!(form.fits(&response.status), fits, "{answer} to {form:?}");
            }
        }
        for (form, _) in rows {
            for error in ["ERROR", "CLIENT_ERROR no", "SERVER_ERROR no"] {
                let line = format!("{error}\r\n");
                let response = parse(line.as_bytes(), form.expect()).expect("an answer");
                assert!(form.fits(&response.status), "{error} to {form:?}");
            }
        }
    }

    #[test]
    fn meta_answer_of_another_command_does_not_fit() {
        use MetaVerb::{Arith, Debug, Delete, Get, Set};
        let rows: [(MetaVerb, &[&str]); 5] = [
            (Get, &["HD", "EN", "VA 1\r\nx"]),
            (Set, &["HD", "NS", "EX", "NF"]),
            (Delete, &["HD", "EX", "NF"]),
            (Arith, &["HD", "NS", "EX", "NF", "VA 1\r\nx"]),
            (Debug, &["EN", "ME k size=1"]),
        ];
        for answer in ["HD", "EN", "VA 1\r\nx", "NS", "EX", "NF", "ME k size=1", "MN"] {
            let frame = format!("{answer}\r\n");
            let response = parse(frame.as_bytes(), Expect::Meta).expect("an answer");
            for (verb, fitting) in rows {
                let fits = fitting.contains(&answer);
                assert_eq!(Form::Meta(verb).fits(&response.status), fits, "{answer} to {verb:?}");
            }
        }
    }

    #[test]
    fn keys_follow_verb_and_time() {
        let rows: [(GetVerb, &[u8], &[u8]); 3] = [
            (GetVerb::Get, b"get a bc\r\n", b"a bc"),
            (GetVerb::Gets, b"gets a\r\n", b"a"),
            (GetVerb::Gats, b"gats 10 a b\r\n", b"a b"),
        ];
        for (verb, request, keys) in rows {
            let asked = Form::Retrieval(verb).asked(request);
            assert_eq!(asked, Some(Asked { keys, with_cas: verb.with_cas() }));
        }
    }

    #[test]
    fn debug_answer_must_have_the_requested_key() {
        let response = parse(b"ME a size=1\r\n", Expect::Meta).expect("an answer");
        assert!(debugs_key_of(b"me a\r\n", &response));
        assert!(!debugs_key_of(b"me b\r\n", &response));
    }
}
