//! Tables as the program prints them.

use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table, presets};

/// An empty table whose first column is text and whose others are figures.
pub fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(columns.iter().map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
