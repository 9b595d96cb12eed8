//! Bounded mailboxes of JSON events, between an application and a node.

use std::collections::VecDeque;

use serde_json::Value;

use crate::clock::Timestamp;
use crate::sync::{Arc, Mutex};

/// A JSON object on its way to or from a node.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// Name of the node it goes to or comes from.
    pub node: Arc<str>,
    /// When it was sent, by the run's clock.
    pub at: Timestamp,
    /// What it says.
    pub data: Value,
}

impl Event {
    /// An event for or from `node`.
    #[must_use]
    pub fn new(node: impl Into<Arc<str>>, at: Timestamp, data: Value) -> Self {
        Self {
            node: node.into(),
            at,
            data,
        }
    }
}

/// Bounded first-in, first-out queue of events. A full mailbox drops the newest and
/// counts it.
///
/// Handles share one queue.
#[derive(Debug, Clone)]
pub struct Mailbox {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    capacity: usize,
    queue: VecDeque<Event>,
    counts: MailboxCounts,
}

/// What has gone through a [`Mailbox`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MailboxCounts {
    /// Events put in.
    pub sent: u64,
    /// Events taken out.
    pub received: u64,
    /// Events dropped, because the mailbox was full or by [`Mailbox::drop_all`].
    pub dropped: u64,
}

impl Mailbox {
    /// Events that a mailbox holds where nobody says otherwise.
    pub const DEFAULT_CAPACITY: usize = 64;

    /// An empty mailbox for `capacity` events.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let inner = Inner {
            capacity,
            queue: VecDeque::new(),
            counts: MailboxCounts::default(),
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    /// Puts `event` in; `false` if the mailbox is full and the event was dropped.
    pub fn send(&self, event: Event) -> bool {
        let mut inner = self.inner.lock();
        if inner.queue.len() >= inner.capacity {
            inner.counts.dropped += 1;
            return false;
        }
        inner.queue.push_back(event);
        inner.counts.sent += 1;
        true
    }

    /// Takes the oldest event out.
    #[must_use]
    pub fn receive(&self) -> Option<Event> {
        let mut inner = self.inner.lock();
        let event = inner.queue.pop_front()?;
        inner.counts.received += 1;
        Some(event)
    }

    /// Drops all events, counts them, and says how many they were.
    pub fn drop_all(&self) -> usize {
        let mut inner = self.inner.lock();
        let count = inner.queue.len();
        inner.queue.clear();
        inner.counts.dropped += count as u64;
        count
    }

    /// What has gone through.
    #[must_use]
    pub fn counts(&self) -> MailboxCounts {
        self.inner.lock().counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(n: u64) -> Event {
        Event::new("camera", Timestamp::from_nanos(n), Value::from(n))
    }

    #[test]
    fn a_full_mailbox_keeps_the_oldest_and_counts_the_newest() {
        let mailbox = Mailbox::new(1);
        assert!(mailbox.send(event(1)));
        assert!(!mailbox.send(event(2)));
        let counts = mailbox.counts();
        assert_eq!((counts.sent, counts.dropped), (1, 1));
        assert_eq!(mailbox.receive().unwrap().data, Value::from(1));
        assert_eq!(mailbox.counts().received, 1);
    }

    #[test]
    fn dropping_all_counts_them() {
        let mailbox = Mailbox::new(4);
        for n in 0..3 {
            assert!(mailbox.send(event(n)));
        }
        assert_eq!(mailbox.drop_all(), 3);
        assert_eq!(mailbox.counts().dropped, 3);
        assert!(mailbox.receive().is_none());
    }
}
