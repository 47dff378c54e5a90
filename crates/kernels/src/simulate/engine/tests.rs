//! Invariants of every replication of any network, and small networks computed by hand.

use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

use super::super::model::{Class, Route, Station, Time};
use super::super::shape::Shape;
use super::*;

static NEVER: AtomicBool = AtomicBool::new(false);

fn engine(model: &Model, seed: u64) -> Engine<'_> {
    model.check().expect("a right model");
    Engine::new(model, Random::stream(seed, 0), false, &NEVER).expect("few customers")
}

fn exponential(mean: f64) -> Time {
    Time { mean, shape: Shape::Exponential }
}

fn queue(servers: u32) -> Station {
    Station::new(Service::Servers(servers), u32::MAX)
}

/// A network with one class, whose customers go through every step once, in order.
fn in_order(stations: Vec<Station>, steps: Vec<Vec<usize>>, source: Source, time: Time) -> Model {
    let last = steps.len() as u32;
    let route = Route::new(
        (0..=steps.len()).map(|position| position.saturating_sub(1)).collect(),
        (0..=last).map(|at| vec![(1.0, if at == last { 0 } else { at + 1 })]).collect(),
    );
    let service = vec![time; stations.len()];
    let route = route.expect("a right route");
    Model { stations, steps, classes: vec![Class { source, service, route }] }
}

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Exponential),
        Just(Shape::Deterministic),
        Just(Shape::Erlang(3)),
        Just(Shape::HyperExponential { probability: 0.1 }),
        Just(Shape::Lognormal { deviation: 0.7 }),
        Just(Shape::Samples(vec![0.0, 0.5, 2.5])),
    ]
}

fn time() -> impl Strategy<Value = Time> {
    (0.1..2.0_f64, shape()).prop_map(|(mean, shape)| Time { mean, shape })
}

fn station() -> impl Strategy<Value = Station> {
    let service = prop_oneof![
        Just(Service::Delay),
        (1_u32..4).prop_map(Service::Servers),
        (1_u32..4).prop_map(Service::Sharing),
        prop::collection::vec(0.2..3.0_f64, 1..4).prop_map(Service::Varying),
    ];
    let places = prop_oneof![Just(u32::MAX), 1_u32..5];
    (service, places).prop_map(|(service, places)| Station::new(service, places))
}

const STATIONS: usize = 3;

/// Steps 0, 1 and 2 are the stations, 3 and 4 are forks, and 5 has no station. Every position leads out of the network,
/// directly or over others. The last position has step 5 and leads out at once.
fn route() -> impl Strategy<Value = Route> {
    let position = (0_usize..5, 0.0..0.7_f64, 1_u32..5);
    prop::collection::vec(position, 4).prop_map(|positions| {
        let steps = std::iter::once(0).chain(positions.iter().map(|at| at.0)).chain([5]);
        let ways = positions.iter().map(|&(_, onwards, next)| {
            vec![(onwards, next), (0.5 * (1.0 - onwards), 5), (0.5 * (1.0 - onwards), 0)]
        });
        let ways = std::iter::once(vec![(0.5, 1), (0.5, 2)]).chain(ways).chain([vec![(1.0, 0)]]);
        Route::new(steps.collect(), ways.collect()).expect("a right route")
    })
}

fn class() -> impl Strategy<Value = Class> {
    let source = prop_oneof![
        (1_u32..8, time()).prop_map(|(population, think)| Source::Closed { population, think }),
        time().prop_map(|between| Source::Open { between }),
    ];
    let service = prop::collection::vec(time(), STATIONS);
    (source, service, route()).prop_map(|(source, service, route)| Class { source, service, route })
}

fn model() -> impl Strategy<Value = Model> {
    let stations = prop::collection::vec(station(), STATIONS);
    (stations, prop::collection::vec(class(), 1..4)).prop_map(|(stations, classes)| {
        let steps = vec![vec![0], vec![1], vec![2], vec![0, 1], vec![2, 1, 0], vec![]];
        Model { stations, steps, classes }
    })
}

/// The customers of a class in rounds, or at a station: their number, and the sum of their times so far.
#[derive(Clone, Copy, Default)]
struct Present {
    number: u32,
    age: f64,
}

impl Present {
    fn add(&mut self, since: f64, now: f64) {
        self.number += 1;
        self.age += now - since;
    }
}

fn present(engine: &Engine<'_>) -> (Vec<Present>, Vec<Present>) {
    let classes = engine.model.classes.len();
    let mut rounds = vec![Present::default(); classes];
    let mut visits = vec![Present::default(); classes * STATIONS];
    for token in &engine.tokens {
        let class = token.class as usize;
        if let Whereabouts::At(station) = token.whereabouts {
            visits[station as usize * classes + class].add(token.came, engine.now);
        }
        let is_under_way = matches!(token.whereabouts, Whereabouts::At(_) | Whereabouts::Forked);
        if is_under_way && token.parent == NONE {
            rounds[class].add(token.began, engine.now);
        }
    }
    (rounds, visits)
}

proptest! {
    /// Little's law as an identity: the area under the number of customers equals the sum of their times at the
    /// station. The part of a stay before the observation does not count; the times of present customers do. Also, each
    /// customer that came has left or is present.
    #[test]
    fn areas_stays_and_counts_of_every_station_and_class_agree(
        model in model(), seed: u64, warmup in 0.0..30.0_f64, in_rounds: bool
    ) {
        let mut engine = engine(&model, seed);
        engine.run(Length::Time(warmup))?;
        engine.begin();
        let (rounds_before, visits_before) = present(&engine);
        engine.run(if in_rounds { Length::Rounds(200) } else { Length::Time(150.0) })?;
        let (rounds_after, visits_after) = present(&engine);
        let observed = engine.end();

        for (index, visits) in observed.visits.iter().enumerate() {
            let (before, after) = (visits_before[index], visits_after[index]);
            prop_assert_eq!(visits.present, after.number);
            let arrived = u64::from(before.number) + visits.came;
            prop_assert_eq!(arrived, u64::from(after.number) + visits.went);
            let stays = visits.stay + after.age - before.age;
            prop_assert!(
                (visits.area - stays).abs() <= 1e-9 * (1.0 + visits.stay + before.age),
                "area {}, stays {}", visits.area, stays
            );
        }
        for (class, rounds) in observed.rounds.iter().enumerate() {
            let ended = rounds.completed + rounds.lost;
            let begun = u64::from(rounds_before[class].number) + rounds.begun;
            prop_assert_eq!(begun, u64::from(rounds_after[class].number) + ended);
            let counted: f64 = rounds.histogram.buckets().map(|[_, _, count]| count).sum();
            prop_assert_eq!(counted, rounds.completed as f64);
            if let Source::Closed { population, .. } = model.classes[class].source {
                prop_assert!(rounds_after[class].number <= population);
            }
        }
        let lost: u64 = observed.rounds.iter().map(|rounds| rounds.lost).sum();
        if model.stations.iter().all(|station| station.places == u32::MAX) {
            prop_assert_eq!(lost, 0);
        }
        for (station, &busy) in model.stations.iter().zip(&observed.busy) {
            let most = match station.service {
                Service::Delay => 0.0,
                Service::Servers(servers) | Service::Sharing(servers) => f64::from(servers),
                Service::Varying(_) => 1.0,
            };
            prop_assert!(busy >= 0.0 && busy <= most * observed.duration * (1.0 + 1e-12));
        }
    }

    /// A station with the constant speed 1 equals one server, because both draw the same times.
    #[test]
    fn constant_speed_is_a_single_server(seed: u64, time in time()) {
        let source = || Source::Closed { population: 5, think: exponential(3.0) };
        let varying = Station::new(Service::Varying(vec![1.0]), u32::MAX);
        let observe = |station| {
            let model = in_order(vec![station], vec![vec![0]], source(), time.clone());
            let mut engine = engine(&model, seed);
            engine.run(Length::Rounds(300)).expect("it ends");
            engine.end()
        };
        let (one, other) = (observe(queue(1)), observe(varying));
        prop_assert!((one.visits[0].stay / other.visits[0].stay - 1.0).abs() < 1e-9);
        prop_assert!((one.duration / other.duration - 1.0).abs() < 1e-9);
    }
}

/// Two customers, constant times, and a station that is twice as fast with two customers. The expected numbers are
/// computed by hand.
#[test]
fn service_continues_at_the_current_speed() {
    let station = Station::new(Service::Varying(vec![1.0, 2.0]), u32::MAX);
    let constant = |mean| Time { mean, shape: Shape::Deterministic };
    let source = Source::Closed { population: 2, think: constant(0.0) };
    let model = in_order(vec![station], vec![vec![0]], source, constant(1.0));
    let mut engine = engine(&model, 0);
    // Both customers are present from time 0 on, so every 0.5 one leaves and comes back at once.
    engine.run(Length::Rounds(10)).expect("it ends");
    let observed = engine.end();
    assert!((observed.duration - 5.0).abs() < 1e-12);
    // The first customer did not wait and stayed 0.5. The other nine waited for a service, and stayed 1.
    assert!((observed.visits[0].stay - 9.5).abs() < 1e-12);
}

/// Two customers are always present, with services of 1 and 3. A single server gives each customer half its speed; two
/// servers give each customer full speed.
#[test]
fn sharing_serves_every_customer_at_an_equal_speed() {
    let constant = |mean| Time { mean, shape: Shape::Deterministic };
    for (servers, slowdown) in [(1, 2.0), (2, 1.0)] {
        let station = Station::new(Service::Sharing(servers), u32::MAX);
        let source = Source::Closed { population: 1, think: constant(0.0) };
        let mut model = in_order(vec![station], vec![vec![0]], source, constant(1.0));
        model.classes.push(model.classes[0].clone());
        model.classes[1].service[0].mean = 3.0;
        let mut engine = engine(&model, 0);
        engine.run(Length::Time(12.5)).expect("it ends");
        let observed = engine.end();
        for (rounds, service) in observed.rounds.iter().zip([1.0, 3.0]) {
            assert_eq!(rounds.completed as f64, 12.0 / service / slowdown);
            assert!((rounds.response - 12.0).abs() < 1e-9);
        }
        assert!((observed.busy[0] - 12.5 * 2.0 / slowdown).abs() < 1e-9);
    }
}

/// Service takes 1 at the first station and 3 at the second, which has one place. A customer that is done after 1 waits
/// in its server, so that a round takes 3 for each customer.
#[test]
fn customer_keeps_its_server_until_the_next_station_has_a_place() {
    let constant = |mean| Time { mean, shape: Shape::Deterministic };
    let source = Source::Closed { population: 2, think: constant(0.0) };
    let full = Station { is_blocking: true, ..Station::new(Service::Servers(1), 1) };
    let stations = vec![queue(1), full];
    let mut model = in_order(stations, vec![vec![0], vec![1]], source, constant(1.0));
    model.classes[0].service[1].mean = 3.0;
    let mut engine = engine(&model, 0);
    engine.run(Length::Time(4.0)).expect("it ends");
    engine.begin();
    engine.run(Length::Rounds(10)).expect("it ends");
    let observed = engine.end();
    assert_eq!(observed.duration, 30.0);
    assert_eq!(observed.rounds[0].lost, 0);
    // One is always in the second station, and the other one is always in the first or its server.
    assert_eq!(observed.visits.iter().map(|visits| visits.area).collect::<Vec<_>>(), [30.0, 30.0]);
    assert_eq!(observed.busy, [30.0, 30.0]);
}

/// Two stations with a place each, whose customers go to each other's station.
#[test]
fn customers_that_wait_for_each_other_are_an_error() {
    let source = Source::Closed { population: 2, think: exponential(1.0) };
    let full = Station { is_blocking: true, ..Station::new(Service::Servers(1), 1) };
    let mut model =
        in_order(vec![full.clone(), full], vec![vec![0], vec![1]], source, exponential(1.0));
    let ways = vec![vec![(1.0, 1)], vec![(1.0, 2)], vec![(0.5, 1), (0.5, 0)]];
    model.classes[0].route = Route::new(vec![0, 0, 1], ways).expect("a right route");
    assert_eq!(engine(&model, 0).run(Length::Rounds(1_000)), Err(Error::Deadlock));
}

/// Of customers that wait, those of the first level are served first, and in the order of arrival.
#[test]
fn first_level_is_served_first_without_interrupting() {
    let station = Station { levels: vec![1, 0], ..queue(1) };
    let source = Source::Closed { population: 3, think: exponential(1e9) };
    let mut model = in_order(vec![station], vec![vec![0]], source, exponential(1.0));
    model.classes.push(model.classes[0].clone());
    let mut engine = engine(&model, 0);
    // The tokens 0 to 2 are of the second level, 3 to 5 of the first.
    for token in [1, 0, 4, 2, 3, 5] {
        engine.begin_round(token).expect("few customers");
    }
    let served: Vec<u32> =
        std::iter::from_fn(|| (engine.lines[0].first != NONE).then(|| engine.unqueue(0))).collect();
    // The first to come is in service.
    assert_eq!(served, [4, 3, 5, 0, 2]);
    assert_eq!(engine.lines[0].lasts, [NONE, NONE]);
}

#[test]
fn forked_customer_goes_on_after_its_last_sibling() {
    let constant = |mean| Time { mean, shape: Shape::Deterministic };
    let source = Source::Closed { population: 1, think: constant(2.0) };
    let stations = vec![queue(1), queue(1), queue(1)];
    let mut model = in_order(stations, vec![vec![0, 1], vec![2]], source, constant(1.0));
    model.classes[0].service[1].mean = 4.0;
    let mut engine = engine(&model, 1);
    engine.run(Length::Rounds(1)).expect("it ends");
    engine.begin();
    engine.run(Length::Rounds(10)).expect("it ends");
    let observed = engine.end();
    // Each round takes max(1, 4) + 1 and a think time of 2.
    assert!((observed.rounds[0].response - 50.0).abs() < 1e-9);
    assert!((observed.duration - 70.0).abs() < 1e-9);
    assert!((observed.visits[0].stay - 10.0).abs() < 1e-9);
}

/// A round with a refused sibling is lost after the other siblings are done.
#[test]
fn round_with_a_refused_sibling_is_lost() {
    let constant = |mean| Time { mean, shape: Shape::Deterministic };
    let source = Source::Open { between: constant(1.0) };
    let full = Station::new(Service::Servers(1), 1);
    let mut model = in_order(vec![queue(1), full], vec![vec![0, 1]], source, constant(0.5));
    model.classes[0].service[1].mean = 1.5;
    let mut engine = engine(&model, 3);
    engine.run(Length::Time(1000.25)).expect("it ends");
    let observed = engine.end();
    // The second station accepts every other customer; the first station accepts all.
    assert!(observed.rounds[0].completed.abs_diff(500) <= 1);
    assert!(observed.rounds[0].lost.abs_diff(500) <= 1);
    assert_eq!(observed.visits[1].refused + observed.visits[1].came, observed.visits[0].came);
    assert_eq!(observed.visits[0].refused, 0);
}

/// With its event, a customer takes 64 bytes: a million clients take 64 MB, as docs/methods/simulation.md says.
#[test]
fn customer_is_small() {
    assert_eq!(size_of::<Token>(), 48);
}

#[test]
fn tokens_of_gone_customers_are_reused() {
    let source = Source::Open { between: exponential(1.0) };
    let model = in_order(vec![queue(1), queue(1)], vec![vec![0, 1]], source, exponential(0.5));
    let mut engine = engine(&model, 3);
    engine.run(Length::Rounds(50_000)).expect("it ends");
    // Some 2 customers and 4 siblings are present at a time; 150,000 tokens were taken.
    assert!(engine.tokens.len() < 200, "{}", engine.tokens.len());
}

#[test]
fn interrupted_replication_is_an_error() {
    let source = Source::Open { between: exponential(1.0) };
    let model = in_order(vec![queue(1)], vec![vec![0]], source, exponential(0.5));
    let cancelled = AtomicBool::new(true);
    let mut engine = Engine::new(&model, Random::stream(0, 0), false, &cancelled).expect("few");
    assert_eq!(engine.run(Length::Time(1.0)), Err(Error::Interrupted));
}

/// The station has one place, and a service takes 3000 interarrival times. So one customer in 3000 is served.
#[test]
fn nearly_all_rounds_lost_is_an_error() {
    let constant = |mean| Time { mean, shape: Shape::Deterministic };
    let model = |service| {
        let full = Station::new(Service::Servers(1), 1);
        let source = Source::Open { between: constant(1.0) };
        in_order(vec![full], vec![vec![0]], source, constant(service))
    };
    let model_3000 = model(3000.0);
    let Err(Error::Lost { lost, completed }) = engine(&model_3000, 1).run(Length::Rounds(2000))
    else {
        panic!("the run did not end at the limit of lost rounds");
    };
    assert!((2_000_000..2_010_000).contains(&lost), "{lost}");
    assert_eq!(completed, lost / 2999);
    // These runs end: up to a million rounds may be lost in any case, and a time always passes.
    engine(&model_3000, 1).run(Length::Rounds(300)).expect("less than a million are lost");
    engine(&model_3000, 1).run(Length::Time(3e6)).expect("time passes");
    let model_900 = model(900.0);
    engine(&model_900, 1).run(Length::Rounds(2000)).expect("not so many are lost");
}
