//! The admin port through real sockets, and its text against a strict parser.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _, sink};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use knee_telemetry::{
    Load, LoadClosing, LoadGauges, Middleware, MiddlewareGauges, MiddlewareTimes, Moment, Op,
    Recorder, Reporter, Role, Running, Sample, Stats, Store, StoreGauges,
};

/// A process with one thread that serves its admin port.
fn serve<R: Role>(gauges: R::Gauges) -> (Running<R>, Recorder<R>, SocketAddr) {
    let mut reporter = Reporter::<R>::to_sink("test", Stats::None, Box::new(sink()));
    let recorder = reporter.recorder("net-0", gauges, Moment::now());
    // A leased port: no other test gets it after this test has closed it.
    let listener = TcpListener::bind(knee_testkit::free_address()).unwrap();
    let address = listener.local_addr().unwrap();
    reporter.serve_admin(listener).unwrap();
    (reporter.start().unwrap(), recorder, address)
}

fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(request).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

/// Scrapes until the page has `expected`: a window passes two threads on its way to the totals.
fn scrape(address: SocketAddr, expected: &str) -> String {
    for _ in 0..1000 {
        let response = exchange(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        if body.contains(expected) {
            return body.to_owned();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("no {expected} on the page");
}

/// Parses a page into its samples, as strictly as the format's description (0.0.4).
///
/// Panics if a family lacks HELP or TYPE, is in two places, or has an invalid name or value. Also panics if a sample
/// occurs twice, or if a counter's name does not end in `_total`. A histogram's buckets must be cumulative up to its
/// count.
fn parse(page: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let mut families = BTreeSet::new();
    let mut family: Option<(&str, &str)> = None;
    let mut helped = None;
    let mut buckets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    assert!(page.ends_with('\n'));
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap();
            assert!(!text.is_empty());
            helped = Some(name);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(helped.take(), Some(name), "HELP comes before TYPE");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{kind}");
            assert!(is_name(name), "{name}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
            assert!(families.insert(name), "{name} is in two places");
            family = Some((name, kind));
        } else {
            let (name, labels, value) = sample(line);
            let (family_name, kind) = family.expect("TYPE comes before samples");
            let suffix = name.strip_prefix(family_name).expect("a sample of its family");
            match kind {
                "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
                _ => assert_eq!(suffix, "", "{line}"),
            }
            if kind == "counter" {
                assert!(value >= 0.0, "{line}");
            }
            if suffix == "_bucket" {
                let mut others = labels.clone();
                let le = others.remove("le").expect("le");
                let bound = if le == "+Inf" { f64::INFINITY } else { le.parse().unwrap() };
                buckets
                    .entry(format!("{family_name}_count{others:?}"))
                    .or_default()
                    .push((bound, value));
            } else {
                assert_eq!(labels.get("le"), None, "{line}");
            }
            let id = format!("{name}{labels:?}");
            assert_eq!(samples.insert(id, value), None, "{line} comes twice");
        }
    }
    for (count, buckets) in buckets {
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{count}: {buckets:?}");
        let (bound, all) = buckets.last().unwrap();
        assert_eq!(*bound, f64::INFINITY);
        assert_eq!(samples[&count], *all);
    }
    samples
}

/// Name, labels and value of a sample line.
fn sample(line: &str) -> (&str, BTreeMap<String, String>, f64) {
    let (name, rest) = line.split_once('{').unwrap();
    assert!(is_name(name), "{name}");
    let mut labels = BTreeMap::new();
    let mut rest = rest;
    loop {
        let (label, after) = rest.split_once("=\"").unwrap();
        assert!(is_name(label) && !label.contains(':'), "{label}");
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().unwrap() {
                (end, '"') => break end,
                (_, '\\') => match chars.next().unwrap().1 {
                    'n' => value.push('\n'),
                    c @ ('\\' | '"') => value.push(c),
                    c => panic!("escape of {c}"),
                },
                (_, c) => value.push(c),
            }
        };
        assert_eq!(labels.insert(label.to_owned(), value), None, "{line}");
        rest = &after[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => break,
        }
    }
    let value = rest.strip_prefix("} ").unwrap();
    (name, labels, value.parse().unwrap())
}

fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || c == ':')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

#[test]
fn middleware_page_is_exact() {
    let now = Moment::now();
    let gauges = MiddlewareGauges::new(now.mono, 8, &["[::1]:11212".to_owned()]);
    let (running, mut recorder, address) = serve::<Middleware>(gauges);
    parse(&scrape(address, "knee_requests_total"));

    for response_ns in [40_000, 60_000, 3_000_000] {
        let times = MiddlewareTimes { queueing_ns: 500, service_ns: 30_000, response_ns };
        let sample = Sample {
            times,
            items: 2,
            hits: 1,
            misses: 1,
            bytes_in: 30,
            bytes_out: 50,
            error: false,
        };
        recorder.record(Op::Multiget, &sample);
    }
    recorder.gauges.servers[0].requests = 3;
    recorder.connections = 9;
    recorder.cut(Moment::now());
    recorder.cut(Moment::now());
    let page = scrape(address, "knee_requests_total{role=\"middleware\",op=\"multiget\"} 3\n");
    let samples = parse(&page);

    let expected = [
        (r#"knee_errors_total{"op": "multiget", "role": "middleware"}"#, 0.0),
        (r#"knee_hits_total{"op": "multiget", "role": "middleware"}"#, 3.0),
        (r#"knee_misses_total{"op": "multiget", "role": "middleware"}"#, 3.0),
        (r#"knee_bytes_received_total{"op": "multiget", "role": "middleware"}"#, 90.0),
        (r#"knee_bytes_sent_total{"op": "multiget", "role": "middleware"}"#, 150.0),
        (r#"knee_connections{"role": "middleware"}"#, 9.0),
        (r#"knee_workers{"role": "middleware"}"#, 8.0),
        (r#"knee_server_up{"role": "middleware", "server": "[::1]:11212"}"#, 1.0),
        (r#"knee_server_requests_total{"role": "middleware", "server": "[::1]:11212"}"#, 3.0),
        (
            r#"knee_response_seconds_bucket{"le": "0.00005", "op": "multiget", "role": "middleware"}"#,
            1.0,
        ),
        (
            r#"knee_response_seconds_bucket{"le": "0.0001", "op": "multiget", "role": "middleware"}"#,
            2.0,
        ),
        (r#"knee_response_seconds_sum{"op": "multiget", "role": "middleware"}"#, 0.0031),
        (r#"knee_queueing_seconds_count{"op": "multiget", "role": "middleware"}"#, 3.0),
    ];
    for (sample, value) in expected {
        assert_eq!(samples.get(sample), Some(&value), "{sample} in\n{page}");
    }
    recorder.finish(Moment::now());
    running.finish(|_| ());
}

#[test]
fn pages_of_other_roles_are_exact() {
    let gauges = StoreGauges {
        memory_bytes: 1000,
        items_stored: 10,
        evictions: 2,
        expired: 1,
        ..StoreGauges::default()
    };
    let (running, recorder, address) = serve::<Store>(gauges);
    recorder.finish(Moment::now());
    let samples = parse(&scrape(address, "knee_memory_bytes"));
    assert_eq!(samples[r#"knee_memory_bytes{"role": "store"}"#], 1000.0);
    assert_eq!(samples[r#"knee_evictions_total{"role": "store"}"#], 2.0);
    running.finish(|_| ());

    let gauges = LoadGauges { wrong_values: 4, ..LoadGauges::default() };
    let (running, recorder, address) = serve::<Load>(gauges);
    recorder.finish(Moment::now());
    let samples = parse(&scrape(address, "knee_wrong_values_total"));
    assert_eq!(samples[r#"knee_wrong_values_total{"role": "load"}"#], 4.0);
    running.finish(|_| LoadClosing { clients: 1, ..LoadClosing::default() });
}

#[test]
fn each_request_has_its_status() {
    let (running, recorder, address) = serve::<Store>(StoreGauges::default());
    let rows: &[(&[u8], &str)] = &[
        (b"GET /healthz HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\n"),
        (b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK\r\n"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found\r\n"),
        (b"GET /metrics/x HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found\r\n"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found\r\n"),
        (b"\r\n\r\n", "HTTP/1.1 404 Not Found\r\n"),
    ];
    for (request, expected) in rows {
        let response = exchange(address, request);
        let shown = String::from_utf8_lossy(request);
        assert!(response.starts_with(expected), "{shown:?} was answered {response:?}");
    }
    assert!(exchange(address, b"GET /healthz HTTP/1.1\r\n\r\n").ends_with("\r\n\r\nok\n"));
    recorder.finish(Moment::now());
    running.finish(|_| ());
}

#[test]
fn unfinished_requests_do_not_block_a_scrape() {
    let (running, recorder, address) = serve::<Store>(StoreGauges::default());
    let unfinished: Vec<TcpStream> = (0..500)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost:").unwrap();
            stream
        })
        .collect();
    // Served in turn, the unfinished requests would keep the scrape waiting for minutes.
    assert!(exchange(address, b"GET /healthz HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
    drop(unfinished);
    recorder.finish(Moment::now());
    running.finish(|_| ());
}
