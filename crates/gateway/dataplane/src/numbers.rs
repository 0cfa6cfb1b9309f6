//! A set of route numbers.

/// Numbers of routes.
#[derive(Default)]
pub(crate) struct Numbers(Vec<bool>);

impl Numbers {
    /// Whether the number is one of them.
    pub(crate) fn contains(&self, number: u16) -> bool {
        self.0.get(usize::from(number)).is_some_and(|&is| is)
    }

    /// Adds a number.
    pub(crate) fn add(&mut self, number: u16) {
        let at = usize::from(number);
        if at >= self.0.len() {
            self.0.resize(at + 1, false);
        }
        self.0[at] = true;
    }
}
