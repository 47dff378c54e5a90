//! Requests: input in pieces decodes as the whole, and items lie within the input. A decoded request encodes to an
//! equivalent one. See `tests/properties/invariants.rs`.
#![no_main]

#[allow(dead_code)] // the other target uses the rest
#[path = "../../tests/properties/invariants.rs"]
mod invariants;

use knee_proto::Limits;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, bool, Vec<u8>, &[u8])| {
    let (tight, eager, pieces, bytes) = input;
    let limits = if tight {
        Limits {
            key_bytes_max: 8,
            value_bytes_max: 16,
            line_bytes_max: 60,
            retrieval_line_bytes_max: 90,
        }
    } else {
        Limits::default()
    };
    let pieces: Vec<usize> = pieces.into_iter().map(usize::from).collect();
    let whole = invariants::requests(bytes, &[], eager, limits);
    assert_eq!(invariants::requests(bytes, &pieces, eager, limits), whole);
});
