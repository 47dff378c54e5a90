//! The meta commands.

use knee_kv_cache::engine::{Change, Engine, Expiry, Item, Refused, Second, Version};
use knee_proto::{ArithVerb, Meta, MetaVerb, Status, StoreVerb, encode, quiet_suppresses};
use knee_telemetry::Op;

use super::classic::{Condition, Sum, Verdict};
use super::meta_answer::{
    expiry_after, is_shown_encoded, show_counter, show_item, show_request_flag, show_request_flags,
};
use super::{Answered, BINARY_KEY, Commands, NON_NUMERIC, STALE, WON, expiry};
use crate::counters::Counter;

impl<E: Engine> Commands<E> {
    pub(super) fn meta_get(&mut self, meta: &Meta<'_>, now: Second, out: &mut Vec<u8>) -> Answered {
        self.count(Counter::CmdMeta, 1);
        let start = out.len();
        let mut scratch = std::mem::take(&mut self.key);
        let key = meta.key_bytes(&mut scratch);
        let vivify = meta.has(b'N');
        let (version, hit) = self.update(key, now, |item| {
            // After a concurrent change, the engine may call this again.
            out.truncate(start);
            let Some(item) = item else {
                let change = if vivify {
                    let expiry = expiry_after(meta, Expiry::NEVER, true, now);
                    Change::Put { flags: 0, expiry, marks: WON, value: b"" }
                } else {
                    Change::Keep
                };
                return (change, false);
            };
            let won = show_item(meta, key, &item, false, now, out);
            let expiry = expiry_after(meta, item.expiry, false, now);
            let marks = item.marks | if won { WON } else { 0 };
            let change = if expiry != item.expiry || marks != item.marks {
                Change::Amend { expiry, marks, new_version: false, read: !meta.has(b'u') }
            } else if meta.has(b'u') {
                Change::Keep
            } else {
                Change::Read
            };
            (change, true)
        });
        let failed = match version {
            Err(refused @ (Refused::Damaged | Refused::Broken)) => Some(refused),
            Err(refused) if hit => Some(refused),
            // If the engine refuses the new item, the answer is a miss.
            _ => None,
        };
        if let Some(refused) = failed {
            self.fail(refused, start, out);
            self.key = scratch;
            return Answered::failed(Op::Get);
        }
        match version {
            Ok(_) if hit => {}
            Ok(version) if vivify => {
                let item = Item {
                    flags: 0,
                    expiry: Expiry::NEVER,
                    version,
                    marks: 0,
                    read: false,
                    used_at: now,
                    value: b"",
                };
                show_item(meta, key, &item, true, now, out);
                if !meta.has(b'u') {
                    // Mark the new item as read by this client. The answer holds even if the item is gone by now.
                    let _ = self.engine.update(key, now, |_| (Change::Read, ()));
                }
            }
            _ => {
                if !(meta.quiet() && quiet_suppresses(MetaVerb::Get, Status::MetaMiss)) {
                    out.extend_from_slice(encode::META_MISS);
                    show_request_flags(meta, key, out);
                }
            }
        }
        let (command, on_hit, on_miss) = if meta.has(b'T') {
            (Counter::CmdTouch, Counter::TouchHits, Counter::TouchMisses)
        } else {
            (Counter::CmdGet, Counter::GetHits, Counter::GetMisses)
        };
        self.count(command, 1);
        self.count(if hit { on_hit } else { on_miss }, 1);
        self.key = scratch;
        Answered::looked_up(Op::Get, hit)
    }

    pub(super) fn meta_set(&mut self, meta: &Meta<'_>, now: Second, out: &mut Vec<u8>) -> Answered {
        self.count(Counter::CmdMeta, 1);
        let mut scratch = std::mem::take(&mut self.key);
        let key = meta.key_bytes(&mut scratch);
        let options = &meta.options;
        let verb = match options.mode {
            b'E' => StoreVerb::Add,
            b'A' => StoreVerb::Append,
            b'P' => StoreVerb::Prepend,
            // With a token, append and prepend need no further condition.
            b'R' if !meta.has(b'C') => StoreVerb::Replace,
            _ if meta.has(b'C') => StoreVerb::Cas,
            _ => StoreVerb::Set,
        };
        let condition = Condition { verb, cas: options.cas, older_cas_is_stale: meta.has(b'I') };
        let put = Change::Put {
            flags: options.client_flags,
            expiry: expiry(options.exptime, now),
            marks: if meta.has(b'b') { BINARY_KEY } else { 0 },
            value: meta.value,
        };
        let (outcome, (verdict, joined)) = self.store_if(key, &condition, put, now);
        match outcome {
            Err(refused) => out.extend_from_slice(self.refused(refused)),
            Ok(version) => {
                let (code, status) = match verdict {
                    Verdict::Stored | Verdict::StoredStale => (encode::META_DONE, Status::MetaDone),
                    Verdict::NotStored => (encode::META_NOT_STORED, Status::MetaNotStored),
                    Verdict::Exists => (encode::META_EXISTS, Status::MetaExists),
                    Verdict::NotFound => (encode::META_NOT_FOUND, Status::MetaNotFound),
                };
                if !(meta.quiet() && quiet_suppresses(MetaVerb::Set, status)) {
                    let stored = status == Status::MetaDone;
                    out.extend_from_slice(code);
                    for flag in meta.flags() {
                        match flag.letter {
                            b'c' => {
                                let version = if stored { version } else { 0 };
                                encode::meta_flag_number(b'c', version, out);
                            }
                            b's' => {
                                let bytes = joined + meta.value.len();
                                encode::meta_flag_number(b's', bytes as u64, out);
                            }
                            _ => show_request_flag(meta, key, flag, out),
                        }
                    }
                    encode::line_end(out);
                }
            }
        }
        self.key = scratch;
        Answered::written(Op::Set, outcome.is_err(), verdict.held())
    }

    pub(super) fn meta_delete(
        &mut self,
        meta: &Meta<'_>,
        now: Second,
        out: &mut Vec<u8>,
    ) -> Answered {
        self.count(Counter::CmdMeta, 1);
        let mut scratch = std::mem::take(&mut self.key);
        let key = meta.key_bytes(&mut scratch);
        let options = &meta.options;
        let (deleted, status) = self.update_by_head(key, now, |item| match item {
            None => (Change::Keep, Status::MetaNotFound),
            Some(item) if meta.has(b'C') && options.cas != item.version => {
                (Change::Keep, Status::MetaExists)
            }
            Some(item) if meta.has(b'I') => {
                let expiry =
                    if meta.has(b'T') { expiry(options.exptime, now) } else { item.expiry };
                // The next reader wins, and recaches it.
                let marks = (item.marks | STALE) & !WON;
                (Change::Amend { expiry, marks, new_version: true, read: false }, Status::MetaDone)
            }
            Some(_) => (Change::Remove, Status::MetaDone),
        });
        if let Err(refused) = deleted {
            out.extend_from_slice(self.refused(refused));
            self.key = scratch;
            return Answered::failed(Op::Delete);
        }
        let hit = status == Status::MetaDone;
        self.count(if hit { Counter::DeleteHits } else { Counter::DeleteMisses }, 1);
        if !(meta.quiet() && quiet_suppresses(MetaVerb::Delete, status)) {
            out.extend_from_slice(match status {
                Status::MetaDone => encode::META_DONE,
                Status::MetaExists => encode::META_EXISTS,
                _ => encode::META_NOT_FOUND,
            });
            show_request_flags(meta, key, out);
        }
        self.key = scratch;
        Answered::looked_up(Op::Delete, status != Status::MetaNotFound)
    }

    pub(super) fn meta_arith(
        &mut self,
        meta: &Meta<'_>,
        now: Second,
        out: &mut Vec<u8>,
    ) -> Answered {
        self.count(Counter::CmdMeta, 1);
        let mut scratch = std::mem::take(&mut self.key);
        let key = meta.key_bytes(&mut scratch);
        let options = &meta.options;
        let verb = match options.mode {
            b'D' | b'-' => ArithVerb::Decr,
            _ => ArithVerb::Incr,
        };
        let touch = meta.has(b'T').then(|| expiry(options.exptime, now));
        let initial = meta.has(b'N').then_some(options.initial);
        let (sum, created) = loop {
            let sum = self.add_delta(verb, key, options.delta, options.cas, touch, now);
            match (sum, initial) {
                (Sum::NotFound, Some(initial)) => {
                    match self.create_counter(meta, key, initial, now) {
                        Some(created) => break (sum, Some(created)),
                        // Another thread has made the counter: try again.
                        None => continue,
                    }
                }
                _ => break (sum, None),
            }
        };
        let mut answered = Answered::looked_up(Op::Other, sum != Sum::NotFound);
        match sum {
            Sum::Is { value, version, old_expiry } => {
                if !(meta.quiet() && quiet_suppresses(MetaVerb::Arith, Status::MetaDone)) {
                    show_counter(meta, key, value, version, Some(old_expiry), now, out);
                }
            }
            Sum::NotFound => match created {
                Some(Ok(version)) => {
                    show_counter(meta, key, options.initial, version, None, now, out);
                }
                Some(Err(refused)) => {
                    answered.error = true;
                    out.extend_from_slice(self.refused(refused));
                }
                None => {
                    out.extend_from_slice(encode::META_NOT_FOUND);
                    show_request_flags(meta, key, out);
                }
            },
            Sum::Exists => {
                out.extend_from_slice(encode::META_EXISTS);
                show_request_flags(meta, key, out);
            }
            Sum::NonNumeric => {
                answered.error = true;
                out.extend_from_slice(NON_NUMERIC);
            }
            Sum::Refused(refused) => {
                answered.error = true;
                out.extend_from_slice(self.refused(refused));
            }
        }
        self.key = scratch;
        answered
    }

    /// Makes the counter that `ma` with `N` did not find; `None` if another thread has made it.
    fn create_counter(
        &mut self,
        meta: &Meta<'_>,
        key: &[u8],
        initial: u64,
        now: Second,
    ) -> Option<Result<Version, Refused>> {
        let mut text = Vec::with_capacity(20);
        encode::number(initial, &mut text);
        let expiry = expiry_after(meta, Expiry::NEVER, true, now);
        let (version, made) = self.update_by_head(key, now, |item| match item {
            None => (Change::Put { flags: 0, expiry, marks: 0, value: &text }, true),
            Some(_) => (Change::Keep, false),
        });
        made.then_some(version)
    }

    pub(super) fn meta_debug(
        &mut self,
        meta: &Meta<'_>,
        now: Second,
        out: &mut Vec<u8>,
    ) -> Answered {
        use std::io::Write as _;
        self.count(Counter::CmdMeta, 1);
        let start = out.len();
        let mut scratch = std::mem::take(&mut self.key);
        let key = meta.key_bytes(&mut scratch);
        let (shown, hit) = self.engine.update(key, now, |item| {
            let Some(item) = item else {
                out.extend_from_slice(encode::META_MISS);
                return (Change::Keep, false);
            };
            out.extend_from_slice(b"ME ");
            if is_shown_encoded(key, item.marks) {
                // The flag `k` without its letter and without the flag `b` after it.
                let start = out.len();
                encode::meta_key(key, true, out);
                out.truncate(out.len() - 2);
                out.drain(start..start + 2);
            } else {
                out.extend_from_slice(key);
            }
            // memcached prints the remaining time as a negative number, and -1 without an expiry.
            let exp = item.expiry.second().map_or(-1, |end| i64::from(now) - i64::from(end));
            // Writing to a vector cannot fail.
            let _ = write!(
                out,
                " exp={exp} la={} cas={} fetch={} cls=1 size={}",
                now.saturating_sub(item.used_at),
                item.version,
                if item.read { "yes" } else { "no" },
                key.len() + item.value.len(),
            );
            (Change::Keep, true)
        });
        self.key = scratch;
        if let Err(refused) = shown {
            self.fail(refused, start, out);
            return Answered::failed(Op::Other);
        }
        encode::line_end(out);
        Answered::looked_up(Op::Other, hit)
    }
}
