//! Files, or the parts of a folder, and the imports between them; cycles, and where to cut them.

use super::folders::Folders;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

/// The imported names, with the place that mentions each first.
type Names = BTreeMap<String, Place>;

#[derive(Default)]
pub(crate) struct Graph {
    /// By importing part, then by imported part. A part is a file or a folder.
    imports: BTreeMap<String, BTreeMap<String, Names>>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) file: String,
    pub(crate) line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The import of one part by another.
pub(crate) struct Arrow<'a> {
    pub(crate) from: &'a str,
    pub(crate) to: &'a str,
    pub(crate) names: &'a Names,
}

impl Arrow<'_> {
    /// Returns the first place that mentions an imported name.
    pub(crate) fn place(&self) -> &Place {
        self.names.values().min().expect("an import has a name")
    }
}

impl Graph {
    /// Adds the import of `name`, which the file `from` mentions in `line`, from the file `to`.
    pub(crate) fn add(&mut self, from: &str, to: &str, line: usize, name: &str) {
        let file = from.to_string();
        self.add_between(from, to, name, Place { file, line });
    }

    fn add_between(&mut self, from: &str, to: &str, name: &str, place: Place) {
        if from != to {
            let imported = self.imports.entry(from.to_string()).or_default();
            let names = imported.entry(to.to_string()).or_default();
            let first = names.entry(name.to_string()).or_insert(place.clone());
            *first = place.min(first.clone());
        }
    }

    /// Returns, for each folder, the imports between its parts: its files, and its folders with all
    /// that is in them. A cycle of files is a cycle of the parts of one of these folders.
    pub(crate) fn by_folder(&self) -> BTreeMap<String, Graph> {
        let folders = Folders::of(self.files());
        let mut graphs: BTreeMap<String, Graph> = BTreeMap::new();
        for (from, imported) in &self.imports {
            for (to, names) in imported {
                let (folder, from, to) = folders.parting(from, to);
                let graph = graphs.entry(folder).or_default();
                for (name, place) in names {
                    graph.add_between(&from, &to, name, place.clone());
                }
            }
        }
        graphs
    }

    fn files(&self) -> impl Iterator<Item = &str> {
        let ends = self
            .imports
            .iter()
            .flat_map(|(from, imported)| imported.keys().chain([from]));
        ends.map(String::as_str)
    }

    /// Returns all imports of parts in `among` by parts in `among`.
    pub(crate) fn arrows<'a>(&'a self, among: &BTreeSet<&'a str>) -> Vec<Arrow<'a>> {
        let mut arrows = Vec::new();
        for (from, imported) in &self.imports {
            for (to, names) in imported {
                if among.contains(from.as_str()) && among.contains(to.as_str()) {
                    arrows.push(Arrow { from, to, names });
                }
            }
        }
        arrows
    }

    /// Returns sets of several parts in which each part reaches every other; the largest first.
    pub(crate) fn components(&self) -> Vec<BTreeSet<&str>> {
        let reach: BTreeMap<&str, BTreeSet<&str>> = self
            .imports
            .keys()
            .map(|file| (file.as_str(), self.reached_from(file)))
            .collect();
        let mut components = BTreeSet::new();
        for (file, reached) in &reach {
            let both_ways = |other: &&str| reach.get(other).is_some_and(|back| back.contains(file));
            let component: BTreeSet<&str> = reached.iter().copied().filter(both_ways).collect();
            if component.len() > 1 {
                components.insert(component);
            }
        }
        let mut components: Vec<_> = components.into_iter().collect();
        components.sort_by_key(|component| std::cmp::Reverse(component.len()));
        components
    }

    fn imported_by(&self, file: &str) -> impl Iterator<Item = &str> {
        let imported = self.imports.get(file).into_iter();
        imported.flat_map(|imported| imported.keys().map(String::as_str))
    }

    fn reached_from(&self, file: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut waiting: Vec<&str> = self.imported_by(file).collect();
        while let Some(next) = waiting.pop() {
            if reached.insert(next) {
                waiting.extend(self.imported_by(next));
            }
        }
        reached
    }

    /// Returns one of the shortest cycles in `component`: the first part imports the second, the
    /// last the first.
    pub(crate) fn shortest_cycle<'a>(&'a self, component: &BTreeSet<&'a str>) -> Vec<Arrow<'a>> {
        let cycles = component
            .iter()
            .filter_map(|file| self.shortest_cycle_through(file));
        let files = cycles.min_by_key(Vec::len).unwrap_or_default();
        let next = files.iter().cycle().skip(1);
        let pairs = files.iter().zip(next);
        pairs
            .filter_map(|(from, to)| self.arrow(from, to))
            .collect()
    }

    fn shortest_cycle_through<'a>(&'a self, start: &str) -> Option<Vec<&'a str>> {
        let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
        let mut waiting: VecDeque<&str> = VecDeque::from([start]);
        while let Some(file) = waiting.pop_front() {
            for next in self.imported_by(file) {
                if !came_from.contains_key(next) {
                    let before = self.imports.get_key_value(file)?.0;
                    came_from.insert(next, before);
                    waiting.push_back(next);
                }
            }
        }
        let mut cycle: Vec<&str> = vec![came_from.get(start)?];
        while cycle[cycle.len() - 1] != start {
            cycle.push(came_from.get(cycle[cycle.len() - 1])?);
        }
        cycle.reverse();
        Some(cycle)
    }

    fn arrow<'a>(&'a self, from: &'a str, to: &'a str) -> Option<Arrow<'a>> {
        let names = self.imports.get(from)?.get(to)?;
        Some(Arrow { from, to, names })
    }

    /// Returns a small set of imports without which `component` has no cycle. It may not be the
    /// smallest: it removes parts one by one (Eades, Lin, Smyth 1993), importers first, and cuts
    /// imports that point back.
    pub(crate) fn cuts<'a>(&'a self, component: &BTreeSet<&'a str>) -> Vec<Arrow<'a>> {
        let arrows = self.arrows(component);
        let mut left = component.clone();
        let (mut importers, mut imported) = (Vec::new(), Vec::new());
        while !left.is_empty() {
            let weight = |file: &str| {
                let (mut out, mut into) = (0_isize, 0_isize);
                for arrow in &arrows {
                    if left.contains(arrow.from) && left.contains(arrow.to) {
                        out += isize::from(arrow.from == file) * arrow.names.len().cast_signed();
                        into += isize::from(arrow.to == file) * arrow.names.len().cast_signed();
                    }
                }
                (out, into)
            };
            let weighed: Vec<(&str, (isize, isize))> =
                left.iter().map(|file| (*file, weight(file))).collect();
            let imports_nothing = weighed.iter().find(|(_, (out, _))| *out == 0);
            let taken = match imports_nothing {
                Some((file, _)) => {
                    imported.push(*file);
                    *file
                }
                None => {
                    let best = weighed
                        .iter()
                        .max_by_key(|(_, (out, into))| (*into == 0, out - into));
                    let file = best.map_or("", |(file, _)| *file);
                    importers.push(file);
                    file
                }
            };
            left.remove(taken);
        }
        importers.extend(imported.into_iter().rev());
        let place: BTreeMap<&str, usize> = importers
            .iter()
            .enumerate()
            .map(|(at, file)| (*file, at))
            .collect();
        let points_back = |arrow: &Arrow<'_>| place[arrow.from] > place[arrow.to];
        arrows.into_iter().filter(points_back).collect()
    }
}
