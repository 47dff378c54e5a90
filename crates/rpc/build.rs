//! Compiles the interfaces in `proto/`, without `protoc`.

use std::path::Path;
use std::{env, fs};

use prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let interfaces = protox::compile(
        [
            "knee/kv/v1/kv.proto",
            "knee/queue/v1/queue.proto",
            "knee/space/v1/space.proto",
            "rpc.proto",
        ],
        ["proto"],
    )?;
    let descriptors = Path::new(&env::var("OUT_DIR")?).join("descriptors.bin");
    fs::write(descriptors, interfaces.encode_to_vec())?;
    tonic_prost_build::configure().bytes(".").compile_fds(interfaces)?;
    Ok(())
}
