//! What the kernels are timed with: sizes, workloads and the configurations that a search may try.

pub mod logits;
pub mod step;
pub mod store;
pub mod topk;

use lathe_codegen::benchmark::SizeError;

/// Refuses a figure outside `least..=most`.
fn within(name: &'static str, given: u64, least: u64, most: u64) -> Result<(), SizeError> {
    if (least..=most).contains(&given) {
        return Ok(());
    }
    Err(SizeError { name, given, accepted: format!("{least} to {most}") })
}

/// Refuses a figure that is not listed.
fn one_of(name: &'static str, given: u64, listed: &[usize]) -> Result<(), SizeError> {
    if listed.iter().any(|&accepted| accepted as u64 == given) {
        return Ok(());
    }
    let accepted: Vec<String> = listed.iter().map(usize::to_string).collect();
    Err(SizeError { name, given, accepted: accepted.join(", ") })
}
