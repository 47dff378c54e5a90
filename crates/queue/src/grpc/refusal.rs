//! What went wrong, as a status.

use tonic::Status;

use crate::database::Failure;
use crate::slots::Overloaded;
use crate::waiters::TooMany;

/// Why the database did not answer.
pub(super) fn unanswered(failure: Failure) -> Status {
    match failure {
        Failure::Invalid(text) => Status::invalid_argument(text),
        Failure::NotThere(text) => Status::not_found(text),
        // Who asked has all rights that he needs: it is this server that has not.
        Failure::NotMigrated(text) | Failure::NotAllowed(text) => Status::failed_precondition(text),
        Failure::Full(text) | Failure::TooLate(text) => Status::resource_exhausted(text),
        Failure::Unavailable(text) => Status::unavailable(text),
        // No client repeats this one by itself: that might do it twice.
        Failure::Unknown(text) => Status::unknown(text),
        Failure::Broken(text) => Status::internal(text),
    }
}

pub(super) fn overloaded(Overloaded { waiting_max }: Overloaded) -> Status {
    Status::resource_exhausted(format!(
        "{waiting_max} requests wait for a worker already: nothing was done; come again later, or see \
         --workers and --waiting-max"
    ))
}

pub(super) fn crowded(TooMany { waiters_max }: TooMany) -> Status {
    Status::resource_exhausted(format!(
        "{waiters_max} requests wait for messages already: ask without wait_ms, or see --waiters-max"
    ))
}

pub(super) fn ending() -> Status {
    Status::unavailable("the server ends: nothing was done")
}

/// The database answers something that was not asked.
pub(super) fn beside_the_point() -> Status {
    Status::internal("the database answered another question than it was asked")
}
