//! `knee-kv`: see `knee_kv::cli`.

fn main() -> std::process::ExitCode {
    knee_kv::cli::main()
}
