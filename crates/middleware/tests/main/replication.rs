//! Writes reach every server; reads come from each server in turn.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{Client, MODES, Proxy, addresses, config, three};
use knee_middleware::Mode;
use knee_testkit::soak;

#[test]
fn acknowledged_write_is_on_every_server() {
    let servers = three();
    for (mode, threads) in MODES {
        let proxy = Proxy::before(mode, threads, &servers);
        let mut client = proxy.client();
        client.expect("flush_all\r\nset a 5 0 2\r\nhi\r\n", "OK\r\nSTORED\r\n");
        client.expect("append a 0 0 1\r\n!\r\nset n 0 0 1\r\n7\r\n", "STORED\r\nSTORED\r\n");
        client.expect("incr n 5\r\ntouch a 100\r\n", "12\r\nTOUCHED\r\n");
        for server in &servers {
            let mut direct = Client::connect(server.address);
            direct.expect("get a n\r\n", "VALUE a 5 3\r\nhi!\r\nVALUE n 0 2\r\n12\r\nEND\r\n");
        }
        client.expect("delete a\r\ndelete a\r\n", "DELETED\r\nNOT_FOUND\r\n");
        for server in &servers {
            Client::connect(server.address).expect("get a\r\n", "END\r\n");
        }
    }
}

#[test]
fn replicas_agree_after_a_write_that_only_some_execute() {
    let servers = three();
    for (mode, threads) in MODES {
        let proxy = Proxy::before(mode, threads, &servers);
        let mut client = proxy.client();
        client.expect("flush_all\r\n", "OK\r\n");
        Client::connect(servers[1].address).expect("set a 0 0 1\r\nx\r\n", "STORED\r\n");
        client.expect("add a 0 0 1\r\ny\r\n", "NOT_STORED\r\n");
        for (server, held) in servers.iter().zip([None, Some("x"), None]) {
            let found = Client::connect(server.address).gets("a");
            assert_eq!(found.map(|(value, _)| value).as_deref(), held);
        }
        // One server lacks the counter.
        client.expect("set n 0 0 1\r\n1\r\n", "STORED\r\n");
        Client::connect(servers[2].address).expect("delete n\r\n", "DELETED\r\n");
        client.expect("incr n 1\r\nappend n 0 0 1\r\n5\r\n", "2\r\nSTORED\r\n");
        for (server, held) in servers.iter().zip([Some("25"), Some("25"), None]) {
            let found = Client::connect(server.address).gets("n");
            assert_eq!(found.map(|(value, _)| value).as_deref(), held);
        }
    }
}

#[test]
fn concurrent_increments_get_different_numbers() {
    const CLIENTS: u64 = 6;
    const ROUNDS: u64 = 100;
    let servers = three();
    for (mode, threads) in MODES {
        let proxy = Proxy::before(mode, threads, &servers);
        proxy.client().expect("flush_all\r\nset n 0 0 1\r\n0\r\n", "OK\r\nSTORED\r\n");
        let mut numbers: Vec<u64> = std::thread::scope(|scope| {
            let counting: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    let mut client = proxy.client();
                    scope.spawn(move || {
                        let mut numbers = Vec::new();
                        for _ in 0..ROUNDS {
                            let answer = client.ask("incr n 1\r\n");
                            numbers.push(answer.parse().unwrap_or_else(|_| panic!("{answer}")));
                        }
                        numbers
                    })
                })
                .collect();
            counting.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(1..=CLIENTS * ROUNDS));
        for server in &servers {
            let end = format!("VALUE n 0 3\r\n{}\r\nEND\r\n", CLIENTS * ROUNDS);
            Client::connect(server.address).expect("get n\r\n", &end);
        }
    }
}

/// Prints how many keys differ at the end.
#[test]
fn racing_plain_writes_leave_written_values() {
    const CLIENTS: usize = 4;
    let rounds = 200 * soak();
    let servers = three();
    for (mode, threads) in MODES {
        let proxy = Proxy::before(mode, threads, &servers);
        let barrier = Barrier::new(CLIENTS);
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let (mut client, barrier) = (proxy.client(), &barrier);
                scope.spawn(move || {
                    for round in 0..rounds {
                        barrier.wait();
                        let request = format!("set race{round} 0 0 1\r\n{number}\r\n");
                        client.expect(&request, "STORED\r\n");
                    }
                });
            }
        });
        let mut direct = addresses(&servers).into_iter().map(Client::connect).collect::<Vec<_>>();
        let mut differing = 0;
        for round in 0..rounds {
            let found: Vec<_> = (direct.iter_mut())
                .map(|client| client.ask_lines(&format!("get race{round}\r\n")))
                .collect();
            for lines in &found {
                assert_eq!(lines[0], format!("VALUE race{round} 0 1"));
                assert!(["0", "1", "2", "3"].contains(&lines[1].as_str()), "{lines:?}");
            }
            differing += u32::from(found.iter().any(|lines| *lines != found[0]));
        }
        println!("{mode:?}, {threads} threads: {differing} of {rounds} raced keys differ");
    }
}

#[test]
fn single_gets_are_dealt_to_the_servers_in_turn() {
    let servers = three();
    for (mode, threads) in MODES {
        let proxy = Proxy::before(mode, threads, &servers);
        let before: Vec<u64> = servers.iter().map(|server| server.stats()["cmd_get"]).collect();
        let mut client = proxy.client();
        for _ in 0..90 {
            client.expect("get nothing\r\n", "END\r\n");
        }
        let gets: Vec<u64> = servers
            .iter()
            .zip(before)
            .map(|(server, old)| server.stats()["cmd_get"] - old)
            .collect();
        // Either thread may serve a client's requests, and each thread takes its own turns.
        assert_eq!(gets.iter().sum::<u64>(), 90);
        assert!(gets.iter().all(|count| count.abs_diff(30) < threads as u64), "{gets:?}");
    }
}

#[test]
fn sharded_multiget_asks_every_server_and_keeps_the_order() {
    let servers = three();
    for (mode, threads) in MODES {
        let settings = knee_middleware::Config {
            sharded: true,
            ..config(mode, threads, &addresses(&servers))
        };
        let proxy = Proxy::start(&settings);
        let mut client = proxy.client();
        client.expect("flush_all\r\n", "OK\r\n");
        let keys: Vec<String> = (0..10).map(|number| format!("key{number}")).collect();
        // Every third key is missing.
        let mut expected = String::new();
        for (number, key) in keys.iter().enumerate().filter(|(number, _)| number % 3 != 1) {
            client.expect(&format!("set {key} 0 0 1\r\n{number}\r\n"), "STORED\r\n");
            expected += &format!("VALUE {key} 0 1\r\n{number}\r\n");
        }
        let before: Vec<u64> = servers.iter().map(|server| server.stats()["cmd_get"]).collect();
        for _ in 0..3 {
            client.expect(&format!("get {}\r\n", keys.join(" ")), &format!("{expected}END\r\n"));
        }
        for (server, old) in servers.iter().zip(before) {
            let asked = server.stats()["cmd_get"] - old;
            assert!((9..=11).contains(&asked), "{asked} of 30 keys");
        }
        // Fewer keys than servers.
        client.expect("get key0 key2\r\n", "VALUE key0 0 1\r\n0\r\nVALUE key2 0 1\r\n2\r\nEND\r\n");
    }
}

#[test]
fn quiet_requests_are_done_and_not_answered() {
    let servers = three();
    for (mode, threads) in MODES {
        let proxy = Proxy::before(mode, threads, &servers);
        let mut client = proxy.client();
        client.expect(
            "flush_all noreply\r\nset a 0 0 1 noreply\r\nx\r\nadd a 0 0 1 noreply\r\ny\r\n\
             ms b 1 q\r\nz\r\nms b 1 q ME\r\nz\r\nmg nothing v q\r\nmg b v q Oq1\r\nmn\r\n",
            // Only the refusal and the hit of the quiet requests are answered.
            "NS\r\nVA 1 Oq1\r\nz\r\nMN\r\n",
        );
        for server in &servers {
            Client::connect(server.address).expect("get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n");
        }
    }
}

#[test]
fn replies_come_in_the_order_of_the_requests() {
    let servers = three();
    for (mode, threads) in MODES {
        let proxy = Proxy::before(mode, threads, &servers);
        std::thread::scope(|scope| {
            for name in 0..8 {
                let mut client = proxy.client();
                scope.spawn(move || {
                    let (mut requests, mut answers) = (String::new(), String::new());
                    for number in 0..300 {
                        let key = format!("k{name}-{}", number % 7);
                        match number % 5 {
                            0 | 1 => {
                                let value = format!("{number:0>width$}", width = number * 3);
                                requests +=
                                    &format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
                                requests += &format!("get {key}\r\n");
                                answers += &format!(
                                    "STORED\r\nVALUE {key} 0 {}\r\n{value}\r\nEND\r\n",
                                    value.len()
                                );
                            }
                            2 => {
                                requests += "bogus\r\n";
                                answers += "ERROR\r\n";
                            }
                            3 => {
                                requests += "mn\r\n";
                                answers += "MN\r\n";
                            }
                            _ => {
                                requests += "get nothing\r\n";
                                answers += "END\r\n";
                            }
                        }
                    }
                    client.expect(&requests, &answers);
                });
            }
        });
    }
}

#[test]
fn cas_has_exactly_one_winner_over_three_servers() {
    let servers = three();
    for (mode, threads) in MODES {
        // Two middlewares give the same tokens.
        let proxies =
            [Proxy::before(mode, threads, &servers), Proxy::before(Mode::Pipelined, 1, &servers)];
        proxies[0].client().expect("flush_all\r\nset n 0 0 1\r\n0\r\n", "OK\r\nSTORED\r\n");
        let stored = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for number in 0..4 {
                let mut client = proxies[number % 2].client();
                let stored = &stored;
                scope.spawn(move || {
                    for _ in 0..40 {
                        let (value, token) = client.gets("n").unwrap();
                        let next = (value.parse::<u64>().unwrap() + 1).to_string();
                        let request = format!("cas n 0 0 {} {token}\r\n{next}\r\n", next.len());
                        match client.ask(&request).as_str() {
                            "STORED" => {
                                stored.fetch_add(1, Ordering::Relaxed);
                            }
                            "EXISTS" => {}
                            other => panic!("{other}"),
                        }
                    }
                });
            }
        });
        let stored = stored.into_inner();
        assert!(stored > 0);
        let expected = format!("VALUE n 0 {}\r\n{stored}\r\nEND\r\n", stored.to_string().len());
        for server in &servers {
            Client::connect(server.address).expect("get n\r\n", &expected);
        }
    }
}

#[test]
fn token_holds_on_all_servers_or_on_none() {
    let servers = three();
    for (mode, threads) in MODES {
        let proxy = Proxy::before(mode, threads, &servers);
        let mut client = proxy.client();
        client.expect("flush_all\r\nset a 0 0 1\r\nx\r\n", "OK\r\nSTORED\r\n");
        let (_, token) = client.gets("a").unwrap();
        // A later request in the same packet sees the effect of the cas.
        client.expect(
            &format!("cas a 0 0 1 {token}\r\ny\r\nget a\r\n"),
            "STORED\r\nVALUE a 0 1\r\ny\r\nEND\r\n",
        );
        client.expect(&format!("cas a 0 0 1 {token}\r\nz\r\n"), "EXISTS\r\n");
        client.expect("cas nothing 0 0 1 7\r\nz\r\n", "NOT_FOUND\r\n");
        // Meta commands use the same tokens.
        client.send("mg a c v\r\n");
        let token = client.line().strip_prefix("VA 1 c").unwrap().to_owned();
        assert_eq!(client.line(), "y");
        client.expect(&format!("ms a 1 C{token}\r\nw\r\n"), "HD\r\n");
        client.expect(&format!("ms a 1 C{token} Ok1\r\nv\r\n"), "EX Ok1\r\n");
        // One server has another value: no token holds.
        Client::connect(servers[2].address).expect("set a 0 0 1\r\n?\r\n", "STORED\r\n");
        let (_, token) = client.gets("a").unwrap();
        client.expect(&format!("cas a 0 0 1 {token}\r\nz\r\n"), "EXISTS\r\n");
    }
}

/// pylibmc, spymemcached and xmemcached read tokens as signed 64-bit integers.
#[test]
fn token_over_several_servers_is_a_signed_integer() {
    let servers = three();
    for (mode, threads) in MODES {
        let proxy = Proxy::before(mode, threads, &servers);
        let mut client = proxy.client();
        for number in 0..64 {
            let key = format!("signed{number}");
            client.expect(&format!("set {key} 0 0 1\r\nx\r\n"), "STORED\r\n");
            let (_, token) = client.gets(&key).unwrap();
            let meta = client.ask(&format!("mg {key} c\r\n"));
            assert_eq!(meta, format!("HD c{token}"));
            assert!(token.to_string().parse::<i64>().is_ok(), "{token}");
            client.expect(&format!("cas {key} 0 0 1 {token}\r\ny\r\n"), "STORED\r\n");
        }
        // Void tokens, too.
        for number in 0..64 {
            let key = format!("signed{number}");
            let set = format!("set {key} 0 0 1\r\n?\r\n");
            Client::connect(servers[2].address).expect(&set, "STORED\r\n");
            let (_, token) = client.gets(&key).unwrap();
            assert!(token.to_string().parse::<i64>().is_ok(), "{token}");
        }
    }
}
