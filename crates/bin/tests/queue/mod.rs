//! `knee-queue`, and `knee-load queue` against it.

mod disk;
mod ends;
mod killed;
mod programs;
