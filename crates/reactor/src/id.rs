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
}
