//! Output buffers and the pool they come from.

/// Largest number of bytes of drained buffers that a thread keeps.
const POOL_BYTES_MAX: usize = 16 * 1024 * 1024;
/// A larger buffer returns to the allocator instead of the pool. The limit fits sixteen values of a page each. The
/// allocator would return a buffer of this size to the kernel. Then each page of the next buffer would cost a fault.
const POOLED_BYTES_MAX: usize = 256 * 1024;

/// Drained buffers for reuse. Idle connections own none.
#[derive(Default)]
pub(crate) struct Pool {
    free: Vec<Vec<u8>>,
    bytes: usize,
    /// Bytes of buffers that went back to the allocator.
    pub(crate) dropped: usize,
}

impl Pool {
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let buffer = self.free.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    pub(crate) fn give(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if capacity > 0 && capacity <= POOLED_BYTES_MAX && self.bytes + capacity <= POOL_BYTES_MAX {
            buffer.clear();
            self.bytes += capacity;
            self.free.push(buffer);
        } else {
            self.dropped += capacity;
        }
    }
}

/// Bytes on their way to a peer: appended at the end, sent from the front.
#[derive(Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    sent: usize,
}

impl Output {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub(crate) fn pending(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// The buffer to append to. Only extend it: its front may have been sent.
    pub(crate) fn tail(&mut self, pool: &mut Pool) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            self.bytes = pool.take();
        }
        &mut self.bytes
    }

    pub(crate) fn advance(&mut self, sent: usize, pool: &mut Pool) {
        self.sent += sent;
        debug_assert!(self.sent <= self.bytes.len());
        if self.sent == self.bytes.len() {
            self.release(pool);
        } else if self.sent >= POOLED_BYTES_MAX && self.sent >= self.len() {
            // Drop the sent bytes, so that the buffer of a lagging peer does not grow for ever. This moves no more
            // bytes than were sent since the last move, so the cost is proportional to the traffic.
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    pub(crate) fn release(&mut self, pool: &mut Pool) {
        pool.give(std::mem::take(&mut self.bytes));
        self.sent = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_sends_in_order_across_partial_writes() {
        let mut pool = Pool::default();
        let mut output = Output::default();
        let mut sent = Vec::new();
        let mut expected = Vec::new();
        for round in 0..2000_u32 {
            let chunk = vec![(round % 251) as u8; (round % 97) as usize];
            output.tail(&mut pool).extend_from_slice(&chunk);
            expected.extend_from_slice(&chunk);
            let step = output.len() * (round as usize % 3) / 3;
            sent.extend_from_slice(&output.pending()[..step]);
            output.advance(step, &mut pool);
        }
        sent.extend_from_slice(output.pending());
        assert_eq!(sent, expected);
    }

    #[test]
    fn drained_output_owns_no_memory() {
        let mut pool = Pool::default();
        let mut output = Output::default();
        output.tail(&mut pool).extend_from_slice(b"STORED\r\n");
        output.advance(8, &mut pool);
        assert_eq!(output.bytes.capacity(), 0);
        assert!(pool.take().capacity() >= 8);
    }

    #[test]
    fn pool_keeps_no_giant_buffers() {
        let mut pool = Pool::default();
        pool.give(Vec::with_capacity(POOLED_BYTES_MAX + 1));
        assert_eq!(pool.take().capacity(), 0);
    }

    #[test]
    fn pool_is_bounded_and_taking_makes_room() {
        let mut pool = Pool::default();
        let fits = POOL_BYTES_MAX / POOLED_BYTES_MAX;
        for _ in 0..fits + 1 {
            pool.give(Vec::with_capacity(POOLED_BYTES_MAX));
        }
        assert_eq!(pool.free.len(), fits);
        drop(pool.take());
        pool.give(Vec::with_capacity(POOLED_BYTES_MAX));
        assert_eq!(pool.free.len(), fits);
    }
}
