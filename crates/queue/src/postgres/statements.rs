//! Prepared calls of the stored functions.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Statement};

macro_rules! statements {
    ($($name:ident: $call:literal),* $(,)?) => {
        /// A prepared statement for each function.
        #[derive(Debug)]
        pub(super) struct Statements {
            $(pub(super) $name: Statement,)*
        }

        impl Statements {
            /// Prepares all of them, in one exchange with the server.
            pub(super) async fn prepare(client: &Client) -> Result<Statements, Error> {
                const NO_TYPES: &[Type] = &[];
                let ($($name,)*) =
                    tokio::try_join!($(client.prepare_typed($call, NO_TYPES),)*)?;
                Ok(Statements { $($name,)* })
            }
        }
    };
}

statements! {
    register_middleware: "SELECT knee_queue.register_middleware()",
    register_client: "SELECT knee_queue.register_client($1)",
    create_queue: "SELECT problem, about, id FROM knee_queue.create_queue($1, $2, $3, $4)",
    delete_queue: "SELECT problem, about FROM knee_queue.delete_queue($1)",
    send: "SELECT problem, about, id FROM knee_queue.send($1, $2, $3, $4)",
    send_all: "SELECT problem, about, id, call FROM knee_queue.send_all($1, $2, $3, $4, $5)",
    take: "SELECT problem, about, epoch, first, first_nobodys, id, sender, receiver, arrived_at, attempt,
           content FROM knee_queue.take($1, $2, $3, $4, $5, $6, $7, $8)",
    take_each: "SELECT problem, about, epoch, first, first_nobodys, id, sender, receiver, arrived_at,
           attempt, content, call FROM knee_queue.take_each($1, $2, $3, $4, $5, $6)",
    read: "SELECT problem, about, id, sender, receiver, arrived_at, content
           FROM knee_queue.read($1, $2, $3, $4, $5, $6, $7, $8)",
    read_from: "SELECT problem, about, id, sender, receiver, arrived_at, content, queue
           FROM knee_queue.read_from($1, $2)",
    list_queues: "SELECT problem, about, queue FROM knee_queue.list_queues($1)",
    counts: "SELECT messages, clients, queues FROM knee_queue.counts()",
    acknowledge: "SELECT message, attempt FROM knee_queue.acknowledge($1, $2)",
    extend: "SELECT message, attempt FROM knee_queue.extend($1, $2, $3)",
    release: "SELECT message, attempt, queue, receiver FROM knee_queue.release($1, $2)",
    end_leases: "SELECT message, attempt, queue, receiver FROM knee_queue.end_leases($1)",
    begin_round: "SELECT needed, gone FROM knee_queue.begin_round()",
    sweep: "SELECT receiver, queue, removed, passed_over FROM knee_queue.sweep($1, $2, $3, $4)",
    end_round: "SELECT knee_queue.end_round($1)",
    horizon: "SELECT settled, flushed, last, next, logged FROM knee_queue.horizon()",
    notify_arrivals: "SELECT knee_queue.notify_arrivals($1)",
}
