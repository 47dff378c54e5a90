//! Graphs as skewed as Twitter's.

use std::io::{self, Write};

use knee_proto::encode;

use super::edges::Edge;

const BUFFER_BYTES: usize = 64 << 10;

/// A graph in which few users have very many followers: the probability of k followers is proportional to
/// k^−exponent.
///
/// Then the share of rank r is proportional to r^−θ with θ = 1/(exponent − 1) (Adamic & Huberman, "Zipf's law and the
/// Internet", Glottometrics 3, 2002). Kwak et al. (WWW 2010) found an exponent of 2.276 among 41.7 million users with
/// 1.47 billion edges. Here the share of rank r is the integral of x^−θ from r − ½ to r + ½. Rounding keeps the number
/// of edges exact, and takes no memory. Strides through all users, which the seed chooses, give ranks to users and
/// followers to each user. Followers differ from each other and from the user.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SyntheticGraph {
    users: u64,
    edges: u64,
    theta: f64,
    seed: u64,
    /// Maps a user's number to the rank.
    ranks: Stride,
}

/// Why there is no such graph.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Impossible {
    /// The exponent is not finite, or not more than 1.
    Exponent(f64),
    /// Edges need two users.
    TooFewUsers(u64),
    /// The user of rank 1 would need this number of followers, more than there are users.
    TooManyEdges(u64),
}

impl std::fmt::Display for Impossible {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Impossible::Exponent(exponent) => {
                write!(f, "exponent {exponent}: not finite, or not more than 1")
            }
            Impossible::TooFewUsers(users) => write!(f, "{users} users: a graph needs at least 2"),
            Impossible::TooManyEdges(followers) => write!(
                f,
                "the first user would need {followers} followers, more than there are users: take \
                 fewer edges, more users or a larger exponent"
            ),
        }
    }
}

impl std::error::Error for Impossible {}

impl SyntheticGraph {
    /// A graph of the users 1..=`users` with `edges`. The same arguments give the same graph.
    ///
    /// # Errors
    /// See [`Impossible`].
    pub fn new(
        users: u64,
        edges: u64,
        exponent: f64,
        seed: u64,
    ) -> Result<SyntheticGraph, Impossible> {
        if !(exponent.is_finite() && exponent > 1.0) {
            return Err(Impossible::Exponent(exponent));
        }
        if users < 2 {
            return Err(Impossible::TooFewUsers(users));
        }
        let ranks = Stride::new(users, mix(seed));
        let theta = 1.0 / (exponent - 1.0);
        let graph = SyntheticGraph { users, edges, theta, seed, ranks };
        let most = graph.followers_of_rank(1);
        if most >= users { Err(Impossible::TooManyEdges(most)) } else { Ok(graph) }
    }

    /// A graph in which the user of rank 1 has `largest` followers.
    ///
    /// # Errors
    /// See [`Impossible`].
    pub fn with_largest(
        users: u64,
        largest: u64,
        exponent: f64,
        seed: u64,
    ) -> Result<SyntheticGraph, Impossible> {
        let none = SyntheticGraph::new(users, 0, exponent, seed)?;
        let edges = (largest as f64 / none.share_up_to(1)).round() as u64;
        SyntheticGraph::new(users, edges, exponent, seed)
    }

    /// The number of edges.
    pub fn count(&self) -> u64 {
        self.edges
    }

    /// Number of followers of the user of this rank, counted from 1.
    pub fn followers_of_rank(&self, rank: u64) -> u64 {
        self.edges_up_to(rank) - self.edges_up_to(rank - 1)
    }

    /// Number of followers of this user.
    pub fn followers(&self, user: u64) -> u64 {
        self.followers_of_rank(self.ranks.at(user) + 1)
    }

    fn edges_up_to(&self, rank: u64) -> u64 {
        if rank >= self.users {
            return self.edges;
        }
        ((self.edges as f64 * self.share_up_to(rank)).round() as u64).min(self.edges)
    }

    fn share_up_to(&self, rank: u64) -> f64 {
        area(self.theta, rank as f64 + 0.5) / area(self.theta, self.users as f64 + 0.5)
    }

    /// The edges, grouped by user.
    pub fn edges(&self) -> impl Iterator<Item = Edge> + use<> {
        let graph = *self;
        (1..=graph.users).flat_map(move |user| {
            let strides = Stride::new(graph.users, mix(mix(graph.seed ^ user)));
            (0..)
                .map(move |index| strides.at(index) + 1)
                .filter(move |&follower| follower != user)
                .take(graph.followers(user) as usize)
                .map(move |follower| Edge { user, follower })
        })
    }

    /// Writes the graph as a text that [`EdgeReader`](super::EdgeReader) reads.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_to(&self, mut out: impl Write) -> io::Result<()> {
        let mut text = Vec::with_capacity(BUFFER_BYTES);
        for edge in self.edges() {
            encode::number(edge.user, &mut text);
            text.push(b'\t');
            encode::number(edge.follower, &mut text);
            text.push(b'\n');
            if text.len() > BUFFER_BYTES - 64 {
                out.write_all(&text)?;
                text.clear();
            }
        }
        out.write_all(&text)?;
        out.flush()
    }
}

/// The integral of x^−θ from ½ to `x`.
fn area(theta: f64, x: f64) -> f64 {
    let power = 1.0 - theta;
    if power.abs() < 1e-9 { (2.0 * x).ln() } else { (x.powf(power) - 0.5_f64.powf(power)) / power }
}

/// A permutation of the numbers below a bound, in steps that are coprime to the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stride {
    bound: u64,
    start: u64,
    step: u64,
}

impl Stride {
    fn new(bound: u64, seed: u64) -> Stride {
        let mut step = mix(seed) % bound;
        while greatest_common_divisor(step, bound) != 1 {
            step = (step + 1) % bound;
        }
        Stride { bound, start: mix(!seed) % bound, step }
    }

    fn at(self, index: u64) -> u64 {
        let far = u128::from(index) * u128::from(self.step) + u128::from(self.start);
        (far % u128::from(self.bound)) as u64
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// SplitMix64's finalizer (Steele, Lea & Flood, OOPSLA 2014; Stafford's variant 13).
fn mix(bits: u64) -> u64 {
    let bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// Users, edges and exponent of Twitter's graph (Kwak et al.).
    const TWITTER: (u64, u64, f64) = (41_700_000, 1_470_000_000, 2.276);

    #[test]
    fn twitters_graph_has_users_with_millions_of_followers() {
        let (users, edges, exponent) = TWITTER;
        let graph = SyntheticGraph::new(users, edges, exponent, 1).expect("a graph");
        let beyond_a_million = (1..).take_while(|&r| graph.followers_of_rank(r) > 1_000_000);
        let beyond_a_million = beyond_a_million.count();
        assert!((5..100).contains(&beyond_a_million), "{beyond_a_million}");
        assert!(graph.followers_of_rank(1) < users / 2);
    }

    /// The maximum-likelihood exponent of the tail of at least `least` followers, and its standard error (Clauset,
    /// Shalizi & Newman, SIAM Review 51:4, 2009, equations 3.7 and 3.6).
    fn exponent(followers: &[u64], least: u64) -> (f64, f64) {
        let tail: Vec<f64> = followers.iter().filter(|&&k| k >= least).map(|&k| k as f64).collect();
        let logs: f64 = tail.iter().map(|k| (k / (least as f64 - 0.5)).ln()).sum();
        let n = tail.len() as f64;
        (1.0 + n / logs, (n / logs) / n.sqrt())
    }

    #[test]
    fn tail_has_the_exponent() {
        for asked in [2.0, 2.276, 3.0] {
            let graph = SyntheticGraph::new(200_000, 2_000_000, asked, 7).expect("a graph");
            let mut followers = vec![0; 200_001];
            for edge in graph.edges() {
                followers[edge.user as usize] += 1;
            }
            assert_eq!(followers.iter().sum::<u64>(), 2_000_000);
            let (found, error) = exponent(&followers, 20);
            assert!(error < 0.03, "{asked}: the tail is too short: ± {error}");
            assert!((found - asked).abs() < 3.0 * error, "{asked}: found {found} ± {error}");
        }
    }

    #[test]
    fn followers_and_popular_users_are_spread_evenly() {
        let graph = SyntheticGraph::new(100_000, 1_000_000, 2.276, 3).expect("a graph");
        let (mut follows, mut popular) = ([0_u64; 100], [0_u64; 10]);
        for edge in graph.edges() {
            follows[(edge.follower - 1) as usize / 1000] += 1;
        }
        // Chi-squared with 99 degrees of freedom: 148 is its quantile 0.999.
        let distance: f64 = follows.iter().map(|&n| (n as f64 - 10_000.0).powi(2) / 10_000.0).sum();
        assert!(distance < 148.0, "{distance}");
        for user in 1..=100_000 {
            popular[(user - 1) as usize / 10_000] += u64::from(graph.followers(user) > 50);
        }
        let mean = popular.iter().sum::<u64>() / 10;
        assert!(
            mean > 100 && popular.iter().all(|n| (mean / 2..mean * 2).contains(n)),
            "{popular:?}"
        );
    }

    #[test]
    fn most_popular_user_has_the_exact_followers() {
        for (users, largest) in [(2, 1), (1000, 1), (1000, 999), (41_700_000, 2_997_469)] {
            let graph = SyntheticGraph::with_largest(users, largest, 2.276, 1).expect("a graph");
            assert_eq!(graph.followers_of_rank(1), largest, "{users} users");
        }
        // The exponent gives the number of edges.
        for (exponent, millions) in [(2.276, 102.9), (2.0, 16.0), (1.9, 8.4)] {
            let graph =
                SyntheticGraph::with_largest(1_200_001, 1_200_000, exponent, 1).expect("a graph");
            assert_eq!(graph.followers_of_rank(1), 1_200_000, "{exponent}");
            assert!((graph.count() as f64 / 1e6 - millions).abs() < 0.05, "{}", graph.count());
        }
        let refused = SyntheticGraph::with_largest(1000, 1000, 2.276, 1);
        assert_eq!(refused, Err(Impossible::TooManyEdges(1000)));
    }

    #[test]
    fn impossible_graph_is_refused() {
        let new = |users, edges, exponent| SyntheticGraph::new(users, edges, exponent, 0);
        assert!(matches!(new(10, 5, 1.0), Err(Impossible::Exponent(_))));
        assert!(matches!(new(10, 5, f64::NAN), Err(Impossible::Exponent(_))));
        assert_eq!(new(1, 0, 2.0), Err(Impossible::TooFewUsers(1)));
        assert!(matches!(new(10, 80, 2.0), Err(Impossible::TooManyEdges(10..))));
    }

    proptest! {
        #[test]
        fn edges_are_exact_in_number_and_distinct(
            users in 2..300_u64, tenths in 1..30_u64, exponent in 1.5..6.0_f64, seed: u64,
        ) {
            let edges = users * tenths / 10;
            let Ok(graph) = SyntheticGraph::new(users, edges, exponent, seed) else { return Ok(()) };
            let all: Vec<Edge> = graph.edges().collect();
            prop_assert_eq!(all.len() as u64, edges);
            prop_assert_eq!(all.iter().collect::<HashSet<_>>().len() as u64, edges);
            let inside = |user: u64| (1..=users).contains(&user);
            prop_assert!(all.iter().all(|edge| edge.user != edge.follower && inside(edge.user) && inside(edge.follower)));
            prop_assert!(all.is_sorted_by_key(|edge| edge.user));
            prop_assert_eq!(&all, &graph.edges().collect::<Vec<_>>());
            let ranked: Vec<u64> = (1..=users).map(|rank| graph.followers_of_rank(rank)).collect();
            // In order, except for rounding.
            prop_assert!(ranked.windows(2).all(|two| two[0] + 1 >= two[1]));
            let mut text = Vec::new();
            graph.write_to(&mut text).expect("writes to memory succeed");
            let mut reader = crate::graph::EdgeReader::new(&text[..]);
            let mut read = Vec::new();
            while let Some(edge) = reader.next_edge().expect("a valid list") {
                read.push(edge);
            }
            prop_assert_eq!(read, all);
        }
    }
}
