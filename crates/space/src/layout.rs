//! The place of each address: a machine, and an offset there.

/// A part of a request that lies on one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The number of the machine.
    pub machine: usize,
    /// The first address at the machine.
    pub offset: u64,
    /// The distance from the start of the request.
    pub at: u32,
    /// The number of bytes, at least 1.
    pub length: u32,
}

/// How addresses are translated. Machines follow each other, in the order of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// By base and length: machines of any size. Has the end of each machine's addresses.
    Length(Vec<u64>),
    /// By a shift: the machine is the front of the address, and the offset its last `shift` bits.
    Shift {
        /// The binary logarithm of each machine's size.
        shift: u32,
        /// The number of machines.
        machines: usize,
    },
}

impl Layout {
    /// Machines of any size.
    ///
    /// # Errors
    /// If their sum is too large for NBD.
    pub fn by_length(sizes: &[u64]) -> Result<Layout, String> {
        let mut end = 0_u64;
        let mut ends = Vec::new();
        for bytes in sizes {
            end = end.checked_add(*bytes).filter(|end| *end < 1 << 63).ok_or_else(too_large)?;
            ends.push(end);
        }
        Ok(Layout::Length(ends))
    }

    /// Machines of one size, a power of two.
    ///
    /// # Errors
    /// If the sizes are others, or their sum is too large for NBD.
    pub fn by_shift(sizes: &[u64]) -> Result<Layout, String> {
        let bytes = sizes.first().copied().unwrap_or_default();
        if !bytes.is_power_of_two() || sizes.iter().any(|other| *other != bytes) {
            return Err(format!(
                "the sizes are {sizes:?}: by shift, all must be the same power of two; \
                 state them by --store HOST:PORT=SIZE, or take --layout length"
            ));
        }
        Layout::by_length(sizes)?;
        Ok(Layout::Shift { shift: bytes.trailing_zeros(), machines: sizes.len() })
    }

    /// The size of the space.
    pub fn bytes(&self) -> u64 {
        match self {
            Layout::Length(ends) => ends.last().copied().unwrap_or_default(),
            Layout::Shift { shift, machines } => (*machines as u64) << shift,
        }
    }

    /// The number of bytes that a machine must have.
    pub fn bytes_of(&self, machine: usize) -> u64 {
        match self {
            Layout::Length(ends) => {
                ends[machine] - machine.checked_sub(1).map_or(0, |before| ends[before])
            }
            Layout::Shift { shift, .. } => 1 << shift,
        }
    }

    /// The machine of an address, and the offset there.
    fn place(&self, address: u64) -> (usize, u64) {
        match self {
            Layout::Length(ends) => {
                let machine = ends.partition_point(|end| *end <= address);
                let base = machine.checked_sub(1).map_or(0, |before| ends[before]);
                (machine, address - base)
            }
            Layout::Shift { shift, .. } => {
                ((address >> shift) as usize, address & ((1 << shift) - 1))
            }
        }
    }

    /// Splits a request at the borders of machines. It must lie within the space.
    pub fn spans(&self, address: u64, length: u32) -> impl Iterator<Item = Span> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            if at == length {
                return None;
            }
            let (machine, offset) = self.place(address + u64::from(at));
            let room = self.bytes_of(machine) - offset;
            let length = u64::from(length - at).min(room) as u32;
            let span = Span { machine, offset, at, length };
            at += length;
            Some(span)
        })
    }
}

fn too_large() -> String {
    "the machines together have more than NBD's 2^63 bytes; take fewer of them".into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn layout() -> impl Strategy<Value = Layout> {
        let lengths = prop::collection::vec(1..20_u64, 1..6);
        let shifts = (0..5_u32, 1..6_usize);
        prop_oneof![
            lengths.prop_map(|sizes| Layout::by_length(&sizes).unwrap()),
            shifts.prop_map(|(shift, count)| Layout::by_shift(&vec![1 << shift; count]).unwrap()),
        ]
    }

    proptest! {
        #[test]
        fn each_address_has_a_place_of_its_own(layout in layout()) {
            let places: BTreeSet<_> = (0..layout.bytes()).map(|at| layout.place(at)).collect();
            prop_assert_eq!(places.len() as u64, layout.bytes());
            for (machine, offset) in places {
                prop_assert!(offset < layout.bytes_of(machine));
            }
        }

        #[test]
        fn spans_are_the_places_of_the_addresses_in_order(
            layout in layout(), from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>(),
        ) {
            let size = layout.bytes() as usize;
            let (from, to) = (from.index(size), to.index(size) + 1);
            prop_assume!(from < to);
            let spans: Vec<_> = layout.spans(from as u64, (to - from) as u32).collect();
            let bytes = spans.iter().flat_map(|span| {
                (0..span.length).map(|more| (span.machine, span.offset + u64::from(more)))
            });
            let expected: Vec<_> = (from..to).map(|at| layout.place(at as u64)).collect();
            prop_assert_eq!(bytes.collect::<Vec<_>>(), expected);
            // No machine has two of them, and each begins where the one before it ends.
            let mut at = 0;
            for (number, span) in spans.iter().enumerate() {
                prop_assert_eq!(span.at, at);
                prop_assert_eq!(span.machine, spans[0].machine + number);
                at += span.length;
            }
        }

        #[test]
        fn layouts_of_equal_machines_agree(
            shift in 0..62_u32, count in 1..3_usize, address in any::<u64>(), length in 1..1_u32 << 20,
        ) {
            let sizes = vec![1_u64 << shift; count];
            let (Ok(by_length), Ok(by_shift)) = (Layout::by_length(&sizes), Layout::by_shift(&sizes))
            else {
                return Ok(());
            };
            prop_assert_eq!(by_length.bytes(), by_shift.bytes());
            let length = u64::from(length).min(by_shift.bytes());
            let address = address % (by_shift.bytes() - length + 1);
            prop_assume!(length >> shift < 100);
            let length = length as u32;
            prop_assert!(by_length.spans(address, length).eq(by_shift.spans(address, length)));
        }
    }

    #[test]
    fn unequal_odd_or_huge_machines_are_refused() {
        assert!(Layout::by_shift(&[4096, 8192]).is_err());
        assert!(Layout::by_shift(&[4097, 4097]).is_err());
        assert!(Layout::by_shift(&[1 << 62, 1 << 62]).is_err());
        assert!(Layout::by_length(&[1 << 62, 1 << 62]).is_err());
        assert_eq!(Layout::by_length(&[1 << 62, 5]).unwrap().bytes(), (1 << 62) + 5);
    }
}
