//! Drops old versions that no reader needs, and expired keys.

use std::sync::atomic::{AtomicBool, Ordering};

use knee_kv_cache::engine::{Refused, Second};

use super::record::Sequence;
use super::store::Store;
use super::table::Table;

impl Store {
    /// Drops the old versions of all keys that no reader needs. Returns the horizon of the sweep: the commit from which
    /// on versions were kept.
    pub(super) fn sweep(&self) -> Sequence {
        // Clear the flag before the horizon is read: a later write sets it again.
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

    /// Whether [`Store::sweep`] may find more than a sweep up to `swept` did.
    pub(super) fn is_to_sweep(&self, swept: Sequence) -> bool {
        self.0.has_past.load(Ordering::Relaxed) && self.horizon(self.0.log.last()) != swept
    }

    /// Drops clears that a table no longer needs. All keys of the stripe must have been pruned.
    pub(super) fn forget_clears(&self, table: &mut Table, horizon: Sequence) {
        // The table still needs a clear that is unfinished, because keys may lack delete records. It also needs a clear
        // after the horizon, because the delete records have not been pruned.
        table.forget_clears(self.said_by_keys(horizon));
    }

    /// Deletes expired keys, which take space although clients no longer see them. `from` is the stripe and slot to
    /// begin at, and has the place to resume at after an early end.
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
        // Space for the keys of a stripe or two: with the reserve for deletes, two segments.
        store.0.log.set_bytes_max(store.0.log.bytes().0 + 4096);
        let (mut from, over) = ((0, 0), AtomicBool::new(false));
        assert_eq!(store.delete_expired(&mut from, 20, &over), Err(Refused::Full));
        assert!((1..4).contains(&from.0), "{from:?}");
        // A key in a slot that the walk has passed is deleted in the next walk.
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
