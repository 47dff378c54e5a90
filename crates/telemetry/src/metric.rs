//! The metrics that roles make and the admin port prints.

/// A list of metrics without labels: kind, name, help and value of each.
macro_rules! metrics {
    ($($kind:ident $name:literal $help:literal = $value:expr;)*) => {
        vec![$($crate::metric::Metric::$kind($name, $help, $value)),*]
    };
}

pub(crate) use metrics;

/// How a metric changes over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A metric that a role adds to the metrics of its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    pub(crate) kind: MetricKind,
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    /// The label that distinguishes the samples; without a label, there is one sample.
    pub(crate) label: Option<&'static str>,
    /// Label values and values.
    pub(crate) samples: Vec<(String, f64)>,
}

impl Metric {
    pub(crate) fn counter(name: &'static str, help: &'static str, value: f64) -> Metric {
        Metric::single(MetricKind::Counter, name, help, value)
    }

    pub(crate) fn gauge(name: &'static str, help: &'static str, value: f64) -> Metric {
        Metric::single(MetricKind::Gauge, name, help, value)
    }

    fn single(kind: MetricKind, name: &'static str, help: &'static str, value: f64) -> Metric {
        Metric { kind, name, help, label: None, samples: vec![(String::new(), value)] }
    }

    /// A metric with one sample per value of a label.
    pub(crate) fn labelled(
        kind: MetricKind,
        name: &'static str,
        help: &'static str,
        (label, samples): (&'static str, Vec<(String, f64)>),
    ) -> Metric {
        Metric { kind, name, help, label: Some(label), samples }
    }
}
