//! `dormouse connections --by`: numbers of connections by route, by backend and by age.

use std::collections::BTreeMap;

use clap::ValueEnum;
use dormouse_handover::connections::{AgesPage, NamedAges};
use dormouse_handover::status::AgeFigures;
use dormouse_printable::lines;

use crate::{table, terminal};

/// What connections are counted by.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(super) enum By {
    Route,
    Backend,
    Age,
}

/// Numbers of connections by age.
#[derive(Default)]
pub(super) struct CountedAges {
    matched: u64,
    /// Connections without a fact that decides.
    pub(super) unknown: u64,
    /// Of each route or backend, in the order of their names; of all, under an empty name.
    groups: BTreeMap<String, AgeFigures>,
}

impl CountedAges {
    /// Adds a page.
    pub(super) fn add(&mut self, page: &AgesPage, by: By) {
        self.matched += u64::from(page.matched);
        self.unknown += u64::from(page.unknown);
        let groups = match by {
            By::Route | By::Age => &page.routes,
            By::Backend => &page.backends,
        };
        for NamedAges { name, ages } in groups {
            let name = if by == By::Age { "" } else { name };
            let sum = self.groups.entry(name.to_owned()).or_default();
            sum.under_1h += ages.under_1h;
            sum.under_1d += ages.under_1d;
            sum.under_7d += ages.under_7d;
            sum.older += ages.older;
        }
    }

    /// The groups, the largest first.
    fn largest_first(&self) -> Vec<(&String, &AgeFigures)> {
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_by_key(|(_, ages)| std::cmp::Reverse(ages.all()));
        groups
    }

    pub(super) fn print_json(&self, by: By) {
        let groups = self.largest_first().into_iter();
        let groups = groups.map(|(name, ages)| NamedAges {
            name: name.clone(),
            ages: ages.clone(),
        });
        let mut document = serde_json::json!({
            "matched": self.matched,
            "unknown": self.unknown,
        });
        match by {
            By::Route => document["routes"] = groups.map(json_of).collect(),
            By::Backend => document["backends"] = groups.map(json_of).collect(),
            By::Age => {
                let all = self.groups.values().next().cloned().unwrap_or_default();
                document["ages"] = json_of(all);
            }
        }
        terminal::print_json(&document);
    }

    pub(super) fn print(&self, by: By) {
        let head = match by {
            By::Age => return self.print_ages(),
            By::Route => "route",
            By::Backend => "backend",
        };
        let titles = [head, "connections", "over 1 h", "over 1 d", "over 7 d"];
        let mut rows = vec![titles.map(str::to_owned)];
        for (name, ages) in self.largest_first() {
            let [hour, day, week] = ages.older_than();
            let numbers = [ages.all(), hour, day, week].map(|number| number.to_string());
            let [all, hour, day, week] = numbers;
            rows.push([name.clone(), all, hour, day, week]);
        }
        let table = table::columns(&rows, [false, true, true, true, true]);
        terminal::print(&lines(&table).to_string());
    }

    fn print_ages(&self) {
        let all = self.groups.values().next().cloned().unwrap_or_default();
        let rows = [
            ("under 1 h", all.under_1h),
            ("under 1 d", all.under_1d),
            ("under 7 d", all.under_7d),
            ("older", all.older),
        ];
        let rows = rows.map(|(age, number)| [age.to_owned(), number.to_string()]);
        terminal::print(&table::columns(&rows, [false, true]));
    }
}

fn json_of(figures: impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(figures).unwrap_or_default()
}
