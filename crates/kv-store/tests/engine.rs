//! The engines against a simple model.

use std::collections::BTreeMap;

use knee_kv_cache::engine::{Change, Engine, Expiry, Item, Refused, Second};
use knee_kv_cache::{Memory, MemoryLimits};
use knee_kv_store::{Consistency, DirectoryOptions, Durability, Items, Store, StoreOptions};
use proptest::prelude::*;

const VALUE_BYTES_MAX: usize = 2000;

fn memory(memory_bytes_max: usize) -> Memory {
    Memory::new(MemoryLimits { memory_bytes_max, value_bytes_max: VALUE_BYTES_MAX }).unwrap()
}

fn put(memory: &mut Memory, key: &[u8], value: &[u8], now: Second) -> u64 {
    put_until(memory, key, value, Expiry::NEVER, now)
}

fn put_until(memory: &mut Memory, key: &[u8], value: &[u8], expiry: Expiry, now: Second) -> u64 {
    let change = Change::Put { flags: 0, expiry, marks: 0, value };
    memory.update(key, now, |_| (change, ())).0.unwrap()
}

fn value(memory: &mut Memory, key: &[u8], now: Second) -> Option<Vec<u8>> {
    memory.get(key, now, |item| item.map(|item| item.value.to_vec())).unwrap()
}

/// A versioned store with small segments: a few of the largest values fill one.
fn items(consistency: Consistency) -> (Store, Items) {
    let store = Store::in_memory(options(consistency), 1 << 26).unwrap();
    (store.clone(), Items::new(store))
}

fn options(consistency: Consistency) -> StoreOptions {
    StoreOptions { consistency, stripes: 4, value_bytes_max: VALUE_BYTES_MAX, segment_bytes: 8192 }
}

fn key(number: usize) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

#[derive(Debug, Clone)]
enum Step {
    Get(u8),
    Put { key: u8, flags: u32, ttl_s: Option<u8>, marks: u8, value: Vec<u8> },
    Append(u8, Vec<u8>),
    Prepend(u8, Vec<u8>),
    Rewrite(u8, u8),
    Amend { key: u8, ttl_s: Option<u8>, marks: u8, new_version: bool, read: bool },
    Remove(u8),
    Keep(u8),
    Clear(u8),
    Wait(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..24_u8;
    // Both short and long values, so that sizes change, segments fill, and large items get their own segments.
    let bytes = || {
        prop_oneof![3 => 0..60_usize, 1 => 0..VALUE_BYTES_MAX + 100]
            .prop_map(|len| (0..len).map(|n| (n * 7 + len) as u8).collect::<Vec<u8>>())
    };
    let ttl = || prop::option::of(0..20_u8);
    prop_oneof![
        4 => key.clone().prop_map(Step::Get),
        6 => (key.clone(), any::<u32>(), ttl(), any::<u8>(), bytes()).prop_map(
            |(key, flags, ttl_s, marks, value)| Step::Put { key, flags, ttl_s, marks, value }
        ),
        1 => (key.clone(), bytes()).prop_map(|(key, value)| Step::Append(key, value)),
        1 => (key.clone(), bytes()).prop_map(|(key, value)| Step::Prepend(key, value)),
        1 => (key.clone(), any::<u8>()).prop_map(|(key, byte)| Step::Rewrite(key, byte)),
        1 => (key.clone(), ttl(), any::<u8>(), any::<bool>(), any::<bool>()).prop_map(
            |(key, ttl_s, marks, new_version, read)| {
                Step::Amend { key, ttl_s, marks, new_version, read }
            }
        ),
        1 => key.clone().prop_map(Step::Remove),
        1 => key.prop_map(Step::Keep),
        1 => (0..10_u8).prop_map(Step::Clear),
        2 => (0..8_u8).prop_map(Step::Wait),
    ]
}

#[derive(Debug, Clone, PartialEq)]
struct Modelled {
    flags: u32,
    expiry: Expiry,
    version: u64,
    marks: u8,
    read: bool,
    used_at: Second,
    value: Vec<u8>,
}

impl Modelled {
    fn of(item: Item<'_>) -> Modelled {
        let Item { flags, expiry, version, marks, read, used_at, value } = item;
        Modelled { flags, expiry, version, marks, read, used_at, value: value.to_vec() }
    }
}

#[derive(Default)]
struct Model {
    items: BTreeMap<Vec<u8>, Modelled>,
    /// The last version of each key, also of deleted keys.
    versions: BTreeMap<Vec<u8>, u64>,
    clear_at: Option<Second>,
}

impl Model {
    /// The item at `now`.
    fn look(&mut self, key: &[u8], now: Second) -> Option<&mut Modelled> {
        if self.clear_at.is_some_and(|at| at <= now) {
            self.clear_at = None;
            self.items.clear();
        }
        self.items.retain(|_, item| !item.expiry.is_over(now));
        self.items.get_mut(key)
    }
}

fn until(ttl_s: Option<u8>, now: Second) -> Expiry {
    ttl_s.map_or(Expiry::NEVER, |ttl| Expiry::at(now + Second::from(ttl)))
}

/// Makes a change in both, and compares the outcomes.
fn change(
    engine: &mut impl Engine,
    model: &mut Model,
    key: &[u8],
    now: Second,
    make: impl Fn(Option<&Modelled>) -> Change<'static>,
) {
    let modelled = model.look(key, now).cloned();
    let change = make(modelled.as_ref());
    let (outcome, seen) = engine.update(key, now, |item| (change, item.map(Modelled::of)));
    assert_eq!(seen, modelled, "the item shown to the decision");

    let put =
        |old: &Modelled, value: Vec<u8>| Modelled { value, marks: 0, read: false, ..old.clone() };
    let expected = match (change, modelled) {
        (Change::Put { flags, expiry, marks, value }, _) => {
            let value = value.to_vec();
            Some(Modelled { flags, expiry, version: 0, marks, read: false, used_at: now, value })
        }
        (_, None) => None,
        (Change::Keep, old) => old,
        (Change::Read, Some(old)) => Some(Modelled { read: true, used_at: now, ..old }),
        (Change::Append(tail), Some(old)) => Some(put(&old, [&old.value, tail].concat())),
        (Change::Prepend(front), Some(old)) => Some(put(&old, [front, &old.value].concat())),
        (Change::Rewrite { expiry, value }, Some(old)) => {
            Some(Modelled { expiry, value: value.to_vec(), ..old })
        }
        (Change::Amend { expiry, marks, read, .. }, Some(old)) => {
            Some(Modelled { expiry, marks, read: old.read || read, ..old })
        }
        (Change::Remove, _) => None,
    };
    if expected.as_ref().is_some_and(|item| item.value.len() > VALUE_BYTES_MAX) {
        assert_eq!(outcome, Err(Refused::TooLarge));
        return;
    }
    let version = outcome.unwrap();
    let Some(mut expected) = expected else {
        assert_eq!(version, 0);
        model.items.remove(key);
        return;
    };
    match change {
        Change::Keep => assert_eq!(version, expected.version),
        Change::Read | Change::Amend { new_version: false, .. } => {
            assert_eq!(version, expected.version);
            expected.used_at = now;
        }
        _ => {
            let before = model.versions.insert(key.to_vec(), version);
            assert!(version > before.unwrap_or(0), "versions grow");
            expected.version = version;
            expected.used_at = now;
        }
    }
    model.items.insert(key.to_vec(), expected);
}

fn leak(bytes: Vec<u8>) -> &'static [u8] {
    Box::leak(bytes.into_boxed_slice())
}

/// Takes the steps with an engine and with the model; `keep` may do invisible upkeep after each.
fn play<E: Engine>(engine: &mut E, steps: Vec<Step>, mut keep: impl FnMut(&mut E)) {
    let mut model = Model::default();
    let mut now = 1_000_000;
    for step in steps {
        match step {
            Step::Get(number) => {
                let key = key(number.into());
                let expected = model.look(&key, now).cloned();
                assert_eq!(engine.get(&key, now, |item| item.map(Modelled::of)), Ok(expected));
                if let Some(item) = model.look(&key, now) {
                    item.read = true;
                    item.used_at = now;
                }
            }
            Step::Clear(delay) => {
                let at = now + Second::from(delay);
                assert_eq!(engine.clear(at, now), Ok(()));
                model.clear_at = Some(at);
                model.look(b"", now);
            }
            Step::Wait(seconds) => now += Second::from(seconds),
            Step::Put { key: number, flags, ttl_s, marks, value } => {
                let (value, expiry) = (leak(value), until(ttl_s, now));
                let put = Change::Put { flags, expiry, marks, value };
                change(engine, &mut model, &key(number.into()), now, |_| put);
            }
            Step::Append(number, tail) => {
                let append = Change::Append(leak(tail));
                change(engine, &mut model, &key(number.into()), now, |_| append);
            }
            Step::Prepend(number, front) => {
                let prepend = Change::Prepend(leak(front));
                change(engine, &mut model, &key(number.into()), now, |_| prepend);
            }
            Step::Rewrite(number, byte) => {
                change(engine, &mut model, &key(number.into()), now, |old| {
                    let len = old.map_or(0, |old| old.value.len());
                    Change::Rewrite { expiry: Expiry::NEVER, value: leak(vec![byte; len]) }
                });
            }
            Step::Amend { key: number, ttl_s, marks, new_version, read } => {
                let amend = Change::Amend { expiry: until(ttl_s, now), marks, new_version, read };
                change(engine, &mut model, &key(number.into()), now, |_| amend);
            }
            Step::Remove(number) => {
                change(engine, &mut model, &key(number.into()), now, |_| Change::Remove);
            }
            Step::Keep(number) => {
                change(engine, &mut model, &key(number.into()), now, |_| Change::Keep);
            }
        }
        keep(engine);
        let figures = engine.figures();
        assert_eq!(figures.evictions, 0);
        assert!(figures.memory_bytes <= figures.memory_bytes_max);
    }
    for number in 0..24 {
        let key = key(number);
        let expected = model.look(&key, now).cloned();
        assert_eq!(engine.get(&key, now, |item| item.map(Modelled::of)), Ok(expected));
    }
    // Expired items may or may not be counted.
    let visible = model.items.len() as u64;
    assert!(engine.figures().items >= visible);
    assert_eq!(engine.clear(now, now), Ok(()));
    for number in 0..24 {
        assert_eq!(engine.get(&key(number), now, |item| item.map(Modelled::of)), Ok(None));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32 * knee_testkit::soak(), failure_persistence: None, ..ProptestConfig::default() })]

    /// With enough memory the engine is a map with expiry. The memory suffices without evictions, while segments
    /// are emptied all the time.
    #[test]
    fn behaves_as_a_map(steps in prop::collection::vec(step(), 1..400)) {
        play(&mut memory(192 * 1024), steps, |_| ());
    }

    /// A versioned store is a map with expiry, too, while its space is reclaimed.
    #[test]
    fn keeping_versions_behaves_as_a_map(
        steps in prop::collection::vec(step(), 1..400),
        sequential in any::<bool>(),
    ) {
        let order = if sequential { Consistency::Sequential } else { Consistency::Linearizable };
        let (store, mut items) = items(order);
        play(&mut items, steps, |_| {
            while store.reclaim().unwrap() {}
        });
    }

    /// With too little memory, the engine evicts items. The other items are correct, and the limit holds.
    #[test]
    fn evicts_within_the_limit(
        seed in any::<u64>(),
        memory_kib in 80..700_usize,
        value_bytes in 0..VALUE_BYTES_MAX,
    ) {
        let mut memory = memory(memory_kib * 1024);
        let mut random = seed | 1;
        let mut written = BTreeMap::new();
        for step in 0..6000_usize {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let key = key(random as usize % 3000);
            if random >> 60 < 5 {
                let got = value(&mut memory, &key, 1);
                if let Some(got) = got {
                    prop_assert_eq!(Some(&got), written.get(&key));
                }
            } else {
                let value = vec![step as u8; (random >> 32) as usize % (value_bytes + 1)];
                put(&mut memory, &key, &value, 1);
                written.insert(key, value);
            }
            let figures = memory.figures();
            prop_assert!(figures.memory_bytes <= figures.memory_bytes_max, "{:?}", figures);
            prop_assert!(figures.item_bytes <= figures.memory_bytes, "{:?}", figures);
        }
    }
}

#[test]
fn items_that_are_read_often_outlive_a_scan() {
    let mut memory = memory(1 << 20);
    for number in 0..100 {
        put(&mut memory, &key(number), &[7; 100], 1);
    }
    // Ten times the memory passes through.
    for number in 1000..100_000 {
        put(&mut memory, &key(number), &[8; 100], 1);
        if number % 50 == 0 {
            for hot in 0..100 {
                memory.get(&key(hot), 1, |_| ()).unwrap();
            }
        }
    }
    let hot = (0..100).filter(|&number| value(&mut memory, &key(number), 1).is_some()).count();
    assert_eq!(hot, 100, "all of the hot keys are left");
    assert!(memory.figures().evictions > 50_000);
    assert_eq!(value(&mut memory, &key(2000), 1), None, "the first of the cold ones are gone");
    assert!(value(&mut memory, &key(99_999), 1).is_some(), "the last one is there");
}

#[test]
fn oldest_unread_items_are_evicted_first() {
    let mut memory = memory(1 << 20);
    for number in 0..50_000 {
        put(&mut memory, &key(number), &[1; 50], 1);
    }
    let left: Vec<usize> =
        (0..50_000).filter(|&number| value(&mut memory, &key(number), 1).is_some()).collect();
    assert_eq!(
        left,
        (50_000 - left.len()..50_000).collect::<Vec<_>>(),
        "the youngest, without gap"
    );
    assert!(left.len() > 6000, "most of the memory holds items: {}", left.len());
}

#[test]
fn large_items_are_evicted_in_turn_too() {
    let limits = MemoryLimits { memory_bytes_max: 8 << 20, value_bytes_max: 1 << 20 };
    let mut memory = Memory::new(limits).unwrap();
    for number in 0..40 {
        put(&mut memory, &key(number), &vec![number as u8; 1 << 20], 1);
        memory.get(&key(0), 1, |_| ()).unwrap();
        assert!(memory.figures().memory_bytes <= 8 << 20);
    }
    assert!(value(&mut memory, &key(0), 1).is_some(), "used all the time");
    assert_eq!(value(&mut memory, &key(1), 1), None);
    assert_eq!(value(&mut memory, &key(39), 1), Some(vec![39; 1 << 20]));
}

#[test]
fn overwrites_of_a_few_keys_touch_little_memory() {
    let mut memory = memory(1 << 30);
    for round in 0..200_000_usize {
        put(&mut memory, &key(round % 100), &vec![1; 10 + round * 37 % 1900], 1);
    }
    let figures = memory.figures();
    assert_eq!((figures.items, figures.evictions), (100, 0));
    // 200 MB were written; the first 16 segments of 1 MiB are free to take.
    assert!(figures.memory_bytes < 24 << 20, "{figures:?}");
}

#[test]
fn lower_limit_evicts_at_once_or_is_refused() {
    let mut memory = memory(4 << 20);
    for number in 0..30_000 {
        put(&mut memory, &key(number), &[1; 100], 1);
    }
    assert!(memory.set_memory_limit(1 << 20, 1));
    assert!(memory.figures().memory_bytes <= 1 << 20);
    assert!(value(&mut memory, &key(29_999), 1).is_some());
    assert!(!memory.set_memory_limit(1000, 1));
    assert_eq!(memory.figures().memory_bytes_max, 1 << 20);
}

#[test]
fn expired_items_are_misses_and_are_counted() {
    let mut memory = memory(1 << 20);
    put_until(&mut memory, b"k", b"v", Expiry::at(11), 10);
    assert_eq!(value(&mut memory, b"k", 10), Some(b"v".to_vec()));
    assert_eq!(value(&mut memory, b"k", 11), None);
    let figures = memory.figures();
    assert_eq!((figures.items, figures.expired), (0, 1));
}

#[test]
fn too_little_memory_for_the_largest_value_is_refused() {
    let value_bytes_max = 1 << 20;
    let least = MemoryLimits::memory_bytes_min(value_bytes_max);
    assert!(Memory::new(MemoryLimits { memory_bytes_max: least - 1, value_bytes_max }).is_none());
    let limits = MemoryLimits { memory_bytes_max: least, value_bytes_max };
    let mut memory = Memory::new(limits).unwrap();
    for number in 0..10 {
        // The engine takes small values, and the largest value repeatedly.
        put(&mut memory, &key(number), b"small", 1);
        put(&mut memory, b"large", &vec![number as u8; value_bytes_max], 1);
        assert_eq!(value(&mut memory, b"large", 1), Some(vec![number as u8; value_bytes_max]));
    }
}

#[test]
fn engine_is_unsettled_until_its_changes_are_safe() {
    let put = |items: &mut Items| {
        let change =
            Change::Put { flags: 0, expiry: Expiry::NEVER, marks: 0, value: b"value".as_slice() };
        items.update(b"key", 1, |_| (change, ())).0.unwrap();
    };
    let show = |items: &mut Items| assert!(items.get(b"key", 1, |item| item.is_some()).unwrap());

    let (_, mut volatile) = items(Consistency::Linearizable);
    put(&mut volatile);
    assert!(!volatile.is_unsettled(), "memory is always settled");

    let path = std::env::temp_dir().join(format!("knee-unsettled-{}", std::process::id()));
    let directory =
        DirectoryOptions { path: path.clone(), durability: Durability::Always, repair: false };
    let (store, _) = Store::open(options(Consistency::Linearizable), &directory, 1 << 20).unwrap();
    let (mut writer, mut reader) = (Items::new(store.clone()), Items::new(store));
    put(&mut writer);
    show(&mut reader);
    assert!(writer.is_unsettled() && reader.is_unsettled());
    writer.settle().unwrap();
    assert!(!writer.is_unsettled() && !reader.is_unsettled());
    show(&mut reader);
    assert!(!reader.is_unsettled(), "it is safe what it was shown");
    drop((writer, reader));
    std::fs::remove_dir_all(path).unwrap();
}
