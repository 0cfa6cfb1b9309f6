//! Objects behind handles.
//!
//! C gets numbers, never pointers: a handle that was freed, or belongs to another kind, is simply not found.
//! Numbers are never reused, also not by objects of another kind. While a call uses an object, it is out of the
//! registry, so that another thread, or a callback of its own, finds it busy.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::boundary::guard;
use crate::status::*;

/// The number that was given last, to an object of any kind.
static LAST: AtomicU64 = AtomicU64::new(0);

/// All objects of one kind.
pub(crate) struct Registry<T> {
    objects: LazyLock<Mutex<Objects<T>>>,
}

struct Objects<T> {
    /// `None` while a call uses the object.
    all: HashMap<u64, Option<T>>,
}

impl<T> Registry<T> {
    pub(crate) const fn new() -> Registry<T> {
        Registry {
            objects: LazyLock::new(|| {
                Mutex::new(Objects {
                    all: HashMap::new(),
                })
            }),
        }
    }

    /// Inserts an object and returns its handle, which is not zero.
    pub(crate) fn insert(&self, object: T) -> u64 {
        let mut objects = self.lock();
        let handle = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        objects.all.insert(handle, Some(object));
        handle
    }

    /// Removes and returns the object, which is then dropped outside the lock.
    pub(crate) fn remove(&self, handle: u64) -> Result<T, dormouse_status> {
        let mut objects = self.lock();
        match objects.all.get(&handle) {
            None => Err(DORMOUSE_NO_SUCH_HANDLE),
            Some(None) => Err(DORMOUSE_BUSY),
            Some(Some(_)) => {
                let removed = objects.all.remove(&handle).flatten();
                // Frees the memory after a burst of handshakes, also if some of them stay.
                if objects.all.len() <= objects.all.capacity() / 8 {
                    objects.all.shrink_to_fit();
                }
                removed.ok_or(DORMOUSE_NO_SUCH_HANDLE)
            }
        }
    }

    /// Runs one call on the object.
    pub(crate) fn with<R>(
        &self,
        handle: u64,
        work: impl FnOnce(&mut T) -> R,
    ) -> Result<R, dormouse_status> {
        /// Puts the object back, even if `work` unwinds.
        struct Returns<'a, T>(&'a Registry<T>, u64, Option<T>);
        impl<T> Drop for Returns<'_, T> {
            fn drop(&mut self) {
                let object = self.2.take();
                self.0.lock().all.insert(self.1, object);
            }
        }
        let taken = match self.lock().all.get_mut(&handle) {
            None => return Err(DORMOUSE_NO_SUCH_HANDLE),
            Some(object) => object.take().ok_or(DORMOUSE_BUSY)?,
        };
        let mut returns = Returns(self, handle, Some(taken));
        returns.2.as_mut().map(work).ok_or(DORMOUSE_BUSY)
    }

    /// Returns a copy, for objects that are cheap to copy and never busy.
    pub(crate) fn get(&self, handle: u64) -> Result<T, dormouse_status>
    where
        T: Clone,
    {
        let objects = self.lock();
        let object = objects.all.get(&handle).ok_or(DORMOUSE_NO_SUCH_HANDLE)?;
        object.clone().ok_or(DORMOUSE_BUSY)
    }

    fn lock(&self) -> MutexGuard<'_, Objects<T>> {
        // No code that can panic runs under the lock.
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Registers the object that `work` makes. Returns its handle, or 0 and the reason.
pub(crate) fn make<T>(
    registry: &Registry<T>,
    work: impl FnOnce() -> Result<T, Refusal>,
) -> (dormouse_result, u64) {
    match guard(|| work().map(|made| registry.insert(made))) {
        Ok(Ok(id)) => (dormouse_result::OK, id),
        Ok(Err(refusal)) => (refusal.into(), 0),
        Err(panic) => (panic.into(), 0),
    }
}

/// Changes any object.
pub(crate) fn change<T>(
    registry: &Registry<T>,
    id: u64,
    change: impl FnOnce(&mut T) -> Result<(), Refusal>,
) -> dormouse_result {
    match guard(|| registry.with(id, change)) {
        Ok(Ok(Ok(()))) => dormouse_result::OK,
        Ok(Ok(Err(refusal))) => refusal.into(),
        Ok(Err(status)) | Err(status) => status.into(),
    }
}

/// Frees any object.
pub(crate) fn free<T>(registry: &Registry<T>, id: u64) -> dormouse_status {
    let freed = guard(|| registry.remove(id).map(drop));
    match freed.and_then(|removed| removed) {
        Ok(()) => DORMOUSE_OK,
        Err(status) => status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_valid_until_freed_and_never_again() {
        let registry = Registry::new();
        let one = registry.insert("one");
        assert_eq!(registry.get(0), Err(DORMOUSE_NO_SUCH_HANDLE));
        assert_eq!(registry.get(one), Ok("one"));
        assert_eq!(registry.remove(one), Ok("one"));
        assert_eq!(registry.remove(one), Err(DORMOUSE_NO_SUCH_HANDLE));
        assert_ne!(registry.insert("two"), one);
        assert_eq!(registry.get(one), Err(DORMOUSE_NO_SUCH_HANDLE));
    }

    #[test]
    fn a_handle_of_another_kind_is_not_found() {
        let (words, numbers) = (Registry::new(), Registry::new());
        let word = words.insert("one");
        let number = numbers.insert(1);
        assert_eq!(words.get(number), Err(DORMOUSE_NO_SUCH_HANDLE));
        assert_eq!(numbers.get(word), Err(DORMOUSE_NO_SUCH_HANDLE));
    }

    #[test]
    fn memory_of_a_burst_is_freed_although_one_object_stays() {
        let registry = Registry::new();
        let handles: Vec<u64> = (0..10_000).map(|n| registry.insert(n)).collect();
        for handle in handles.iter().skip(1) {
            registry.remove(*handle).unwrap();
        }
        assert!(registry.lock().all.capacity() < 100);
        assert_eq!(registry.get(handles[0]), Ok(0));
    }

    #[test]
    fn an_object_in_use_is_busy_and_returns_even_after_a_panic() {
        let registry = Registry::new();
        let one = registry.insert(1);
        let nested = registry.with(one, |number| {
            *number += 1;
            (registry.with(one, |_| ()), registry.remove(one))
        });
        assert_eq!(nested, Ok((Err(DORMOUSE_BUSY), Err(DORMOUSE_BUSY))));
        let panics = || registry.with(one, |_| panic!("as a test"));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics));
        assert!(outcome.is_err());
        assert_eq!(registry.get(one), Ok(2));
    }
}
