//! Numbers of connections by age.

use serde::{Deserialize, Serialize};

/// Connections by age: in `connections` to ten minutes, in routes and backends to a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgeFigures {
    /// Established less than an hour ago.
    pub under_1h: u64,
    /// Established at least an hour ago, and less than a day.
    pub under_1d: u64,
    /// Established at least a day ago, and less than a week.
    pub under_7d: u64,
    /// Established at least a week ago.
    pub older: u64,
}

impl AgeFigures {
    /// Their sum.
    pub fn all(&self) -> u64 {
        self.older_than()[0].wrapping_add(self.under_1h)
    }

    /// Numbers of those at least an hour, a day and a week old.
    pub fn older_than(&self) -> [u64; 3] {
        let week = self.older;
        let day = week.wrapping_add(self.under_7d);
        [day.wrapping_add(self.under_1d), day, week]
    }
}
