//! Configs one by one: a table with a column for each axis comes in; the space of exactly its rows goes out. For rules
//! that no expression states.

use std::collections::HashMap;

use toml::Spanned;
use warplap::core::candidate::SourceHash;
use warplap::core::space::{Axis, Rule, Space, Value};

use super::{Places, file};
use crate::error::SpecError;

/// Bytes of the table, and rows of it, at the most.
const MOST_BYTES: u64 = 64 << 20;
const MOST_ROWS: usize = 1 << 20;

/// The space of a table's rows. The table is text: a line with the names of the axes, then a line for each config, with
/// commas between the values.
pub(super) fn listed(path: &Spanned<String>, axes: Vec<Axis>, places: &Places) -> Result<Space, SpecError> {
    let full = places.beside(path.get_ref());
    let refused = |why: String| places.at(&path.span(), format!("configs '{}': {why}", full.display()));
    let expected = "expected a table: the names of the axes, then a line for each config";
    let bytes = file(&full, MOST_BYTES).map_err(|why| refused(format!("{why}: {expected}")))?;
    let text = String::from_utf8(bytes).map_err(|_| refused(format!("it is no text: {expected}")))?;
    let points = points(&text, &axes).map_err(refused)?;
    let rows = points.len();
    let hash = SourceHash::of(&[&text]).0;
    let space = Space::of_points(axes, points).map_err(|e| refused(e.to_string()))?;
    // Nobody asks it, since all rows obey it; it shows what the space is, and makes another list another spec.
    Ok(space.rule(Rule::on(&format!("one of {rows} listed configs ({hash})"), &[], |_| true)))
}

fn points(text: &str, axes: &[Axis]) -> Result<Vec<Vec<u16>>, String> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let head: Vec<&str> = lines.next().map_or(Vec::new(), |(_, line)| line.split(',').map(str::trim).collect());
    let column = |axis: &Axis| head.iter().position(|name| *name == axis.name());
    let columns: Option<Vec<usize>> = axes.iter().map(column).collect();
    let Some(columns) = columns.filter(|_| head.len() == axes.len()) else {
        let names: Vec<&str> = axes.iter().map(Axis::name).collect();
        return Err(format!("its columns are '{}': expected {}", head.join(","), names.join(",")));
    };
    let numbers: Vec<HashMap<String, u16>> = axes.iter().map(numbered).collect();
    let mut points = Vec::new();
    for (at, line) in lines {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        if cells.len() != head.len() {
            return Err(format!("line {} has {} values: expected {}", at + 1, cells.len(), head.len()));
        }
        let number = |(axis, column): (usize, &usize)| {
            numbers[axis].get(cells[*column]).copied().ok_or_else(|| {
                let (cell, name) = (cells[*column], axes[axis].name());
                format!("line {} has '{cell}' for '{name}': expected a value of that axis", at + 1)
            })
        };
        points.push(columns.iter().enumerate().map(number).collect::<Result<Vec<u16>, String>>()?);
        if points.len() > MOST_ROWS {
            return Err(format!("it has more than {MOST_ROWS} configs: expected fewer, or rules"));
        }
    }
    match points.is_empty() {
        true => Err("it lists no config: expected one at least".into()),
        false => Ok(points),
    }
}

/// The numbers of an axis' values by how they are written.
fn numbered(axis: &Axis) -> HashMap<String, u16> {
    axis.values().iter().enumerate().map(|(i, v): (usize, &Value)| (v.to_string(), i as u16)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes() -> Vec<Axis> {
        vec![Axis::ints("a", [1, 2, 4]), Axis::values_of("b", [Value::from(0.5), Value::from(2.0)])]
    }

    #[test]
    fn rows_become_points_whatever_the_order_of_the_columns() {
        assert_eq!(points("b,a\n0.5,1\n\n2.0, 4\n", &axes()), Ok(vec![vec![0, 0], vec![2, 1]]));
    }

    #[test]
    fn a_table_that_does_not_fit_the_axes_is_refused_with_the_line() {
        for (text, said) in [
            ("", "expected a,b"),
            ("a\n1", "expected a,b"),
            ("a,b,c\n1,0.5,1", "expected a,b"),
            ("a,b\n1,0.5\n3,0.5", "line 3 has '3' for 'a'"),
            ("a,b\n1", "line 2 has 1 values: expected 2"),
            ("a,b\n", "lists no config"),
        ] {
            let result = points(text, &axes()).unwrap_err();
            assert!(result.contains(said), "{text:?}: {result}");
        }
    }
}
