//! The work of queue clients, and their identities.

use clap::ValueEnum;
use knee_telemetry::Op;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) round: Round,
    pub(crate) receivers: Receivers,
    pub(crate) characters: usize,
}

/// The requests that a client repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Round {
    /// Send a message, list the queues with messages for the client, read all messages of one queue, remove its first.
    SendListReadRemove,
    /// List the queues with messages for the client, remove one message, send one.
    ListReceiveSend,
    /// Send a message to the client's own queue, and remove the first one from there.
    SendRemove,
    /// Send messages.
    Send,
}

impl Round {
    pub(super) fn steps(self) -> &'static [Op] {
        match self {
            Round::SendListReadRemove => &[Op::Send, Op::ListQueues, Op::ReadAll, Op::Remove],
            Round::ListReceiveSend => &[Op::ListQueues, Op::Remove, Op::Send],
            Round::SendRemove => &[Op::Send, Op::Remove],
            Round::Send => &[Op::Send],
        }
    }
}

/// The receivers of a client's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Receivers {
    /// The client itself.
    #[value(name = "self")]
    Itself,
    /// Any client of this process, drawn anew for each message.
    Any,
}

/// A registered client, and the queue that counts as its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    pub(crate) client: u32,
    pub(crate) queue: u32,
}
