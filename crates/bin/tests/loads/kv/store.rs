//! A store and a load on it as processes, which end when a test drops them.

use knee_rpc::kv::key_value_client::KeyValueClient;
use knee_rpc::kv::{StatsRequest, StatsResponse};
use knee_testkit::{free_address, wait_until};
use serde_json::Value;

use crate::program::{End, KV, LOAD, Program, count, run_load, talk};

pub(crate) const ALL: &str =
    "read:40,insert:5,update:5,put:10,append:5,delete:5,scan:2,atomic_scan:2,bulk_put:5";
pub(crate) const WRITES: [&str; 6] = ["insert", "update", "put", "append", "delete", "bulk_put"];
pub(crate) const READS: [&str; 3] = ["read", "read_missing", "read_large"];

/// A versioned store and its gRPC address.
pub(crate) struct Store {
    pub(crate) program: Program,
    pub(crate) grpc: String,
}

impl Store {
    pub(crate) fn start(flags: &[&str]) -> Store {
        Store::at(free_address(), flags)
    }

    pub(crate) fn at(grpc: String, flags: &[&str]) -> Store {
        let program = Program::serve(KV, &[&["--grpc", &grpc], flags].concat());
        Store { program, grpc }
    }

    /// Its counters.
    pub(crate) fn stats(&self) -> StatsResponse {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut client =
                KeyValueClient::connect(format!("http://{}", self.grpc)).await.unwrap();
            client.stats(StatsRequest {}).await.unwrap().into_inner()
        })
    }

    pub(crate) fn set(&self, key: &str, value: &[u8]) {
        let head = format!("set {key} 0 0 {}\r\n", value.len());
        let request = [head.as_bytes(), value, b"\r\n"].concat();
        talk(&mut self.program.connect(), &request, b"STORED\r\n");
    }

    pub(crate) fn load(&self, flags: &str) -> Program {
        load(&format!("--server {} {flags}", self.grpc))
    }

    /// Runs a load to its end.
    pub(crate) fn loaded(&self, flags: &str) -> End {
        finished(self.load(flags))
    }

    /// Runs a load until the server has counted enough.
    pub(crate) fn loaded_until(&self, flags: &str, enough: impl Fn(&StatsResponse) -> bool) -> End {
        let load = self.load(&format!("{flags} --seconds 60"));
        wait_until("the server has counted enough requests of the load", || enough(&self.stats()));
        load.signal(libc::SIGTERM);
        finished(load)
    }

    pub(crate) fn populate(&self, flags: &str) {
        run(&format!("--server {} {flags}", self.grpc)).summary();
    }
}

pub(crate) fn load(flags: &str) -> Program {
    let flags: Vec<&str> =
        ["kv", "--drain-s", "30"].into_iter().chain(flags.split_whitespace()).collect();
    Program::start(LOAD, &flags)
}

/// Runs a load to its end.
pub(crate) fn run(flags: &str) -> End {
    let flags: Vec<&str> = ["kv"].into_iter().chain(flags.split_whitespace()).collect();
    run_load(&flags)
}

pub(crate) fn finished(load: Program) -> End {
    let end = load.end();
    assert_eq!(end.code, Some(0), "{}", end.errors);
    end
}

/// Ends a load after this many reconnections, and checks that it lost as many connections.
pub(crate) fn ended_when_reconnected(mut load: Program, connections: u64) -> End {
    let mut again = 0;
    while again < connections {
        again += load.line()["reconnects"].as_u64().unwrap();
    }
    load.signal(libc::SIGTERM);
    let end = finished(load);
    let counts = ["losses", "reconnects"].map(|name| &end.summary()[name]);
    assert_eq!(counts, [connections; 2], "{}", end.errors);
    end
}

pub(crate) fn sum(line: &Value, ops: &[&str], field: &str) -> u64 {
    ops.iter().map(|op| count(line, op, field)).sum()
}
