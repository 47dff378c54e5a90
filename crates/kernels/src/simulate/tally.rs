//! The observations of a replication.

use super::histogram::Histogram;

/// With this number of windows, a series merges neighbouring windows in pairs.
const WINDOWS_MAX: usize = 2048;

/// The observations of one replication after its warm-up.
#[derive(Clone, Debug, PartialEq)]
pub struct Replication {
    /// The observed time.
    pub duration: f64,
    /// By class.
    pub rounds: Vec<Rounds>,
    /// By station, then by class.
    pub visits: Vec<Visits>,
    /// By station: ∫ busy servers dt. Of a `Service::Varying` station: the time during which it is not empty.
    pub busy: Vec<f64>,
    /// Response times in their order, with the warm-up, if the plan has a series.
    pub series: Option<Series>,
}

/// The rounds of one class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds {
    /// Number of rounds that began.
    pub begun: u64,
    /// Number of rounds that were completed.
    pub completed: u64,
    /// Number of rounds that a station refused.
    pub lost: u64,
    /// Σ of the response times, from beginning to completion.
    pub response: f64,
    /// The response times.
    pub histogram: Histogram,
}

/// The visits of one class to one station.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Visits {
    /// Number of customers that entered the station.
    pub came: u64,
    /// Number of customers that left the station.
    pub went: u64,
    /// Number of customers that the station refused.
    pub refused: u64,
    /// Σ of the times at the station, of the customers that left.
    pub stay: f64,
    /// ∫ present customers dt.
    pub area: f64,
    /// Present customers.
    pub present: u32,
    /// The time up to which `area` is computed.
    changed: f64,
}

impl Visits {
    /// Updates the area up to now.
    #[inline]
    pub(super) fn settle(&mut self, now: f64) {
        self.area += f64::from(self.present) * (now - self.changed);
        self.changed = now;
    }

    /// Begins the counts anew, with the present customers.
    pub(super) fn begin(&mut self, now: f64) {
        *self = Visits { present: self.present, changed: now, ..Visits::default() };
    }
}

/// Mean response times of windows with equally many completed rounds, of all classes together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The number of rounds in a window.
    pub rounds: u64,
    /// The mean of each window.
    pub means: Vec<f64>,
    /// The end of each window.
    pub ends: Vec<f64>,
    sum: f64,
    count: u64,
}

impl Series {
    pub(super) fn new() -> Series {
        Series { rounds: 1, means: Vec::new(), ends: Vec::new(), sum: 0.0, count: 0 }
    }

    pub(super) fn record(&mut self, now: f64, response: f64) {
        self.sum += response;
        self.count += 1;
        if self.count < self.rounds {
            return;
        }
        self.means.push(self.sum / self.rounds as f64);
        self.ends.push(now);
        (self.sum, self.count) = (0.0, 0);
        if self.means.len() == WINDOWS_MAX {
            self.rounds *= 2;
            self.means = self.means.chunks_exact(2).map(|two| (two[0] + two[1]) / 2.0).collect();
            self.ends = self.ends.chunks_exact(2).map(|two| two[1]).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_series_joins_windows_and_keeps_its_mean() {
        let mut series = Series::new();
        let rounds = WINDOWS_MAX * 6;
        for round in 1..=rounds {
            series.record(round as f64, (round % 10) as f64);
        }
        assert_eq!(series.rounds, 8);
        assert_eq!(series.means.len(), rounds / 8);
        assert_eq!(series.ends[0], 8.0);
        assert_eq!(series.ends[series.ends.len() - 1], rounds as f64);
        let mean = series.means.iter().sum::<f64>() / series.means.len() as f64;
        let expected = (1..=rounds).map(|round| (round % 10) as f64).sum::<f64>() / rounds as f64;
        assert!((mean - expected).abs() < 1e-12);
    }
}
