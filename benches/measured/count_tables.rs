//! Tables of counts in the documentation. CI compares them with what a bench counts.

use std::fs;

/// One cell of a table, with its count.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) row: String,
    pub(crate) column: &'static str,
    /// The tolerance, in percent.
    pub(crate) tolerance: f64,
    pub(crate) count: f64,
}

/// A part of the page that consists of tables, each with its columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables {
    /// The page that contains the tables.
    pub(crate) page: &'static str,
    /// The arguments of cargo for the bench that counts, and writes the tables.
    pub(crate) bench: &'static str,
    /// The line before the tables.
    pub(crate) begin: &'static str,
    /// The line after the tables.
    pub(crate) end: &'static str,
    pub(crate) columns: &'static [&'static [&'static str]],
}

impl Tables {
    /// Prints the counts, and returns whether each of them is about as large as on the page. If
    /// `writes`, writes the counts into the page.
    pub(crate) fn check(&self, measured: &[Cell], writes: bool) -> bool {
        let page = fs::read_to_string(self.page).expect("the page exists");
        if writes {
            fs::write(self.page, self.write(&page, measured)).expect("the page can be written");
        }
        let mut wrong = 0;
        for Cell { row, column, tolerance, count } in measured {
            let known = if writes { Some(*count) } else { known_count(&page, row, column) };
            let change = known.map_or(f64::INFINITY, |known| (count / known - 1.0) * 100.0);
            let verdict = if change.abs() <= *tolerance { "" } else { "  <- not as on the page" };
            wrong += usize::from(!verdict.is_empty());
            println!("{row:42} {column:14} {count:>9.0} {change:>+7.1} %{verdict}");
        }
        println!("{} counts, {wrong} too far from the page", measured.len());
        if wrong > 0 {
            let bench = self.bench;
            println!("If that is meant: cargo bench {bench} -- --write");
        }
        wrong == 0
    }

    /// The page with these counts in its tables.
    fn write(&self, page: &str, measured: &[Cell]) -> String {
        let (head, rest) = page.split_once(self.begin).expect("the page has the tables' begin");
        let (_, tail) = rest.split_once(self.end).expect("the page has the tables' end");
        let tables: Vec<_> =
            self.columns.iter().map(|columns| write_table(columns, measured)).collect();
        format!("{head}{}\n\n{}\n{}{tail}", self.begin, tables.join("\n"), self.end)
    }
}

/// The count of a cell on the page.
fn known_count(page: &str, row: &str, column: &str) -> Option<f64> {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let mut header = Vec::new();
    for line in page.lines().filter(|line| line.starts_with('|')) {
        let cells = cells(line);
        if cells.first().is_some_and(String::is_empty) {
            header = cells;
        } else if cells.first().is_some_and(|first| first == row) {
            let at = header.iter().position(|name| name == column)?;
            return cells.get(at)?.replace(',', "").parse().ok();
        }
    }
    None
}

fn write_table(columns: &[&str], measured: &[Cell]) -> String {
    let mut table =
        format!("| | {} |\n|---|{}\n", columns.join(" | "), "---:|".repeat(columns.len()));
    let mut rows: Vec<&str> = Vec::new();
    for cell in measured.iter().filter(|cell| columns.contains(&cell.column)) {
        if !rows.contains(&cell.row.as_str()) {
            rows.push(&cell.row);
        }
    }
    for row in rows {
        let count = |column: &&str| {
            let is_it = |cell: &&Cell| cell.row == row && cell.column == *column;
            measured.iter().find(is_it).map_or(String::new(), |cell| with_commas(cell.count))
        };
        let counts: Vec<_> = columns.iter().map(count).collect();
        for cell in [&[row.to_owned()], counts.as_slice()].concat() {
            table.push_str("| ");
            table.push_str(&cell);
            table.push(' ');
        }
        table.push_str("|\n");
    }
    table
}

fn with_commas(count: f64) -> String {
    let digits = format!("{count:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
