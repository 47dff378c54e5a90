//! `knee-load`: see `knee_loadgen::cli`.

fn main() -> std::process::ExitCode {
    knee_loadgen::cli::main()
}
