//! Values with numbers that never name another value.

/// Values by number. A number has the value's place and how often the place was used, so that the number of a removed
/// value finds nothing.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let (uses, held) = &mut self.places[place as usize];
        *held = Some(value);
        u64::from(*uses) << 32 | u64::from(place)
    }

    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        let (uses, held) = self.places.get(number as u32 as usize)?;
        held.as_ref().filter(|_| u64::from(*uses) == number >> 32)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let (uses, held) = self.places.get_mut(number as u32 as usize)?;
        held.as_mut().filter(|_| u64::from(*uses) == number >> 32)
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        self.get(number)?;
        let (uses, held) = &mut self.places[number as u32 as usize];
        *uses = uses.wrapping_add(1);
        self.free.push(number as u32);
        held.take()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }

    /// All values, with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.places.iter().enumerate().filter_map(|(place, (uses, held))| {
            Some((u64::from(*uses) << 32 | place as u64, held.as_ref()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_a_removed_value_finds_nothing() {
        let mut slab = Slab::default();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        assert!(slab.is_empty());
        let second = slab.insert("second");
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&"second"));
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(second, &"second")]);
        assert_eq!(slab.get(77), None);
    }
}
