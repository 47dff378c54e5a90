//! `knee-queue`: see `knee_queue::cli`.

fn main() -> std::process::ExitCode {
    knee_queue::cli::main()
}
