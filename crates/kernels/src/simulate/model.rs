//! The simulated network: stations, routes and classes of customers, and their checks.

use super::error::Error;
use super::limits::CUSTOMERS_MAX;
use super::random::Random;
use super::shape::{Shape, is_time};

/// A network and its customers.
#[derive(Clone, Debug)]
pub struct Model {
    /// The places where customers wait and are served.
    pub stations: Vec<Station>,
    /// By step: the stations that a customer visits in parallel; usually one. The customer forks into one sibling for
    /// each station, and continues when all siblings are done. At a step without stations, the customer continues at
    /// once.
    pub steps: Vec<Vec<usize>>,
    /// One class or more.
    pub classes: Vec<Class>,
}

/// A station.
#[derive(Clone, Debug)]
pub struct Station {
    /// The discipline of service.
    pub service: Service,
    /// The most customers at the station. A further customer loses its round, or waits if the station is blocking.
    pub places: u32,
    /// By class: level 0 is served first, and a level in the order of arrival. Only with servers; empty for one level.
    pub levels: Vec<u32>,
    /// Whether a customer without a place waits in its last server, instead of losing its round.
    pub is_blocking: bool,
}

/// The discipline of a station.
#[derive(Clone, Debug, PartialEq)]
pub enum Service {
    /// All present customers are served at once.
    Delay,
    /// This number of servers; first come, first served.
    Servers(u32),
    /// This number of servers; processor sharing. Each of n customers is served at the speed min(n, servers) / n.
    Sharing(u32),
    /// One customer at a time; first come, first served. With n customers present, the speed is the n-th entry, or the
    /// last one.
    Varying(Vec<f64>),
}

/// A distribution of times.
#[derive(Clone, Debug)]
pub struct Time {
    /// The mean; at least 0.
    pub mean: f64,
    /// The distribution relative to the mean.
    pub shape: Shape,
}

impl Time {
    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> f64 {
        self.mean * self.shape.draw(random)
    }

    /// Draws the rest of a time that began before the simulation.
    pub(super) fn draw_rest(&self, random: &mut Random) -> f64 {
        self.mean * self.shape.draw_rest(random)
    }

    fn check(&self) -> Result<(), Error> {
        if !is_time(self.mean) {
            return argument("mean", "expected finite times from 0");
        }
        self.shape.check()
    }
}

/// A class of customers with the same distributions and route.
#[derive(Clone, Debug)]
pub struct Class {
    /// The source of customers.
    pub source: Source,
    /// The service time at each station.
    pub service: Vec<Time>,
    /// The route of a round.
    pub route: Route,
}

/// The source of customers.
#[derive(Clone, Debug)]
pub enum Source {
    /// A fixed number of customers, which think between two rounds.
    Closed {
        /// The number of customers.
        population: u32,
        /// The think time.
        think: Time,
    },
    /// Each round has a new customer, which leaves after it.
    Open {
        /// The time between two arrivals.
        between: Time,
    },
}

/// A Markov chain of positions. Position 0 is outside of all stations.
#[derive(Clone, Debug)]
pub struct Route {
    /// By position: its step. The entry for position 0 is unused.
    steps: Vec<usize>,
    /// By position: cumulative probabilities and next positions.
    ways: Vec<Vec<(f64, u32)>>,
}

impl Route {
    /// Makes a route. `steps` has the step of each position. `ways` has the probabilities of going from each position
    /// to others; they should sum to 1.
    pub fn new(steps: Vec<usize>, ways: Vec<Vec<(f64, u32)>>) -> Result<Route, Error> {
        let inside = |&(probability, next): &(f64, u32)| {
            (0.0..=1.0).contains(&probability) && (next as usize) < steps.len()
        };
        if steps.is_empty() || ways.len() != steps.len() || ways.iter().any(Vec::is_empty) {
            return argument("ways", "expected one or more from every position");
        }
        if !ways.iter().flatten().all(inside) {
            return argument("ways", "expected probabilities and positions");
        }
        let ways = ways.into_iter().map(cumulative).collect();
        Ok(Route { steps, ways })
    }

    #[inline]
    pub(super) fn next(&self, position: u32, random: &mut Random) -> u32 {
        match self.ways[position as usize].as_slice() {
            [(_, next)] => *next,
            ways => {
                let share = random.unit();
                ways[ways.partition_point(|(below, _)| *below <= share)].1
            }
        }
    }

    #[inline]
    pub(super) fn step(&self, position: u32) -> usize {
        self.steps[position as usize]
    }

    /// Checks the route. A step without stations must lead to a higher position or outside. Otherwise a customer could
    /// circle for ever at one time.
    fn check(&self, steps: &[Vec<usize>]) -> Result<(), Error> {
        for (position, ways) in self.ways.iter().enumerate().skip(1) {
            let Some(stations) = steps.get(self.steps[position]) else {
                return argument("route", "names a step that does not exist");
            };
            let backwards = |&(_, next): &(f64, u32)| (1..=position).contains(&(next as usize));
            if stations.is_empty() && ways.iter().any(backwards) {
                return argument("route", "expected a step without stations to lead onwards");
            }
        }
        if self.ways[0].iter().any(|&(_, next)| next == 0) {
            return argument("route", "expected rounds to begin with a step");
        }
        Ok(())
    }
}

/// Makes probabilities cumulative. The last bound is infinite, so that rounding errors do not matter.
fn cumulative(ways: Vec<(f64, u32)>) -> Vec<(f64, u32)> {
    let mut below = 0.0;
    let mut ways: Vec<_> = ways
        .into_iter()
        .map(|(probability, next)| {
            below += probability;
            (below, next)
        })
        .collect();
    if let Some(last) = ways.last_mut() {
        last.0 = f64::INFINITY;
    }
    ways
}

impl Model {
    /// Checks that all parts of the model fit together.
    pub(super) fn check(&self) -> Result<(), Error> {
        for station in &self.stations {
            station.check(self.classes.len())?;
        }
        let serves_in_order =
            |station: &Station| matches!(station.service, Service::Servers(_) | Service::Delay);
        if self.stations.iter().any(|station| station.is_blocking)
            && (self.steps.iter().any(|step| step.len() > 1)
                || !self.stations.iter().all(serves_in_order))
        {
            return argument("blocking", "expected servers and delays, and no forks");
        }
        if self.steps.iter().flatten().any(|&station| station >= self.stations.len()) {
            return argument("steps", "names a station that does not exist");
        }
        if self.classes.is_empty() {
            return argument("classes", "expected one or more");
        }
        for class in &self.classes {
            class.check(self)?;
        }
        let customers = |class: &Class| match class.source {
            Source::Closed { population, .. } => u64::from(population),
            Source::Open { .. } => 0,
        };
        if self.classes.iter().map(customers).sum::<u64>() > CUSTOMERS_MAX as u64 {
            return Err(Error::Crowded);
        }
        Ok(())
    }
}

impl Station {
    /// A station without priorities that refuses customers if it is full.
    pub fn new(service: Service, places: u32) -> Station {
        Station { service, places, levels: Vec::new(), is_blocking: false }
    }

    #[inline]
    pub(super) fn level(&self, class: u32) -> usize {
        self.levels.get(class as usize).map_or(0, |&level| level as usize)
    }

    fn check(&self, classes: usize) -> Result<(), Error> {
        let works = match &self.service {
            Service::Delay => true,
            Service::Servers(servers) | Service::Sharing(servers) => *servers > 0,
            Service::Varying(speeds) => {
                !speeds.is_empty() && speeds.iter().all(|&speed| is_time(speed) && speed > 0.0)
            }
        };
        if !works {
            return argument("stations", "expected servers, or speeds above 0");
        }
        let has_levels = !self.levels.is_empty();
        let is_known = self.levels.len() == classes
            && self.levels.iter().all(|&level| (level as usize) < classes)
            && matches!(self.service, Service::Servers(_));
        if has_levels && !is_known {
            return argument("levels", "expected servers, and levels below the number of classes");
        }
        if self.places == 0 {
            return argument("stations", "expected a place or more");
        }
        Ok(())
    }
}

impl Class {
    fn check(&self, model: &Model) -> Result<(), Error> {
        if self.service.len() != model.stations.len() {
            return argument("service", "expected a time for every station");
        }
        self.service.iter().try_for_each(Time::check)?;
        self.route.check(&model.steps)?;
        match &self.source {
            Source::Closed { think, .. } => think.check(),
            Source::Open { between } if between.mean > 0.0 => between.check(),
            Source::Open { .. } => argument("between", "expected a mean above 0"),
        }
    }
}

fn argument<T>(name: &'static str, problem: &'static str) -> Result<T, Error> {
    Err(Error::Argument { name, problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        let time = Time { mean: 1.0, shape: Shape::Exponential };
        let source = Source::Open { between: time.clone() };
        let route = Route::new(vec![0, 0], vec![vec![(1.0, 1)], vec![(1.0, 0)]]);
        Model {
            stations: vec![Station::new(Service::Servers(1), 1)],
            steps: vec![vec![0], vec![]],
            classes: vec![Class { source, service: vec![time], route: route.expect("right") }],
        }
    }

    #[test]
    fn endless_or_inconsistent_model_is_refused() {
        assert_eq!(model().check(), Ok(()));
        let wrong: [fn(&mut Model); 18] = [
            |model| model.classes.clear(),
            |model| model.steps[0] = vec![1],
            |model| model.steps.clear(),
            // A step without stations leads to itself.
            |model| {
                let ways = vec![vec![(1.0, 1)], vec![(0.5, 1), (0.5, 0)]];
                model.classes[0].route =
                    Route::new(vec![0, 1], ways).expect("right but for the step");
            },
            // A round may have no step.
            |model| {
                let ways = vec![vec![(0.5, 0), (0.5, 1)], vec![(1.0, 0)]];
                model.classes[0].route =
                    Route::new(vec![0, 0], ways).expect("right but for the way");
            },
            |model| model.stations[0].places = 0,
            |model| model.stations[0].service = Service::Servers(0),
            |model| model.stations[0].service = Service::Sharing(0),
            |model| model.stations[0].levels = vec![1],
            |model| model.stations[0].levels = vec![0, 0],
            |model| {
                model.stations[0].is_blocking = true;
                model.stations[0].service = Service::Sharing(1);
            },
            |model| {
                model.stations[0].is_blocking = true;
                model.steps[0] = vec![0, 0];
            },
            |model| model.stations[0].service = Service::Varying(vec![]),
            |model| model.stations[0].service = Service::Varying(vec![1.0, 0.0]),
            |model| model.classes[0].service.clear(),
            |model| model.classes[0].service[0].mean = -1.0,
            |model| model.classes[0].service[0].shape = Shape::Erlang(0),
            |model| {
                let never = Time { mean: 0.0, shape: Shape::Exponential };
                model.classes[0].source = Source::Open { between: never };
            },
        ];
        for (number, spoil) in wrong.iter().enumerate() {
            let mut spoilt = model();
            spoil(&mut spoilt);
            assert!(matches!(spoilt.check(), Err(Error::Argument { .. })), "number {number}");
        }
    }

    #[test]
    fn route_to_unknown_position_is_refused() {
        let wrong = [
            (vec![], vec![]),
            (vec![0, 0], vec![vec![(1.0, 1)]]),
            (vec![0, 0], vec![vec![(1.0, 1)], vec![]]),
            (vec![0, 0], vec![vec![(1.0, 2)], vec![(1.0, 0)]]),
            (vec![0, 0], vec![vec![(f64::NAN, 1)], vec![(1.0, 0)]]),
        ];
        for (steps, ways) in wrong {
            assert!(Route::new(steps.clone(), ways.clone()).is_err(), "{steps:?} {ways:?}");
        }
    }

    #[test]
    fn too_large_population_is_refused() {
        let mut model = model();
        let think = Time { mean: 1.0, shape: Shape::Exponential };
        model.classes[0].source = Source::Closed { population: CUSTOMERS_MAX as u32 + 1, think };
        assert_eq!(model.check(), Err(Error::Crowded));
    }
}
