//! The types of operations that are counted separately.

macro_rules! ops {
    ($($(#[$doc:meta])* $op:ident = $name:literal,)*) => {
        /// The type of a request.
        ///
        /// The first types belong to the memcached protocol, then come those of a versioned store, of a message
        /// queue, and of an address space.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Op {
            $($(#[$doc])* $op,)*
        }

        impl Op {
            /// Every type, in the order in which they are printed.
            pub const ALL: [Op; Op::COUNT] = [$(Op::$op),*];

            /// The number of types.
            pub const COUNT: usize = [$($name),*].len();

            /// The name in JSON, in Prometheus labels and in histogram tags.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Op::$op => $name,)*
                }
            }
        }
    };
}

ops! {
    /// Any storage command: set, add, replace, append, prepend, cas.
    Set = "set",
    /// Retrieval of one key.
    Get = "get",
    /// Retrieval of two or more keys.
    Multiget = "multiget",
    /// Removal of a key.
    Delete = "delete",
    /// Reading a key in some version, or bytes at an address.
    Read = "read",
    /// A read of a missing key, if the client counts these separately.
    ReadMissing = "read_missing",
    /// A read of a large value, if a flag of the client defines which values are large.
    ReadLarge = "read_large",
    /// Writing a key that must not exist.
    Insert = "insert",
    /// Writing a key that must exist.
    Update = "update",
    /// Writing a key.
    Put = "put",
    /// Appending to a value.
    Append = "append",
    /// Reading a range of keys, each at the moment of its own read.
    Scan = "scan",
    /// Reading a range of keys, all at one moment.
    AtomicScan = "atomic_scan",
    /// Changing several keys at once.
    BulkPut = "bulk_put",
    /// Sending messages to a queue.
    Send = "send",
    /// Asking which queues have messages.
    ListQueues = "list_queues",
    /// Reading all messages of a queue.
    ReadAll = "read_all",
    /// Reading the oldest message of one sender.
    ReadFrom = "read_from",
    /// Taking the oldest messages out of a queue.
    Remove = "remove",
    /// Hiding the oldest messages of a queue for a time.
    Lease = "lease",
    /// Ending leases, and removing their messages.
    Acknowledge = "acknowledge",
    /// Ending leases, and putting their messages back.
    Release = "release",
    /// Extending leases.
    Extend = "extend",
    /// Writing bytes at an address.
    Write = "write",
    /// Arithmetic, touch, administration and the rest.
    Other = "other",
}
