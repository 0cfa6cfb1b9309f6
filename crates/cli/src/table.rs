//! Tables of three columns: name, value, remark.

/// A line of a table: name, value, remark.
pub(crate) type Row = [String; 3];

pub(crate) fn row(name: &str, value: impl ToString, remark: impl ToString) -> Row {
    [name.to_owned(), value.to_string(), remark.to_string()]
}

/// Writes rows with their columns aligned.
pub(crate) fn write(page: &mut String, rows: &[Row]) {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let (names, values) = (width(0), width(1));
    for [name, value, remark] in rows {
        let line = format!("  {name:<names$}  {value:<values$}  {remark}");
        page.push_str(line.trim_end());
        page.push('\n');
    }
}
