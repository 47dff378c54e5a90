//! `knee-space`: see `knee_space::cli`.

fn main() -> std::process::ExitCode {
    knee_space::cli::main()
}
