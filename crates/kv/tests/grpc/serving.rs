//! A versioned store behind gRPC in this process, and clients of it.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;

use knee_kv::grpc::{GrpcServer, GrpcSettings, Telemetry};
use knee_kv_cache::engine::Expiry;
use knee_kv_store::{
    Action, Condition, Consistency, DirectoryOptions, Durability, Store as Versioned, StoreOptions,
    Write,
};
use knee_rpc::kv::key_value_client::KeyValueClient;
use knee_rpc::kv::{
    BulkPutRequest, Change, DeleteRequest, InsertRequest, PutRequest, ReadRequest, ScanRequest,
    ScanResponse, StatsRequest, StatsResponse, UpdateRequest, Value, change,
};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

pub(crate) type Client = KeyValueClient<Channel>;
pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) const VALUE_BYTES_MAX: usize = 1 << 20;

pub(crate) fn options() -> StoreOptions {
    StoreOptions {
        consistency: Consistency::Linearizable,
        stripes: 8,
        value_bytes_max: VALUE_BYTES_MAX,
        segment_bytes: 2 << 20,
    }
}

/// Few threads, so that many clients share them.
pub(crate) fn settings() -> GrpcSettings {
    GrpcSettings {
        threads: 2,
        grace: Duration::from_millis(200),
        // This is longer than a busy machine takes.
        reader_idle_max: Duration::from_secs(600),
        ..GrpcSettings::for_values(VALUE_BYTES_MAX)
    }
}

/// A running server, which ends with the test, and its store.
pub(crate) struct Store(Option<(GrpcServer, Versioned)>);

impl Store {
    /// A store in memory.
    pub(crate) fn start() -> Store {
        Store::with(options(), settings())
    }

    pub(crate) fn with(options: StoreOptions, settings: GrpcSettings) -> Store {
        Store::of(Versioned::in_memory(options, 1 << 30).unwrap(), settings)
    }

    pub(crate) fn of(store: Versioned, settings: GrpcSettings) -> Store {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let telemetry = Telemetry::default();
        let server = GrpcServer::start(settings, store.clone(), listener, telemetry).unwrap();
        Store(Some((server, store)))
    }

    pub(crate) fn serving(&self) -> &GrpcServer {
        &self.0.as_ref().unwrap().0
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.serving().address()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    pub(crate) async fn client(&self) -> Client {
        self.client_with(|endpoint| endpoint).await
    }

    /// A client with its own connection.
    pub(crate) async fn client_with(&self, with: impl FnOnce(Endpoint) -> Endpoint) -> Client {
        let endpoint = with(Endpoint::from_shared(self.url()).unwrap().tcp_nodelay(true));
        let client = KeyValueClient::new(endpoint.connect().await.unwrap());
        client.max_decoding_message_size(16 << 20)
    }

    pub(crate) fn shut_down(&mut self) {
        let (serving, _) = self.0.take().unwrap();
        serving.shutdown().begin();
        serving.join().unwrap();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some((serving, _)) = self.0.take() {
            serving.shutdown().begin();
            // A runtime must not be dropped on a thread of another runtime.
            let _ = std::thread::spawn(|| serving.join()).join();
        }
    }
}

/// Calls again when the machine held up the client and the server closed its connection.
pub(crate) async fn patiently<T>(
    mut call: impl AsyncFnMut() -> Result<T, Status>,
) -> Result<T, Status> {
    loop {
        match call().await {
            Err(status)
                if matches!(status.code(), Code::Unknown | Code::Unavailable | Code::Cancelled) => {
            }
            outcome => return outcome,
        }
    }
}

/// A temporary directory.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("knee-grpc-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Directory(path)
    }

    pub(crate) fn open(&self, options: StoreOptions) -> Versioned {
        let directory = DirectoryOptions {
            path: self.0.clone(),
            durability: Durability::Always,
            repair: false,
        };
        Versioned::open(options, &directory, 1 << 30).unwrap().0
    }

    /// Makes the open files in the directory refuse writes, as on a full disk.
    pub(crate) fn fill_up(&self) {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut filled = 0;
        for entry in fs::read_dir("/proc/self/fd").unwrap() {
            let entry = entry.unwrap().path();
            let is_of_log = |file: &PathBuf| {
                file.starts_with(&self.0) && file.extension().is_some_and(|name| name == "log")
            };
            if fs::read_link(&entry).is_ok_and(|file| is_of_log(&file)) {
                let fd = entry.file_name().unwrap().to_str().unwrap().parse().unwrap();
                // SAFETY: the store keeps its descriptor, which refers to another file now.
                assert!(unsafe { libc::dup2(full.as_raw_fd(), fd) } >= 0);
                filled += 1;
            }
        }
        assert!(filled > 0, "no file of the log is open");
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn key(number: usize) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

pub(crate) fn value(value: impl Into<Vec<u8>>) -> Option<Value> {
    Some(Value { value: value.into().into(), ..Value::default() })
}

pub(crate) async fn put(client: &mut Client, key: &[u8], bytes: &[u8]) -> Result<u64, Status> {
    let request =
        PutRequest { key: key.to_vec().into(), value: value(bytes), ..PutRequest::default() };
    client.put(request).await.map(|response| response.into_inner().version)
}

/// The value and its version.
pub(crate) async fn read(client: &mut Client, key: &[u8]) -> Result<(Vec<u8>, u64), Status> {
    let response = client.read(ReadRequest { key: key.to_vec().into() }).await?.into_inner();
    let entry = response.entry.unwrap();
    assert_eq!(entry.key, key);
    Ok((entry.value.to_vec(), entry.version))
}

pub(crate) async fn stats(client: &mut Client) -> StatsResponse {
    client.stats(StatsRequest {}).await.unwrap().into_inner()
}

pub(crate) fn everything() -> ScanRequest {
    ScanRequest::default()
}

pub(crate) async fn begin(client: &mut Client, request: ScanRequest) -> Streaming<ScanResponse> {
    client.scan(request).await.unwrap().into_inner()
}

pub(crate) async fn begin_atomic(
    client: &mut Client,
    request: ScanRequest,
) -> Streaming<ScanResponse> {
    client.atomic_scan(request).await.unwrap().into_inner()
}

/// The rest of a scan, which must be in order.
pub(crate) async fn rest(mut scan: Streaming<ScanResponse>) -> Result<Model, Status> {
    let mut found = Model::new();
    let mut last: Option<Vec<u8>> = None;
    while let Some(response) = scan.message().await? {
        for entry in response.entries {
            let key = entry.key.to_vec();
            assert!(last.is_none_or(|last| last < key), "{key:?} comes behind its turn");
            last = Some(key.clone());
            found.insert(key, entry.value.to_vec());
        }
    }
    Ok(found)
}

/// Random numbers from a seed (xorshift64, Marsaglia 2003).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

pub(crate) async fn insert(client: &mut Client, key: &[u8], bytes: &[u8]) -> Result<u64, Status> {
    let request =
        InsertRequest { key: key.to_vec().into(), value: value(bytes), ..InsertRequest::default() };
    client.insert(request).await.map(|response| response.into_inner().version)
}

pub(crate) async fn update(client: &mut Client, key: &[u8], bytes: &[u8]) -> Result<u64, Status> {
    let request =
        UpdateRequest { key: key.to_vec().into(), value: value(bytes), ..UpdateRequest::default() };
    client.update(request).await.map(|response| response.into_inner().version)
}

pub(crate) async fn delete(client: &mut Client, key: &[u8]) -> Result<u64, Status> {
    let request = DeleteRequest { key: key.to_vec().into(), ..DeleteRequest::default() };
    client.delete(request).await.map(|response| response.into_inner().version)
}

pub(crate) async fn bulk_put(client: &mut Client, changes: Vec<Change>) -> Result<u64, Status> {
    let request = BulkPutRequest { changes, request: None };
    client.bulk_put(request).await.map(|response| response.into_inner().version)
}

pub(crate) fn changed(key: &[u8], bytes: &[u8]) -> Change {
    let put = Value { value: bytes.to_vec().into(), ..Value::default() };
    Change { key: key.to_vec().into(), action: Some(change::Action::Put(put)), condition: None }
}

/// Writes keys to the store directly, not through the server.
pub(crate) fn inserted(store: &Store, keys: usize, bytes: impl Fn(usize) -> Vec<u8>) -> Model {
    let model: Model = (0..keys).map(|number| (key(number), bytes(number))).collect();
    write(store, &model);
    model
}

/// Writes a model to the store directly, not through the server.
pub(crate) fn write(store: &Store, model: &Model) {
    let (_, store) = store.0.as_ref().unwrap();
    for (key, value) in model {
        let action = Action::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value };
        store.write(&[Write { key, condition: Condition::Always, action }], None, 1).unwrap();
    }
    store.sync(store.last()).unwrap();
}

pub(crate) async fn joined(mut tasks: JoinSet<()>) {
    while let Some(outcome) = tasks.join_next().await {
        outcome.unwrap();
    }
}
