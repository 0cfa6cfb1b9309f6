//! Entries in the heap, found by index and generation.

use crate::token::Id;

/// Entries. An id whose entry was taken finds nothing, even if its index is used again.
pub(crate) struct Entries<T> {
    all: Vec<Option<(u32, T)>>,
    free: Vec<u32>,
}

impl<T> Default for Entries<T> {
    fn default() -> Entries<T> {
        Entries {
            all: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Entries<T> {
    pub(crate) fn live(&self) -> usize {
        self.all.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, generation: u32, entry: T) -> Id {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            (self.all.len() - 1) as u32
        });
        if let Some(room) = self.all.get_mut(index as usize) {
            *room = Some((generation, entry));
        }
        (index, generation)
    }

    pub(crate) fn get(&self, (index, generation): Id) -> Option<&T> {
        let (of_entry, entry) = self.all.get(index as usize)?.as_ref()?;
        (*of_entry == generation).then_some(entry)
    }

    pub(crate) fn get_mut(&mut self, (index, generation): Id) -> Option<&mut T> {
        let (of_entry, entry) = self.all.get_mut(index as usize)?.as_mut()?;
        (*of_entry == generation).then_some(entry)
    }

    /// Removes an entry.
    pub(crate) fn take(&mut self, id: Id) -> Option<T> {
        self.get(id)?;
        let (_, entry) = self.all.get_mut(id.0 as usize)?.take()?;
        self.free.push(id.0);
        Some(entry)
    }

    /// The ids of all entries.
    pub(crate) fn ids(&self) -> Vec<Id> {
        let all = self.all.iter().zip(0..);
        all.filter_map(|(entry, index)| Some((index, entry.as_ref()?.0)))
            .collect()
    }
}
