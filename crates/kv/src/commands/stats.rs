//! `stats`: the statistics that memcached's clients and tools look for.

use knee_kv_cache::engine::{Engine, Second};
use knee_proto::encode;

use super::{Commands, VERSION, counter_value};

impl<E: Engine> Commands<E> {
    /// Answers `stats args`. Returns false when there are no such statistics.
    pub(super) fn stats(&mut self, args: &[u8], now: Second, out: &mut Vec<u8>) -> bool {
        let mut words = args.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        match words.next().unwrap_or_default() {
            b"" => self.general_stats(now, out),
            b"reset" => {
                self.counters.reset();
                out.extend_from_slice(encode::RESET);
                return true;
            }
            b"settings" => self.settings(out),
            b"items" => self.item_stats(out),
            b"slabs" => self.slab_stats(out),
            // The answer of a memcached that does not track sizes.
            b"sizes" => encode::stat("sizes_status", "disabled", out),
            // `cachedump` lists the items of a size class; this engine has no classes.
            b"cachedump" => match (words.next(), words.next()) {
                (Some(class), Some(limit))
                    if counter_value(class).is_some() && counter_value(limit).is_some() => {}
                (Some(_), Some(_)) => {
                    out.extend_from_slice(b"CLIENT_ERROR bad command line format\r\n");
                    return false;
                }
                _ => {
                    out.extend_from_slice(b"CLIENT_ERROR bad command line\r\n");
                    return false;
                }
            },
            // Counting by key prefix is accepted but has no effect: the dump is empty.
            b"detail" => match words.next().unwrap_or_default() {
                b"on" | b"off" => {
                    out.extend_from_slice(encode::OK);
                    return true;
                }
                b"dump" => {}
                _ => {
                    out.extend_from_slice(b"CLIENT_ERROR usage: stats detail on|off|dump\r\n");
                    return false;
                }
            },
            _ => {
                out.extend_from_slice(b"ERROR\r\n");
                return false;
            }
        }
        out.extend_from_slice(encode::END);
        true
    }

    fn general_stats(&mut self, now: Second, out: &mut Vec<u8>) {
        let figures = self.engine.figures();
        let facts = &self.facts;
        encode::stat("pid", std::process::id(), out);
        encode::stat("uptime", facts.started.elapsed().as_secs(), out);
        encode::stat("time", now, out);
        encode::stat("version", VERSION, out);
        encode::stat("pointer_size", usize::BITS, out);
        encode::stat("max_connections", facts.settings.connections_max, out);
        encode::stat("curr_connections", self.connections, out);
        for (name, total) in self.counters.totals() {
            encode::stat(name, total, out);
        }
        encode::stat("limit_maxbytes", figures.memory_bytes_max, out);
        encode::stat("accepting_conns", 1, out);
        encode::stat("threads", facts.settings.threads, out);
        encode::stat("bytes", figures.item_bytes, out);
        encode::stat("curr_items", figures.items, out);
        encode::stat("total_items", figures.puts, out);
        encode::stat("evicted_unfetched", figures.evictions_unread, out);
        encode::stat("evictions", figures.evictions, out);
        encode::stat("reclaimed", figures.expired, out);
    }

    fn settings(&mut self, out: &mut Vec<u8>) {
        let figures = self.engine.figures();
        let facts = &self.facts;
        encode::stat("maxbytes", figures.memory_bytes_max, out);
        encode::stat("maxconns", facts.settings.connections_max, out);
        encode::stat("tcpport", facts.listen.port(), out);
        encode::stat("udpport", 0, out);
        encode::stat("inter", facts.listen.ip(), out);
        encode::stat("verbosity", 0, out);
        encode::stat("evictions", "on", out);
        encode::stat("shutdown_command", "no", out);
        encode::stat("num_threads", facts.settings.threads, out);
        encode::stat("cas_enabled", "yes", out);
        encode::stat("auth_enabled_sasl", "no", out);
        encode::stat("auth_enabled_ascii", "no", out);
        encode::stat("item_size_max", facts.settings.limits.value_bytes_max, out);
        encode::stat("flush_enabled", "yes", out);
        let idle_s = facts.settings.idle_timeout.map_or(0, |timeout| timeout.as_secs());
        encode::stat("idle_timeout", idle_s, out);
        encode::stat("track_sizes", "no", out);
    }

    /// There are no size classes: all items count as class 1.
    fn item_stats(&mut self, out: &mut Vec<u8>) {
        let figures = self.engine.figures();
        if figures.items > 0 {
            encode::stat("items:1:number", figures.items, out);
            encode::stat("items:1:mem_requested", figures.item_bytes, out);
            encode::stat("items:1:evicted", figures.evictions, out);
            encode::stat("items:1:evicted_unfetched", figures.evictions_unread, out);
            encode::stat("items:1:reclaimed", figures.expired, out);
        }
    }

    fn slab_stats(&mut self, out: &mut Vec<u8>) {
        let figures = self.engine.figures();
        encode::stat("active_slabs", u8::from(figures.items > 0), out);
        encode::stat("total_malloced", figures.memory_bytes, out);
    }
}
