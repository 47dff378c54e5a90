//! `knee-kv graph` and `knee-kv load`: a synthetic list.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::program::{KV, Program, is_progress, refused, talk, wait};

/// A directory, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("knee-kv-graph-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Directory(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs `knee-kv` to its end. Returns its standard error without the lines of progress.
fn said(flags: &[&str], code: i32) -> String {
    let Output { status, stdout, stderr } = refused(KV, flags);
    let errors = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(code), "{flags:?}: {errors}");
    assert!(stdout.is_empty());
    errors.split_inclusive('\n').filter(|line| !is_progress(line)).collect()
}

fn made<'a>(users: &'a str, largest: &'a str, file: &'a str) -> [&'a str; 8] {
    ["graph", "--users", users, "--largest", largest, "--seed", "5", file]
}

#[test]
fn graph_is_made_loaded_and_served() {
    let directory = Directory::new();
    let (list, data) = (directory.path("list.txt"), directory.path("data"));
    let errors = said(&made("3000", "400", &list), 0);
    let text = fs::read_to_string(&list).unwrap();
    let edges = text.lines().count();
    assert_eq!(errors, format!("knee-kv: wrote {edges} edges\n"));
    assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 1, "nothing else is left");
    let mut followers = std::collections::BTreeMap::<&str, String>::new();
    for line in text.lines() {
        let (user, follower) = line.split_once('\t').unwrap();
        *followers.entry(user).or_default() += &format!("{follower}\n");
    }
    let (most, value) = followers.iter().max_by_key(|(_, value)| value.lines().count()).unwrap();
    assert_eq!(value.lines().count(), 400);
    let errors = said(&made("3000", "400", &list), 1);
    assert_eq!(
        errors,
        format!("knee-kv: cannot write {list}: the file exists; name another file\n")
    );
    let other = directory.path("other.txt");
    said(&made("3000", "400", &other), 0);
    assert!(fs::read_to_string(&other).unwrap() == text, "the same arguments make the same graph");
    let steeper = directory.path("steeper.txt");
    let flags = made("3000", "400", &steeper);
    said(&[&flags[..7], &["--exponent", "1.9", &steeper]].concat(), 0);
    assert!(fs::read_to_string(&steeper).unwrap().lines().count() < edges / 3);

    // A start reads all segments: small ones are read in time on a busy machine.
    let small = ["--memory-mb", "64", "--value-bytes-max", "1048576", "--data", &data];
    let load = [&["load"][..], &small[..], &[list.as_str()][..]].concat();
    let begin = format!("knee-kv: loaded {list}: {edges} edges in {edges} lines");
    let errors = said(&load, 0);
    assert!(errors.starts_with(&format!("{begin}, 100.0 %, ")), "{errors}");
    let errors = said(&load, 0);
    assert!(
        errors.starts_with(&format!("{begin}, {edges} of them by earlier loads, 100.0 %")),
        "{errors}"
    );
    let served = Program::serve(KV, &small);
    let answer = format!("VALUE {most} 0 {}\r\n{value}\r\nEND\r\n", value.len());
    let found = talk(&mut served.connect(), format!("get {most}\r\n").as_bytes(), b"END\r\n");
    assert!(found == answer.as_bytes());
    let errors = said(&load, 1);
    assert!(errors.contains("another store has it open"), "{errors}");
}

#[test]
fn load_that_was_ended_resumes() {
    let directory = Directory::new();
    let (list, data) = (directory.path("list.txt"), directory.path("data"));
    said(&made("200000", "20000", &list), 0);
    let edges = fs::read_to_string(&list).unwrap().lines().count();
    let load = ["load", "--data", &data, &list];
    let mut child = Command::new(KV).args(load).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
    // A line of progress comes once a second: by then the load is running, or done.
    let first = errors.next().unwrap().unwrap();
    if first.starts_with("knee-kv: loading") {
        // SAFETY: kill takes two numbers; the process is our child, and was not waited for.
        assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) }, 0);
        let last = errors.map(|line| line.unwrap()).last().unwrap();
        if wait(&mut child) != Some(0) {
            let expected = format!("knee-kv: {list}: ended early; the same command resumes it");
            assert_eq!(last, expected);
        }
    } else {
        assert_eq!(wait(&mut child), Some(0));
    }
    let errors = said(&load, 0);
    assert!(
        errors.contains(&format!("loaded {list}: {edges} edges in {edges} lines, ")),
        "{errors}"
    );
    assert!(errors.contains(" of them by earlier loads, 100.0 %"), "{errors}");
}

#[test]
fn wrong_list_or_graph_is_refused_with_the_reason() {
    let directory = Directory::new();
    let [list, data, x] = ["list.txt", "data", "x"].map(|name| directory.path(name));
    fs::write(&list, "1\t2\n\n3;4\n").unwrap();
    let exponent = [&made("10", "5", &x)[..7], &["--exponent", "1", &x]].concat();
    let rows: [(&[&str], i32, &str); 8] = [
        (&exponent, 2, "not finite, or not more than 1"),
        (&["load", "--data", &data, &list], 1, "list.txt: line 3: expected a tab or blank"),
        (&["load", "--data", &data, "/nowhere/list"], 1, "cannot read /nowhere/list: No such file"),
        (&["load", "--data", &data], 2, "<FILE>"),
        (&["load", &list], 2, "--data <DIR>"),
        (&made("10", "10", &x), 2, "would need 10 followers"),
        (&made("10", "0", &x), 2, "--largest"),
        (&made("10", "5", "/nowhere/list"), 1, "cannot write /nowhere/list: No such file"),
    ];
    for (flags, code, expected) in rows {
        let errors = said(flags, code);
        assert!(errors.contains(expected), "{flags:?}: {errors}");
    }
    assert!(!fs::exists(x).unwrap());
}
