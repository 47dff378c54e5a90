//! `knee-load queue`.

use std::time::Duration;

use clap::Args;

use super::common::{Common, Failure, seconds};
use crate::grpc::OverGrpc;
use crate::queue::{
    Backlog, CHARACTERS_MAX, Identity, QueueCalls, Receivers, Round, Workload, backlog,
};
use crate::run;

#[derive(Args, Debug)]
pub(super) struct Queue {
    #[command(flatten)]
    common: Common,
    /// Length of the run.
    #[arg(long, value_name = "S", required_unless_present = "backlog", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Round of requests that each client repeats.
    #[arg(long = "loop", value_enum, default_value_t = Round::SendListReadRemove)]
    round: Round,
    /// The receivers of a client's messages.
    #[arg(long, value_enum, default_value_t = Receivers::Itself)]
    receivers: Receivers,
    /// Length of a message.
    #[arg(long, value_name = "N", default_value_t = 200,
          value_parser = clap::value_parser!(u32).range(1..=CHARACTERS_MAX as i64))]
    characters: u32,
    /// Registered clients and their own queues. The virtual clients take these identities in turn.
    #[arg(long = "as", value_name = "CLIENT:QUEUE", value_delimiter = ',', value_parser = identity)]
    registered: Vec<Identity>,
    /// Only register the clients, and store N messages between them through the first server; print the clients; then
    /// exit.
    #[arg(long, value_name = "N",
          conflicts_with_all = ["seconds", "round", "registered", "threads", "start_at", "think_ms", "think", "rate",
                                "verify", "hdr_log", "admin"])]
    backlog: Option<u64>,
}

fn identity(text: &str) -> Result<Identity, String> {
    let numbers = text.split_once(':').and_then(|(client, queue)| {
        Some(Identity { client: client.parse().ok()?, queue: queue.parse().ok()? })
    });
    numbers.ok_or_else(|| "expected CLIENT:QUEUE, such as 3:7".to_owned())
}

impl Queue {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let common = &self.common;
        let parent = common.tied_to_parent;
        let characters = self.characters as usize;
        if let (Some(messages), Some(server)) = (self.backlog, common.server.first()) {
            let (clients, receivers, seed) = (common.clients, self.receivers, common.seed);
            let stored = Backlog { messages, characters, clients, receivers, seed };
            common.print(&backlog(*server, stored, parent)?);
            return Ok(());
        }
        let Queue { round, receivers, ref registered, .. } = *self;
        let plan = common.plan(self.seconds, None);
        let workload = Workload { round, receivers, characters };
        let (servers, registered) = (common.server.len(), registered.clone());
        let calls = QueueCalls::new(workload, common.seed, common.clients, servers, registered);
        run::run(plan, OverGrpc(calls), parent, common.reporter()?)?;
        Ok(())
    }
}
