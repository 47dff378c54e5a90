//! The memory of a storage machine.

use std::io;

use memmap2::{MmapMut, MmapOptions, UncheckedAdvice};

/// The unit in which memory goes back to the system.
const PAGE_BYTES: usize = 4096;

/// Bytes that are zero until they are written. Untouched pages take no memory.
#[derive(Debug)]
pub(crate) struct Memory(MmapMut);

impl Memory {
    /// Reserves addresses, no memory.
    pub(crate) fn reserve(bytes: usize) -> io::Result<Memory> {
        MmapOptions::new().len(bytes).no_reserve_swap().map_anon().map(Memory)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    /// The memory that the process holds, nearly all of it for these bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
        pages.unwrap_or(0_u64) * PAGE_BYTES as u64
    }

    /// The bytes at an address. The range must exist, as in the other functions.
    pub(crate) fn read(&self, offset: u64, length: u32) -> &[u8] {
        &self.0[offset as usize..][..length as usize]
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        self.0[offset as usize..][..data.len()].copy_from_slice(data);
    }

    /// Makes bytes zero; if `hole`, whole pages go back to the system.
    pub(crate) fn zero(&mut self, offset: u64, length: u32, hole: bool) -> io::Result<()> {
        let (start, end) = (offset as usize, offset as usize + length as usize);
        let (first, last) = (start.next_multiple_of(PAGE_BYTES), end / PAGE_BYTES * PAGE_BYTES);
        if !hole || first >= last {
            self.0[start..end].fill(0);
            return Ok(());
        }
        self.0[start..first].fill(0);
        self.0[last..end].fill(0);
        // SAFETY: the mapping is private and anonymous, so the pages read as zeroes afterwards. `&mut self` excludes
        // references to them.
        unsafe { self.0.unchecked_advise_range(UncheckedAdvice::DontNeed, first, last - first) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const BYTES: usize = 5 * PAGE_BYTES;

    proptest! {
        #[test]
        fn memory_behaves_as_an_array(
            changes in prop::collection::vec((0..BYTES, 1..3 * PAGE_BYTES, 0..3_u8, 1..255_u8), 1..20),
        ) {
            let mut memory = Memory::reserve(BYTES).unwrap();
            let mut array = vec![0; BYTES];
            for (offset, length, how, byte) in changes {
                let length = length.min(BYTES - offset);
                match how {
                    0 => memory.zero(offset as u64, length as u32, true).unwrap(),
                    1 => memory.zero(offset as u64, length as u32, false).unwrap(),
                    _ => memory.write(offset as u64, &vec![byte; length]),
                }
                array[offset..][..length].fill(if how < 2 { 0 } else { byte });
                prop_assert!(memory.read(0, BYTES as u32) == &array[..]);
            }
        }
    }
}
