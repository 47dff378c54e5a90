//! `knee-link` delays the frames of emulated hosts; the crate `knee_link` holds the code.

fn main() -> std::process::ExitCode {
    knee_link::main()
}
