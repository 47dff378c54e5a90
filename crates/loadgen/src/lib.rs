//! Closed- and open-loop load on memcached servers, with every response timed.

mod bottleneck;
#[cfg(test)]
mod chi_square;
pub mod cli;
mod clients;
mod complaints;
mod error;
mod keys;
mod mix;
mod open_loop;
mod random;
mod run;
mod schedule;
mod values;
mod workload;
mod zipf;
