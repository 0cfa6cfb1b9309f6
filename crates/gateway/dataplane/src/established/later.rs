//! What the worker wants to do with connections of which a side is in deep rest.

use crate::close_reason::CloseReason;
use crate::established::step::Event;
use std::collections::HashMap;

/// What is done with connections when all their sides are awake, by slot, with their generations.
#[derive(Default)]
pub(super) struct Later {
    events: HashMap<u32, (u32, LaterEvent)>,
}

/// An event that does not come again by itself.
#[derive(Clone, Copy)]
enum LaterEvent {
    Close(CloseReason),
    CloseOne(CloseReason),
    Refuse,
}

impl Later {
    /// Remembers an event, if it does not come again by itself.
    pub(super) fn note(&mut self, index: u32, generation: u32, event: &Event) {
        let later = match event {
            Event::Close(reason) => LaterEvent::Close(*reason),
            Event::CloseOne(reason) => LaterEvent::CloseOne(*reason),
            Event::Refuse => LaterEvent::Refuse,
            _ => return,
        };
        self.events.insert(index, (generation, later));
    }

    /// Takes the event of a connection.
    pub(super) fn take(&mut self, index: u32, generation: u32) -> Option<Event> {
        let (of, event) = self.events.remove(&index)?;
        (of == generation).then_some(match event {
            LaterEvent::Close(reason) => Event::Close(reason),
            LaterEvent::CloseOne(reason) => Event::CloseOne(reason),
            LaterEvent::Refuse => Event::Refuse,
        })
    }

    /// Follows a slot that was moved.
    pub(super) fn moved(&mut self, from: u32, to: u32) {
        if let Some(event) = self.events.remove(&from) {
            self.events.insert(to, event);
        }
    }

    /// Forgets a slot that is freed.
    pub(super) fn forget(&mut self, index: u32) {
        if !self.events.is_empty() {
            self.events.remove(&index);
        }
    }

    /// The number of connections that wait.
    pub(super) fn len(&self) -> u32 {
        self.events.len() as u32
    }
}
