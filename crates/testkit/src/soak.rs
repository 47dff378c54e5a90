/// The factor by which a test draws more random examples: `KNEE_SOAK`, or 1.
pub fn soak() -> u32 {
    std::env::var("KNEE_SOAK").map_or(1, |times| times.parse().expect("KNEE_SOAK is a number"))
}
