//! Blocking after service: a customer that finds a full station keeps its server until there is a place (Perros 1994,
//! ch. 1; "transfer blocking", Akyildiz 1987).

use super::{Engine, Error, Service, Whereabouts};

impl Engine<'_> {
    /// Whether a customer that goes to the station must wait where it is.
    #[inline]
    pub(super) fn blocks(&self, station: usize) -> bool {
        let place = &self.model.stations[station];
        place.is_blocking && self.lines[station].present >= place.places
    }

    /// Ends a customer's service. The customer moves on if its next station has a place. Then a blocked customer may
    /// take the place that this customer leaves.
    pub(super) fn leave_for_a_place(&mut self, station: usize, customer: u32) -> Result<(), Error> {
        let to = self.next_stations(customer);
        if let &[next] = to
            && next != station
            && self.blocks(next)
        {
            self.lines[next].blocked.push_back(customer);
            return if self.is_stuck(station) { Err(Error::Deadlock) } else { Ok(()) };
        }
        self.depart(station, customer);
        self.go_to(to, customer)?;
        self.admit(station);
        Ok(())
    }

    /// The customer that has waited longest takes the free place of the station. The same follows at the place it left.
    fn admit(&mut self, mut station: usize) {
        while !self.blocks(station) {
            let Some(customer) = self.lines[station].blocked.pop_front() else { return };
            let before = self.tokens[customer as usize].whereabouts;
            if let Whereabouts::At(server) = before {
                self.depart(server as usize, customer);
            }
            self.enter(station, customer);
            if let Whereabouts::At(server) = before {
                station = server as usize;
            }
        }
    }

    /// Whether no customer can ever leave the station: all its servers hold customers that wait for full stations. The
    /// same is true of all servers of those stations.
    fn is_stuck(&self, station: usize) -> bool {
        let mut held = vec![0; self.lines.len()];
        let mut waits = Vec::new();
        for (to, line) in self.lines.iter().enumerate() {
            for &customer in &line.blocked {
                if let Whereabouts::At(from) = self.tokens[customer as usize].whereabouts {
                    held[from as usize] += 1;
                    waits.push((from as usize, to));
                }
            }
        }
        let is_held = |(station, &held): (usize, &u32)| {
            self.blocks(station) && self.model.stations[station].service == Service::Servers(held)
        };
        let mut stuck: Vec<bool> = held.iter().enumerate().map(is_held).collect();
        while let Some(&(from, _)) = waits.iter().find(|&&(from, to)| stuck[from] && !stuck[to]) {
            stuck[from] = false;
        }
        stuck[station]
    }
}
