//! Responses: input in pieces decodes as the whole, and values lie within the input. See
//! `tests/properties/invariants.rs`.
#![no_main]

#[allow(dead_code)] // the other target uses the rest
#[path = "../../tests/properties/invariants.rs"]
mod invariants;

use knee_proto::Expect;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, bool, Vec<u8>, &[u8])| {
    let (expect, eager, pieces, bytes) = input;
    let expect =
        [Expect::Retrieval, Expect::Line, Expect::Meta, Expect::Stats][usize::from(expect % 4)];
    let pieces: Vec<usize> = pieces.into_iter().map(usize::from).collect();
    let whole = invariants::responses(bytes, &[], eager, expect);
    assert_eq!(invariants::responses(bytes, &pieces, eager, expect), whole);
});
