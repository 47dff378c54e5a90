//! Compiles the interfaces in `proto/`, without `protoc`.

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
    tonic_prost_build::configure().bytes(".").compile_fds(interfaces)?;
    Ok(())
}
