//! Background jobs, and the report of their failures.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use knee_server::Trace;

use crate::database::Failure;

/// A background job; no client receives its failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Job {
    EndLeases,
    RaiseFloors,
    RemoveExpired,
    Notify,
    Listen,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Job::EndLeases => "ending leases fails: their messages stay hidden",
            Job::RaiseFloors => "raising floors fails: removing may become slow",
            Job::RemoveExpired => "retention fails: expired messages are kept",
            Job::Notify => "notifying other servers fails: their waiting calls only poll",
            Job::Listen => "listening fails: waiting calls poll for messages sent at other servers",
        })
    }
}

/// Reports a failure when it begins, changes its reason, or ends. A failed job is tried again.
#[derive(Debug)]
pub(crate) struct Report {
    log: Trace,
    failing: Mutex<HashMap<Job, String>>,
}

impl Report {
    pub(crate) fn new(log: Trace) -> Report {
        Report { log, failing: Mutex::default() }
    }

    /// Reports a change after an attempt.
    pub(crate) fn after(&self, job: Job, done: Result<(), Failure>) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        match done {
            Ok(()) if failing.remove(&job).is_some() => {
                self.log.log(format_args!("works again: {job}"));
            }
            Ok(()) => {}
            Err(failure) => {
                let reason = failure.to_string();
                let before = failing.insert(job, reason.clone());
                if before.as_ref() != Some(&reason) {
                    self.log.log(format_args!("{job}: {reason}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use knee_testkit::Lines;

    use super::*;

    #[test]
    fn failure_is_reported_once_for_each_reason() {
        let lines = Lines::default();
        let log = Trace::to_sink("test", lines.clone());
        let report = Report::new(log.clone());
        let failed = |reason: &str| Err(Failure::Unavailable(reason.to_owned()));
        for done in [Ok(()), failed("one"), failed("one"), failed("two"), Ok(()), Ok(())] {
            report.after(Job::EndLeases, done);
        }
        report.after(Job::Listen, Ok(()));
        log.finish();
        let leases = Job::EndLeases;
        let expected =
            format!("test: {leases}: one\ntest: {leases}: two\ntest: works again: {leases}\n");
        assert_eq!(lines.text(), expected);
    }
}
