//! Names of connections.

/// Names a connection of this loop. An operation on a closed connection's id has no effect, even when its slot serves
/// another connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ConnId {
    /// A small integer, unique among open connections, as an index of the handler's own tables.
    pub fn index(self) -> usize {
        self.index as usize
    }

    /// The id as one number, for a timer's key or for another thread.
    pub fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The inverse of [`ConnId::to_u64`].
    pub fn from_u64(bits: u64) -> ConnId {
        ConnId { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}
