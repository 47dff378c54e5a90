//! What may have come of calls that have no answer.

use std::collections::HashSet;
use std::time::Instant;

use knee_queue::operation::{ANYBODY, QueueId};

use super::ends::Ends;
use super::{Event, Message};

/// What a lost call has to explain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap<'e> {
    pub(super) message: &'e Message<'e>,
    pub(super) kind: Kind,
    /// It has not happened before, or has still been so then.
    pub(super) after: Option<Instant>,
    /// It has happened before.
    pub(super) before: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It was removed.
    Missing,
    /// It was leased.
    Attempt,
    /// Either, or it was hidden in vain.
    Hidden,
    /// It was leased, and nobody sees it: what is only locked is there for who looks.
    Unseen,
}

/// What is missing, overtaken or not seen, by the lost calls of which each one may be.
pub(super) struct Explained<'e> {
    lost: Vec<&'e Event>,
    ends: &'e Ends,
    /// Of each call.
    gaps: Vec<Vec<Gap<'e>>>,
}

impl<'e> Explained<'e> {
    pub(super) fn by(events: &'e [Event], ends: &'e Ends) -> Explained<'e> {
        let is_lost = |event: &&Event| matches!(event, Event::Lost { .. } | Event::Undone { .. });
        let lost: Vec<_> = events.iter().filter(is_lost).collect();
        let gaps = vec![Vec::new(); lost.len()];
        Explained { lost, ends, gaps }
    }

    /// Finds a call for each of these gaps.
    pub(super) fn find_each(&mut self, gaps: &[Gap<'e>]) -> bool {
        gaps.iter().all(|&gap| self.find(gap, &mut HashSet::new()))
    }

    /// Finds calls for more gaps of a message, with why there must be one, beside those that have been `found`. One
    /// call may be that for many of them, which is one message for it: but where no two can have the same, there are
    /// as many calls as gaps.
    pub(super) fn find_also(
        &mut self,
        found: &[Gap<'e>],
        more: Vec<(Gap<'e>, String)>,
    ) -> Result<(), String> {
        let mut found: HashSet<usize> = found.iter().flat_map(|&gap| self.calls(gap)).collect();
        let mut more: Vec<_> =
            more.into_iter().map(|(gap, why)| (self.calls(gap), gap, why)).collect();
        // Those first that have the least choice.
        more.sort_by_key(|(calls, ..)| calls.len());
        for (calls, gap, why) in more {
            if calls.iter().any(|call| found.contains(call)) {
                continue;
            }
            if !self.find(gap, &mut HashSet::new()) {
                return Err(why);
            }
            found.extend(calls);
        }
        Ok(())
    }

    /// Finds a call for a gap, be it that those it has go to others: an augmenting path of a matching (Kuhn
    /// 1955). Calls that were `tried` are of no use.
    fn find(&mut self, gap: Gap<'e>, tried: &mut HashSet<usize>) -> bool {
        for call in 0..self.lost.len() {
            if !self.could_be(call, gap) || !tried.insert(call) {
                continue;
            }
            if self.gaps[call].len() < self.count(call) {
                self.gaps[call].push(gap);
                return true;
            }
            for place in 0..self.gaps[call].len() {
                if self.find(self.gaps[call][place], tried) {
                    self.gaps[call][place] = gap;
                    return true;
                }
            }
        }
        false
    }

    /// The calls that could be the one for a gap.
    fn calls(&self, gap: Gap<'_>) -> Vec<usize> {
        (0..self.lost.len())
            .filter(|&call| self.count(call) > 0 && self.could_be(call, gap))
            .collect()
    }

    /// How many messages it may have had.
    fn count(&self, call: usize) -> usize {
        match self.lost[call] {
            Event::Lost { count, .. } | Event::Undone { count, .. } => *count as usize,
            _ => 0,
        }
    }

    /// Whether the call could have had the message, and done that to it.
    fn could_be(&self, call: usize, gap: Gap<'_>) -> bool {
        let Gap { message, kind, after, before } = gap;
        // What was leased is hidden until somebody puts it back, whenever that is.
        let (client, queue, span, goes_on, does, hides_on) = match self.lost[call] {
            Event::Lost { client, queue, is_lease, span, .. } => {
                let does = match kind {
                    Kind::Missing => !is_lease,
                    Kind::Attempt | Kind::Unseen => *is_lease,
                    Kind::Hidden => true,
                };
                let is_passed = matches!(kind, Kind::Hidden | Kind::Unseen);
                (client, queue, span, true, does, *is_lease && is_passed)
            }
            Event::Undone { client, queue, goes_on, span, .. } => {
                (client, queue, span, *goes_on, kind == Kind::Hidden, false)
            }
            _ => return false,
        };
        let ended = self.ends.end(span, goes_on);
        does && (*queue == message.queue || self.could_be_dead(message, *queue, ended))
            && [*client, ANYBODY].contains(&message.receiver)
            && message.sent.begun < ended
            && (hides_on || after.is_none_or(|after| after < ended))
            && before.is_none_or(|before| span.begun < before)
    }

    /// Whether the message could have come to this queue after all its attempts, seen or lost, before a call had ended.
    fn could_be_dead(&self, message: &Message<'_>, queue: QueueId, ended: Instant) -> bool {
        let Some(limit) = message.limit.filter(|limit| limit.dead_letters == queue) else {
            return false;
        };
        let may_have_leased = |lost: &&&Event| match lost {
            Event::Lost { client, queue, is_lease: true, span, .. } => {
                *queue == message.queue
                    && [*client, ANYBODY].contains(&message.receiver)
                    && message.sent.begun < self.ends.end(span, true)
                    && span.begun < ended
            }
            _ => false,
        };
        let needed = (limit.attempts_max as usize).saturating_sub(message.attempts.len());
        self.lost.iter().filter(may_have_leased).take(needed).count() == needed
    }
}
