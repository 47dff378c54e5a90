//! A thread-per-core event loop over epoll: connections, buffers, timers.
