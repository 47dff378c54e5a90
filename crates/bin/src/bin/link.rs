//! `knee-link`: see `knee_link`.

fn main() -> std::process::ExitCode {
    knee_link::main()
}
