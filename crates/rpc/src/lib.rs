//! The gRPC interfaces of the servers: messages, servers and clients, generated from `proto/`.
//!
//! The crate is apart so that the load generator builds without the servers.

/// What all messages are.
pub use prost::Message;

/// The descriptors of all interfaces, as an encoded `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// `knee.kv.v1`: the versioned key-value store.
#[allow(missing_docs, unreachable_pub, clippy::all, rust_2018_idioms)]
pub mod kv {
    tonic::include_proto!("knee.kv.v1");
}

/// `knee.queue.v1`: the message queue.
#[allow(missing_docs, unreachable_pub, clippy::all, rust_2018_idioms)]
pub mod queue {
    tonic::include_proto!("knee.queue.v1");
}

/// `knee.space.v1`: the address space.
#[allow(missing_docs, unreachable_pub, clippy::all, rust_2018_idioms)]
pub mod space {
    tonic::include_proto!("knee.space.v1");
}

/// honu's `rpc`.
#[allow(missing_docs, unreachable_pub, clippy::all, rust_2018_idioms)]
pub mod honu {
    tonic::include_proto!("rpc");
}
