//! A launch file to begin with.

use std::fmt::Write;

use lathe_emulator::Kernel;

/// A launch file for `kernel` in which every parameter has a place, to be edited: shapes and values are guesses.
pub fn template(kernel: &Kernel) -> String {
    let mut text = format!("entry = \"{}\"\ngrid = [1, 1, 1]\n", kernel.name());
    match kernel.required_block() {
        Some([x, y, z]) => _ = writeln!(text, "block = [{x}, {y}, {z}]"),
        None => text.push_str("block = 128  # threads of a CTA\n"),
    }
    if kernel.shared_variables().iter().any(|variable| variable.size == 0) {
        text.push_str("dynamic_shared = 49152  # bytes\n");
    }
    let mut buffers = String::new();
    text.push_str("args = [\n");
    for param in kernel.params() {
        let name = key(&param.name, kernel.name());
        let value = match (param.ty.as_str(), param.size) {
            (".u64" | ".b64" | ".s64", 8) => {
                _ = write!(buffers, "\n[buffers.{name}]\ndtype = \"f32\"\nshape = [1024]\nfill = \"zeros\"\n");
                format!("\"{name}\",")
            }
            (_, 128) if param.align >= 64 => {
                _ = write!(buffers, "\n[buffers.{name}]\ndtype = \"bf16\"\nshape = [64, 64]\nfill = \"zeros\"\n");
                format!("{{ tensor = \"{name}\", box = [64, 64], swizzle = 128 }},")
            }
            (ty, size) if size > 8 || param_is_array(ty, size) => format!("{{ struct = [] }},  # {size} bytes"),
            (".f32", _) => "{ f32 = 1.0 },".into(),
            (".f64", _) => "{ f64 = 1.0 },".into(),
            (".f16", _) => "{ f16 = 1.0 },".into(),
            (".bf16", _) => "{ bf16 = 1.0 },".into(),
            (_, size) => format!("{{ i{} = 1 }},", size * 8),
        };
        _ = writeln!(text, "    {value:<24} # {} {}", param.ty, param.name);
    }
    text.push_str("]\n");
    text + &buffers
}

/// Whether a parameter of this type and size has several elements.
fn param_is_array(ty: &str, size: usize) -> bool {
    let bits = ty.trim_start_matches(|c: char| !c.is_ascii_digit()).parse::<usize>();
    bits.is_ok_and(|bits| size * 8 > bits)
}

/// A bare key for a parameter: what the author may have called it, where compilers number parameters as `KERNEL_param_3`.
fn key(param: &str, kernel: &str) -> String {
    let short = param.strip_prefix(kernel).map_or(param, |rest| rest.trim_start_matches('_'));
    let bare = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    if short.is_empty() { "param".into() } else { short.chars().map(bare).collect() }
}
