//! Tables: cells come in, aligned lines go out. Numbers stand right, one column may give way to a narrow terminal.

use anstyle::Style;
use unicode_width::UnicodeWidthStr;

use crate::console::{DIM, HEAD, paint};

/// Columns stand this far apart.
const GAP: usize = 2;
/// A column that gives way keeps this much.
const LEAST: usize = 12;

/// One cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    text: String,
    style: Option<Style>,
}

impl Cell {
    /// A cell in a style.
    pub(crate) fn styled(text: impl ToString, style: Style) -> Self {
        Cell { text: text.to_string(), style: Some(style) }
    }
}

impl<T: ToString> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell { text: text.to_string(), style: None }
    }
}

enum Row {
    Cells(Vec<Cell>),
    Line(String),
}

/// A table under construction.
#[derive(Default)]
pub(crate) struct Table {
    heads: Vec<(&'static str, bool)>,
    flexible: Option<usize>,
    rows: Vec<Row>,
}

impl Table {
    /// A table with these columns; a head that starts with `>` stands right, one that starts with `~` gives way when
    /// the terminal is narrow.
    pub(crate) fn new(heads: &[&'static str]) -> Self {
        let flexible = heads.iter().position(|h| h.starts_with('~'));
        let heads = heads.iter().map(|h| (h.trim_start_matches(['>', '~']), h.starts_with('>'))).collect();
        Table { heads, flexible, rows: Vec::new() }
    }

    /// One more row.
    pub(crate) fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        self.rows.push(Row::Cells(cells.into()));
    }

    /// A line that keeps to no column.
    pub(crate) fn line(&mut self, text: String) {
        self.rows.push(Row::Line(text));
    }

    /// A line over the rows that follow.
    pub(crate) fn section(&mut self, name: &str) {
        self.line(paint(HEAD, name));
    }

    /// Whether it has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Columns it takes where nothing has to give way.
    pub(crate) fn width(&self) -> usize {
        total(&self.widths())
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.heads.iter().map(|(head, _)| head.width()).collect();
        for row in &self.rows {
            if let Row::Cells(cells) = row {
                for (w, cell) in widths.iter_mut().zip(cells) {
                    *w = (*w).max(cell.text.width());
                }
            }
        }
        widths
    }

    /// The lines, at most `width` columns wide where that can be.
    pub(crate) fn render(&self, width: Option<usize>) -> String {
        let mut widths = self.widths();
        let total = total(&widths);
        if let (Some(at), Some(limit)) = (self.flexible, width)
            && total > limit
        {
            widths[at] = widths[at].saturating_sub(total - limit).max(LEAST);
        }
        let mut text = String::new();
        let heads: Vec<Cell> = self.heads.iter().map(|(head, _)| Cell::styled(head, DIM)).collect();
        self.write(&heads, &widths, &mut text);
        for row in &self.rows {
            match row {
                Row::Cells(cells) => self.write(cells, &widths, &mut text),
                Row::Line(line) => text.push_str(&format!("{line}\n")),
            }
        }
        text
    }

    fn write(&self, cells: &[Cell], widths: &[usize], text: &mut String) {
        let last = cells.iter().rposition(|c| !c.text.is_empty()).map_or(0, |n| n + 1);
        for (n, cell) in cells.iter().take(last).enumerate() {
            let (width, right) = (widths[n], self.heads[n].1);
            let shown = fit(&cell.text, width);
            let room = " ".repeat(width.saturating_sub(shown.width()));
            let shown = cell.style.map_or(shown.clone(), |style| paint(style, shown));
            match (right, n + 1 == last) {
                (true, _) => text.push_str(&format!("{room}{shown}")),
                (false, true) => text.push_str(&shown),
                (false, false) => text.push_str(&format!("{shown}{room}")),
            }
            if n + 1 < last {
                text.push_str(&" ".repeat(GAP));
            }
        }
        text.push('\n');
    }
}

fn total(widths: &[usize]) -> usize {
    widths.iter().map(|w| w + GAP).sum::<usize>().saturating_sub(GAP)
}

/// The text, or its beginning and an ellipsis where it is too wide.
fn fit(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_string();
    }
    let mut cut = String::new();
    for c in text.chars() {
        if cut.width() + 2 > width {
            break;
        }
        cut.push(c);
    }
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(table: &Table, width: Option<usize>) -> String {
        anstream::adapter::strip_str(&table.render(width)).to_string()
    }

    #[test]
    fn numbers_stand_right_and_a_narrow_terminal_shortens_the_column_that_gives_way() {
        let mut table = Table::new(&["problem", "~winner", ">time"]);
        table.row(["m64".into(), "blocked[mc=64,nc=128]".into(), Cell::styled("9.1 µs", HEAD)]);
        table.section("other");
        table.row(["µ".into(), "x".into(), "10.2 µs".into()]);
        let lines: Vec<String> = plain(&table, None).lines().map(str::to_string).collect();
        assert_eq!(lines[1], "m64      blocked[mc=64,nc=128]   9.1 µs");
        assert_eq!(lines[2], "other");
        assert!(lines[3].ends_with("  10.2 µs") && lines[3].width() == lines[1].width());
        let narrow = plain(&table, Some(32));
        assert!(narrow.lines().all(|l| l.width() <= 32) && narrow.contains('…'), "{narrow}");
    }

    #[test]
    fn a_text_that_fits_is_left_alone() {
        assert_eq!((fit("abc", 3), fit("abcd", 3), fit("", 0)), ("abc".into(), "ab…".into(), "".into()));
    }
}
