//! The documentation's table of opcodes is the decoder's.

use expect_test::expect_file;

#[test]
fn the_table_in_the_documentation_is_the_decoders() {
    let mut rows: Vec<_> = lathe_emulator::supported_opcodes().collect();
    rows.sort_unstable();
    let mut text = String::from(
        "# Opcodes\n\nWhat the emulator executes, by the fixed beginning of the opcode. Everything else is refused by name, with its line.\n\n\
         | opcode | forms |\n|---|---|\n",
    );
    for (name, forms) in rows {
        let forms = if forms.is_empty() { "the only one" } else { forms };
        text += &format!("| `{name}` | {forms} |\n");
    }
    expect_file!["../OPCODES.md"].assert_eq(&text);
}
