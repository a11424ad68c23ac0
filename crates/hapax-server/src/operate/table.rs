//! Tables for people: as wide as the terminal, or, where there is none, as wide as what is in them.

use std::fmt::Write as _;

use crate::logs::escaped;

/// Columns that may be cut keep at least this many characters.
const CUT_TO_MIN: usize = 8;

/// Between two columns.
const GAP: usize = 2;

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    /// May be cut where the terminal is narrow.
    pub(super) cut: bool,
}

/// A column that is shown whole.
pub(super) const fn whole(name: &'static str) -> Column {
    Column { name, cut: false }
}

/// A column that may be cut.
pub(super) const fn may_be_cut(name: &'static str) -> Column {
    Column { name, cut: true }
}

/// A table that is at most `width` columns wide, if that is possible. Control characters are escaped.
pub(super) fn table(columns: &[Column], rows: &[Vec<String>], width: Option<usize>) -> String {
    let head = columns.iter().map(|column| column.name.to_owned()).collect();
    let safe = rows.iter().map(|row| row.iter().map(|cell| escaped(cell).into_owned()).collect());
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(safe).collect();
    let widths = fitted(columns, &lines, width);
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{:<width$}", cut(cell, *width)));
        let joined: Vec<String> = cells.collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", joined.join("  ").trim_end());
    }
    text
}

/// How wide each column is: as its widest cell, and narrower for the widest of those that may be cut until all fit.
fn fitted(columns: &[Column], lines: &[Vec<String>], width: Option<usize>) -> Vec<usize> {
    let widest = |at: usize| lines.iter().map(|line| chars(&line[at])).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..columns.len()).map(widest).collect();
    let Some(width) = width else { return widths };
    let gaps = GAP * columns.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > width {
        let cuttable = (0..columns.len()).filter(|at| columns[*at].cut && widths[*at] > CUT_TO_MIN);
        let Some(at) = cuttable.max_by_key(|at| widths[*at]) else { break };
        widths[at] -= 1;
    }
    widths
}

/// The cell, or its beginning and a mark that there is more.
fn cut(cell: &str, width: usize) -> String {
    if chars(cell) <= width {
        return cell.to_owned();
    }
    let kept: String = cell.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

fn chars(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<String>> {
        vec![
            vec!["unknown".into(), "k".repeat(60), "alice".into()],
            vec!["dead".into(), "a\u{1b}[2Jb".into(), "b".into()],
        ]
    }

    const COLUMNS: [Column; 3] = [whole("STATE"), may_be_cut("KEY"), may_be_cut("SCOPE")];

    #[test]
    fn without_a_terminal_nothing_is_cut_and_nothing_is_sent_to_one() {
        let text = table(&COLUMNS, &rows(), None);
        assert!(text.contains(&"k".repeat(60)) && text.contains("a\\u001b[2Jb"), "{text}");
        assert!(!text.contains('\u{1b}') && text.starts_with("STATE    KEY"), "{text}");
        assert!(text.lines().all(|line| line == line.trim_end()));
    }

    #[test]
    fn a_table_is_as_wide_as_the_terminal() {
        let text = table(&COLUMNS, &rows(), Some(40));
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        assert!(text.contains("kkk…  alice"), "{text}");
        let narrow = table(&COLUMNS, &rows(), Some(5));
        assert!(narrow.contains("unknown  kkkkkkk…"), "{narrow}");
    }
}
