//! The service `knee.kv.v1.KeyValue`.

use std::pin::Pin;

use futures_util::Stream;
use knee_kv_store::calendar::now;
use knee_kv_store::{Action, Condition};
use knee_rpc::kv::key_value_server::KeyValue;
use knee_rpc::kv::{
    AppendRequest, BackupRequest, BackupResponse, BulkPutRequest, CompactRequest, CompactResponse,
    DeleteRequest, HistoryRequest, HistoryResponse, InitRequest, InitResponse, InsertRequest,
    PutRequest, ReadAtRequest, ReadRequest, ReadResponse, ScanRequest, ScanResponse, StatsRequest,
    StatsResponse, UpdateRequest, WatchRequest, WatchResponse, WriteResponse,
};
use knee_telemetry::Op;
use tonic::{Request, Response, Status};

use super::message::Answer;
use super::meter::Call;
use super::refusal::missing;
use super::service::Service;
use super::watch::Watch;
use super::write::in_version;

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl KeyValue for Service {
    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<ReadResponse>, Status> {
        let (mut call, request) = self.meter.call(Op::Read, request);
        let key = request.key;
        let found = self.newest(key.clone(), &mut call).await;
        call.answered(match found {
            Ok(Some(entry)) => Ok(ReadResponse { entry: Some(entry) }),
            Ok(None) => Err(missing(&key)),
            Err(status) => Err(status),
        })
    }

    async fn read_at(
        &self,
        request: Request<ReadAtRequest>,
    ) -> Result<Response<ReadResponse>, Status> {
        let (mut call, request) = self.meter.call(Op::Read, request);
        let read = self.read_in_version(request, &mut call).await;
        call.answered(read)
    }

    type HistoryStream = Streamed<HistoryResponse>;

    async fn history(
        &self,
        request: Request<HistoryRequest>,
    ) -> Result<Response<Self::HistoryStream>, Status> {
        let (call, request) = self.meter.call(Op::Other, request);
        streamed(call, self.history_of(request).await)
    }

    async fn insert(
        &self,
        request: Request<InsertRequest>,
    ) -> Result<Response<WriteResponse>, Status> {
        let (call, request) = self.meter.call(Op::Insert, request);
        let InsertRequest { key, value, request } = request;
        call.answered(self.put_one(&key, Condition::Absent, value, request).await)
    }

    async fn update(
        &self,
        request: Request<UpdateRequest>,
    ) -> Result<Response<WriteResponse>, Status> {
        let (call, request) = self.meter.call(Op::Update, request);
        let UpdateRequest { key, value, request } = request;
        call.answered(self.put_one(&key, Condition::Present, value, request).await)
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<WriteResponse>, Status> {
        let (call, request) = self.meter.call(Op::Put, request);
        let PutRequest { key, value, if_version, request } = request;
        call.answered(self.put_one(&key, in_version(if_version), value, request).await)
    }

    async fn append(
        &self,
        request: Request<AppendRequest>,
    ) -> Result<Response<WriteResponse>, Status> {
        let (call, request) = self.meter.call(Op::Append, request);
        let AppendRequest { key, tail, if_version, request } = request;
        let (condition, action) = (in_version(if_version), Action::Append(&tail));
        call.answered(self.write_one(&key, condition, action, request, now()).await)
    }

    async fn delete(
        &self,
        request: Request<DeleteRequest>,
    ) -> Result<Response<WriteResponse>, Status> {
        let (call, request) = self.meter.call(Op::Delete, request);
        let DeleteRequest { key, if_version, request } = request;
        let condition = in_version(if_version);
        call.answered(self.write_one(&key, condition, Action::Delete, request, now()).await)
    }

    async fn bulk_put(
        &self,
        request: Request<BulkPutRequest>,
    ) -> Result<Response<WriteResponse>, Status> {
        let (call, request) = self.meter.call(Op::BulkPut, request);
        let written = self.write_all(request, &call).await;
        call.answered(written)
    }

    type ScanStream = Streamed<ScanResponse>;

    async fn scan(
        &self,
        request: Request<ScanRequest>,
    ) -> Result<Response<Self::ScanStream>, Status> {
        let (call, request) = self.meter.call(Op::Scan, request);
        let scan = self.scan_of(request, false).await;
        streamed(call, scan)
    }

    type AtomicScanStream = Streamed<ScanResponse>;

    async fn atomic_scan(
        &self,
        request: Request<ScanRequest>,
    ) -> Result<Response<Self::AtomicScanStream>, Status> {
        let (call, request) = self.meter.call(Op::AtomicScan, request);
        let scan = self.scan_of(request, true).await;
        streamed(call, scan)
    }

    type WatchStream = Streamed<WatchResponse>;

    async fn watch(
        &self,
        request: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (call, request) = self.meter.call(Op::Other, request);
        let watch = self.watch_of(request);
        streamed(call, watch.map(Watch::responses))
    }

    type InitStream = Streamed<InitResponse>;

    async fn init(
        &self,
        request: Request<InitRequest>,
    ) -> Result<Response<Self::InitStream>, Status> {
        let (call, request) = self.meter.call(Op::Other, request);
        streamed(call, self.load_of(request).await)
    }

    async fn compact(
        &self,
        request: Request<CompactRequest>,
    ) -> Result<Response<CompactResponse>, Status> {
        let (call, CompactRequest {}) = self.meter.call(Op::Other, request);
        call.answered(self.compacted().await)
    }

    async fn backup(
        &self,
        request: Request<BackupRequest>,
    ) -> Result<Response<BackupResponse>, Status> {
        let (call, request) = self.meter.call(Op::Other, request);
        call.answered(self.copied(request).await)
    }

    async fn stats(
        &self,
        request: Request<StatsRequest>,
    ) -> Result<Response<StatsResponse>, Status> {
        let (call, StatsRequest {}) = self.meter.call(Op::Other, request);
        call.answered(self.counted().await)
    }
}

/// Answers a call with a stream, or with the reason why there is none.
fn streamed<T: Answer + 'static>(
    call: Call,
    begun: Result<impl Stream<Item = Result<T, Status>> + Send + 'static, Status>,
) -> Result<Response<Streamed<T>>, Status> {
    match begun {
        Ok(stream) => Ok(Response::new(Box::pin(call.streamed(Box::pin(stream))))),
        Err(status) => Err(call.failed(status)),
    }
}
