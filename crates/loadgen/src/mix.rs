//! The order of sets and gets.

use std::str::FromStr;

use knee_random::Random;

/// `S:G`: every client repeats S sets and G gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetGet {
    sets: u32,
    gets: u32,
}

impl FromStr for SetGet {
    type Err = String;

    fn from_str(text: &str) -> Result<SetGet, String> {
        let parsed = text.split_once(':').and_then(|(sets, gets)| {
            Some(SetGet { sets: sets.parse().ok()?, gets: gets.parse().ok()? })
        });
        match parsed {
            Some(SetGet { sets: 0, gets: 0 }) => Err("0:0 has neither sets nor gets".into()),
            Some(mix) => Ok(mix),
            None => Err(format!("expected SETS:GETS, such as 1:10, not {text:?}")),
        }
    }
}

/// A client's position in its round of sets and gets.
///
/// Each round has the exact ratio, as in memtier. Clients begin at random places, so that they do not all write at the
/// same time.
#[derive(Debug, Clone)]
pub(crate) struct MixPosition {
    mix: SetGet,
    place: u64,
}

impl MixPosition {
    pub(crate) fn new(mix: SetGet, random: &mut Random) -> MixPosition {
        let place = random.below(u64::from(mix.sets) + u64::from(mix.gets));
        MixPosition { mix, place }
    }

    #[inline]
    pub(crate) fn next_is_set(&mut self) -> bool {
        let set = self.place < u64::from(self.mix.sets);
        self.place += 1;
        if self.place == u64::from(self.mix.sets) + u64::from(self.mix.gets) {
            self.place = 0;
        }
        set
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn turns(mix: &str, stream: u64, count: usize) -> Vec<bool> {
        let mut position = MixPosition::new(mix.parse().unwrap(), &mut Random::stream(9, stream));
        (0..count).map(|_| position.next_is_set()).collect()
    }

    #[test]
    fn every_round_has_the_exact_ratio() {
        for (mix, sets, gets) in [("1:10", 1, 10), ("3:2", 3, 2), ("1:0", 1, 0), ("0:7", 0, 7)] {
            let round = sets + gets;
            let turns = turns(mix, 4, 10 * round);
            for window in turns.windows(round) {
                assert_eq!(window.iter().filter(|set| **set).count(), sets, "{mix}");
            }
        }
    }

    #[test]
    fn clients_begin_at_different_places() {
        let starts_with_set = (0..1000).filter(|&stream| turns("1:3", stream, 1)[0]).count();
        assert!((180..320).contains(&starts_with_set), "{starts_with_set} of 1000");
    }

    #[test]
    fn wrong_ratios_are_refused() {
        for wrong in ["", "1", "0:0", "-1:2", "1:2:3", "a:b", "1:"] {
            assert!(wrong.parse::<SetGet>().is_err(), "{wrong}");
        }
    }
}
