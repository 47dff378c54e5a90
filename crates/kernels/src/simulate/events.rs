//! The future events, in the order of time.

/// The bits of an event that hold its token.
const TOKEN_BITS: u32 = 28;
/// The children of a node of the heap. Four keys of 16 bytes fill a cache line. The heap is half as deep as a binary
/// heap (LaMarca & Ladner 1996).
const CHILDREN: usize = 4;

/// The future events of tokens, by their times. Events at the same time come in the order in which they were scheduled.
/// So the order does not depend on the shape of the heap.
///
/// A d-ary heap: O(log n) for each event, and 16 bytes. Each event is one integer key: the bits of its time, then its
/// number, then its token. The bits of non-negative times sort as the times, so comparing two keys orders two events.
#[derive(Clone, Debug, Default)]
pub(super) struct Events {
    keys: Vec<u128>,
    scheduled: u64,
}

impl Events {
    /// Schedules the event of a token below 2^28, at a time that is not negative.
    #[inline]
    pub(super) fn push(&mut self, time: f64, token: u32) {
        debug_assert!(time >= 0.0 && token >> TOKEN_BITS == 0);
        let order = u128::from(self.scheduled) << TOKEN_BITS | u128::from(token);
        let key = u128::from(time.to_bits()) << 64 | order;
        self.scheduled += 1;

        let mut place = self.keys.len();
        self.keys.push(key);
        while place > 0 {
            let parent = (place - 1) / CHILDREN;
            if self.keys[parent] < key {
                break;
            }
            self.keys[place] = self.keys[parent];
            place = parent;
        }
        self.keys[place] = key;
    }

    /// The time of the next event; infinity without one.
    #[inline]
    pub(super) fn next_time(&self) -> f64 {
        self.keys.first().map_or(f64::INFINITY, |&key| time(key))
    }

    /// Takes the next event: its time and its token.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(f64, u32)> {
        let last = self.keys.pop()?;
        let Some(&first) = self.keys.first() else {
            return Some((time(last), token(last)));
        };
        let keys = self.keys.as_mut_slice();
        let mut place = 0;
        loop {
            let child = place * CHILDREN + 1;
            let least = match keys.get(child..child + CHILDREN) {
                Some(group) => {
                    // Without branches, as a processor cannot predict which child is least.
                    let left = usize::from(group[1] < group[0]);
                    let right = 2 + usize::from(group[3] < group[2]);
                    child + if group[right] < group[left] { right } else { left }
                }
                None => match (child..keys.len()).min_by_key(|&child| keys[child]) {
                    Some(least) => least,
                    None => break,
                },
            };
            if last < keys[least] {
                break;
            }
            keys[place] = keys[least];
            place = least;
        }
        keys[place] = last;
        Some((time(first), token(first)))
    }

    /// The number of events scheduled so far.
    #[inline]
    pub(super) fn scheduled(&self) -> u64 {
        self.scheduled
    }
}

fn time(key: u128) -> f64 {
    f64::from_bits((key >> 64) as u64)
}

fn token(key: u128) -> u32 {
    key as u32 & ((1 << TOKEN_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares with a sorted map. There are few different times, so that many are equal.
        #[test]
        fn events_come_by_time_then_by_scheduling(
            steps in prop::collection::vec(prop::option::weighted(0.6, 0_u8..12), 0..400)
        ) {
            let mut events = Events::default();
            let mut expected = BTreeMap::new();
            for (number, step) in steps.into_iter().enumerate() {
                let number = number as u32;
                match step {
                    Some(time) => {
                        events.push(f64::from(time) / 3.0, number);
                        expected.insert((time, number), number);
                    }
                    None => {
                        let first = expected.pop_first();
                        let first = first.map(|((time, _), token)| (f64::from(time) / 3.0, token));
                        prop_assert_eq!(events.next_time(), first.map_or(f64::INFINITY, |(t, _)| t));
                        prop_assert_eq!(events.pop(), first);
                    }
                }
            }
            while let Some(((time, _), token)) = expected.pop_first() {
                prop_assert_eq!(events.pop(), Some((f64::from(time) / 3.0, token)));
            }
            prop_assert_eq!(events.pop(), None);
        }
    }

    #[test]
    fn largest_parts_of_a_key_do_not_overlap() {
        let mut events = Events { scheduled: (1 << (64 - TOKEN_BITS)) - 2, ..Events::default() };
        let largest = (1 << TOKEN_BITS) - 1;
        events.push(f64::MAX, largest);
        events.push(0.0, 0);
        assert_eq!(events.pop(), Some((0.0, 0)));
        assert_eq!(events.pop(), Some((f64::MAX, largest)));
    }
}
