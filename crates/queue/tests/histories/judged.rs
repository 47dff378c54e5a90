//! Whoever judges histories has to be judged, too: by those that can be, and by those that cannot.

use std::time::{Duration, Instant};

use knee_queue::operation::ANYBODY;

use crate::harness::verdict::{Event, GOES_ON, Span, verify};

/// Times are in fifths of what a database may go on with a call.
fn at(time: u64) -> Duration {
    GOES_ON / 5 * time as u32
}

/// What somebody saw, each with its number as its content.
fn named(ids: &[u64]) -> Vec<(u64, String)> {
    ids.iter().map(|id| (*id, id.to_string())).collect()
}

#[test]
fn histories_that_cannot_be_are_found_out() {
    let start = Instant::now();
    let span = |begun: u64, ended: u64| Span { begun: start + at(begun), ended: start + at(ended) };
    let sent = |id: u64, receiver: u32, begun, ended| {
        let (content, queue, id) = (id.to_string(), 1, Some(id));
        Event::Sent { content, queue, receiver, id, span: span(begun, ended) }
    };
    let removed = |id: u64, client, begun, ended| {
        let (content, queue, ids, span) = (id.to_string(), 1, vec![id], span(begun, ended));
        [Event::Taken { client, queue, ids, span }, Event::Had { content, id, span }]
    };
    let leased = |id: u64, queue, attempt, begun, ended| {
        let (client, ids, span) = (5, vec![id], span(begun, ended));
        let visibility = Duration::ZERO;
        let content = id.to_string();
        let leased = Event::Leased { content, id, queue, attempt, visibility, span };
        [Event::Taken { client, queue, ids, span }, leased]
    };
    let read = |client, ids: &[u64], through, begun, ended| {
        let (queue, messages, span) = (1, named(ids), span(begun, ended));
        [Event::Read { client, queue, messages, through, span }]
    };
    let lost_call = |client, queue, begun, ended| {
        [Event::Lost { client, queue, count: 1, is_lease: false, span: span(begun, ended) }]
    };
    let lost = lost_call(5, 1, 4, 5);
    let with = |sent: &[Event], more: &[&[Event]]| {
        verify(&sent.iter().chain(more.iter().copied().flatten()).cloned().collect::<Vec<_>>())
    };
    let both = [sent(1, 5, 0, 1), sent(2, 5, 2, 3)];
    let in_order = [removed(1, 5, 4, 5), removed(2, 5, 6, 7)].concat();
    assert_eq!(with(&both, &[&in_order]), Ok(()));
    // Missing, but for an answer that is; had twice; had as another one; not sent at all.
    assert!(with(&both, &[&in_order[2..]]).is_err());
    assert_eq!(with(&both, &[&in_order[2..], &lost]), Ok(()));
    assert!(with(&both, &[&in_order, &in_order[..2]]).is_err());
    let unknown = Event::Had { content: "2".into(), id: 7, span: span(6, 7) };
    assert!(with(&both, &[&in_order[..2], &[unknown]]).is_err());
    assert!(with(&both[..1], &[&in_order]).is_err());
    // Without an answer, but sent together with one that was had.
    let unanswered = ["1", "2"].map(|content| Event::Sent {
        content: content.into(),
        queue: 1,
        receiver: 5,
        id: None,
        span: span(0, 1),
    });
    let together = [Event::Batch { contents: vec!["1".into(), "2".into()] }];
    assert_eq!(with(&unanswered, &[&together]), Ok(()));
    assert_eq!(with(&unanswered, &[&in_order[..2]]), Ok(()));
    assert!(with(&unanswered, &[&together, &in_order[..2]]).is_err());
    assert_eq!(with(&unanswered, &[&together, &in_order]), Ok(()));
    assert_eq!(with(&unanswered, &[&together, &in_order[..2], &lost]), Ok(()));
    let unsure = [Event::Unsure { content: "2".into(), attempt: 1, span: span(4, 5) }];
    assert_eq!(with(&unanswered, &[&together, &in_order[..2], &unsure]), Ok(()));
    // Without an answer, but somebody has seen it, as what it is and for whom it is.
    let one = &unanswered[..1];
    let had = &in_order[..2];
    for seen in [leased(1, 1, 1, 2, 3).to_vec(), read(5, &[1], 1, 2, 3).to_vec()] {
        assert!(with(one, &[&seen]).is_err());
        assert_eq!(with(one, &[&seen, had]), Ok(()));
        assert_eq!(with(one, &[&seen, &lost]), Ok(()));
        assert!(with(&unanswered, &[&together, &seen, had]).is_err());
        assert_eq!(with(&unanswered, &[&seen, had]), Ok(()));
        let mut another = seen.clone();
        for event in &mut another {
            if let Event::Taken { client, .. } | Event::Read { client, .. } = event {
                *client = 6;
            }
        }
        assert!(with(one, &[&another, had]).is_err());
        // Or not sent at all, or as another one.
        assert!(with(&[], &[&seen]).is_err());
        let mut renamed = seen.clone();
        for event in &mut renamed {
            match event {
                Event::Leased { content, .. } => *content = "2".into(),
                Event::Read { messages, .. } => messages[0].1 = "2".into(),
                _ => {}
            }
        }
        assert!(with(&both, &[&renamed, &in_order]).is_err());
        assert!(with(&unanswered, &[&renamed, had]).is_err());
        assert_eq!(with(&both, &[&seen, &in_order]), Ok(()));
    }
    assert!(with(&both, &[&in_order, &read(5, &[1, 77], u64::MAX, 2, 5)]).is_err());
    // Numbers that do not grow.
    let later_is_lower = [sent(2, 5, 0, 1), sent(1, 5, 2, 3)];
    assert!(with(&later_is_lower, &[&in_order]).is_err());
    let at_once = [sent(2, 5, 0, 2), sent(1, 5, 1, 3)];
    assert_eq!(with(&at_once, &[&in_order]), Ok(()));
    // Overtaken.
    let out_of_order = [removed(2, 5, 4, 5), removed(1, 5, 6, 7)].concat();
    assert!(with(&both, &[&out_of_order]).is_err());
    // Its own and nobody's alike, also where the call had begun before either was sent.
    let mixed = |first, second| [sent(1, first, 0, 1), sent(2, second, 2, 3)];
    for (first, second) in [(5, ANYBODY), (ANYBODY, 5)] {
        let mixed = mixed(first, second);
        assert!(with(&mixed, &[&out_of_order]).is_err());
        let meanwhile = [removed(2, 5, 0, 5), removed(1, 5, 6, 7)].concat();
        assert!(with(&mixed, &[&meanwhile]).is_err());
    }
    // But not by two calls at once, nor by one that may have begun too early, nor by who may not have it.
    let at_once = [removed(2, 5, 4, 6), removed(1, 5, 5, 7)].concat();
    assert_eq!(with(&both, &[&at_once]), Ok(()));
    let sent_at_once = [sent(1, 5, 0, 2), sent(2, 5, 1, 3)];
    let early = [removed(2, 5, 0, 5), removed(1, 5, 6, 7)].concat();
    assert_eq!(with(&sent_at_once, &[&early]), Ok(()));
    let anybodys = [sent(1, 5, 0, 1), sent(2, ANYBODY, 2, 3)];
    let by_another = [removed(2, 6, 4, 5), removed(1, 5, 6, 7)].concat();
    assert_eq!(with(&anybodys, &[&by_another]), Ok(()));
    // Nor where it was hidden: by a lease, by somebody who was undone, or by an answer that is missing.
    assert_eq!(with(&both, &[&out_of_order, &leased(1, 1, 1, 3, 4)]), Ok(()));
    let hidden_by =
        |client, begun, ended| Event::Hidden { client, queue: 1, span: span(begun, ended) };
    let hidden = |begun, ended| hidden_by(5, begun, ended);
    assert_eq!(with(&both, &[&out_of_order, &[hidden(3, 5)]]), Ok(()));
    assert!(with(&both, &[&out_of_order, &[hidden(5, 6)]]).is_err());
    assert!(with(&both, &[&out_of_order, &[hidden_by(6, 3, 5)]]).is_err());
    assert_eq!(with(&mixed(ANYBODY, 5), &[&out_of_order, &[hidden_by(6, 3, 5)]]), Ok(()));
    assert_eq!(with(&both, &[&out_of_order, &lost]), Ok(()));
    assert!(with(&both, &[&out_of_order, &lost_call(5, 2, 4, 5)]).is_err());
    let undone_call = |goes_on, begun, ended| {
        [Event::Undone { client: 5, queue: 1, count: 1, goes_on, span: span(begun, ended) }]
    };
    let undone = undone_call(true, 4, 5);
    assert_eq!(with(&both, &[&out_of_order, &undone]), Ok(()));
    assert!(with(&both, &[&in_order[2..], &undone]).is_err());
    // Nor by who takes nothing though it is there, unless it came or went meanwhile.
    let nothing = |client, queue, begun, ended| {
        [Event::Taken { client, queue, ids: vec![], span: span(begun, ended) }]
    };
    let one = [sent(1, 5, 0, 1)];
    let there = removed(1, 5, 6, 7);
    assert!(with(&one, &[&there, &nothing(5, 1, 2, 5)]).is_err());
    for not_there in [nothing(5, 1, 0, 5), nothing(5, 1, 2, 7), nothing(6, 1, 2, 5)] {
        assert_eq!(with(&one, &[&there, &not_there]), Ok(()));
    }
    assert_eq!(with(&one, &[&there, &nothing(5, 2, 2, 5)]), Ok(()));
    assert_eq!(with(&one, &[&there, &nothing(5, 1, 2, 5), &[hidden(3, 5)]]), Ok(()));
    assert_eq!(with(&one, &[&there, &nothing(5, 1, 2, 5), &lost]), Ok(()));
    assert_eq!(with(&one, &[&there, &nothing(5, 1, 2, 5), &undone]), Ok(()));
    // Looked at, and not seen though it was there: whoever else was just sending or removing it, or had leased it.
    let listed = |client, queues: &[u32], begun, ended| {
        [Event::Listed { client, queues: queues.to_vec(), span: span(begun, ended) }]
    };
    let later = [removed(1, 5, 8, 9), removed(2, 5, 10, 11)].concat();
    assert_eq!(with(&both, &[&later, &read(5, &[1, 2], u64::MAX, 4, 5)]), Ok(()));
    assert!(with(&both, &[&later, &read(5, &[2], u64::MAX, 4, 5)]).is_err());
    assert!(with(&both, &[&later, &read(5, &[1], u64::MAX, 4, 5)]).is_err());
    assert_eq!(with(&both, &[&later, &read(5, &[1], 1, 4, 5)]), Ok(()));
    assert_eq!(with(&both, &[&later, &read(5, &[1], u64::MAX, 2, 5)]), Ok(()));
    assert_eq!(with(&both, &[&later, &read(5, &[2], u64::MAX, 4, 8)]), Ok(()));
    assert_eq!(with(&both, &[&later, &read(6, &[], u64::MAX, 4, 5)]), Ok(()));
    assert_eq!(with(&both, &[&later, &listed(5, &[1], 4, 5)]), Ok(()));
    assert!(with(&both, &[&later, &listed(5, &[], 4, 5)]).is_err());
    assert_eq!(with(&both, &[&later, &listed(6, &[], 4, 5)]), Ok(()));
    for unseen in [read(5, &[], u64::MAX, 4, 5), listed(5, &[], 6, 7)] {
        let one = [sent(1, 5, 0, 1)];
        let later = removed(1, 5, 8, 9);
        assert!(with(&one, &[&later, &unseen, &[hidden(3, 8)]]).is_err());
        assert_eq!(with(&one, &[&later, &unseen, &leased(1, 1, 1, 3, 4)]), Ok(()));
        let gone =
            |is_lease| Event::Lost { client: 5, queue: 1, count: 1, is_lease, span: span(3, 4) };
        assert_eq!(with(&one, &[&later, &unseen, &[gone(true)]]), Ok(()));
        assert!(with(&one, &[&later, &unseen, &[gone(false)]]).is_err());
        assert!(with(&one, &[&later, &unseen, &undone]).is_err());
    }
    // Or seen though it was had.
    assert!(with(&both, &[&later, &read(5, &[1], u64::MAX, 12, 13)]).is_err());
    assert_eq!(with(&both, &[&later, &read(5, &[1], u64::MAX, 8, 13)]), Ok(()));
    // Or by whom it is not for; what is nobody's is for everybody.
    assert!(with(&both, &[&in_order[..2], &removed(2, 6, 6, 7)]).is_err());
    assert!(with(&both, &[&in_order, &read(6, &[1], 1, 2, 3)]).is_err());
    assert_eq!(with(&anybodys, &[&in_order[..2], &removed(2, 6, 6, 7)]), Ok(()));
    // One explains what it could have had: neither another's, nor what was sent long after it.
    assert!(with(&both, &[&in_order[2..], &lost_call(6, 1, 4, 5)]).is_err());
    assert_eq!(with(&anybodys, &[&in_order[..2], &lost_call(6, 1, 4, 5)]), Ok(()));
    let late = [sent(1, 5, 0, 1), sent(2, 5, 20, 21)];
    assert!(with(&late, &[&in_order[..2], &lost_call(5, 1, 4, 5)]).is_err());
    // Nor what was seen when it must have ended, nor what was overtaken by who asked before or after it.
    let seen = |begun, ended| read(5, &[1], 1, begun, ended);
    assert_eq!(with(&both, &[&in_order[2..], &lost, &seen(8, 9)]), Ok(()));
    assert!(with(&both, &[&in_order[2..], &lost, &seen(11, 12)]).is_err());
    assert!(with(&both, &[&out_of_order, &lost_call(5, 1, 5, 6)]).is_err());
    let much_later = [removed(2, 5, 20, 21), removed(1, 5, 22, 23)].concat();
    assert!(with(&both, &[&much_later, &lost]).is_err());
    let later = [removed(2, 5, 7, 8), removed(1, 5, 9, 10)].concat();
    let over = |begun, ended| [Event::Over { span: span(begun, ended) }];
    for gone in [&lost, &undone] {
        assert_eq!(with(&both, &[&later, gone]), Ok(()));
        assert_eq!(with(&both, &[&later, gone, &over(4, 6)]), Ok(()));
        assert!(with(&both, &[&later, gone, &over(5, 6)]).is_err());
    }
    assert!(with(&both, &[&later, &undone_call(false, 4, 5)]).is_err());
    assert_eq!(with(&both, &[&later, &undone_call(false, 6, 8)]), Ok(()));
    assert_eq!(with(&both, &[&much_later, &lost_call(5, 1, 4, 16)]), Ok(()));
    let three = [sent(1, 5, 0, 1), sent(2, 5, 2, 3), sent(3, 5, 2, 3)];
    let twice = [removed(2, 5, 4, 5), removed(3, 5, 20, 21), removed(1, 5, 22, 23)].concat();
    assert!(with(&three, &[&twice, &lost]).is_err());
    assert_eq!(with(&three, &[&twice, &lost_call(5, 1, 4, 16)]), Ok(()));
    // Where no one call can have hidden it each time, there were two of them, which have taken no others.
    let fourth = [&three[..], &[sent(4, 5, 2, 3)]].concat();
    let passed = [&twice[..4], &removed(1, 5, 30, 31)].concat();
    let each = [lost_call(5, 1, 4, 5), lost_call(5, 1, 20, 21)].concat();
    assert_eq!(with(&three, &[&passed, &each]), Ok(()));
    assert!(with(&fourth, &[&passed, &each]).is_err());
    assert_eq!(with(&fourth, &[&passed, &each, &lost_call(5, 1, 20, 21)]), Ok(()));
    assert_eq!(with(&fourth, &[&passed, &lost_call(5, 1, 4, 16), &each[1..]]), Ok(()));
    // Each as many as it asked for, whichever of them may be explained by others as well.
    let two_lost = [lost_call(5, 1, 4, 5), lost_call(6, 1, 4, 5)].concat();
    assert_eq!(with(&anybodys, &[&two_lost]), Ok(()));
    assert!(with(&both, &[&two_lost]).is_err());
}

/// The same, of leases.
#[test]
fn leases_that_cannot_be_are_found_out() {
    const DEAD: u32 = 3;
    let start = Instant::now();
    let span = |begun: u64, ended: u64| Span { begun: start + at(begun), ended: start + at(ended) };
    let sent = |id: u64, queue, begun, ended| {
        let (content, id, span) = (id.to_string(), Some(id), span(begun, ended));
        [Event::Sent { content, queue, receiver: 5, id, span }]
    };
    let removed = |id: u64, queue, begun, ended| {
        let (content, client, ids, span) = (id.to_string(), 5, vec![id], span(begun, ended));
        [Event::Taken { client, queue, ids, span }, Event::Had { content, id, span }]
    };
    let leased = |id: u64, queue, attempt, begun, ended| {
        let (client, ids, span) = (5, vec![id], span(begun, ended));
        let visibility = Duration::ZERO;
        let content = id.to_string();
        let leased = Event::Leased { content, id, queue, attempt, visibility, span };
        [Event::Taken { client, queue, ids, span }, leased]
    };
    let released = |id: u64, queue, attempt, begun, ended| {
        [Event::Released { id, queue, attempt, is_sure: true, span: span(begun, ended) }]
    };
    let lost =
        |queue, is_lease| [Event::Lost { client: 5, queue, count: 1, is_lease, span: span(4, 5) }];
    let looked = |queue, begun, ended| {
        [Event::Read {
            client: 5,
            queue,
            messages: named(&[1]),
            through: 1,
            span: span(begun, ended),
        }]
    };
    let with = |more: &[&[Event]]| verify(&more.concat());
    let (one, two) = (sent(1, 1, 0, 1), sent(2, 1, 2, 3));
    // Leased by two at once; by nobody, but for an answer that is missing; and not had by that.
    let had = removed(1, 1, 12, 13);
    let again = leased(1, 1, 2, 6, 7);
    assert_eq!(with(&[&one, &leased(1, 1, 1, 4, 5), &again, &had]), Ok(()));
    assert!(with(&[&one, &leased(1, 1, 1, 4, 5), &leased(1, 1, 1, 6, 7), &had]).is_err());
    assert!(with(&[&one, &again, &had]).is_err());
    assert!(with(&[&one, &again, &had, &lost(1, false)]).is_err());
    assert_eq!(with(&[&one, &again, &had, &lost(1, true)]), Ok(()));
    assert!(with(&[&one, &leased(1, 1, 1, 4, 5), &lost(1, true)]).is_err());
    // Nor without a lease; it may have been acknowledged, unless it was there afterwards.
    let unsure = |attempt, begun, ended| {
        [Event::Unsure { content: "1".into(), attempt, span: span(begun, ended) }]
    };
    let first = [&one[..], &leased(1, 1, 1, 4, 5)].concat();
    assert_eq!(with(&[&first, &unsure(1, 5, 6)]), Ok(()));
    let second = [&first[..], &leased(1, 1, 2, 20, 21)].concat();
    assert!(with(&[&second, &unsure(1, 5, 6)]).is_err());
    assert!(with(&[&second, &unsure(1, 5, 22)]).is_err());
    assert_eq!(with(&[&second, &unsure(1, 5, 6), &unsure(2, 21, 22)]), Ok(()));
    assert_eq!(with(&[&first, &unsure(1, 5, 6), &looked(1, 6, 7)]), Ok(()));
    assert!(with(&[&first, &unsure(1, 5, 6), &looked(1, 7, 8)]).is_err());
    // Nor by one that came later, or had ended before an earlier attempt.
    assert!(with(&[&one, &leased(1, 1, 2, 2, 3), &had, &lost(1, true)]).is_err());
    let third = [leased(1, 1, 1, 11, 12), leased(1, 1, 3, 13, 14), removed(1, 1, 15, 16)].concat();
    assert!(with(&[&one, &third, &lost(1, true)]).is_err());
    let third = [leased(1, 1, 1, 8, 9), leased(1, 1, 3, 13, 14), removed(1, 1, 15, 16)].concat();
    assert_eq!(with(&[&one, &third, &lost(1, true)]), Ok(()));
    // Nor by one that came after it was overtaken, or not seen.
    let later = Event::Lost { client: 5, queue: 1, count: 1, is_lease: true, span: span(10, 11) };
    let second = [&one[..], &[later], &leased(1, 1, 2, 20, 21), &removed(1, 1, 30, 31)].concat();
    assert_eq!(with(&[&second]), Ok(()));
    for (begun, is_explained) in [(4, false), (11, true)] {
        let overtaken = [&two[..], &removed(2, 1, begun, begun + 1)].concat();
        assert_eq!(with(&[&second, &overtaken]).is_ok(), is_explained);
        let queues = Vec::new();
        let unseen = [Event::Listed { client: 5, queues, span: span(begun, begun + 1) }];
        assert_eq!(with(&[&second, &unseen]).is_ok(), is_explained);
    }
    // It hides its message until that is put back, however late.
    let late = [&one[..], &two, &removed(2, 1, 30, 31), &removed(1, 1, 32, 33)].concat();
    assert!(with(&[&late, &lost(1, false)]).is_err());
    assert_eq!(with(&[&late, &lost(1, true)]), Ok(()));
    // Nobody leases it once it was had.
    assert!(with(&[&one, &removed(1, 1, 4, 5), &leased(1, 1, 1, 6, 7)]).is_err());
    assert_eq!(with(&[&one, &leased(1, 1, 1, 4, 5), &removed(1, 1, 6, 7)]), Ok(()));
    // Overtaken or not seen once it was put back, but not before.
    let back = [&one[..], &two, &leased(1, 1, 1, 4, 5), &had].concat();
    assert_eq!(with(&[&back, &removed(2, 1, 8, 9)]), Ok(()));
    assert!(with(&[&back, &removed(2, 1, 8, 9), &released(1, 1, 1, 6, 7)]).is_err());
    assert_eq!(with(&[&back, &removed(2, 1, 8, 9), &released(1, 1, 1, 6, 8)]), Ok(()));
    assert_eq!(with(&[&back, &removed(2, 1, 8, 14), &released(1, 1, 1, 6, 7)]), Ok(()));
    let looks = [
        Event::Read { client: 5, queue: 1, messages: vec![], through: 1, span: span(8, 9) },
        Event::Listed { client: 5, queues: vec![], span: span(8, 9) },
    ];
    // Nor while somebody has it who was looking for messages when it was put back.
    let follower = |client, queue, begun, ended| {
        [Event::Taken { client, queue, ids: vec![], span: span(begun, ended) }]
    };
    let put_back = [&back[..], &removed(2, 1, 8, 9), &released(1, 1, 1, 6, 7)].concat();
    assert_eq!(with(&[&put_back, &follower(5, 1, 4, 9)]), Ok(()));
    let others = [(6, 1, 4, 9), (5, 4, 4, 9), (5, 1, 4, 8), (5, 1, 6, 9)];
    for (client, queue, begun, ended) in others {
        let other = follower(client, queue, begun, ended);
        assert!(with(&[&put_back, &other]).is_err());
    }
    // Nor while one may who has no answer, or came to nothing, however many others he has.
    let gone = |client, begun, ended| {
        let (queue, count, is_lease, span) = (1, 0, false, span(begun, ended));
        let lost = Event::Lost { client, queue, count, is_lease, span };
        [lost, Event::Undone { client, queue, count, goes_on: true, span }].map(|gone| [gone])
    };
    for (follows, other) in gone(5, 4, 5).iter().zip(&gone(6, 4, 5)) {
        assert_eq!(with(&[&put_back, follows]), Ok(()));
        assert!(with(&[&put_back, other]).is_err());
    }
    // But not where he came too late to see it before it was leased, nor when he must have ended.
    for other in [gone(5, 6, 7), gone(5, 1, 2)].concat() {
        assert!(with(&[&put_back, &other]).is_err());
    }
    let over = |begun, ended| [Event::Over { span: span(begun, ended) }];
    for follows in gone(5, 4, 5) {
        assert!(with(&[&put_back, &follows, &over(6, 7)]).is_err());
        assert_eq!(with(&[&put_back, &follows, &over(4, 7)]), Ok(()));
        assert_eq!(with(&[&put_back, &follows, &over(6, 9)]), Ok(()));
    }
    let refused = |begun, ended| {
        let (client, queue, count, span) = (5, 1, 0, span(begun, ended));
        [Event::Undone { client, queue, count, goes_on: false, span }]
    };
    assert_eq!(with(&[&put_back, &refused(4, 9)]), Ok(()));
    assert!(with(&[&put_back, &refused(3, 4)]).is_err());
    // Nor while its last lease is asked for by who has another answer, or none.
    let locked =
        |id, goes_on, begun, ended| [Event::Locked { id, goes_on, span: span(begun, ended) }];
    assert_eq!(with(&[&put_back, &locked(1, true, 5, 6)]), Ok(()));
    assert_eq!(with(&[&put_back, &locked(1, false, 5, 9)]), Ok(()));
    let others = [(2, true, 5, 9), (1, true, 1, 2), (1, false, 5, 6), (1, true, 7, 9)];
    for (id, goes_on, begun, ended) in others {
        assert!(with(&[&put_back, &locked(id, goes_on, begun, ended)]).is_err());
    }
    // Nor while he may who puts back what was leased for too long: he has found that an earlier lease was over.
    let kept = [&one[..], &two, &leased(1, 1, 1, 4, 5), &leased(1, 1, 2, 6, 7)].concat();
    let kept = [&kept[..], &released(1, 1, 2, 8, 9)].concat();
    for (begun, may_be_followed) in [(10, true), (13, false)] {
        let [passed, had] = [(2, begun), (1, begun + 2)].map(|(id, at)| removed(id, 1, at, at + 1));
        assert_eq!(with(&[&kept, &passed, &had]).is_ok(), may_be_followed);
        assert!(with(&[&kept, &passed, &had, &over(7, 9)]).is_err());
        assert!(with(&[&kept, &passed, &had, &released(1, 1, 1, 5, 6)]).is_err());
    }
    for look in looks {
        let back = [&one[..], &leased(1, 1, 1, 4, 5), &had, &[look]].concat();
        assert_eq!(with(&[&back]), Ok(()));
        assert!(with(&[&back, &released(1, 1, 1, 6, 7)]).is_err());
    }
    // A dead letter comes out of its queue, and only there; what has attempts left does not.
    let limit = Event::Limited { queue: 1, attempts_max: 2, dead_letters: DEAD };
    let dead = [&[limit][..], &one, &leased(1, 1, 1, 4, 5), &again].concat();
    let first = &dead[..4];
    assert_eq!(with(&[&dead, &removed(1, DEAD, 12, 13)]), Ok(()));
    assert_eq!(with(&[&dead, &leased(1, DEAD, 3, 8, 9), &removed(1, DEAD, 12, 13)]), Ok(()));
    assert!(with(&[&dead]).is_err());
    assert!(with(&[&dead, &removed(1, DEAD, 12, 13), &removed(1, DEAD, 14, 15)]).is_err());
    assert!(with(&[&dead, &had]).is_err());
    assert!(with(&[&dead, &removed(1, 4, 12, 13)]).is_err());
    assert!(with(&[&dead, &leased(1, 1, 3, 8, 9), &removed(1, DEAD, 12, 13)]).is_err());
    assert_eq!(with(&[first, &had]), Ok(()));
    assert!(with(&[first, &removed(1, DEAD, 12, 13)]).is_err());
    assert!(with(&[first, &leased(1, DEAD, 2, 8, 9), &removed(1, DEAD, 12, 13)]).is_err());
    assert_eq!(with(&[first, &removed(1, DEAD, 12, 13), &lost(1, true)]), Ok(()));
    let seen =
        Event::Read { client: 5, queue: 1, messages: named(&[1]), through: 1, span: span(8, 9) };
    assert!(with(&[&dead, &removed(1, DEAD, 12, 13), &[seen]]).is_err());
    assert!(with(&[&dead, &unsure(2, 7, 14), &looked(DEAD, 12, 13)]).is_err());
    assert_eq!(with(&[&dead, &unsure(2, 7, 14), &looked(1, 5, 6)]), Ok(()));
    // Not before its last attempt, nor back from there.
    let last = removed(1, DEAD, 12, 13);
    for (begun, ended) in [(2, 3), (4, 5)] {
        assert!(with(&[&dead, &last, &looked(DEAD, begun, ended)]).is_err());
    }
    assert_eq!(with(&[&dead, &last, &looked(DEAD, 4, 8)]), Ok(()));
    let lately = [first, &lost(1, true), &leased(1, DEAD, 3, 8, 9), &last].concat();
    assert_eq!(with(&[&lately, &looked(1, 6, 7)]), Ok(()));
    assert_eq!(with(&[&lately, &looked(1, 9, 14)]), Ok(()));
    assert!(with(&[&lately, &looked(1, 10, 11)]).is_err());
    let seen = [first, &lost(1, true), &looked(DEAD, 8, 9), &last].concat();
    assert_eq!(with(&[&seen, &looked(1, 9, 11)]), Ok(()));
    assert!(with(&[&seen, &looked(1, 10, 11)]).is_err());
    // It is missing where the call could not have had it.
    assert_eq!(with(&[&dead, &lost(DEAD, false)]), Ok(()));
    assert!(with(&[first, &lost(DEAD, false)]).is_err());
    assert!(with(&[&dead, &lost(4, false)]).is_err());
    let lease = |client, begun, ended| {
        let (queue, count, is_lease, span) = (1, 1, true, span(begun, ended));
        Event::Lost { client, queue, count, is_lease, span }
    };
    let unseen = [&dead[..1], &one, &lost(DEAD, false)].concat();
    assert_eq!(with(&[&unseen, &[lease(5, 2, 3), lease(5, 3, 4)]]), Ok(()));
    assert_eq!(with(&[&unseen, &[lease(5, 2, 3)], &leased(1, 1, 1, 3, 4)]), Ok(()));
    assert!(with(&[&unseen, &[lease(5, 2, 3)]]).is_err());
    assert!(with(&[&unseen, &[lease(5, 2, 3), lease(6, 3, 4)]]).is_err());
    assert!(with(&[&unseen, &[lease(5, 2, 3), lease(5, 10, 11)]]).is_err());
    let late = [&dead[..1], &sent(1, 1, 8, 9), &lost(DEAD, false)].concat();
    assert_eq!(with(&[&late, &[lease(5, 4, 5), lease(5, 4, 5)]]), Ok(()));
    assert!(with(&[&late, &[lease(5, 2, 3), lease(5, 4, 5)]]).is_err());
    // It is there once the last of those who had it has put it back.
    let overtaken =
        [&dead[..], &sent(2, DEAD, 2, 3), &removed(2, DEAD, 10, 11), &removed(1, DEAD, 12, 13)];
    let overtaken = overtaken.concat();
    assert_eq!(with(&[&overtaken, &released(1, 1, 1, 5, 6)]), Ok(()));
    assert_eq!(with(&[&overtaken, &released(1, 1, 2, 8, 9)]), Ok(()));
    let overtaken = [&overtaken[..], &released(1, 1, 1, 5, 6)].concat();
    assert!(with(&[&overtaken, &released(1, 1, 2, 8, 9)]).is_err());
    // Unless somebody has followed it there.
    assert_eq!(with(&[&overtaken, &released(1, 1, 2, 8, 9), &follower(5, 1, 6, 11)]), Ok(()));
    let hidden = |queue| [Event::Hidden { client: 5, queue, span: span(8, 11) }];
    assert_eq!(with(&[&overtaken, &released(1, 1, 2, 8, 9), &hidden(1)]), Ok(()));
    assert!(with(&[&overtaken, &released(1, 1, 2, 8, 9), &hidden(4)]).is_err());
}

/// And of how long they hide their messages.
#[test]
fn messages_that_come_back_before_their_leases_are_over_are_found_out() {
    const DEAD: u32 = 3;
    let start = Instant::now();
    let span = |begun: u64, ended: u64| Span { begun: start + at(begun), ended: start + at(ended) };
    let sent = {
        let (content, id, span) = ("1".to_owned(), Some(1), span(0, 1));
        [Event::Sent { content, queue: 1, receiver: 5, id, span }]
    };
    let removed = |queue, begun, ended| {
        let (content, id, span) = ("1".to_owned(), 1, span(begun, ended));
        [Event::Taken { client: 5, queue, ids: vec![id], span }, Event::Had { content, id, span }]
    };
    let leased = |queue, attempt, length, begun, ended| {
        let (id, visibility, span) = (1, at(length), span(begun, ended));
        let content = "1".to_owned();
        let leased = Event::Leased { content, id, queue, attempt, visibility, span };
        [Event::Taken { client: 5, queue, ids: vec![id], span }, leased]
    };
    let read = |begun, ended| {
        [Event::Read {
            client: 5,
            queue: 1,
            messages: named(&[1]),
            through: 1,
            span: span(begun, ended),
        }]
    };
    let extended = |length, begun, ended| {
        let (visibility, span) = (at(length), span(begun, ended));
        [Event::Extended { id: 1, attempt: 1, visibility, span }]
    };
    let released = |is_sure, begun, ended| {
        [Event::Released { id: 1, queue: 1, attempt: 1, is_sure, span: span(begun, ended) }]
    };
    let with = |more: &[&[Event]]| verify(&[&sent[..], &more.concat()].concat());
    let is_hidden = |more: &[&[Event]]| {
        let why = with(more).unwrap_err();
        assert!(why.contains("is hidden by"), "{why}");
    };
    let (first, last) = (leased(1, 1, 10, 2, 4), removed(1, 20, 21));
    // Until the twelfth: neither to who removes it nor to who leases it, also at the same time, nor to who looks.
    is_hidden(&[&first, &removed(1, 5, 11)]);
    is_hidden(&[&first, &removed(1, 3, 5)]);
    is_hidden(&[&first, &leased(1, 2, 0, 5, 11), &last]);
    is_hidden(&[&first, &leased(1, 2, 0, 1, 3), &last]);
    is_hidden(&[&first, &read(5, 11), &last]);
    // But to who may have come later, or has looked before.
    assert_eq!(with(&[&first, &removed(1, 5, 12)]), Ok(()));
    assert_eq!(with(&[&first, &leased(1, 2, 0, 5, 12), &last]), Ok(()));
    assert_eq!(with(&[&first, &read(5, 12), &last]), Ok(()));
    assert_eq!(with(&[&first, &read(1, 3), &last]), Ok(()));
    let mut acknowledged = removed(1, 2, 6);
    acknowledged[0] = first[0].clone();
    assert_eq!(with(&[&acknowledged, &first[1..]]), Ok(()));
    // Though an attempt is missing in between, of which there is no answer; and in the queue of dead letters.
    let (queue, is_lease, count) = (1, true, 1);
    let lost = [Event::Lost { client: 5, queue, count, is_lease, span: span(5, 6) }];
    is_hidden(&[&first, &lost, &leased(1, 3, 0, 7, 11), &last]);
    assert_eq!(with(&[&first, &lost, &leased(1, 3, 0, 7, 12), &last]), Ok(()));
    let limit = [Event::Limited { queue: 1, attempts_max: 1, dead_letters: DEAD }];
    is_hidden(&[&limit, &first, &removed(DEAD, 5, 11)]);
    assert_eq!(with(&[&limit, &first, &removed(DEAD, 5, 12)]), Ok(()));
    // Whoever has asked for it to be put back may have had that at once, whatever he was told.
    for is_sure in [true, false] {
        let back = released(is_sure, 6, 15);
        assert_eq!(with(&[&first, &back, &removed(1, 5, 7)]), Ok(()));
        assert_eq!(with(&[&first, &back, &leased(1, 2, 0, 5, 7), &last]), Ok(()));
        is_hidden(&[&first, &back, &removed(1, 5, 6)]);
    }
    // Its end is where it was extended to, to those who come behind that; to others it may be either.
    is_hidden(&[&first, &extended(10, 8, 9), &removed(1, 13, 17)]);
    assert_eq!(with(&[&first, &extended(10, 8, 9), &removed(1, 13, 18)]), Ok(()));
    assert_eq!(with(&[&first, &extended(10, 8, 14), &removed(1, 13, 17)]), Ok(()));
    is_hidden(&[&first, &extended(10, 8, 14), &removed(1, 7, 11)]);
    assert_eq!(with(&[&first, &extended(1, 5, 6), &removed(1, 7, 8)]), Ok(()));
    is_hidden(&[&first, &extended(1, 9, 10), &removed(1, 7, 8)]);
    assert_eq!(with(&[&first, &extended(10, 5, 6), &released(false, 8, 9), &last]), Ok(()));
}
