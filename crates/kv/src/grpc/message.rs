//! The properties of messages that the telemetry records.

use knee_rpc::Message;
use knee_rpc::honu::{GetRequest, PutRequest as HonuPutRequest};
use knee_rpc::kv::{
    AppendRequest, BackupRequest, BackupResponse, BulkPutRequest, CompactRequest, CompactResponse,
    DeleteRequest, HistoryRequest, HistoryResponse, InitRequest, InitResponse, InsertRequest,
    PutRequest, ReadAtRequest, ReadRequest, ReadResponse, ScanRequest, ScanResponse, StatsRequest,
    StatsResponse, UpdateRequest, WatchRequest, WatchResponse, WriteResponse,
};

/// A request.
pub(super) trait Question: Message {
    /// The call's name, for operations of type `other`.
    const NAME: &'static str = "other";

    /// Its key, or another property that identifies it in a trace.
    fn key(&self) -> &[u8] {
        &[]
    }

    /// Number of keys; the keys of a stream are counted in its answers.
    fn items(&self) -> u32 {
        1
    }
}

/// An answer, or a message of a stream.
pub(super) trait Answer: Message {
    fn entries(&self) -> u32 {
        0
    }

    /// Whether the key existed.
    fn is_there(&self) -> bool {
        true
    }
}

macro_rules! questions {
    ($($message:ty: $key:ident,)*) => {
        $(impl Question for $message {
            fn key(&self) -> &[u8] {
                self.$key.as_ref()
            }
        })*
    };
    ($($message:ty = $name:literal: $key:ident,)*) => {
        $(impl Question for $message {
            const NAME: &'static str = $name;

            fn key(&self) -> &[u8] {
                self.$key.as_ref()
            }

            fn items(&self) -> u32 {
                0
            }
        })*
    };
    ($($message:ty = $name:literal,)*) => {
        $(impl Question for $message {
            const NAME: &'static str = $name;

            fn items(&self) -> u32 {
                0
            }
        })*
    };
}

questions! {
    ReadRequest: key,
    ReadAtRequest: key,
    InsertRequest: key,
    UpdateRequest: key,
    PutRequest: key,
    AppendRequest: key,
    DeleteRequest: key,
    GetRequest: key,
    HonuPutRequest: key,
}

questions! {
    HistoryRequest = "history": key,
    ScanRequest = "scan": start,
    WatchRequest = "watch": start,
    InitRequest = "init": file,
    BackupRequest = "backup": directory,
}

questions! {
    CompactRequest = "compact",
    StatsRequest = "stats",
}

impl Question for BulkPutRequest {
    fn key(&self) -> &[u8] {
        self.changes.first().map_or(&[], |change| &change.key)
    }

    fn items(&self) -> u32 {
        u32::try_from(self.changes.len()).unwrap_or(u32::MAX)
    }
}

impl Answer for ReadResponse {}
impl Answer for CompactResponse {}
impl Answer for StatsResponse {}
impl Answer for InitResponse {}
impl Answer for BackupResponse {}

impl Answer for WriteResponse {
    /// A delete of a missing key has no version.
    fn is_there(&self) -> bool {
        self.version > 0
    }
}

macro_rules! parts {
    ($($message:ty: $entries:ident,)*) => {
        $(impl Answer for $message {
            fn entries(&self) -> u32 {
                u32::try_from(self.$entries.len()).unwrap_or(u32::MAX)
            }
        })*
    };
}

parts! {
    HistoryResponse: versions,
    ScanResponse: entries,
    WatchResponse: events,
}
