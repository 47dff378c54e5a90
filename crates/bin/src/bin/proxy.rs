//! `knee-proxy`: see `knee_middleware::cli`.

fn main() -> std::process::ExitCode {
    knee_middleware::cli::main()
}
