//! `knee-space manager` over stores that answer.

use knee_nbd::{Command, EINVAL, ENOSPC, EPERM};
use knee_random::Random;
use knee_testkit::{free_address, soak};

use super::client::Client;
use super::files::{Image, random};
use super::store::{resident, run, store, uri};
use crate::program::{Program, SPACE, count, refused};

pub(super) const MIB: usize = 1 << 20;

/// A manager of these stores, on a leased port.
pub(super) fn manager<S: AsRef<str>>(stores: &[S], flags: &[&str]) -> Program {
    let listen = free_address();
    let mut given = vec!["manager", "--listen", &listen, "--store"];
    given.extend(stores.iter().map(AsRef::as_ref));
    given.extend(flags);
    Program::start(SPACE, &given)
}

pub(super) fn addresses(stores: &[Program]) -> Vec<&str> {
    stores.iter().map(Program::address).collect()
}

#[test]
fn nbdcopy_returns_what_it_stored_in_each_layout() {
    for (sizes, layout) in [([3, 5, 8], "length"), ([4, 4, 4], "shift")] {
        let stores = sizes.map(|mib| store(mib * MIB, &[]));
        let manager = manager(&addresses(&stores), &["--layout", layout, "--threads", "2"]);
        let bytes = sizes.iter().sum::<usize>() * MIB;
        assert_eq!(run("nbdinfo", &["--size", &uri(&manager)]).trim(), bytes.to_string());
        let (source, copy) = (Image::random(bytes), Image::absent());
        let paths = [source.path(), copy.path()].map(|path| path.to_str().unwrap());
        run("nbdcopy", &["--flush", "--connections=4", paths[0], &uri(&manager)]);
        run("nbdcopy", &[&uri(&manager), paths[1]]);
        assert!(source.content() == copy.content(), "{layout}");
        // Each store has the addresses that follow those of the store before it.
        let mut from = 0;
        for (store, mib) in stores.iter().zip(sizes) {
            let part = Client::connect(store.address()).read(0, (mib * MIB) as u32).unwrap();
            assert!(part == source.content()[from..][..mib * MIB], "{layout}");
            from += mib * MIB;
        }
    }
}

/// Two managers of stores with odd sizes behave as one array, whichever manager is asked.
#[test]
fn space_behaves_as_an_array() {
    const SIZES: [usize; 4] = [70_001, 4096, 1, 150_000];
    const BYTES: usize = 70_001 + 4096 + 1 + 150_000;
    let stores = SIZES.map(|bytes| store(bytes, &[]));
    let managers = [(); 2].map(|()| manager(&addresses(&stores), &[]));
    let mut clients = managers.each_ref().map(|manager| Client::connect(manager.address()));
    let mut array = vec![0; BYTES];
    let data = random(BYTES);
    let mut random = Random::stream(24, 1);
    for _ in 0..300 * soak() {
        let client = &mut clients[random.below(2) as usize];
        let from = random.below(BYTES as u64) as usize;
        let longest = if random.below(4) == 0 { BYTES } else { 9000 };
        let length = random.below((BYTES - from).min(longest) as u64) as usize + 1;
        let range = from..from + length;
        match random.below(5) {
            0 => client.ask(Command::Trim, from as u64, length as u32).unwrap(),
            1 => client.ask(Command::WriteZeroes, from as u64, length as u32).unwrap(),
            2 => {
                let seen = client.read(from as u64, length as u32).unwrap();
                assert!(seen == array[range], "{length} bytes at {from}");
                continue;
            }
            _ => {
                let shift = random.below((BYTES - length + 1) as u64) as usize;
                client.write(from as u64, &data[shift..][..length]).unwrap();
                array[range].copy_from_slice(&data[shift..][..length]);
                continue;
            }
        }
        array[range].fill(0);
    }
    for client in &mut clients {
        assert!(client.read(0, BYTES as u32).unwrap() == array);
        client.ask(Command::Flush, 0, 0).unwrap();
    }
}

#[test]
fn request_outside_the_space_is_refused() {
    let stores = [store(MIB, &[]), store(MIB, &[])];
    let manager = manager(&addresses(&stores), &[]);
    let mut client = Client::connect(manager.address());
    let end = 2 * MIB as u64;
    assert_eq!(client.write(end - 1, &[1, 2]), Err(ENOSPC));
    assert_eq!(client.read(end - 1, 2), Err(EINVAL));
    assert_eq!(client.read(u64::MAX, 2), Err(EINVAL));
    assert_eq!(client.ask(Command::Other(9), 0, 1), Err(EINVAL));
    assert_eq!(client.read(end - 1, 1), Ok(vec![0]));
}

#[test]
fn read_only_manager_refuses_changes() {
    let stores = [store(MIB, &[])];
    let writer = manager(&addresses(&stores), &[]);
    let reader = manager(&addresses(&stores), &["--read-only"]);
    run("nbdinfo", &["--is", "read-only", &uri(&reader)]);
    Client::connect(writer.address()).write(7, b"seven").unwrap();
    let mut client = Client::connect(reader.address());
    assert_eq!(client.write(7, b"eight"), Err(EPERM));
    assert_eq!(client.ask(Command::Trim, 0, 4096), Err(EPERM));
    assert_eq!(client.ask(Command::WriteZeroes, 0, 4096), Err(EPERM));
    assert_eq!(client.ask(Command::Flush, 0, 0), Ok(()));
    assert_eq!(client.read(7, 5).unwrap(), b"seven");
}

#[test]
fn pipelined_replies_carry_the_numbers_of_their_requests() {
    let stores = [store(MIB, &[]), store(MIB, &[])];
    let manager = manager(&addresses(&stores), &[]);
    let mut client = Client::connect(manager.address());
    let data = random(2 * MIB);
    client.write(0, &data).unwrap();
    // Long requests have their own connections, so short ones may overtake them.
    let mut random = Random::stream(24, 2);
    let mut sent = std::collections::HashMap::new();
    for _ in 0..200 {
        let length = if random.below(4) == 0 { 100_000 } else { 500 };
        let from = random.below(2 * MIB as u64 - length);
        let number = client.send(Command::Read, from, length as u32, &[]);
        sent.insert(number, (from as usize, length as usize));
    }
    while !sent.is_empty() {
        let reply = client.reply();
        assert_eq!(reply.error, 0);
        let (from, length) = sent.remove(&reply.cookie).unwrap();
        assert!(client.data(length) == data[from..][..length]);
    }
}

#[test]
fn clients_that_do_not_read_bound_the_memory() {
    let stores = [store(64 * MIB, &[]), store(64 * MIB, &[])];
    let manager = manager(&addresses(&stores), &["--memory-mb", "64"]);
    let before = resident(&manager);
    let mut greedy: Vec<_> = (0..63).map(|_| Client::connect(manager.address())).collect();
    for client in &mut greedy {
        for at in 0..40 {
            client.send(Command::Read, at << 20, 2 << 20, &[]);
        }
    }
    // 64 MiB in flight, 64 MiB unread, and a reply in the making for each client that was let in.
    let mut served = Client::connect(manager.address());
    let mut most = 0;
    for _ in 0..50 {
        assert_eq!(served.read(MIB as u64, 4096), Ok(vec![0; 4096]));
        most = most.max(resident(&manager));
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let grown = (most - before) / MIB;
    assert!(grown < 256, "{grown} MiB");
}

#[test]
fn summary_counts_requests_and_bytes_of_each_store() {
    let stores = [store(MIB, &[]), store(MIB, &[])];
    let manager = manager(&addresses(&stores), &["--admin", "127.0.0.1:0"]);
    let mut client = Client::connect(manager.address());
    client.write(MIB as u64 - 1000, &[5; 3000]).unwrap();
    client.read(MIB as u64, 10).unwrap();
    client.ask(Command::Flush, 0, 0).unwrap();
    let label = format!("{{role=\"middleware\",server=\"{}\"}}", stores[1].address());
    for (name, value) in
        [("up", 1), ("requests_total", 3), ("bytes_total", 2010), ("errors_total", 0)]
    {
        manager.wait_for_metric(&format!("knee_server_{name}{label} {value}"));
    }
    manager.signal(libc::SIGTERM);
    let end = manager.end();
    assert_eq!(end.errors, "");
    let summary = end.summary();
    let rows = stores.iter().zip(summary["servers"].as_array().unwrap());
    for ((store, server), (requests, bytes)) in rows.zip([(2, 1000), (3, 2010)]) {
        assert_eq!(server["address"], store.address());
        assert_eq!((&server["requests"], &server["bytes"]), (&requests.into(), &bytes.into()));
        assert_eq!((&server["errors"], &server["ejected"]), (&0.into(), &0.into()));
    }
    assert_eq!((count(summary, "write", "count"), count(summary, "write", "bytes_in")), (1, 3028));
    assert_eq!((count(summary, "read", "count"), count(summary, "other", "count")), (1, 1));
}

#[test]
fn wrong_flag_exits_with_2_and_the_reason() {
    let rows: [(&[&str], &str); 7] = [
        (&[], "--store"),
        (&["--store", "nowhere"], "not a HOST:PORT"),
        (&["--store", "127.0.0.1:1=1g"], "as in 4G"),
        (&["--store", "127.0.0.1:1=1G", "127.0.0.1:1=1G"], "is the same store"),
        (&["--store", "127.0.0.1:1=3G", "--layout", "shift"], "the same power of two"),
        (&["--store", "127.0.0.1:1=4194304T", "127.0.0.1:2=4194304T"], "take fewer"),
        (&["--store", "127.0.0.1:1=1G", "--threads", "8"], "it takes at least 512"),
    ];
    for (flags, expected) in rows {
        let output = refused(SPACE, &[&["manager", "--listen", "127.0.0.1:0"], flags].concat());
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains(expected), "{flags:?}: {message}");
    }
}
