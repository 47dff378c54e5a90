//! Arrival times and think times.

use std::time::Duration;

use knee_random::Random;

/// Streams of think times. Requests and arrivals have other streams, so that they do not depend on answers.
const THINK_STREAMS: u64 = 1 << 62;

pub(crate) fn thinking(seed: u64, client: u64) -> Random {
    Random::stream(seed, THINK_STREAMS | client)
}

/// When the requests of one client are due in an open loop, as offsets from the start.
pub(crate) trait Schedule: Send {
    /// When the next request is due; never before the previous request.
    fn next(&mut self, random: &mut Random) -> Duration;
}

/// Evenly spaced: phase, phase + interval, phase + 2 · interval, …
#[derive(Debug)]
pub(crate) struct Constant {
    phase_s: f64,
    interval_s: f64,
    issued: u64,
}

impl Constant {
    /// `rate_hz` requests per second from all `clients` together. Their streams interleave evenly.
    pub(crate) fn new(rate_hz: f64, client: u64, clients: u64) -> Constant {
        Constant {
            phase_s: client as f64 / rate_hz,
            interval_s: clients as f64 / rate_hz,
            issued: 0,
        }
    }
}

impl Schedule for Constant {
    fn next(&mut self, _random: &mut Random) -> Duration {
        // A product, not a sum of intervals: rounding errors do not add up.
        let due_s = self.phase_s + self.issued as f64 * self.interval_s;
        self.issued += 1;
        saturating_duration(due_s)
    }
}

/// A Poisson process. The sum of all clients' processes is a Poisson process, too.
#[derive(Debug)]
pub(crate) struct Poisson {
    mean_gap_s: f64,
    due_s: f64,
}

impl Poisson {
    /// `rate_hz` requests per second from all `clients` together.
    pub(crate) fn new(rate_hz: f64, clients: u64) -> Poisson {
        Poisson { mean_gap_s: clients as f64 / rate_hz, due_s: 0.0 }
    }
}

impl Schedule for Poisson {
    fn next(&mut self, random: &mut Random) -> Duration {
        self.due_s += exponential(random) * self.mean_gap_s;
        saturating_duration(self.due_s)
    }
}

/// The time between an answer and the next request in a closed loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Think {
    Never,
    Constant(Duration),
    Exponential { mean_s: f64 },
}

impl Think {
    /// The rest of a think time after a random moment of it.
    ///
    /// Each client begins a run with such a rest. If all clients began with a request, or with a whole think time, they
    /// would send at the same moments. With constant think times, they would do so during the whole run.
    pub(crate) fn remainder(self, random: &mut Random) -> Duration {
        match self {
            Think::Never => Duration::ZERO,
            Think::Constant(time) => time.mul_f64(random.unit()),
            // An exponential distribution has no memory: the rest is distributed as the whole.
            Think::Exponential { .. } => self.next(random),
        }
    }

    #[inline]
    pub(crate) fn next(self, random: &mut Random) -> Duration {
        match self {
            Think::Never => Duration::ZERO,
            Think::Constant(time) => time,
            Think::Exponential { mean_s } => saturating_duration(exponential(random) * mean_s),
        }
    }
}

/// Draws from the exponential distribution with mean 1.
#[inline]
fn exponential(random: &mut Random) -> f64 {
    -(1.0 - random.unit()).ln()
}

/// Limits times to some 30 years, longer than any run, because `Duration` cannot hold all numbers.
fn saturating_duration(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.min(1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_clients_together_are_evenly_spaced() {
        let mut random = Random::stream(0, 0);
        let mut due: Vec<Duration> = Vec::new();
        for client in 0..4 {
            let mut schedule = Constant::new(1000.0, client, 4);
            due.extend((0..250).map(|_| schedule.next(&mut random)));
        }
        due.sort();
        for (index, due) in due.iter().enumerate() {
            assert_eq!(due.as_micros(), index as u128 * 1000);
        }
    }

    #[test]
    fn poisson_gaps_are_exponential_at_the_rate() {
        let mut random = Random::stream(2, 0);
        let mut schedule = Poisson::new(1000.0, 4);
        let due: Vec<f64> =
            (0..100_000).map(|_| schedule.next(&mut random).as_secs_f64()).collect();
        let mean = due[due.len() - 1] / due.len() as f64;
        // One client of four has a quarter of the rate, so gaps of 4 ms. The tolerance is four standard errors.
        assert!((mean / 0.004 - 1.0).abs() < 4.0 / (due.len() as f64).sqrt(), "{mean}");
        let longer = due.windows(2).filter(|pair| pair[1] - pair[0] > 0.004).count();
        let share = longer as f64 / due.len() as f64;
        assert!((share - (-1.0_f64).exp()).abs() < 0.01, "{share}");
    }

    #[test]
    fn tiny_rate_does_not_overflow() {
        let mut random = Random::stream(0, 0);
        let due = Constant::new(1e-300, 1, 2).next(&mut random);
        assert!(due > Duration::from_secs(3600));
    }

    #[test]
    fn exponential_draws_have_mean_and_variance_one() {
        let mut random = Random::stream(1, 1);
        let n = 200_000;
        let draws: Vec<f64> = (0..n).map(|_| exponential(&mut random)).collect();
        let mean = draws.iter().sum::<f64>() / f64::from(n);
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(n - 1);
        // The tolerance is four standard errors: 1/√n for the mean, √(8/n) for the variance.
        let root = f64::from(n).sqrt();
        assert!((mean - 1.0).abs() < 4.0 / root, "mean {mean}");
        assert!((variance - 1.0).abs() < 4.0 * 8_f64.sqrt() / root, "variance {variance}");
    }
}
