//! `knee-queue`, and `knee-load queue` against it.

mod disk;
mod killed;
mod programs;
