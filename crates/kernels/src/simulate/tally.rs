//! What is counted while a replication runs.

use super::histogram::Histogram;

/// A series holds this many windows at most; then each two become one.
const WINDOWS_MAX: usize = 2048;

/// What one replication has observed after its warm-up.
#[derive(Clone, Debug, PartialEq)]
pub struct Replication {
    /// How long it was observed.
    pub duration: f64,
    /// Of every class.
    pub rounds: Vec<Rounds>,
    /// Of every station and class, by station.
    pub visits: Vec<Visits>,
    /// Of every station: ∫ busy servers dt; for varying speeds ∫ 1 dt while the station is not empty.
    pub busy: Vec<f64>,
    /// Response times since the beginning, warm-up included, if asked for.
    pub series: Option<Series>,
}

/// Rounds of one class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds {
    /// Begun.
    pub begun: u64,
    /// Gone through.
    pub completed: u64,
    /// Ended at a station without a place.
    pub lost: u64,
    /// Σ of the times from beginning to completion.
    pub response: f64,
    /// Of those times.
    pub histogram: Histogram,
}

/// Visits of one class to one station.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Visits {
    /// Came, and were not refused.
    pub came: u64,
    /// Went.
    pub went: u64,
    /// Found no place.
    pub refused: u64,
    /// Σ of the times from coming to going, of those who went.
    pub stay: f64,
    /// ∫ number there dt.
    pub area: f64,
    /// How many are there.
    pub present: u32,
    /// Until when the area goes.
    changed: f64,
}

impl Visits {
    /// Carries the area on until now.
    #[inline]
    pub(super) fn settle(&mut self, now: f64) {
        self.area += f64::from(self.present) * (now - self.changed);
        self.changed = now;
    }

    /// Counts anew from now on, with those who are there.
    pub(super) fn begin(&mut self, now: f64) {
        *self = Visits { present: self.present, changed: now, ..Visits::default() };
    }
}

/// Mean response times of so many completed rounds each, of all classes together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// How many rounds a window has.
    pub rounds: u64,
    /// Of every window.
    pub means: Vec<f64>,
    /// When each window ended.
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
    fn a_series_halves_itself_and_keeps_its_mean() {
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
