//! Random histories, each with one damaged file. The store names the damage or shows all data. After a repair, no older
//! version counts as the current one, and no deleted key is back. `KNEE_SOAK=n` runs n times as many.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use knee_kv_cache::engine::Engine;
use knee_kv_store::{
    Action, Condition, Consistency, DirectoryError, DirectoryOptions, Doubt, Durability, Items,
    ReadError, Report, Store, StoreOptions, UNNAMED, Write,
};
use knee_testkit::soak;

use crate::store::{Directory, put, scanned, set, value, value_at};

const KEYS: usize = 60;

/// Random numbers (xorshift64): every run has the same histories.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// What clients know: the states of each key.
#[derive(Default)]
struct Truth(BTreeMap<Vec<u8>, Vec<State>>);

/// A version and its value.
type State = (u64, Option<Vec<u8>>);

impl Truth {
    fn now(&self, key: &[u8]) -> Option<&Vec<u8>> {
        self.0.get(key).and_then(|states| states.last()).and_then(|(_, value)| value.as_ref())
    }

    fn at(&self, key: &[u8], version: u64) -> Option<&Vec<u8>> {
        let states = self.0.get(key)?;
        let seen = states.iter().rev().find(|(made, _)| *made <= version);
        seen.and_then(|(_, value)| value.as_ref())
    }

    fn note(&mut self, key: &[u8], version: u64, value: Option<Vec<u8>>) {
        self.0.entry(key.to_vec()).or_default().push((version, value));
    }
}

struct Case {
    directory: Directory,
    consistency: Consistency,
    durability: Durability,
    truth: Truth,
    last: u64,
    /// Whether the files with the keys are lost as well.
    is_unlisted: bool,
}

impl Case {
    fn options(&self) -> (StoreOptions, DirectoryOptions) {
        let options = StoreOptions {
            consistency: self.consistency,
            stripes: 4,
            value_bytes_max: 1 << 20,
            segment_bytes: 4096,
        };
        let path = self.directory.0.clone();
        (options, DirectoryOptions { path, durability: self.durability, repair: false })
    }

    fn open(&self, repair: bool) -> Result<(Store, Report), DirectoryError> {
        let (options, directory) = self.options();
        Store::open(options, &DirectoryOptions { repair, ..directory }, 1 << 22)
    }

    fn of(directory: Directory, consistency: Consistency) -> Case {
        let (durability, truth) = (Durability::Always, Truth::default());
        Case { directory, consistency, durability, truth, last: 0, is_unlisted: false }
    }

    /// A history of commits; at its end, the store is closed or killed.
    fn new(seed: u64, random: &mut Random) -> Case {
        let consistency = match random.below(3) {
            0 => Consistency::Sequential,
            _ => Consistency::Linearizable,
        };
        let durability = match random.below(3) {
            0 => Durability::Interval(600_000),
            _ => Durability::Always,
        };
        let directory = Directory::new(&format!("damage-{seed}"));
        let mut case = Case { durability, ..Case::of(directory, consistency) };
        let (mut store, _) = case.open(false).expect("opens");
        for step in 0..60 + random.below(240) {
            match random.below(40) {
                0 => while store.reclaim().expect("there is room") {},
                1 if case.consistency == Consistency::Linearizable => case.clear(&store),
                2 => {
                    drop(store);
                    store = case.open(false).expect("it opens again").0;
                }
                _ => case.write(&store, step as u8, random),
            }
        }
        store.write_out().expect("the disk takes it");
        case.last = store.last();
        if random.below(2) == 0 {
            drop(store);
            case.is_unlisted = random.below(4) == 0;
            return case;
        }
        let directory = case.directory.copy();
        drop(store);
        Case { directory, ..case }
    }

    fn clear(&mut self, store: &Store) {
        Items::new(store.clone()).clear(1, 1).expect("it is taken");
        let last = store.last();
        let keys: Vec<_> = self.truth.0.keys().cloned().collect();
        for key in keys.iter().filter(|key| self.truth.now(key).is_some()).collect::<Vec<_>>() {
            self.truth.note(key, last, None);
        }
    }

    fn write(&mut self, store: &Store, step: u8, random: &mut Random) {
        let mut planned = BTreeMap::new();
        for _ in 0..if random.below(4) == 0 { 1 + random.below(5) } else { 1 } {
            // Some keys are written often, and most once in a while.
            let key = if random.below(3) == 0 { random.below(4) } else { random.below(KEYS) };
            let bytes = if random.below(9) == 0 { random.below(2500) } else { random.below(150) };
            planned.insert(format!("key{key}").into_bytes(), (random.below(9), vec![step; bytes]));
        }
        let mut after = Vec::new();
        let writes: Vec<_> = planned
            .iter()
            .map(|(key, (what, value))| {
                let now = self.truth.now(key);
                let action = match what {
                    0..6 => put(value),
                    6 => Action::Append(value),
                    _ => Action::Delete,
                };
                let joined = || [now.map_or(&[][..], |now| now), value].concat();
                match action {
                    Action::Put { .. } => after.push((key, Some(value.clone()))),
                    Action::Append(_) => after.push((key, Some(joined()))),
                    Action::Delete if now.is_some() => after.push((key, None)),
                    Action::Delete => {}
                }
                Write { key, condition: Condition::Always, action }
            })
            .collect();
        let made = store.write(&writes, None, 1).expect("it is taken");
        if random.below(4) == 0 {
            store.sync(made.sequence).expect("the disk takes it");
        }
        for (key, value) in after {
            let version = match self.consistency {
                Consistency::Linearizable => made.version,
                Consistency::Sequential => {
                    let past = store.history(key, 0, usize::MAX).expect("nothing is damaged");
                    past.found.last().expect("it was just written").version
                }
            };
            self.truth.note(key, version, value);
        }
    }

    /// Damages one file. Returns what happened.
    fn harm(&self, random: &mut Random) -> String {
        let mut files = self.directory.contents();
        files.retain(|(path, bytes)| !bytes.is_empty() && !path.ends_with("LOCK"));
        files.sort();
        let is_of =
            |(path, _): &(PathBuf, Vec<u8>), kind| path.extension().is_some_and(|of| of == kind);
        if self.is_unlisted {
            let (keys, others): (Vec<_>, Vec<_>) =
                files.into_iter().partition(|file| is_of(file, "keys"));
            keys.iter().for_each(|(path, _)| fs::remove_file(path).expect("writable"));
            files = others;
            // Without these files, damage to the last commits looks like a torn write.
            files.truncate(files.len() / 2);
        }
        // Half of the blows hit the oldest segment.
        let oldest = files.iter().position(|file| is_of(file, "log")).expect("there are segments");
        let (path, mut bytes) = files.swap_remove(match random.below(2) {
            0 => oldest,
            _ => random.below(files.len()),
        });
        let at = random.below(bytes.len());
        let what = match random.below(6) {
            0 | 1 => {
                bytes[at] ^= 1 << random.below(8);
                "bit flipped"
            }
            2 => {
                bytes[at] = !bytes[at];
                "byte flipped"
            }
            3 | 4 => {
                let block = [512, 4096][random.below(2)];
                let from = at / block * block;
                let end = bytes.len().min(from + block);
                bytes[from..end].fill(0);
                "block zeroed"
            }
            _ => {
                bytes.truncate(at);
                "cut"
            }
        };
        fs::write(&path, bytes).expect("writable");
        format!("{} {what} at {at}", path.display())
    }

    /// Everything is as clients know it, except the hidden keys.
    fn check(&self, store: &Store, lost: &Lost, random: &mut Random) {
        let found = scanned(store, None);
        let is_unnamed = |key: &[u8]| {
            let past = store.history(key, 0, 9).expect("nothing is damaged");
            lost.has_unnamed && past.found.is_empty()
        };
        for key in (0..KEYS).map(|key| format!("key{key}").into_bytes()) {
            let now = found.get(&key);
            assert!(
                now == self.truth.now(&key)
                    || now.is_none() && (lost.lists(&key) || is_unnamed(&key)),
                "{} is {now:?} and not {:?}",
                key.escape_ascii(),
                self.truth.now(&key),
            );
            let states = self.truth.0.get(&key).map_or(&[][..], |states| states);
            let most = states.last().map_or(0, |(version, _)| *version);
            for version in
                states.iter().map(|(version, _)| *version).chain([random.below(600) as u64])
            {
                let most =
                    if self.consistency == Consistency::Sequential { most } else { self.last };
                if version > most {
                    continue;
                }
                match value_at(store, &key, version) {
                    Ok(value) => assert_eq!(
                        value.as_ref(),
                        self.truth.at(&key, version),
                        "{} at {version}",
                        key.escape_ascii()
                    ),
                    Err(ReadError::Compacted(_)) => {}
                    Err(other) => panic!("{} at {version}: {other:?}", key.escape_ascii()),
                }
            }
        }
    }
}

/// What repairs have listed.
#[derive(Default)]
struct Lost {
    doubts: Vec<Doubt>,
    has_unnamed: bool,
    list: String,
}

impl Lost {
    fn lists(&self, key: &[u8]) -> bool {
        self.doubts.iter().any(|doubt| doubt.is_about(key))
            || self.list.contains(&format!("\"{}\" is absent", key.escape_ascii()))
    }

    /// What the file in the directory lists.
    fn read(directory: &Directory) -> Lost {
        let mut lost = Lost::default();
        for entry in fs::read_dir(&directory.0).expect("the directory is there") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|of| of == "txt") {
                lost.list = fs::read_to_string(path).expect("readable");
                // The list does not name these keys.
                let unnamed = [UNNAMED, "a key without other records"];
                lost.has_unnamed = unnamed.iter().any(|line| lost.list.contains(line));
            }
        }
        lost
    }
}

#[derive(Debug, Default)]
struct Outcomes {
    harmless: usize,
    named: usize,
    hidden: usize,
    most_hidden: usize,
}

fn run(seed: u64, outcomes: &mut Outcomes) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let case = Case::new(seed, &mut random);
    let happened = case.harm(&mut random);
    eprintln!("case {seed}: {:?} {:?}, {happened}", case.consistency, case.durability);
    match case.open(false) {
        Ok((store, _)) => {
            case.check(&store, &Lost::default(), &mut random);
            outcomes.harmless += 1;
            return;
        }
        Err(DirectoryError::Damaged(..)) => {}
        Err(other) => panic!("{other}"),
    }
    // A copied directory may lack this file.
    fs::remove_file(case.directory.0.join("LOCK")).expect("it is there");
    let before: BTreeMap<PathBuf, Vec<u8>> = case.directory.contents().into_iter().collect();
    let (options, directory) = case.options();
    let examined = Store::examine(options, &directory, &mut |_| {}).expect("it can be repaired");
    assert_eq!(case.directory.contents().into_iter().collect::<BTreeMap<_, _>>(), before);
    let (store, report) = case.open(true).expect("it can be repaired");
    assert_eq!(report.doubts, examined.doubts);
    let lost = Lost {
        doubts: report.doubts.clone(),
        has_unnamed: report.has_unnamed,
        list: String::new(),
    };
    case.check(&store, &lost, &mut random);
    eprintln!("case {seed}: {} hidden of {}", report.doubts.len(), case.truth.0.len());
    outcomes.named += 1;
    outcomes.hidden += report.doubts.len();
    outcomes.most_hidden = outcomes.most_hidden.max(report.doubts.len());
    drop(store);
    let list = report.list.map(|list| fs::read_to_string(list).expect("readable"));
    let list = list.unwrap_or_default();
    assert!(report.doubts.iter().all(|doubt| list.contains(&doubt.to_string())), "{list}");
    let (store, again) = case.open(false).expect("what was repaired is whole");
    assert_eq!(again, Report::default());
    case.check(&store, &lost, &mut random);
    // No version is made twice.
    let most = case.truth.0.get(&b"key0"[..]).and_then(|states| states.last());
    let version = set(&store, b"key0", b"new");
    assert!(version > most.map_or(0, |(version, _)| *version));
    assert_eq!(value(&store, b"key0"), Some(b"new".to_vec()));
}

#[test]
fn damage_is_named_and_repair_serves_no_older_version() {
    let first = std::env::var("KNEE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut outcomes = Outcomes::default();
    for seed in first..first + 12 * u64::from(soak()) {
        run(seed, &mut outcomes);
    }
    println!("{outcomes:?}");
    assert!(outcomes.named > 0 && outcomes.harmless > 0, "{outcomes:?}");
}

/// The process that [`killed_repair_is_finished_by_the_next`] kills.
#[test]
#[ignore = "is no test of its own"]
fn repairing_until_killed() {
    let path = PathBuf::from(std::env::var_os("KNEE_REPAIRED").expect("a directory"));
    for consistency in [Consistency::Linearizable, Consistency::Sequential] {
        let case = Case::of(Directory(path.clone()), consistency);
        // Of the two, one is refused.
        let _ = case.open(true);
        // The parent removes the directory.
        std::mem::forget(case);
    }
}

#[test]
fn killed_repair_is_finished_by_the_next() {
    let kills: u64 =
        std::env::var("KNEE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(3);
    // The damage of seed 2 hides keys.
    let (mut seed, mut killed, mut amid, mut hidden) = (1, 0, 0, 0);
    while killed < kills {
        seed += 1;
        let mut random = Random(seed | 1 << 40);
        let case = Case::new(seed, &mut random);
        case.harm(&mut random);
        if !matches!(case.open(false), Err(DirectoryError::Damaged(..))) {
            continue;
        }
        for _ in 0..3 {
            let mut repairing = Command::new(std::env::current_exe().expect("this program"))
                .args(["damage::repairing_until_killed", "--exact", "--ignored"])
                .env("KNEE_REPAIRED", &case.directory.0)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("it starts");
            // Most kills come once the list is written, while keys are deleted and segments removed.
            let listed = Lost::read(&case.directory).list.len();
            while random.below(2000) > 0
                && repairing.try_wait().expect("ours").is_none()
                && Lost::read(&case.directory).list.len() == listed
            {
                thread::sleep(Duration::from_micros(100));
            }
            thread::sleep(Duration::from_micros(random.below(4000) as u64));
            repairing.kill().expect("it is ours");
            repairing.wait().expect("it ends");
            killed += 1;
            let lost = Lost::read(&case.directory);
            match case.open(false) {
                Ok((store, _)) => case.check(&store, &lost, &mut random),
                Err(DirectoryError::Damaged(..)) => amid += usize::from(lost.list.len() > listed),
                Err(other) => panic!("{other}"),
            }
        }
        let (store, _) = case.open(true).expect("it can be repaired");
        case.check(&store, &Lost::read(&case.directory), &mut random);
        drop(store);
        let (store, _) = case.open(false).expect("what was repaired is whole");
        let lost = Lost::read(&case.directory);
        case.check(&store, &lost, &mut random);
        hidden += (0..KEYS).filter(|key| lost.lists(format!("key{key}").as_bytes())).count();
    }
    println!("{killed} kills, {amid} amid a repair, {hidden} hidden keys");
    assert!(hidden > 0, "no key was hidden");
}
