//! Converts failures to statuses.

use tonic::Status;

use crate::database::Failure;
use crate::slots::Overloaded;
use crate::waiters::TooMany;

pub(super) fn unanswered(failure: Failure) -> Status {
    match failure {
        Failure::Invalid(text) => Status::invalid_argument(text),
        Failure::NotThere(text) => Status::not_found(text),
        // The server lacks rights, not the client.
        Failure::NotMigrated(text) | Failure::NotAllowed(text) => Status::failed_precondition(text),
        Failure::Full(text) | Failure::TooLate(text) => Status::resource_exhausted(text),
        Failure::Unavailable(text) => Status::unavailable(text),
        // Client libraries do not repeat a call with this status; it might be done twice.
        Failure::Unknown(text) => Status::unknown(text),
        Failure::Broken(text) => Status::internal(text),
    }
}

pub(super) fn overloaded(Overloaded { waiting_max }: Overloaded) -> Status {
    Status::resource_exhausted(format!(
        "{waiting_max} requests wait for a worker already: nothing was done; try again later, or raise \
         --workers or --waiting-max"
    ))
}

pub(super) fn crowded(TooMany { waiters_max }: TooMany) -> Status {
    Status::resource_exhausted(format!(
        "{waiters_max} requests wait for messages already: ask without wait_ms, or raise --waiters-max"
    ))
}

pub(super) fn ending() -> Status {
    Status::unavailable("the server is shutting down: nothing was done")
}

/// The answer does not fit the request.
pub(super) fn beside_the_point() -> Status {
    Status::internal("the database's answer does not fit the request")
}
