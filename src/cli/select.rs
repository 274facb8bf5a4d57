//! Finding the kernel, the variant and the target that the command line names.

use lathe_codegen::entry::{Entry, Variant};
use lathe_codegen::target::Target;

/// A name on the command line that nothing here has.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    #[error("no kernel `{name}` here; there are {known}")]
    Kernel { name: String, known: String },
    #[error("kernel `{kernel}` has no variant `{label}` for {target}; there are {known}")]
    Variant { kernel: String, label: String, target: Target, known: String },
    #[error("no kernels here: `lathe::cli::main` was given an empty list")]
    NoKernels,
    #[error("two kernels here are called `{name}`, from {first} and {second}: give one of the entries another name")]
    SameName { name: &'static str, first: &'static str, second: &'static str },
}

/// Refuses lists in which a name means two kernels.
pub fn distinct(entries: &[Entry]) -> Result<(), SelectError> {
    for (i, entry) in entries.iter().enumerate() {
        if let Some(same) = entries[..i].iter().find(|other| other.name == entry.name) {
            return Err(SelectError::SameName { name: entry.name, first: same.file, second: entry.file });
        }
    }
    Ok(())
}

/// The entries called `names`, each once, or all of them if there are no names.
pub fn entries<'a>(entries: &'a [Entry], names: &[String]) -> Result<Vec<&'a Entry>, SelectError> {
    if entries.is_empty() {
        return Err(SelectError::NoKernels);
    }
    if names.is_empty() {
        return Ok(entries.iter().collect());
    }
    let first = |(i, name): &(usize, &String)| !names[..*i].contains(name);
    names.iter().enumerate().filter(first).map(|(_, name)| entry(entries, name)).collect()
}

/// The entry called `name`.
pub fn entry<'a>(entries: &'a [Entry], name: &str) -> Result<&'a Entry, SelectError> {
    entries.iter().find(|entry| entry.name == name).ok_or_else(|| SelectError::Kernel {
        name: name.to_owned(),
        known: list(entries.iter().map(|entry| entry.name)),
    })
}

/// The variant with this label, or the first one.
pub fn variant(entry: &Entry, target: Target, label: Option<&str>) -> Result<Variant, SelectError> {
    let variants = (entry.variants)(target);
    let known = list(variants.iter().map(|variant| variant.label.as_str()));
    let missing = || SelectError::Variant {
        kernel: entry.name.to_owned(),
        label: label.unwrap_or_default().to_owned(),
        target,
        known,
    };
    variants.into_iter().find(|variant| label.is_none_or(|label| variant.label == label)).ok_or_else(missing)
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
