//! Tables: of three columns (name, value, remark), or of any number.

/// A line of a table: name, value, remark.
pub(crate) type Row = [String; 3];

pub(crate) fn row(name: &str, value: impl ToString, remark: impl ToString) -> Row {
    [name.to_owned(), value.to_string(), remark.to_string()]
}

/// Writes rows with their columns aligned.
pub(crate) fn write(page: &mut String, rows: &[Row]) {
    for line in columns(rows, [false; 3]).lines() {
        page.push_str("  ");
        page.push_str(line);
        page.push('\n');
    }
}

/// Returns lines in which every column is as wide as its longest cell. Numbers end below each other.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]], are_numbers: [bool; N]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut page = String::new();
    for row in rows {
        let mut line = String::new();
        for ((cell, width), is_number) in row.iter().zip(widths).zip(are_numbers) {
            line += &match is_number {
                true => format!("{cell:>width$}  "),
                false => format!("{cell:<width$}  "),
            };
        }
        page.push_str(line.trim_end());
        page.push('\n');
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let rows = [["name", "n", "state"], ["a long name", "12", "in"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        assert_eq!(
            columns(&rows, [false, true, false]),
            "name          n  state\na long name  12  in\n"
        );
    }
}
