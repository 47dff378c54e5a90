//! The versions that a connection has seen, to detect an answer with an older version.

use std::collections::HashMap;

use crate::traffic::Fault;

/// The newest version of each key that a connection has seen.
///
/// An answer must not be older than a version that the connection saw before it sent the request. It may be older than a
/// version that the connection saw later.
#[derive(Debug, Default)]
pub(crate) struct Sightings {
    newest: HashMap<u32, Sighting>,
    /// The number of sightings.
    now: u64,
}

#[derive(Debug)]
struct Sighting {
    version: u64,
    /// The number of sightings, including this one.
    at: u64,
}

/// The number of sightings when a request was sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Asked(u64);

impl Sightings {
    /// Must be called when a request is sent.
    pub(crate) fn ask(&self) -> Asked {
        Asked(self.now)
    }

    /// Notes the version that a read found; returns a fault if it is too old.
    pub(crate) fn read(&mut self, key: u32, version: u64, asked: Asked) -> Option<Fault> {
        let seen = self.bound(key, asked);
        self.see(key, version);
        (version < seen).then_some(Fault::WentBack { seen, found: version })
    }

    /// Notes the version of a write; returns a fault if it is not new.
    pub(crate) fn wrote(&mut self, key: u32, version: u64, asked: Asked) -> Option<Fault> {
        let seen = self.bound(key, asked);
        self.see(key, version);
        (version <= seen).then_some(Fault::NotNew { seen, made: version })
    }

    /// The newest version seen before the request was sent. Only the newest sighting is kept: 0 if it came later.
    fn bound(&self, key: u32, Asked(asked): Asked) -> u64 {
        self.newest.get(&key).filter(|seen| seen.at <= asked).map_or(0, |seen| seen.version)
    }

    fn see(&mut self, key: u32, version: u64) {
        let newest = self.newest.entry(key).or_insert(Sighting { version: 0, at: 0 });
        if version > newest.version {
            self.now += 1;
            *newest = Sighting { version, at: self.now };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_that_goes_back_is_found() {
        let mut seen = Sightings::default();
        assert_eq!(seen.read(1, 5, seen.ask()), None);
        assert_eq!(seen.read(1, 5, seen.ask()), None);
        assert_eq!(seen.read(2, 4, seen.ask()), None);
        let fault = seen.read(1, 4, seen.ask());
        assert_eq!(fault, Some(Fault::WentBack { seen: 5, found: 4 }));
        assert_eq!(seen.wrote(1, 6, seen.ask()), None);
        let fault = seen.wrote(1, 6, seen.ask());
        assert_eq!(fault, Some(Fault::NotNew { seen: 6, made: 6 }));
        let fault = seen.read(1, 5, seen.ask());
        assert_eq!(fault, Some(Fault::WentBack { seen: 6, found: 5 }));
    }

    #[test]
    fn later_sightings_do_not_bind_a_request() {
        let mut seen = Sightings::default();
        assert_eq!(seen.read(1, 5, seen.ask()), None);
        let early = seen.ask();
        assert_eq!(seen.wrote(1, 9, seen.ask()), None);
        assert_eq!(seen.read(1, 7, early), None);
        let fault = seen.read(1, 7, seen.ask());
        assert_eq!(fault, Some(Fault::WentBack { seen: 9, found: 7 }));
    }
}
