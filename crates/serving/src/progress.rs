//! Whether a connection moves.

use std::sync::Arc;

use crate::budget::Share;

/// Parts of large requests that came on a call's connection, and of large answers that its reader had
/// room for, since somebody asked last. As long as there are some, one of its calls may wait its turn.
#[derive(Debug)]
pub struct Progress {
    share: Arc<Share>,
    parts_seen: usize,
}

impl Progress {
    /// Of the connection of the call that has this share.
    pub fn of(share: &Arc<Share>) -> Progress {
        Progress { parts_seen: share.parts(), share: Arc::clone(share) }
    }

    /// Whether there was none.
    pub fn is_none(&mut self) -> bool {
        let parts = self.share.parts();
        parts == std::mem::replace(&mut self.parts_seen, parts)
    }
}
