//! The interface of the space over gRPC: `knee.space.v1`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use knee_nbd::{Command, ENOSPC, EPERM, Errno};
use knee_rpc::DESCRIPTORS;
use knee_rpc::space::space_server::{SERVICE_NAME, Space as Interface, SpaceServer};
use knee_rpc::space::{
    GetStorageAttributesRequest, Machine, ReadRequest, ReadResponse, Status as SpaceStatus,
    StorageAttributes, WriteRequest, WriteResponse,
};
use knee_server::{
    Bounded, Budget, Interfaces, Limits, Running, Shards, Share, Shutdown, Unserved, connections,
    listening, recorders, runtime, server,
};
use knee_telemetry::{
    Middleware, MiddlewareGauges, MiddlewareTimes, Op, Reporter, Sample, elapsed_ns,
};
use tonic::{Code, Request, Response, Status};

use crate::manager::{Doors, Space};

/// The longest data of a call: a message of gRPC has at most 4 MiB.
const DATA_BYTES_MAX: u32 = 1 << 20;
const MESSAGE_BYTES_MAX: usize = DATA_BYTES_MAX as usize + (64 << 10);
/// Memory for the messages of all calls.
const MESSAGES_BYTES_MAX: usize = 64 << 20;
const THREADS: usize = 1;
const CONNECTIONS_MAX: usize = 1024;
const STREAMS_MAX: u32 = 64;
const SILENCE_MAX: Duration = Duration::from_secs(10);
const STALL_MAX: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(5);

/// A running server.
#[derive(Debug)]
pub(crate) struct GrpcServer {
    running: Running,
    shards: Arc<Shards<Middleware>>,
    pub(crate) address: SocketAddr,
}

impl GrpcServer {
    pub(crate) fn start(
        space: Arc<Space>,
        doors: Arc<Doors>,
        listener: std::net::TcpListener,
        reporter: &mut Reporter<Middleware>,
    ) -> io::Result<GrpcServer> {
        let gauges = |_| MiddlewareGauges::new(Instant::now(), 0, &[]);
        let shards = Arc::new(Shards::new(THREADS, recorders(reporter, THREADS, gauges)));
        let runtime = runtime(&shards, |builder| builder)?;
        let (listener, address) = listening(&runtime, listener)?;
        let limits = Limits {
            connections_max: CONNECTIONS_MAX,
            silence_max: SILENCE_MAX,
            idle_max: None,
            stall_max: Some(STALL_MAX),
        };
        let budget = Budget::new(MESSAGES_BYTES_MAX, "the number of managers");
        let incoming = connections(listener, limits, budget, Arc::clone(&shards.connections));
        let service =
            SpaceServer::new(Service { space, doors }).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let meter: Arc<dyn Unserved> = Arc::new(Meter(Arc::clone(&shards)));
        let interfaces = Interfaces {
            service: Bounded::new(service, Arc::clone(&meter)),
            names: &[SERVICE_NAME],
            descriptors: DESCRIPTORS,
            meter,
        };
        runtime.spawn(Arc::clone(&shards).cut_every_second());
        let server = server(STREAMS_MAX);
        let running =
            Running::start(runtime, server, interfaces, incoming, Shutdown::default(), GRACE);
        Ok(GrpcServer { running, shards, address })
    }

    pub(crate) fn shutdown(&self) -> Shutdown {
        self.running.shutdown()
    }

    /// Calls a function when the server ends, even after a failure.
    pub(crate) fn on_end(&self, ended: impl FnOnce() + Send + 'static) {
        self.running.on_end(ended);
    }

    pub(crate) fn join(self) -> io::Result<()> {
        let ended = self.running.join();
        self.shards.finish();
        ended
    }
}

/// Records calls that reach no thread of the manager.
#[derive(Debug)]
struct Meter(Arc<Shards<Middleware>>);

impl Unserved for Meter {
    fn unserved(self: Arc<Meter>, _path: &str, received: Instant, _code: Code) {
        let response_ns = elapsed_ns(received, Instant::now());
        let times = MiddlewareTimes { response_ns, ..MiddlewareTimes::default() };
        let sample = Sample { times, error: true, ..Sample::default() };
        self.0.record(|recorder| recorder.record(Op::Other, &sample));
    }
}

#[derive(Debug)]
struct Service {
    space: Arc<Space>,
    doors: Arc<Doors>,
}

impl Service {
    /// Executes a request of `length` bytes at `offset`. Returns the data of a read.
    async fn ask(
        &self,
        command: Command,
        offset: u64,
        length: usize,
        data: Bytes,
        share: Option<Arc<Share>>,
    ) -> Result<Vec<u8>, Status> {
        if length == 0 || length > DATA_BYTES_MAX as usize {
            return Err(Status::invalid_argument(format!(
                "the length is {length} bytes: expected from 1 to {DATA_BYTES_MAX}; split the request"
            )));
        }
        let size = self.space.export.bytes;
        if offset.checked_add(length as u64).is_none_or(|end| end > size) {
            return Err(Status::out_of_range(format!(
                "{length} bytes at address {offset} reach beyond the {size} bytes of the space"
            )));
        }
        let request =
            knee_nbd::Request { flags: 0, command, cookie: 0, offset, length: length as u32 };
        self.doors.ask(request, data, share).await.map_err(status)
    }
}

/// Takes the request's message, and notes that a thread of the manager will record the call.
fn opened<M>(request: Request<M>) -> (M, Option<Arc<Share>>) {
    let (_, mut extensions, message) = request.into_parts();
    let share: Option<Arc<Share>> = extensions.remove();
    if let Some(share) = &share {
        share.metered();
    }
    (message, share)
}

fn status(error: Errno) -> Status {
    match error {
        EPERM => Status::permission_denied("the space is read-only"),
        ENOSPC => Status::resource_exhausted("a machine has no space left"),
        _ => Status::unavailable(
            "a machine that the request touches is offline or failed; try again later",
        ),
    }
}

#[tonic::async_trait]
impl Interface for Service {
    async fn get_storage_attributes(
        &self,
        request: Request<GetStorageAttributesRequest>,
    ) -> Result<Response<StorageAttributes>, Status> {
        let _share = opened(request);
        let Space { layout, export, health, .. } = &*self.space;
        let machines = health.machines().enumerate().map(|(number, (name, online))| Machine {
            name: name.to_owned(),
            size: layout.bytes_of(number),
            online,
        });
        let machines: Vec<Machine> = machines.collect();
        let status = match machines.iter().filter(|machine| machine.online).count() {
            0 => SpaceStatus::Offline,
            online if online == machines.len() => SpaceStatus::Online,
            _ => SpaceStatus::MachineDown,
        };
        Ok(Response::new(StorageAttributes {
            size: export.bytes,
            status: status.into(),
            read_only: export.read_only,
            machines,
        }))
    }

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<ReadResponse>, Status> {
        let (ReadRequest { address, length }, share) = opened(request);
        if let Some(share) = &share {
            share.take(length.min(DATA_BYTES_MAX) as usize)?;
        }
        let data = self.ask(Command::Read, address, length as usize, Bytes::new(), share).await?;
        Ok(Response::new(ReadResponse { data: data.into() }))
    }

    async fn write(
        &self,
        request: Request<WriteRequest>,
    ) -> Result<Response<WriteResponse>, Status> {
        let (WriteRequest { address, data }, share) = opened(request);
        self.ask(Command::Write, address, data.len(), data, share).await?;
        Ok(Response::new(WriteResponse {}))
    }
}
