//! Memory traffic by line: what each access costs in shared-memory passes and global sectors.

use comfy_table::{Cell, Color, Table};
use lathe_emulator::Counts;
use serde::Serialize;

use super::table;

/// The accesses of one opcode at one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// `file:line:column` of the source, or the line of the PTX.
    pub place: String,
    /// PTX opcode.
    pub opcode: String,
    /// Sums over all executions.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Adds `new` to `lines`, joining those of one opcode at one place.
pub fn merge(lines: &mut Vec<Line>, new: impl IntoIterator<Item = Line>) {
    for line in new {
        match lines.iter_mut().find(|known| known.place == line.place && known.opcode == line.opcode) {
            Some(known) => known.counts += line.counts,
            None => lines.push(line),
        }
    }
}

/// One row for each line; what could be saved stands in colour.
pub fn table(lines: &[Line]) -> Table {
    let columns = ["access", "at", "executed", "bytes", "wavefronts", "conflicts", "sectors", "unused"];
    let mut table = table::table(&columns);
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(comfy_table::CellAlignment::Left);
    }
    let waste = |count: u64, applies: bool| match count {
        _ if !applies => Cell::new(""),
        0 => Cell::new("0"),
        _ => Cell::new(count).fg(Color::Yellow),
    };
    for Line { place, opcode, counts } in lines {
        let (shared, global) = (counts.wavefronts > 0, counts.sectors > 0);
        let count = |count: u64, applies: bool| if applies { count.to_string() } else { String::new() };
        table.add_row([
            Cell::new(opcode),
            Cell::new(place),
            Cell::new(counts.executions),
            Cell::new(counts.bytes),
            Cell::new(count(counts.wavefronts, shared)),
            waste(counts.wavefronts.saturating_sub(counts.ideal_wavefronts), shared),
            Cell::new(count(counts.sectors, global)),
            waste(counts.sectors.saturating_sub(counts.ideal_sectors), global),
        ]);
    }
    table
}

/// What the columns of the table mean.
pub const LEGEND: &str = "\
wavefronts: passes through the 32 banks of shared memory; conflicts: those beyond what the bytes alone would take
sectors: 32-byte pieces of global memory that the lanes touch; unused: those beyond what the bytes alone would fill";

#[cfg(test)]
mod tests {
    use super::*;

    fn line(place: &str, wavefronts: u64) -> Line {
        let counts = Counts { executions: 1, bytes: 128, wavefronts, ideal_wavefronts: 1, ..Counts::default() };
        Line { place: place.into(), opcode: "ld.shared.b32".into(), counts }
    }

    #[test]
    fn accesses_of_one_line_are_summed_and_waste_is_a_difference() {
        let mut lines = vec![line("k.rs:3:5", 8)];
        merge(&mut lines, [line("k.rs:3:5", 4), line("k.rs:9:5", 1)]);
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[0].counts.executions, lines[0].counts.wavefronts), (2, 12));
        let text = anstream::adapter::strip_str(&table(&lines).to_string()).to_string();
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, ["ld.shared.b32", "k.rs:3:5", "2", "256", "12", "10"]);
    }
}
