//! NBD: both sides of a handshake hear pieces as the whole, and headers survive their encoding. See
//! `tests/invariants.rs`.
#![no_main]

#[path = "../../tests/invariants.rs"]
mod invariants;

use knee_nbd::Export;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<u8>, bool, &[u8])| {
    let (pieces, read_only, bytes) = input;
    let pieces: Vec<usize> = pieces.into_iter().map(usize::from).collect();
    let export = Export { bytes: 1 << 40, read_only };
    let server = invariants::server(bytes, &[], &export);
    assert_eq!(invariants::server(bytes, &pieces, &export), server);
    assert_eq!(invariants::client(bytes, &pieces), invariants::client(bytes, &[]));
    invariants::headers(bytes);
});
