//! One answer out of those of all servers to the same write: pure, no sockets.

use knee_proto::{Response, Status};

/// How bad an answer is; the worst one is relayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Severity {
    /// No answer yet.
    #[default]
    Nothing,
    Success,
    /// `NOT_FOUND`, `NF`, `EN`
    Missing,
    /// `NOT_STORED`, `NS`
    NotStored,
    /// `EXISTS`, `EX`
    Exists,
    /// An error line, or a server that was lost.
    Error,
}

impl Severity {
    pub(crate) fn of(status: &Status<'_>) -> Severity {
        match status {
            Status::NotFound | Status::MetaNotFound | Status::MetaMiss => Severity::Missing,
            Status::NotStored | Status::MetaNotStored => Severity::NotStored,
            Status::Exists | Status::MetaExists => Severity::Exists,
            status if status.is_error() => Severity::Error,
            _ => Severity::Success,
        }
    }
}

/// What the answers so far amount to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) severity: Severity,
    /// The new value of a counter, as the first server has it.
    number: Option<u64>,
    /// Another server has a different one.
    pub(crate) disagree: bool,
}

impl Verdict {
    /// Takes in one server's answer and tells whether it is now the one to relay.
    pub(crate) fn weigh(&mut self, response: &Response<'_>) -> bool {
        if let Some(number) = counter(response) {
            self.disagree |= self.number.is_some_and(|first| first != number);
            self.number.get_or_insert(number);
        }
        let severity = Severity::of(&response.status);
        let worse = severity > self.severity;
        self.severity = self.severity.max(severity);
        worse
    }

    /// Takes in that a server was lost; tells whether that is now the answer to relay.
    pub(crate) fn lose(&mut self) -> bool {
        let first = self.severity < Severity::Error;
        self.severity = Severity::Error;
        first
    }

    /// Whether all servers did what was asked, each with another result.
    pub(crate) fn replicas_disagree(&self) -> bool {
        self.severity == Severity::Success && self.disagree
    }
}

fn counter(response: &Response<'_>) -> Option<u64> {
    match response.status {
        Status::Number(number) => Some(number),
        // The only write that answers with a value is `ma`, and its value is a number.
        Status::MetaValue => std::str::from_utf8(response.meta_value()?).ok()?.trim().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gather::parse;
    use knee_proto::Expect;

    #[test]
    fn the_most_severe_answer_is_relayed() {
        use Expect::{Line, Meta};
        // (expected form, answers in the order of arrival, index of the relayed one)
        let rows: [(Expect, &[&str], usize); 9] = [
            (Line, &["STORED", "STORED", "STORED"], 0),
            // One replica refused: the write is not acknowledged.
            (Line, &["STORED", "NOT_STORED", "STORED"], 1),
            // A condition that did not hold is told before one that had nothing to hold on to.
            (Line, &["NOT_FOUND", "EXISTS", "STORED"], 1),
            (Line, &["NOT_FOUND", "NOT_STORED", "STORED"], 1),
            // Errors are told first, and the first of them.
            (Line, &["EXISTS", "SERVER_ERROR out of memory storing object", "ERROR"], 1),
            (Line, &["DELETED", "NOT_FOUND", "DELETED"], 1),
            (Line, &["7", "7", "7"], 0),
            (Meta, &["HD", "NS", "HD"], 1),
            (Meta, &["NF", "HD", "EX"], 2),
        ];
        for (expect, answers, relayed) in rows {
            let mut verdict = Verdict::default();
            let mut chosen = None;
            for (index, answer) in answers.iter().enumerate() {
                let line = format!("{answer}\r\n");
                let response = parse(line.as_bytes(), expect).expect("an answer");
                if verdict.weigh(&response) {
                    chosen = Some(index);
                }
            }
            assert_eq!(chosen, Some(relayed), "{answers:?}");
            assert!(!verdict.replicas_disagree(), "{answers:?}");
        }
    }

    #[test]
    fn counters_that_differ_are_noticed() {
        // (expected form, answers, whether they disagree)
        let rows: [(Expect, &[&str], bool); 4] = [
            (Expect::Line, &["7", "8"], true),
            (Expect::Meta, &["VA 1\r\n7", "VA 1\r\n8"], true),
            (Expect::Meta, &["VA 1\r\n7", "VA 1\r\n7"], false),
            // A missing counter is the graver news.
            (Expect::Line, &["7", "NOT_FOUND"], false),
        ];
        for (expect, answers, disagree) in rows {
            let mut verdict = Verdict::default();
            for answer in answers {
                let frame = format!("{answer}\r\n");
                verdict.weigh(&parse(frame.as_bytes(), expect).expect("an answer"));
            }
            assert_eq!(verdict.replicas_disagree(), disagree, "{answers:?}");
        }
    }

    #[test]
    fn a_lost_server_outweighs_every_answer_but_an_error() {
        let mut verdict = Verdict::default();
        verdict.weigh(&parse(b"EXISTS\r\n", Expect::Line).expect("an answer"));
        assert!(verdict.lose());
        assert!(!verdict.lose());
        let error = parse(b"ERROR\r\n", Expect::Line).expect("an answer");
        assert!(!verdict.weigh(&error));
    }
}
