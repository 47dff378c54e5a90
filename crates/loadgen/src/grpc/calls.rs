//! The interface between the driver and a kind of load.

use std::fmt::Display;

use knee_telemetry::Op;
use tonic::codegen::http::Uri;

use super::connection::Connection;
use super::status::{Failure, Service};
use crate::error::Unusable;

/// Reports a wrong answer. The driver counts all of them and prints the first.
pub(crate) type Wrong<'a> = dyn Fn(&dyn Display) + 'a;

/// A kind of load: its clients' requests, its calls, and the check of its answers. All threads share one.
pub(crate) trait Calls: Send + Sync + Sized + 'static {
    const SERVICE: Service;

    /// Makes calls on one connection.
    type Stub: Clone + 'static;
    /// One client, which determines its next request.
    type Client: 'static;
    /// The facts from earlier answers of a client's connection, to verify later answers. They remain after a loss.
    type Seen: Default + 'static;
    type Request: 'static;
    type Answer;

    fn stub(connection: Connection, origin: Uri) -> Self::Stub;

    /// Makes the first calls of client number `number` to a server, before the start.
    ///
    /// # Errors
    /// When the server cannot be used by this client.
    async fn introduce(
        &self,
        server: usize,
        number: u64,
        stub: &mut Self::Stub,
    ) -> Result<Self::Client, Unusable>;

    fn next(&self, client: &mut Self::Client) -> Self::Request;

    fn asked(&self, request: &Self::Request) -> Asked;

    /// Makes a call and reads its whole answer. With `wrong`, it verifies the entries of a stream as they come, so that
    /// the driver need not keep them. The response time then includes the verification.
    ///
    /// # Errors
    /// When the call fails.
    async fn ask(
        &self,
        stub: &mut Self::Stub,
        seen: &Self::Seen,
        request: &mut Self::Request,
        wrong: Option<&Wrong<'_>>,
    ) -> Result<Self::Answer, Failure>;

    fn answered(&self, answer: &Self::Answer) -> Answered;

    /// Passes an answer to its client. With `wrong`, it also verifies the answer. `in_turn` holds in a closed loop: the
    /// answers of a client come in the order of its requests.
    fn take(
        &self,
        client: &mut Self::Client,
        seen: &Self::Seen,
        request: &Self::Request,
        answer: &Self::Answer,
        in_turn: bool,
        wrong: Option<&Wrong<'_>>,
    );

    /// The request to send again after its connection was lost. `None` for reads, and for writes that the server could
    /// not recognise as repeated.
    fn again(&self, request: Self::Request) -> Option<Self::Request>;
}

/// The counts of a request. They are recorded if the call fails.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) op: Op,
    pub(crate) items: u32,
    /// Bytes of the gRPC messages, without HTTP/2's frames and headers.
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered {
    pub(crate) op: Op,
    pub(crate) items: u32,
    pub(crate) hits: u32,
    pub(crate) misses: u32,
    pub(crate) bytes: u64,
}
