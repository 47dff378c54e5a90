//! honu's interface: the service `rpc.Storage`.
//!
//! As in honu, the reply contains the error, and the call's status is OK. Exceptions are messages that exceed the
//! memory or cannot be decoded.

use knee_kv_cache::engine::{Expiry, Version};
use knee_kv_store::calendar::now;
use knee_kv_store::{Action, Condition, Write};
use knee_rpc::honu::storage_server::Storage;
use knee_rpc::honu::{GetReply, GetRequest, PutReply, PutRequest};
use knee_telemetry::Op;
use tonic::{Code, Request, Response, Status};

use super::service::Service;

/// honu's server answers this unless it tracks when a write reached its replicas.
const NOT_TRACKED: &str = "warning: replicas are not tracking visibility";

/// The service, and the process id in its versions.
#[derive(Debug)]
pub(super) struct Honu {
    pub(super) service: Service,
    pub(super) pid: u64,
}

impl Honu {
    fn printed(&self, version: Version) -> String {
        format!("{version}.{}", self.pid)
    }
}

#[tonic::async_trait]
impl Storage for Honu {
    async fn get_value(&self, request: Request<GetRequest>) -> Result<Response<GetReply>, Status> {
        let (mut call, GetRequest { key }) = self.service.meter.call(Op::Read, request);
        let found = self.service.newest(key.clone().into(), &mut call).await;
        let (code, reply) = match found {
            Ok(Some(entry)) => {
                let version = self.printed(entry.version);
                let value = entry.value;
                let error = String::new();
                (Code::Ok, GetReply { success: true, version, key, value, error })
            }
            Ok(None) => {
                let error = format!("key '{key}' not found in namespace");
                (Code::NotFound, GetReply { key, error, ..GetReply::default() })
            }
            Err(status) => {
                let error = status.message().to_owned();
                (status.code(), GetReply { key, error, ..GetReply::default() })
            }
        };
        call.replied(code, reply, code != Code::NotFound)
    }

    async fn put_value(&self, request: Request<PutRequest>) -> Result<Response<PutReply>, Status> {
        let (call, request) = self.service.meter.call(Op::Put, request);
        let PutRequest { key, value, track_visibility } = request;
        let action = Action::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value: &value };
        let write = Write { key: key.as_bytes(), condition: Condition::Always, action };
        let written = self.service.write(&[write], None, now()).await;
        let (code, reply) = match written {
            Ok(written) => {
                let version = self.printed(written.version);
                let error = if track_visibility { NOT_TRACKED } else { "" }.to_owned();
                (Code::Ok, PutReply { success: true, key, version, error })
            }
            Err(status) => {
                let error = status.message().to_owned();
                (status.code(), PutReply { key, error, ..PutReply::default() })
            }
        };
        call.replied(code, reply, true)
    }
}
