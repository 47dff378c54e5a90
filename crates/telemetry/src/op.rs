//! The types of operations that are counted separately.

/// The type of a request.
///
/// The first types belong to the memcached protocol, then come those of a versioned store, and of a message queue.
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
    /// Reading a key in some version.
    Read,
    /// A read of a missing key, if the client counts these separately.
    ReadMissing,
    /// A read of a large value, if a flag of the client defines which values are large.
    ReadLarge,
    /// Writing a key that must not exist.
    Insert,
    /// Writing a key that must exist.
    Update,
    /// Writing a key.
    Put,
    /// Appending to a value.
    Append,
    /// Reading a range of keys, each at the moment of its own read.
    Scan,
    /// Reading a range of keys, all at one moment.
    AtomicScan,
    /// Changing several keys at once.
    BulkPut,
    /// Sending messages to a queue.
    Send,
    /// Asking which queues have messages.
    ListQueues,
    /// Reading all messages of a queue.
    ReadAll,
    /// Reading the oldest message of one sender.
    ReadFrom,
    /// Taking the oldest messages out of a queue.
    Remove,
    /// Hiding the oldest messages of a queue for a time.
    Lease,
    /// Ending leases, and removing their messages.
    Acknowledge,
    /// Ending leases, and putting their messages back.
    Release,
    /// Extending leases.
    Extend,
    /// Arithmetic, touch, administration and the rest.
    Other,
}

impl Op {
    /// Every type, in the order in which they are printed.
    pub const ALL: [Op; 24] = [
        Op::Set,
        Op::Get,
        Op::Multiget,
        Op::Delete,
        Op::Read,
        Op::ReadMissing,
        Op::ReadLarge,
        Op::Insert,
        Op::Update,
        Op::Put,
        Op::Append,
        Op::Scan,
        Op::AtomicScan,
        Op::BulkPut,
        Op::Send,
        Op::ListQueues,
        Op::ReadAll,
        Op::ReadFrom,
        Op::Remove,
        Op::Lease,
        Op::Acknowledge,
        Op::Release,
        Op::Extend,
        Op::Other,
    ];

    /// The number of types.
    pub const COUNT: usize = Op::ALL.len();

    /// The name in JSON, in Prometheus labels and in histogram tags.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Set => "set",
            Op::Get => "get",
            Op::Multiget => "multiget",
            Op::Delete => "delete",
            Op::Read => "read",
            Op::ReadMissing => "read_missing",
            Op::ReadLarge => "read_large",
            Op::Insert => "insert",
            Op::Update => "update",
            Op::Put => "put",
            Op::Append => "append",
            Op::Scan => "scan",
            Op::AtomicScan => "atomic_scan",
            Op::BulkPut => "bulk_put",
            Op::Send => "send",
            Op::ListQueues => "list_queues",
            Op::ReadAll => "read_all",
            Op::ReadFrom => "read_from",
            Op::Remove => "remove",
            Op::Lease => "lease",
            Op::Acknowledge => "acknowledge",
            Op::Release => "release",
            Op::Extend => "extend",
            Op::Other => "other",
        }
    }
}
