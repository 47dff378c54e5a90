//! The metrics that the roles of programs (store, middleware) make and the admin port prints.

/// A list of metrics: kind, name, help and value of each. With `for`, each metric has a sample for every row, under a
/// label.
macro_rules! metrics {
    ($($kind:ident $name:literal $help:literal = $value:expr;)*) => {
        vec![$($crate::metric::Metric::$kind($name, $help, $value)),*]
    };
    (for $row:ident in $rows:expr, $label:literal = $of:expr;
     $($kind:ident $name:literal $help:literal = $value:expr;)*) => {
        vec![$($crate::metric::Metric::$kind($name, $help, 0.0)
            .by($label, $rows.iter().map(|$row| ($of, $value)).collect())),*]
    };
}

pub(crate) use metrics;

/// A metric that a role adds to the metrics of its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// `counter` for a metric that only grows, otherwise `gauge`.
    pub(crate) kind: &'static str,
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    /// The label that distinguishes the samples; without a label, there is one sample.
    pub(crate) label: Option<&'static str>,
    /// Label values and values.
    pub(crate) samples: Vec<(String, f64)>,
}

impl Metric {
    pub(crate) fn counter(name: &'static str, help: &'static str, value: f64) -> Metric {
        Metric { kind: "counter", ..Metric::gauge(name, help, value) }
    }

    pub(crate) fn gauge(name: &'static str, help: &'static str, value: f64) -> Metric {
        Metric { kind: "gauge", name, help, label: None, samples: vec![(String::new(), value)] }
    }

    /// The same metric with one sample per value of a label.
    pub(crate) fn by(self, label: &'static str, samples: Vec<(String, f64)>) -> Metric {
        Metric { label: Some(label), samples, ..self }
    }
}
