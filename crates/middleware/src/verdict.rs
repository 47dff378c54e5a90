//! Chooses among all servers' answers to a write: pure, no sockets.
//!
//! Concurrent writes over different connections reach the servers in different orders. If two clients increment at the
//! same time, one server may answer 1 and 2, another server 2 and 1. In the end every server has 2, and nothing went
//! wrong. The first server decides which increment was first, as for `cas`. So no two clients get the same number.

use knee_proto::{Response, Status};

/// The severity of an answer. The most severe one is relayed, but see [`Verdict::weigh`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Severity {
    /// No answer yet.
    #[default]
    Nothing,
    Success,
    /// `NOT_FOUND`, `NF`, `EN`
    Missing,
    /// `NOT_STORED`, `NS`, and all answers that are not a known success.
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
            // For example `MEMLIMIT_TOO_SMALL` or `BUSY`: the server did not do it.
            Status::Other(_) => Severity::NotStored,
            _ => Severity::Success,
        }
    }
}

/// The result of the answers so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) severity: Severity,
    /// The server with the relayed answer.
    server: usize,
    /// Bit set of the servers that executed the write.
    done: u64,
}

impl Verdict {
    /// Adds the answer of one server, given by its place on the command line. Returns whether to relay this answer.
    ///
    /// A server that has returned may lack keys. So a success at another server outweighs a missing item. `adds`: whether
    /// the answer `NOT_STORED` or `NS` means that an item exists, and not that it is missing.
    pub(crate) fn weigh(&mut self, server: usize, response: &Response<'_>, adds: bool) -> bool {
        let severity = match (Severity::of(&response.status), &response.status) {
            (_, Status::NotStored | Status::MetaNotStored) if !adds => Severity::Missing,
            (severity, _) => severity,
        };
        if severity == Severity::Success {
            self.done |= 1 << server;
        }
        let rank = |severity| match severity {
            Severity::Missing => (Severity::Success, 0),
            severity => (severity, 1),
        };
        let decides = severity == Severity::Success && server < self.server;
        let relayed =
            rank(severity) > rank(self.severity) || (severity == self.severity && decides);
        if relayed {
            (self.severity, self.server) = (severity, server);
        }
        relayed
    }

    /// If the client gets a refusal, takes the bit set of the servers that executed the write.
    pub(crate) fn take_undone(&mut self) -> u64 {
        match self.severity {
            Severity::NotStored | Severity::Exists => std::mem::take(&mut self.done),
            _ => 0,
        }
    }

    /// Adds the loss of a server. Returns whether to relay the loss.
    pub(crate) fn lose(&mut self) -> bool {
        let first = self.severity < Severity::Error;
        self.severity = Severity::Error;
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::parse;
    use knee_proto::Expect;

    #[test]
    fn most_severe_answer_is_relayed() {
        use Expect::{Line, Meta};
        // (expected form, answers in the order of arrival, index of the relayed one)
        let rows: [(Expect, &[&str], usize); 10] = [
            (Line, &["STORED", "STORED", "STORED"], 0),
            // One replica refused: the write is not acknowledged.
            (Line, &["STORED", "NOT_STORED", "STORED"], 1),
            // A condition that did not hold outweighs a missing item.
            (Line, &["NOT_FOUND", "EXISTS", "STORED"], 1),
            (Line, &["NOT_FOUND", "NOT_STORED", "STORED"], 1),
            // Errors outweigh all others; the first error is relayed.
            (Line, &["EXISTS", "SERVER_ERROR out of memory storing object", "ERROR"], 1),
            (Line, &["NOT_FOUND", "DELETED", "NOT_FOUND"], 1),
            (Line, &["7", "7", "7"], 0),
            (Line, &["OK", "MEMLIMIT_ADJUST_FAILED", "OK"], 1),
            (Meta, &["HD", "NS", "HD"], 1),
            (Meta, &["NF", "HD", "EX"], 2),
        ];
        for (expect, answers, relayed) in rows {
            let mut verdict = Verdict::default();
            let mut chosen = None;
            for (index, answer) in answers.iter().enumerate() {
                let line = format!("{answer}\r\n");
                let response = parse(line.as_bytes(), expect).expect("an answer");
                if verdict.weigh(index, &response, true) {
                    chosen = Some(index);
                }
            }
            assert_eq!(chosen, Some(relayed), "{answers:?}");
        }
    }

    #[test]
    fn racing_counters_give_the_first_servers_number() {
        // (expected form, answers in the order of arrival with their servers, index of the relayed one)
        let rows = [
            (Expect::Line, vec![(0, "7"), (1, "8")], 0),
            (Expect::Line, vec![(2, "9"), (1, "8"), (0, "7")], 2),
            (Expect::Meta, vec![(1, "VA 1\r\n8"), (0, "VA 1\r\n7")], 1),
            // A missing counter is more severe.
            (Expect::Line, vec![(1, "NOT_FOUND"), (0, "7")], 1),
        ];
        for (expect, answers, relayed) in rows {
            let mut verdict = Verdict::default();
            let mut chosen = None;
            for (index, &(server, answer)) in answers.iter().enumerate() {
                let frame = format!("{answer}\r\n");
                let response = parse(frame.as_bytes(), expect).expect("an answer");
                if verdict.weigh(server, &response, false) {
                    chosen = Some(index);
                }
            }
            assert_eq!(chosen, Some(relayed), "{answers:?}");
        }
    }

    #[test]
    fn lost_server_outweighs_all_but_an_error() {
        let mut verdict = Verdict::default();
        verdict.weigh(0, &parse(b"EXISTS\r\n", Expect::Line).expect("an answer"), false);
        assert!(verdict.lose());
        assert!(!verdict.lose());
        let error = parse(b"ERROR\r\n", Expect::Line).expect("an answer");
        assert!(!verdict.weigh(1, &error, false));
    }
}
