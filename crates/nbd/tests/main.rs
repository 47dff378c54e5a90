//! The codec as both sides of a connection use it.
#![allow(clippy::unwrap_used)]

mod invariants;

use knee_nbd::{
    Command, DATA_BYTES_MAX, Dial, Dialed, EINVAL, ENOSPC, EPERM, Export, FLAG_FUA, FLAG_NO_HOLE,
    Negotiation, Request, Step,
};
use knee_testkit::soak;
use proptest::prelude::*;

const MAGIC: u64 = 0x4948_4156_454f_5054;

/// A message of a client, mostly well-formed.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let data = prop_oneof![
        Just(vec![]),
        Just(vec![0; 6]),
        prop::collection::vec(any::<u16>(), 0..4).prop_map(|wishes| {
            let mut data = vec![0; 4];
            data.extend((wishes.len() as u16).to_be_bytes());
            data.extend(wishes.iter().flat_map(|wish| (wish % 5).to_be_bytes()));
            data
        }),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    (0..12_u32, data, 0..20_u8).prop_map(|(option, data, odd)| {
        let magic = if odd == 0 { 7 } else { MAGIC };
        let mut message = magic.to_be_bytes().to_vec();
        message.extend(option.to_be_bytes());
        message.extend((data.len() as u32).to_be_bytes());
        message.extend(data);
        message
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500 * soak()))]

    #[test]
    fn server_hears_pieces_as_the_whole(
        flags in 0..5_u32,
        messages in prop::collection::vec(message(), 0..6),
        pieces in prop::collection::vec(0..30_usize, 0..20),
    ) {
        let export = Export { bytes: 1 << 30, read_only: false };
        let mut input = flags.to_be_bytes().to_vec();
        input.extend(messages.concat());
        let whole = invariants::server(&input, &[], &export);
        prop_assert_eq!(invariants::server(&input, &pieces, &export), whole);
    }

    #[test]
    fn client_hears_pieces_as_the_whole(
        bytes in 0..1_u64 << 62,
        flags in any::<u16>(),
        noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..2),
        pieces in prop::collection::vec(0..30_usize, 0..20),
    ) {
        // The words of a real server, with some bytes changed.
        let mut words = Vec::new();
        let mut server = Negotiation::begin(&mut words);
        let mut dial = Dial::default();
        let mut asked = Vec::new();
        dial.take(&words, &mut asked).unwrap();
        let export = Export { bytes, read_only: flags & 1 != 0 };
        server.take(&asked, &export, &mut words).unwrap();
        server.take(&asked[4..], &export, &mut words).unwrap();
        for (place, byte) in noise {
            let place = place.index(words.len());
            words[place] = byte;
        }
        let whole = invariants::client(&words, &[]);
        prop_assert_eq!(invariants::client(&words, &pieces), whole);
        invariants::headers(&words);
    }

    #[test]
    fn request_survives_its_encoding(
        code in 0..9_u16, flags in any::<u16>(), cookie in any::<u64>(), offset in any::<u64>(),
        length in 0..=DATA_BYTES_MAX,
    ) {
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend([flags.to_be_bytes(), code.to_be_bytes()].concat());
        bytes.extend([cookie.to_be_bytes(), offset.to_be_bytes()].concat());
        bytes.extend(length.to_be_bytes());
        let request = Request::decode(&bytes).unwrap().unwrap();
        prop_assert_eq!((request.flags, request.cookie), (flags, cookie));
        prop_assert_eq!((request.offset, request.length), (offset, length));
        prop_assert_eq!(Request::decode(&bytes[..27]), Ok(None));
        invariants::headers(&bytes);
    }

    #[test]
    fn admitted_request_lies_within_the_export(
        size in 1..10_000_u64, offset in 0..12_000_u64, length in 0..12_000_u32,
        command in prop::sample::select(&[Command::Read, Command::Write, Command::Trim]),
        far in any::<bool>(),
    ) {
        let offset = if far { u64::MAX - offset } else { offset };
        let request = Request { flags: 0, command, cookie: 0, offset, length };
        let export = Export { bytes: size, read_only: false };
        let inside = length > 0 && u128::from(offset) + u128::from(length) <= u128::from(size);
        prop_assert_eq!(export.refusal(&request).is_none(), inside);
    }
}

#[test]
fn both_sides_agree_on_size_and_flags() {
    for (bytes, read_only) in [(1, false), (u64::MAX >> 1, true)] {
        let export = Export { bytes, read_only };
        let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
        let mut server = Negotiation::begin(&mut to_client);
        let mut client = Dial::default();
        let (mut heard, mut asked) = (0, 0);
        let offer = loop {
            match client.take(&to_client[heard..], &mut to_server).unwrap() {
                Dialed::Next(consumed) => heard += consumed,
                Dialed::Done(_, offer) => break offer,
                Dialed::Incomplete => {
                    match server.take(&to_server[asked..], &export, &mut to_client) {
                        Ok(Step::Next(consumed) | Step::Transmit(consumed)) => asked += consumed,
                        other => panic!("{other:?}"),
                    }
                }
            }
        };
        assert_eq!(offer.bytes, bytes);
        assert_eq!(offer.is_read_only(), read_only);
        assert_eq!(offer.missing(), None);
    }
}

#[test]
fn refusals_have_the_numbers_of_the_protocol() {
    let whole = Export { bytes: 8192, read_only: false };
    let fixed = Export { read_only: true, ..whole };
    let rows = [
        (&whole, Command::Read, 0, 0, 4096, None),
        (&whole, Command::Read, FLAG_FUA, 0, 4096, None),
        (&whole, Command::Read, FLAG_NO_HOLE, 0, 4096, Some(EINVAL)),
        (&whole, Command::WriteZeroes, FLAG_NO_HOLE, 0, 4096, None),
        (&whole, Command::Read, 0, 8191, 2, Some(EINVAL)),
        (&whole, Command::Write, 0, 8191, 2, Some(ENOSPC)),
        (&whole, Command::WriteZeroes, 0, 8191, 2, Some(ENOSPC)),
        (&whole, Command::Trim, 0, 8191, 2, Some(EINVAL)),
        (&whole, Command::Write, 0, 0, 0, Some(EINVAL)),
        (&whole, Command::Other(5), 0, 0, 1, Some(EINVAL)),
        (&whole, Command::Flush, 0, 0, 0, None),
        (&fixed, Command::Read, 0, 0, 1, None),
        (&fixed, Command::Flush, 0, 0, 0, None),
        (&fixed, Command::Write, 0, 0, 1, Some(EPERM)),
        (&fixed, Command::Trim, 0, 0, 1, Some(EPERM)),
        (&fixed, Command::WriteZeroes, 0, 0, 1, Some(EPERM)),
    ];
    for (export, command, flags, offset, length, expected) in rows {
        let request = Request { flags, command, cookie: 0, offset, length };
        assert_eq!(export.refusal(&request), expected, "{request:?}");
    }
}
