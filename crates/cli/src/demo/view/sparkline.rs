//! A curve in one line of text.

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Returns the values as a curve of this width: each column is the greatest of its share of the
/// values, on a scale from 0 to the greatest of all.
pub(super) fn sparkline(values: &[u64], width: usize) -> String {
    let top = values.iter().copied().max().unwrap_or(0).max(1);
    let columns = width.min(values.len());
    (0..columns)
        .filter_map(|column| {
            let share = values
                .get(column * values.len() / columns..(column + 1) * values.len() / columns)?;
            let height = share.iter().copied().max()?;
            BARS.get((height * 7).div_ceil(top) as usize).copied()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_fits_its_width() {
        assert_eq!(sparkline(&[0, 7, 14], 10), "▁▅█");
        assert_eq!(sparkline(&[1, 1, 1, 1], 2), "██");
        assert_eq!(sparkline(&[0, 0], 5), "▁▁");
        assert_eq!(sparkline(&[], 5), "");
        let many: Vec<u64> = (0..1000).collect();
        assert_eq!(sparkline(&many, 60).chars().count(), 60);
    }
}
