//! What happens between two steps of a client, where nobody comes in from outside.
#![allow(clippy::unwrap_used)]

use std::future::poll_fn;
use std::sync::mpsc::channel;
use std::task::Poll;
use std::time::Duration;

use knee_random::Random;
use knee_telemetry::{LoadGauges, Moment, Reporter, Stats};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::yield_now;

use super::super::{Identity, Receivers, Round, Workload};
use super::*;
use crate::run::Plan;

#[test]
fn who_is_back_only_after_the_end_asks_nothing_more() {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    runtime.unwrap().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // It says what is said first, and nothing more.
        let accept = async move || {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"\0\0\0\x04\0\0\0\0\0").await.unwrap();
            stream
        };
        let (standing, stream) = tokio::join!(connect(address), accept());
        let mut standing = standing.unwrap();
        drop(stream);
        while !standing.is_lost() {
            yield_now().await;
        }
        let accepting = spawn_local(async move { accept().await });
        let thread = Rc::new(closed_loop(address, standing));
        let ringing = Rc::clone(&thread);
        spawn_local(async move { ringing.alarms.ring().await });
        let asking = Rc::clone(&thread).ask_in_turn(0, Think::Never);
        tokio::pin!(asking);
        // The end comes as soon as it has begun to wait for its connection.
        let waits = poll_fn(|context| Poll::Ready(asking.as_mut().poll(context).is_pending()));
        assert!(waits.await);
        assert!(thread.speakers[0].standing.borrow().is_none());
        thread.runs.set(false);
        poll_fn(|context| match asking.as_mut().poll(context) {
            // Nobody would answer.
            Poll::Pending if thread.asked.get() == 0 => Poll::Pending,
            _ => Poll::Ready(()),
        })
        .await;
        assert!(thread.speakers[0].standing.borrow().is_some());
        assert_eq!(thread.asked.get(), 0);
        drop(accepting.await.unwrap());
    });
}

/// One client of a queue, with this connection.
fn closed_loop(address: SocketAddr, standing: Standing) -> Thread {
    let plan = Plan {
        servers: vec![address],
        clients: 1,
        threads: 1,
        pipeline: 1,
        pace: Pace::Closed(Think::Never),
        length: Duration::from_secs(60),
        drain: Duration::ZERO,
        start_at_unix_s: None,
        seed: 1,
        verify: false,
    };
    let workload = Workload { round: Round::Send, receivers: Receivers::Itself, characters: 5 };
    let identity = Identity { client: 1, queue: 1 };
    let speaker = Speaker {
        server: 0,
        address,
        talk: RefCell::new(Talk::new(workload, identity, Random::stream(1, 1))),
        standing: RefCell::new(Some(standing)),
        backoff: Backoff::new(Instant::now()),
        in_flight: Cell::default(),
    };
    let mut reporter = Reporter::new("knee-load", Stats::None).unwrap();
    let mut recorder = reporter.recorder("load-0", LoadGauges::default(), Moment::now());
    recorder.connections = 1;
    let run = Arc::new(Run::new(plan, channel().0));
    Thread::new(run, vec![speaker], vec![1], recorder, 0, Instant::now()).unwrap()
}
