//! The classic commands.

use knee_kv_cache::engine::{Change, Engine, Expiry, Head, Item, Refused, Second, Version};
use knee_proto::{ArithVerb, Get, Store, StoreVerb, encode};
use knee_telemetry::Op;

use super::{Answered, Commands, NON_NUMERIC, Outcome, Progress, counter_value, expiry};
use crate::counters::Counter;

/// Smallest `cache_memlimit`, in MiB.
const MEMLIMIT_MB_MIN: u32 = 8;
/// Largest `cache_memlimit`, in MiB: a larger number is probably in bytes.
const MEMLIMIT_MB_MAX: u32 = 1_000_000_000;

pub(super) struct Condition {
    pub(super) verb: StoreVerb,
    /// The token to hold; 0 for none, except with `cas`.
    pub(super) cas: u64,
    /// Whether a `cas` with a token older than the item's succeeds, and marks the item as stale.
    pub(super) older_cas_is_stale: bool,
}

/// The outcome of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Stored,
    /// Stored, but the token was older than the item's.
    StoredStale,
    NotStored,
    Exists,
    NotFound,
}

impl Verdict {
    /// Whether the change was made.
    pub(super) fn held(self) -> bool {
        matches!(self, Verdict::Stored | Verdict::StoredStale)
    }
}

impl Condition {
    pub(super) fn judge(&self, old: Option<&Head>) -> Verdict {
        let Some(old) = old else {
            return match self.verb {
                StoreVerb::Set | StoreVerb::Add => Verdict::Stored,
                StoreVerb::Cas => Verdict::NotFound,
                StoreVerb::Replace | StoreVerb::Append | StoreVerb::Prepend => Verdict::NotStored,
            };
        };
        match self.verb {
            StoreVerb::Set | StoreVerb::Replace => Verdict::Stored,
            StoreVerb::Add => Verdict::NotStored,
            StoreVerb::Append | StoreVerb::Prepend => {
                if self.cas == 0 || self.cas == old.version {
                    Verdict::Stored
                } else {
                    Verdict::Exists
                }
            }
            StoreVerb::Cas => {
                if self.cas == old.version {
                    Verdict::Stored
                } else if self.older_cas_is_stale && self.cas != 0 && self.cas < old.version {
                    Verdict::StoredStale
                } else {
                    Verdict::Exists
                }
            }
        }
    }
}

/// The outcome of arithmetic on a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sum {
    Is {
        value: u64,
        /// The item's new version.
        version: Version,
        old_expiry: Expiry,
    },
    NonNumeric,
    NotFound,
    /// The cas token no longer holds.
    Exists,
    Refused(Refused),
}

impl<E: Engine> Commands<E> {
    #[inline]
    pub(super) fn get(
        &mut self,
        get: &Get<'_>,
        progress: &mut Progress,
        budget: usize,
        now: Second,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let start = out.len();
        let with_cas = get.verb.with_cas();
        let touch = get.verb.with_exptime().then(|| expiry(get.exptime, now));
        for key in get.keys().skip(progress.keys) {
            if out.len() - start > budget {
                return Outcome::Suspended;
            }
            let before = out.len();
            let mut show = |item: Option<&Item<'_>>| {
                // After a concurrent change, the engine may call this again.
                out.truncate(before);
                let Some(item) = item else { return false };
                let cas = with_cas.then_some(item.version);
                encode::value(key, item.flags, item.value, cas, out);
                true
            };
            let shown = match touch {
                None => self.engine.get(key, now, |item| show(item.as_ref())),
                Some(expiry) => {
                    let (touched, hit) = self.update(key, now, |item| {
                        let hit = show(item.as_ref());
                        let touched = |item: Item<'_>| Change::Amend {
                            expiry,
                            marks: item.marks,
                            new_version: false,
                            read: true,
                        };
                        (item.map_or(Change::Keep, touched), hit)
                    });
                    touched.map(|_| hit)
                }
            };
            let hit = match shown {
                Ok(hit) => hit,
                Err(refused) => {
                    // The part already sent has no end line, so the client sees that the answer is incomplete.
                    self.fail(refused, start, out);
                    *progress = Progress::default();
                    return Outcome::Done(Answered::failed(Op::Get));
                }
            };
            progress.keys += 1;
            progress.hits += usize::from(hit);
        }
        out.extend_from_slice(encode::END);

        let (items, hits) = (progress.keys as u32, progress.hits as u32);
        *progress = Progress::default();
        let misses = items - hits;
        let (command, on_hit, on_miss) = if touch.is_some() {
            (Counter::CmdTouch, Counter::TouchHits, Counter::TouchMisses)
        } else {
            (Counter::CmdGet, Counter::GetHits, Counter::GetMisses)
        };
        self.count(command, items.into());
        self.count(on_hit, hits.into());
        self.count(on_miss, misses.into());
        let op = if items > 1 { Op::Multiget } else { Op::Get };
        Outcome::Done(Answered { op, items, hits, misses, error: false })
    }

    pub(super) fn store(&mut self, store: &Store<'_>, now: Second, out: &mut Vec<u8>) -> Answered {
        let condition = Condition { verb: store.verb, cas: store.cas, older_cas_is_stale: false };
        let put = Change::Put {
            flags: store.flags,
            expiry: expiry(store.exptime, now),
            marks: 0,
            value: store.value,
        };
        let (outcome, (verdict, _)) = self.store_if(store.key, &condition, put, now);
        let answer = match (outcome, verdict) {
            (Err(refused), _) => self.refused(refused),
            (Ok(_), Verdict::Stored | Verdict::StoredStale) => encode::STORED,
            (Ok(_), Verdict::NotStored) => encode::NOT_STORED,
            (Ok(_), Verdict::Exists) => encode::EXISTS,
            (Ok(_), Verdict::NotFound) => encode::NOT_FOUND,
        };
        if !store.noreply {
            out.extend_from_slice(answer);
        }
        Answered::written(Op::Set, outcome.is_err(), verdict.held())
    }

    /// Executes a storage command if its condition holds. `put` is the change that a plain `set` would make. Also
    /// returns the length of the old value, if the new one was joined to it.
    pub(super) fn store_if(
        &mut self,
        key: &[u8],
        condition: &Condition,
        put: Change<'_>,
        now: Second,
    ) -> (Result<Version, Refused>, (Verdict, usize)) {
        let decide = |old: Option<Head>| {
            let verdict = condition.judge(old.as_ref());
            let mut joined = 0;
            let change = match (verdict, condition.verb, put, old) {
                (Verdict::Stored, StoreVerb::Append, Change::Put { value, .. }, Some(old)) => {
                    joined = old.value_bytes;
                    Change::Append(value)
                }
                (Verdict::Stored, StoreVerb::Prepend, Change::Put { value, .. }, Some(old)) => {
                    joined = old.value_bytes;
                    Change::Prepend(value)
                }
                (Verdict::Stored, ..) => put,
                (Verdict::StoredStale, _, Change::Put { flags, marks, value, .. }, Some(old)) => {
                    Change::Put {
                        flags,
                        expiry: old.expiry,
                        marks: marks | super::STALE | (old.marks & super::WON),
                        value,
                    }
                }
                _ => Change::Keep,
            };
            (change, (verdict, joined))
        };
        let (outcome, (verdict, joined)) = self.update_by_head(key, now, decide);
        self.count(Counter::CmdSet, 1);
        if condition.verb == StoreVerb::Cas {
            self.count(
                match verdict {
                    Verdict::NotFound => Counter::CasMisses,
                    Verdict::Exists => Counter::CasBadval,
                    _ => Counter::CasHits,
                },
                1,
            );
        }
        (outcome, (verdict, joined))
    }

    pub(super) fn delete(&mut self, key: &[u8], now: Second, out: &mut Vec<u8>) -> Answered {
        let (removed, hit) = self.update_by_head(key, now, |item| (Change::Remove, item.is_some()));
        if let Err(refused) = removed {
            out.extend_from_slice(self.refused(refused));
            return Answered::failed(Op::Delete);
        }
        self.count(if hit { Counter::DeleteHits } else { Counter::DeleteMisses }, 1);
        out.extend_from_slice(if hit { encode::DELETED } else { encode::NOT_FOUND });
        Answered::looked_up(Op::Delete, hit)
    }

    pub(super) fn touch(
        &mut self,
        key: &[u8],
        exptime: i64,
        now: Second,
        out: &mut Vec<u8>,
    ) -> Answered {
        let expiry = expiry(exptime, now);
        let (touched, hit) = self.update_by_head(key, now, |item| match item {
            Some(item) => {
                (Change::Amend { expiry, marks: item.marks, new_version: false, read: true }, true)
            }
            None => (Change::Keep, false),
        });
        self.count(Counter::CmdTouch, 1);
        if let Err(refused) = touched {
            out.extend_from_slice(self.refused(refused));
            return Answered::failed(Op::Other);
        }
        self.count(if hit { Counter::TouchHits } else { Counter::TouchMisses }, 1);
        out.extend_from_slice(if hit { encode::TOUCHED } else { encode::NOT_FOUND });
        Answered::looked_up(Op::Other, hit)
    }

    pub(super) fn arith(
        &mut self,
        verb: ArithVerb,
        key: &[u8],
        delta: u64,
        now: Second,
        out: &mut Vec<u8>,
    ) -> Answered {
        let sum = self.add_delta(verb, key, delta, 0, None, now);
        match sum {
            Sum::Is { value, .. } => encode::number_line(value, out),
            Sum::NonNumeric => out.extend_from_slice(NON_NUMERIC),
            Sum::NotFound | Sum::Exists => out.extend_from_slice(encode::NOT_FOUND),
            Sum::Refused(refused) => out.extend_from_slice(self.refused(refused)),
        }
        let error = matches!(sum, Sum::NonNumeric | Sum::Refused(_));
        Answered { error, ..Answered::looked_up(Op::Other, sum != Sum::NotFound) }
    }

    /// Adds to or subtracts from a counter. Unless `cas` is 0, it must be the counter's token. Sets a new expiry if one
    /// is given.
    ///
    /// Sums wrap at 2^64, differences stop at 0. Blanks pad a shorter result to the old length. Unless the result
    /// is longer, the item is changed in place.
    pub(super) fn add_delta(
        &mut self,
        verb: ArithVerb,
        key: &[u8],
        delta: u64,
        cas: u64,
        new_expiry: Option<Expiry>,
        now: Second,
    ) -> Sum {
        let (version, sum) = loop {
            let text = &mut self.padded;
            let decided = self.engine.update(key, now, |item| {
                let Some(item) = item else { return (Change::Keep, Sum::NotFound) };
                if item.value.is_empty() {
                    return (Change::Keep, Sum::NonNumeric);
                }
                if cas != 0 && cas != item.version {
                    return (Change::Keep, Sum::Exists);
                }
                let Some(old) = counter_value(item.value) else {
                    return (Change::Keep, Sum::NonNumeric);
                };
                let value = match verb {
                    ArithVerb::Incr => old.wrapping_add(delta),
                    ArithVerb::Decr => old.saturating_sub(delta),
                };
                text.clear();
                encode::number(value, text);
                let expiry = new_expiry.unwrap_or(item.expiry);
                let change = if text.len() <= item.value.len() {
                    text.resize(item.value.len(), b' ');
                    Change::Rewrite { expiry, value: text }
                } else {
                    Change::Put { flags: item.flags, expiry, marks: 0, value: text }
                };
                (change, Sum::Is { value, version: 0, old_expiry: item.expiry })
            });
            // Another thread may have changed the item while this change waited for space.
            if decided.0 != Err(Refused::Changed) {
                break decided;
            }
        };
        let (hits, misses) = match verb {
            ArithVerb::Incr => (Counter::IncrHits, Counter::IncrMisses),
            ArithVerb::Decr => (Counter::DecrHits, Counter::DecrMisses),
        };
        match (sum, version) {
            (_, Err(refused)) => Sum::Refused(refused),
            (Sum::Is { value, old_expiry, .. }, Ok(version)) => {
                self.count(hits, 1);
                Sum::Is { value, version, old_expiry }
            }
            (Sum::NotFound, _) => {
                self.count(misses, 1);
                sum
            }
            _ => sum,
        }
    }

    /// Executes `flush_all`. Returns false if the engine refused.
    pub(super) fn flush_all(&mut self, delay: i64, now: Second, out: &mut Vec<u8>) -> bool {
        let at = expiry(delay, now).second().unwrap_or(now);
        let cleared = self.engine.clear(at, now);
        self.count(Counter::CmdFlush, 1);
        out.extend_from_slice(match cleared {
            Ok(()) => encode::OK,
            Err(refused) => self.refused(refused),
        });
        cleared.is_ok()
    }

    pub(super) fn cache_memlimit(&mut self, megabytes: u32, now: Second, out: &mut Vec<u8>) {
        let answer: &[u8] = if megabytes < MEMLIMIT_MB_MIN {
            b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n"
        } else if megabytes > MEMLIMIT_MB_MAX {
            b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n"
        } else if self.engine.set_memory_limit((megabytes as usize) << 20, now) {
            encode::OK
        } else {
            b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n"
        };
        out.extend_from_slice(answer);
    }
}
