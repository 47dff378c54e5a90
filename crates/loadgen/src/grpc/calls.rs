//! What the driver has to know of a kind of load.

use std::fmt::Display;

use knee_telemetry::Op;
use tonic::codegen::http::Uri;

use super::connection::Connection;
use super::status::{Failure, Service};
use crate::error::Unusable;

/// Reports a wrong answer. The driver counts all of them and prints the first.
pub(crate) type Wrong<'a> = dyn Fn(&dyn Display) + 'a;

/// A kind of load: what its clients ask, how a call is made, and how its answer counts. All threads share one.
pub(crate) trait Calls: Send + Sync + Sized + 'static {
    const SERVICE: Service;

    /// Makes calls on one connection.
    type Stub: Clone + 'static;
    /// One client: decides what it asks next.
    type Client: 'static;
    /// What earlier answers on a connection showed, to verify later ones. It outlives a loss.
    type Seen: Default + 'static;
    type Request: 'static;
    type Answer;

    fn stub(connection: Connection, origin: Uri) -> Self::Stub;

    /// Makes the first calls of client number `number` to a server, before the start.
    ///
    /// # Errors
    /// When the server is not of use to this client.
    async fn introduce(
        &self,
        server: usize,
        number: u64,
        stub: &mut Self::Stub,
    ) -> Result<Self::Client, Unusable>;

    /// A client's next request.
    fn next(&self, client: &mut Self::Client) -> Self::Request;

    fn asked(&self, request: &Self::Request) -> Asked;

    /// Makes a call and reads its whole answer. With `wrong`, entries of a stream are verified as they come, so that
    /// the driver need not keep them: the call's time includes that.
    ///
    /// # Errors
    /// When there is no such answer.
    async fn ask(
        &self,
        stub: &mut Self::Stub,
        seen: &Self::Seen,
        request: &mut Self::Request,
        wrong: Option<&Wrong<'_>>,
    ) -> Result<Self::Answer, Failure>;

    fn answered(&self, answer: &Self::Answer) -> Answered;

    /// Hands an answer to its client; with `wrong`, verifies it first. `in_turn`: a client's answers come in the order
    /// of its requests, as in a closed loop.
    fn take(
        &self,
        client: &mut Self::Client,
        seen: &Self::Seen,
        request: &Self::Request,
        answer: &Self::Answer,
        in_turn: bool,
        wrong: Option<&Wrong<'_>>,
    );

    /// The request to send again after its connection was lost; `None` where the server could not tell that it is the
    /// same one.
    fn again(&self, request: Self::Request) -> Option<Self::Request>;
}

/// What a request counts as until its answer is there, and if there is none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) op: Op,
    pub(crate) items: u32,
    /// Bytes of its gRPC messages, without what HTTP/2 puts around them.
    pub(crate) bytes: u64,
}

/// What an answer counts as.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered {
    pub(crate) op: Op,
    pub(crate) items: u32,
    pub(crate) hits: u32,
    pub(crate) misses: u32,
    pub(crate) bytes: u64,
}
