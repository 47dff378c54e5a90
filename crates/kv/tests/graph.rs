//! Loads of edge lists: cut off anywhere, resumed, and compared with the list.

use std::fs;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, Ordering};

use knee_kv_cache::engine::{Engine, Expiry};
use knee_kv_store::{Action, Condition, Consistency, Items, Store, StoreOptions, Write};

use crate::harness::graph::{
    Directory, Followers, NOW, followers, named, on, open, options, stored, text,
};
use knee_kv::graph::{
    Edge, EdgeReader, LoadError, LoadOptions, MARK_PREFIX, Progress, SyntheticGraph, load,
};
use proptest::prelude::*;

fn in_memory() -> Store {
    Store::in_memory(options(Consistency::Linearizable), 1 << 30).expect("memory")
}

/// Copies the files of a directory, as a crash would leave them now.
fn copy(directory: &Directory) -> Directory {
    let copy = Directory::new();
    fs::create_dir(&copy.0).expect("it can be made");
    for entry in fs::read_dir(&directory.0).expect("it is there") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), copy.0.join(entry.file_name())).expect("it can be copied");
    }
    copy
}

/// An input that fails after some bytes.
struct CutOff<'a>(&'a [u8], usize);

impl Read for CutOff<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.1 == 0 {
            return Err(io::Error::other("cut off"));
        }
        let most = buffer.len().min(self.1);
        let read = self.0.read(&mut buffer[..most])?;
        self.1 -= read;
        Ok(read)
    }
}

fn any_edges() -> impl Strategy<Value = Vec<Edge>> {
    let edge = (0..12_u64, any::<u16>());
    let edges = proptest::collection::vec(edge, 0..200).prop_map(|edges| {
        edges.into_iter().map(|(user, f)| Edge { user, follower: f.into() }).collect::<Vec<_>>()
    });
    // Grouped by user as usual, or not at all.
    (edges, any::<bool>()).prop_map(|(mut edges, grouped)| {
        if grouped {
            edges.sort_by_key(|edge| edge.user);
        }
        edges
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8 * knee_testkit::soak(), ..ProptestConfig::default() })]

    #[test]
    fn load_after_cuts_neither_loses_nor_doubles_an_edge(
        edges in any_edges(),
        commit_edges in 1..40_usize,
        cuts in proptest::collection::vec((any::<bool>(), any::<proptest::sample::Index>()), 0..6),
        by_key: bool,
    ) {
        let (directory, list) = (Directory::new(), text(&edges));
        let consistency = if by_key { Consistency::Sequential } else { Consistency::Linearizable };
        let mut safe = 0;
        for (in_reading, cut) in cuts {
            let store = open(&directory.0, consistency);
            if in_reading {
                // Within the edges that are read again, or behind them.
                let input = CutOff(&list, cut.index(list.len() + 1));
                let on_commit = |progress: &Progress| {
                    safe = progress.position.edges;
                    ControlFlow::Continue(())
                };
                let _ = load(&store, input, &named("list", commit_edges), on_commit);
            } else {
                let mut left = cut.index(5);
                let on_commit = |progress: &Progress| {
                    safe = progress.position.edges;
                    left = left.saturating_sub(1);
                    if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                };
                load(&store, &list[..], &named("list", commit_edges), on_commit)
                    .expect("it is a list");
            }
        }
        let store = open(&directory.0, consistency);
        let done = load(&store, &list[..], &named("list", commit_edges), on).expect("it is a list");
        prop_assert!(done.resumed.edges >= safe, "a safe edge is lost");
        prop_assert_eq!(done.position.edges, edges.len() as u64);
        prop_assert_eq!(done.position.bytes, list.len() as u64);
        prop_assert_eq!(stored(&store), followers(&edges));
        // Another load finds nothing to do.
        let again = load(&store, &list[..], &named("list", commit_edges), on).expect("it is a list");
        prop_assert_eq!(again.resumed, done.position);
        prop_assert_eq!(stored(&store), followers(&edges));
    }

    #[test]
    fn load_after_a_crash_resumes_at_its_last_commit(
        edges in any_edges(), commit_edges in 1..40_usize, at: proptest::sample::Index,
    ) {
        let (directory, list) = (Directory::new(), text(&edges));
        let store = open(&directory.0, Consistency::Linearizable);
        let mut left = at.index(edges.len() / commit_edges + 1) + 1;
        let mut crashed = None;
        load(&store, &list[..], &named("list", commit_edges), |progress| {
            left = left.saturating_sub(1);
            if left == 0 && crashed.is_none() {
                crashed = Some((copy(&directory), progress.position));
            }
            ControlFlow::Continue(())
        }).expect("it is a list");
        let (copy, position) = crashed.expect("there are as many commits");
        let store = open(&copy.0, Consistency::Linearizable);
        let done = load(&store, &list[..], &named("list", commit_edges), on).expect("it is a list");
        prop_assert_eq!(done.resumed, position);
        prop_assert_eq!(stored(&store), followers(&edges));
    }
}

#[test]
fn load_that_loses_its_mark_ends_as_cleared() {
    let list: String = (0..100).map(|follower| format!("1\t{follower}\n")).collect();
    for flushes in [true, false] {
        let store = in_memory();
        let mut items = Items::new(store.clone());
        let mut commits = 0;
        let loaded = load(&store, list.as_bytes(), &named("list", 10), |_| {
            commits += 1;
            if commits == 3 && flushes {
                items.clear(NOW, NOW).expect("it is taken");
            } else if commits == 3 {
                let key = format!("{MARK_PREFIX}list");
                let write = Write {
                    key: key.as_bytes(),
                    condition: Condition::Always,
                    action: Action::Delete,
                };
                store.write(&[write], None, NOW).expect("it is taken");
            }
            ControlFlow::Continue(())
        });
        assert!(matches!(loaded, Err(LoadError::Cleared)), "{loaded:?}");
        assert_eq!(commits, 3);
    }
}

#[test]
fn load_that_outlasts_a_value_does_not_append_to_it() {
    static CLOCK: AtomicU32 = AtomicU32::new(1);
    let store = in_memory();
    let action = Action::Put { flags: 0, expiry: Expiry::at(10), marks: 0, value: b"3\n" };
    let write = Write { key: b"1", condition: Condition::Always, action };
    store.write(&[write], None, 1).expect("it is taken");
    let options = LoadOptions { now: || CLOCK.load(Ordering::Relaxed), ..named("list", 1) };
    let loaded = load(&store, &b"2\t4\n1\t5\n"[..], &options, |_| {
        CLOCK.store(20, Ordering::Relaxed);
        ControlFlow::Continue(())
    });
    loaded.expect("it is a list");
    let mut value = Vec::new();
    let shown = store.read(b"1", 20, |piece| {
        value.extend_from_slice(piece);
        true
    });
    assert!(shown.expect("nothing is damaged").found.is_some(), "it ended with what was there");
    assert_eq!(value, b"5\n");
}

#[test]
fn followers_beyond_a_segment_and_two_lists_are_loaded_whole() {
    let segment_bytes = 128 << 10;
    let options = StoreOptions { segment_bytes, ..options(Consistency::Linearizable) };
    let store = Store::in_memory(options, 1 << 30).expect("memory");
    let graph = SyntheticGraph::new(150_000, 120_000, 1.3, 5).expect("there is one");
    assert!(graph.followers_of_rank(1) > 100_000);
    let mut list = Vec::new();
    graph.write_to(&mut list).expect("memory takes it");
    let mut commits = 0;
    let done = load(&store, &list[..], &named("one", 5_000), |_| {
        commits += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(done.expect("it is a list").position.edges, 120_000);
    assert_eq!(commits, 120_000 / 5_000 + 1);
    let expected = followers(&graph.edges().collect::<Vec<_>>());
    assert!(stored(&store) == expected);
    // A second list adds to the first.
    load(&store, &b"# more\r\n\r\n7 8\r\n"[..], &named("other", 10), on).expect("it is a list");
    assert_eq!(stored(&store)[&7].last(), Some(&8));
}

#[test]
fn load_stopped_by_a_wrong_line_resumes_once_it_is_right() {
    let store = in_memory();
    let error = load(&store, &b"1 2\n1 3\n4\n5 6\n"[..], &named("list", 1), on);
    let Err(LoadError::Line(error)) = error else { panic!("{error:?}") };
    assert_eq!((error.line, &error.expected[..24]), (3, "the number of a follower"));
    assert_eq!(stored(&store), Followers::from([(1, vec![2, 3])]));
    let right = b"1 2\n1 3\n4 5\n5 6\n";
    let done = load(&store, &right[..], &named("list", 1), on).expect("it is right");
    assert_eq!(done.resumed.lines, 2);
    assert_eq!(stored(&store), Followers::from([(1, vec![2, 3]), (4, vec![5]), (5, vec![6])]));
}

#[test]
fn other_list_of_a_known_name_is_refused() {
    let store = in_memory();
    load(&store, &b"1 2\n3 4\n"[..], &named("list", 10), on).expect("it is a list");
    for other in [&b"1 2\n3 5\n6 7\n"[..], b"1 2\n", b""] {
        let error = load(&store, other, &named("list", 10), on).expect_err("it is another list");
        assert!(matches!(error, LoadError::Changed(_)), "{error}");
    }
    // A list that has only grown is accepted.
    load(&store, &b"1 2\n3 4\n1 5\n"[..], &named("list", 10), on).expect("it begins with it");
    assert_eq!(stored(&store), Followers::from([(1, vec![2, 5]), (3, vec![4])]));
}

#[test]
fn load_overtaken_by_another_of_its_name_is_refused() {
    for consistency in [Consistency::Linearizable, Consistency::Sequential] {
        let store = Store::in_memory(options(consistency), 1 << 28).expect("memory");
        let list = b"1 2\n3 4\n5 6\n7 8\n";
        let mut once = false;
        let error = load(&store, &list[..], &named("list", 1), |_| {
            if !std::mem::replace(&mut once, true) {
                load(&store, &list[..], &named("list", 2), on).expect("the other load pauses");
            }
            ControlFlow::Continue(())
        });
        assert!(matches!(error, Err(LoadError::Concurrent)), "{error:?}");
        let mut reader = EdgeReader::new(&list[..]);
        let mut edges = Vec::new();
        while let Some(edge) = reader.next_edge().expect("it is a list") {
            edges.push(edge);
        }
        assert_eq!(stored(&store), followers(&edges));
    }
}

#[test]
fn load_with_a_spoilt_mark_or_too_large_a_value_is_refused() {
    let small = StoreOptions { value_bytes_max: 1000, ..options(Consistency::Linearizable) };
    let store = Store::in_memory(small, 1 << 28).expect("memory");
    let list: String = (0..400).map(|follower| format!("9 {follower}\n")).collect();
    let error = load(&store, list.as_bytes(), &named("list", 50), on).expect_err("it is too large");
    assert!(matches!(error, LoadError::TooLarge(9)), "{error}");
    let action = Action::Append(b"?");
    let mark = format!("{MARK_PREFIX}list");
    let write = Write { key: mark.as_bytes(), condition: Condition::Always, action };
    store.write(&[write], None, NOW).expect("it is taken");
    let error = load(&store, list.as_bytes(), &named("list", 50), on).expect_err("no mark");
    assert!(matches!(error, LoadError::Mark), "{error}");
}
