//! Loads that are killed: the reported edges are stored, and no edge is half stored.

use std::fs;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use knee_kv_store::Consistency;

use crate::harness::graph::{Directory, NOW, followers, named, on, open, stored, text};
use knee_kv::graph::{Edge, MARK_PREFIX, SyntheticGraph, load};

const KILLED_EDGES: u64 = 40_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// The number of kills: `KNEE_KILLS`, or a few.
fn kills() -> u64 {
    std::env::var("KNEE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(4)
}

fn killed_graph() -> Vec<Edge> {
    SyntheticGraph::new(5000, KILLED_EDGES, 2.6, 11).expect("there is one").edges().collect()
}

/// The process that [`killed_load_resumes`] kills.
#[test]
#[ignore = "is no test of its own"]
fn loading_until_killed() {
    let path = PathBuf::from(std::env::var_os("KNEE_LOAD_INTO").expect("a directory"));
    let store = open(&path.join("store"), Consistency::Linearizable);
    let mut reported = fs::OpenOptions::new().append(true).create(true).open(path.join("reported"));
    let reported = reported.as_mut().expect("it can be written");
    let done = load(&store, &text(&killed_graph())[..], &named("list", 20), |progress| {
        // A kill does not interrupt a single system call.
        let line = format!("{}\n", progress.position.edges);
        reported.write_all(line.as_bytes()).expect("it can be written");
        ControlFlow::Continue(())
    });
    done.expect("it is a list");
}

/// The bytes of the reports so far.
fn reported_bytes(directory: &Directory) -> u64 {
    fs::metadata(directory.0.join("reported")).map_or(0, |reported| reported.len())
}

#[test]
fn killed_load_resumes() {
    let (directory, edges) = (Directory::new(), killed_graph());
    fs::create_dir(&directory.0).expect("it can be made");
    let mut amid = 0;
    for kill in 0..kills() {
        let mut loading = Command::new(std::env::current_exe().expect("this program"))
            .args(["graph_killed::loading_until_killed", "--exact", "--ignored"])
            .env("KNEE_LOAD_INTO", &directory.0)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        // Some kills come while the load rereads stored edges, most while it stores new ones.
        if kill % 4 != 3 {
            let (grown, begun) = (reported_bytes(&directory), Instant::now());
            while reported_bytes(&directory) == grown && loading.try_wait().expect("ours").is_none()
            {
                assert!(begun.elapsed() < PATIENCE, "nothing is loaded");
                thread::sleep(Duration::from_millis(1));
            }
        }
        thread::sleep(Duration::from_millis(kill * 37 % 100));
        loading.kill().expect("it is ours");
        loading.wait().expect("it ends");
        let reported = fs::read_to_string(directory.0.join("reported")).unwrap_or_default();
        let reported: u64 =
            reported.lines().last().map_or(0, |line| line.parse().expect("a number"));
        let store = open(&directory.0.join("store"), Consistency::Linearizable);
        let mut mark = Vec::new();
        let key = format!("{MARK_PREFIX}list");
        let shown = store.read(key.as_bytes(), NOW, |piece| {
            mark.extend_from_slice(piece);
            true
        });
        let loaded = shown.expect("nothing is damaged").found.map_or(0, |_| {
            let mark: serde_json::Value = serde_json::from_slice(&mark).expect("a mark");
            mark["edges"].as_u64().expect("a number")
        });
        assert!(loaded >= reported, "{reported} edges were reported, {loaded} are there");
        assert!(stored(&store) == followers(&edges[..loaded as usize]), "after kill {kill}");
        amid += u64::from(loaded > 0 && loaded < KILLED_EDGES);
        if loaded == KILLED_EDGES {
            // The next load begins from the start.
            drop(store);
            fs::remove_dir_all(&directory.0).expect("it can be removed");
            fs::create_dir(&directory.0).expect("it can be made");
        }
    }
    assert!(amid > 0, "no kill came amid a load");
    let store = open(&directory.0.join("store"), Consistency::Linearizable);
    load(&store, &text(&edges)[..], &named("list", 1000), on).expect("it is a list");
    assert!(stored(&store) == followers(&edges));
}
