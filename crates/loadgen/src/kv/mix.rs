//! The mix of operations.

use std::str::FromStr;

use knee_random::Random;
use knee_telemetry::Op;

/// The operations of a mix.
const OPS: [Op; 9] = [
    Op::Read,
    Op::Insert,
    Op::Update,
    Op::Put,
    Op::Append,
    Op::Delete,
    Op::Scan,
    Op::AtomicScan,
    Op::BulkPut,
];

/// Operations and the weights by which requests are drawn, as in `read:90,put:10`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mix {
    /// Each operation, with the sum of the weights up to and including its own.
    bounds: Vec<(Op, u64)>,
}

impl Mix {
    #[inline]
    pub(crate) fn draw(&self, random: &mut Random) -> Op {
        let point = random.below(self.total());
        let place = self.bounds.partition_point(|(_, bound)| *bound <= point);
        self.bounds[place].0
    }

    /// Whether the mix names this operation, even with weight 0.
    pub(crate) fn names(&self, op: Op) -> bool {
        self.bounds.iter().any(|(named, _)| *named == op)
    }

    /// Whether this operation has a weight above 0.
    pub(crate) fn asks_for(&self, op: Op) -> bool {
        let mut below = 0;
        self.bounds.iter().any(|(named, bound)| {
            let weight = bound - std::mem::replace(&mut below, *bound);
            *named == op && weight > 0
        })
    }

    fn total(&self) -> u64 {
        self.bounds.last().map_or(0, |(_, bound)| *bound)
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Mix, String> {
        let mut mix = Mix { bounds: Vec::new() };
        for part in text.split(',') {
            let (name, weight) = part.split_once(':').ok_or_else(|| {
                format!("expected OPERATION:WEIGHT,…, such as read:90,put:10, not {part:?}")
            })?;
            let op = OPS
                .into_iter()
                .find(|op| op.name() == name)
                .ok_or_else(|| format!("{name:?} is none of {}", OPS.map(Op::name).join(", ")))?;
            let weight: u32 = weight
                .parse()
                .map_err(|_| format!("the weight of {name} is a whole number, not {weight:?}"))?;
            if mix.names(op) {
                return Err(format!("{name} appears twice"));
            }
            mix.bounds.push((op, mix.total() + u64::from(weight)));
        }
        if mix.total() == 0 { Err("all weights are 0".into()) } else { Ok(mix) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::chi_square;

    #[test]
    fn operations_are_drawn_by_their_weights() {
        let mix: Mix = "read:900,put:70,append:0,scan:1,bulk_put:29".parse().unwrap();
        assert!(mix.names(Op::Append) && !mix.asks_for(Op::Append));
        assert!(mix.asks_for(Op::Read) && mix.asks_for(Op::Scan) && !mix.asks_for(Op::Delete));
        let mut random = Random::stream(4, 0);
        let mut counts = [0; OPS.len()];
        for _ in 0..300_000 {
            let op = mix.draw(&mut random);
            counts[OPS.iter().position(|known| *known == op).unwrap()] += 1;
        }
        assert_eq!(counts[4], 0, "a weight of 0 is never drawn");
        chi_square::assert_fits(&counts, &[0.9, 0.0, 0.0, 0.07, 0.0, 0.0, 0.001, 0.0, 0.029]);
        assert!(mix.names(Op::Append) && !mix.names(Op::Delete));
    }

    #[test]
    fn every_operation_has_its_name() {
        for op in OPS {
            let mix: Mix = format!("{}:1", op.name()).parse().unwrap();
            assert_eq!(mix.draw(&mut Random::stream(0, 0)), op);
        }
    }

    #[test]
    fn wrong_mixes_are_refused_with_the_reason() {
        let rows = [
            ("", "such as read:90,put:10"),
            ("read", "such as read:90,put:10"),
            ("read:1,", "such as read:90,put:10"),
            ("set:1", "\"set\" is none of read, insert"),
            ("read:-1", "a whole number, not \"-1\""),
            ("read:0.5", "a whole number"),
            ("read:1,put:2,read:3", "read appears twice"),
            ("read:0,put:0", "all weights are 0"),
        ];
        for (text, why) in rows {
            let message = text.parse::<Mix>().unwrap_err();
            assert!(message.contains(why), "{text}: {message}");
        }
    }
}
