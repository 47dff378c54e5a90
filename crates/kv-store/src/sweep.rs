//! Forgets what no reader asks for: old versions, and keys whose time is over.

use std::sync::atomic::{AtomicBool, Ordering};

use knee_kv_cache::engine::{Refused, Second};

use super::record::Sequence;
use super::store::Store;
use super::table::Table;

impl Store {
    /// Forgets old versions of all keys that no reader needs. Returns the commit up to which it did.
    pub(super) fn sweep(&self) -> Sequence {
        // Before the horizon is read: a later write sets the flag again.
        self.0.has_past.store(false, Ordering::Relaxed);
        let last = self.0.log.last();
        let horizon = self.horizon(last);
        if horizon < last {
            self.0.has_past.store(true, Ordering::Relaxed);
        }
        for stripe in 0..self.stripes() {
            let mut table = self.stripe(stripe);
            for slot in table.slots_with_past() {
                table.prune(slot, horizon);
            }
            self.forget_clears(&mut table, horizon);
        }
        horizon
    }

    /// Whether [`Store::sweep`] may find more than it did up to a commit.
    pub(super) fn is_to_sweep(&self, swept: Sequence) -> bool {
        self.0.has_past.load(Ordering::Relaxed) && self.horizon(self.0.log.last()) != swept
    }

    /// To be called once all keys of a stripe have been pruned.
    pub(super) fn forget_clears(&self, table: &mut Table, horizon: Sequence) {
        // Until a clear is finished, some keys have no delete record; and delete records after the horizon have not
        // been pruned.
        table.forget_clears(self.said_by_keys(horizon));
    }

    /// Deletes expired keys, from a stripe and a slot of it on. `from` has the place to resume if it ends early.
    /// Clients do not see expired keys, but they take space.
    pub(super) fn delete_expired(
        &self,
        from: &mut (usize, usize),
        now: Second,
        over: &AtomicBool,
    ) -> Result<(), Refused> {
        while from.0 < self.stripes() {
            if over.load(Ordering::Acquire) {
                return Ok(());
            }
            let next = self.delete_expired_from(from.0, from.1, now)?;
            *from = next.map_or((from.0 + 1, 0), |slot| (from.0, slot));
        }
        *from = (0, 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use knee_kv_cache::engine::Expiry;

    use super::*;
    use crate::{Action, Condition, Consistency, StoreOptions, Write};

    #[test]
    fn expiry_resumes_where_the_log_had_no_room() {
        let options = StoreOptions {
            consistency: Consistency::Linearizable,
            stripes: 4,
            value_bytes_max: 1000,
            segment_bytes: 4096,
        };
        let store = Store::in_memory(options, 1 << 20).unwrap();
        let put = |number: u32| {
            let key = number.to_le_bytes();
            let action = Action::Put { flags: 0, expiry: Expiry::at(10), marks: 0, value: b"" };
            let write = Write { key: &key, condition: Condition::Always, action };
            store.write(&[write], None, 1).unwrap();
        };
        (0..400).for_each(put);
        // For the keys of a stripe or two: with what is left for what frees space, two segments.
        store.0.log.set_bytes_max(store.0.log.bytes().0 + 4096);
        let (mut from, over) = ((0, 0), AtomicBool::new(false));
        assert_eq!(store.delete_expired(&mut from, 20, &over), Err(Refused::Full));
        assert!((1..4).contains(&from.0), "{from:?}");
        // A key in a slot that was passed is deleted the next time.
        store.0.log.set_bytes_max(1 << 20);
        let is_of_first =
            |number: &u32| store.stripe_of(store.0.hash.hash(&number.to_le_bytes())) == 0;
        put((0..400).find(is_of_first).unwrap());
        for keys in [1, 0] {
            assert_eq!(store.delete_expired(&mut from, 20, &over), Ok(()));
            assert_eq!((from, store.keys()), ((0, 0), keys));
        }
    }
}
