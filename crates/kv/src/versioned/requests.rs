//! Requests that were made already: one that is sent again is answered again, not made again.

use std::collections::{HashMap, VecDeque};

use super::record::RequestId;
use super::write::Committed;

/// Requests remembered: of 10,000 writes a second those of the last hundred seconds.
const REQUESTS_MAX: usize = 1 << 20;

/// The latest requests that had an id, and what came of them.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    made: HashMap<RequestId, Committed>,
    order: VecDeque<RequestId>,
}

impl Requests {
    /// What came of a request, if it was made.
    pub(crate) fn made(&self, request: RequestId) -> Option<Committed> {
        self.made.get(&request).copied()
    }

    /// Remembers what came of one.
    pub(crate) fn remember(&mut self, request: RequestId, committed: Committed) {
        if self.made.insert(request, committed).is_none() {
            self.order.push_back(request);
        }
        if self.order.len() > REQUESTS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.made.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten_first() {
        let mut requests = Requests::default();
        let id = |number| RequestId { client: 7, number };
        for number in 0..=REQUESTS_MAX as u64 {
            requests.remember(id(number), Committed { sequence: number, version: number });
        }
        assert_eq!(requests.made(id(0)), None);
        assert_eq!(requests.made(id(1)), Some(Committed { sequence: 1, version: 1 }));
        assert_eq!(requests.made.len(), REQUESTS_MAX);
    }
}
