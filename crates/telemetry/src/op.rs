//! The types of operation that are counted apart.

/// What a request asked for, as coarse as the report tells requests apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Op {
    /// Any storage command: set, add, replace, append, prepend, cas.
    Set,
    /// Retrieval of one key.
    Get,
    /// Retrieval of two or more keys.
    Multiget,
    /// Removal of a key.
    Delete,
    /// Arithmetic, touch, administration and the rest.
    Other,
}

impl Op {
    /// Every type, in the order in which they are printed.
    pub const ALL: [Op; 5] = [Op::Set, Op::Get, Op::Multiget, Op::Delete, Op::Other];

    /// How many types there are.
    pub const COUNT: usize = Op::ALL.len();

    /// The name in JSON, in Prometheus labels and in histogram tags.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Set => "set",
            Op::Get => "get",
            Op::Multiget => "multiget",
            Op::Delete => "delete",
            Op::Other => "other",
        }
    }
}
