//! What is simulated: stations, routes and classes of customers, all checked.

use super::random::Random;
use super::shape::{Shape, is_time};
use super::{CUSTOMERS_MAX, Error};

/// A network and its customers.
#[derive(Clone, Debug)]
pub struct Model {
    /// Where customers wait and are served.
    pub stations: Vec<Station>,
    /// The stations that a customer visits at the same time, one sibling at each, before it goes on;
    /// usually one. At a step without stations it goes on at once.
    pub steps: Vec<Vec<usize>>,
    /// One or more.
    pub classes: Vec<Class>,
}

/// How many are served at once, and how many may be there.
#[derive(Clone, Debug)]
pub struct Station {
    /// Who is served.
    pub service: Service,
    /// Who finds so many there is refused, and the round is lost.
    pub places: u32,
}

/// Who is served among those who came.
#[derive(Clone, Debug)]
pub enum Service {
    /// Everybody.
    Delay,
    /// The first so many, first come, first served.
    Servers(u32),
    /// The first, at these multiples of the speed with 1, 2, … there, at the last with more.
    Varying(Vec<f64>),
}

/// A distribution of times.
#[derive(Clone, Debug)]
pub struct Time {
    /// From 0.
    pub mean: f64,
    /// About the mean.
    pub shape: Shape,
}

impl Time {
    /// Draws a time.
    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> f64 {
        self.mean * self.shape.draw(random)
    }

    /// Draws what is left of a time that began before the simulation did.
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

/// Customers that are alike.
#[derive(Clone, Debug)]
pub struct Class {
    /// Where they come from.
    pub source: Source,
    /// What every station takes of them.
    pub service: Vec<Time>,
    /// The way of one round.
    pub route: Route,
}

/// Where customers come from, and where they go to after a round.
#[derive(Clone, Debug)]
pub enum Source {
    /// So many customers, who think between two rounds.
    Closed {
        /// How many.
        population: u32,
        /// How long.
        think: Time,
    },
    /// A new customer for each round.
    Open {
        /// Between two arrivals.
        between: Time,
    },
}

/// A Markov chain of positions. Position 0 is outside of all stations.
#[derive(Clone, Debug)]
pub struct Route {
    /// Of every position; without meaning for 0.
    steps: Vec<usize>,
    /// Of every position: where next, by cumulative probability.
    ways: Vec<Vec<(f64, u32)>>,
}

impl Route {
    /// The route with these steps of its positions, and from every position the probabilities to go
    /// to others, which are taken to sum to 1.
    pub fn new(steps: Vec<usize>, ways: Vec<Vec<(f64, u32)>>) -> Result<Route, Error> {
        let inside = |&(probability, next): &(f64, u32)| {
            (0.0..=1.0).contains(&probability) && (next as usize) < steps.len()
        };
        if ways.len() != steps.len() || !ways.iter().all(|ways| !ways.is_empty()) {
            return argument("ways", "expected one or more from every position");
        }
        if !ways.iter().flatten().all(inside) {
            return argument("ways", "expected probabilities and positions");
        }
        let ways = ways.into_iter().map(cumulative).collect();
        Ok(Route { steps, ways })
    }

    /// Where a customer goes from a position.
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

    /// The step at a position.
    #[inline]
    pub(super) fn step(&self, position: u32) -> usize {
        self.steps[position as usize]
    }

    /// Steps without stations must lead onwards, or a customer could go in circles without time.
    fn check(&self, steps: &[Vec<usize>]) -> Result<(), Error> {
        for (position, ways) in self.ways.iter().enumerate().skip(1) {
            let Some(stations) = steps.get(self.steps[position]) else {
                return argument("route", "expected steps that there are");
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

/// The last one takes what rounding has left.
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
    /// Checks whatever could keep the simulation from running to its end.
    pub(super) fn check(&self) -> Result<(), Error> {
        for station in &self.stations {
            station.check()?;
        }
        if self.steps.iter().flatten().any(|&station| station >= self.stations.len()) {
            return argument("steps", "expected stations that there are");
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
    fn check(&self) -> Result<(), Error> {
        let works = match &self.service {
            Service::Delay => true,
            Service::Servers(servers) => *servers > 0,
            Service::Varying(speeds) => {
                !speeds.is_empty() && speeds.iter().all(|&speed| is_time(speed) && speed > 0.0)
            }
        };
        if !works {
            return argument("stations", "expected servers, or speeds above 0");
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
