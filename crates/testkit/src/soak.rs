/// How many times as much a test draws as usual: `KNEE_SOAK`, or once.
pub fn soak() -> u32 {
    std::env::var("KNEE_SOAK").map_or(1, |times| times.parse().expect("KNEE_SOAK is a number"))
}
