//! Small faults planted everywhere: every one is caught, or listed with the reason why nobody could see it.

use std::sync::LazyLock;

use lathe::contract::Scale;
use lathe::entry::{Entry, Variant};
use lathe::runtime::mutation::fates;
use lathe::runtime::nvrtc::Compiler;
use lathe::runtime::toolchain::Toolchain;
use lathe::target::Target;
use lathe_codegen::mutate::{Mutant, mutants};

static TOOLCHAIN: LazyLock<Toolchain> = LazyLock::new(|| Toolchain::new(false, |_| {}));

fn entry(name: &str) -> Entry {
    lathe::kernels::entries().into_iter().find(|entry| entry.name == name).expect("a kernel of this name")
}

/// Whether the entry lists the mutant, by the source line of its instruction.
fn is_equivalent(entry: &Entry, mutant: &Mutant) -> bool {
    let text = std::fs::read_to_string(mutant.loc.file).expect("the source is here");
    let line = text.lines().nth(mutant.loc.line as usize - 1).expect("the line is there");
    entry.equivalents.iter().any(|equivalent| equivalent.covers(mutant, line))
}

#[track_caller]
fn nothing_survives(name: &str, target: Target) {
    let entry = entry(name);
    let variant = (entry.variants)(target).swap_remove(0);
    nothing_survives_of(&entry, variant, target, |_| true);
}

#[track_caller]
fn nothing_survives_of(entry: &Entry, variant: Variant, target: Target, among: impl Fn(&Mutant) -> bool) {
    let compiler = Compiler::load(&TOOLCHAIN).expect("NVRTC is here or can be installed");
    let mut mutants = mutants(&variant.kernel.expect("traces"));
    mutants.retain(|mutant| among(mutant) && !is_equivalent(entry, mutant));
    assert!(!mutants.is_empty());
    let fates = fates(mutants, &(variant.cases)(Scale::Emulator), &compiler, target, || {});
    let survivors = fates.iter().filter(|fate| fate.killer.is_none());
    let survivors: Vec<String> = survivors.map(|fate| fate.mutant.to_string()).collect();
    assert!(survivors.is_empty(), "{survivors:#?}");
}

macro_rules! no_mutant_survives_of {
    ($($kernel:ident)*) => {
        const TESTED: &[&str] = &[$(stringify!($kernel)),*];

        mod no_mutant_survives_of {
            $(#[test]
            fn $kernel() {
                super::nothing_survives(stringify!($kernel), super::Target::Sm120a);
            })*
        }
    };
}

no_mutant_survives_of! {
    bf16_paged_mqa_logits
    bf16_index_k_store
    fp8_paged_mqa_logits
    fp8_index_k_store
    bf16_fused_index_k_store
    fp8_fused_index_k_store
    topk_page_transform
}

/// Its body is another: warpgroups, and wgmma.
#[test]
fn no_mutant_survives_of_the_fp8_logits_for_hopper() {
    nothing_survives("fp8_paged_mqa_logits", Target::Sm90a);
}

/// What launches that fill the device several times do more: it is the same for both kernels.
#[test]
fn no_mutant_survives_of_how_pages_are_shared_out() {
    let entry = entry("bf16_paged_mqa_logits");
    let mut variants = (entry.variants)(Target::Sm120a).into_iter();
    let variant = variants.find(|variant| variant.label == "H=16 balanced").expect("such a variant");
    nothing_survives_of(&entry, variant, Target::Sm120a, |mutant| mutant.loc.file.ends_with("partition.rs"));
}

#[test]
fn every_kernel_is_among_them() {
    assert_eq!(lathe::kernels::entries().iter().map(|entry| entry.name).collect::<Vec<_>>(), TESTED);
}

#[test]
fn the_kernels_have_hundreds_of_mutants() {
    let count = |entry: &Entry| {
        let variant = (entry.variants)(Target::Sm120a).swap_remove(0);
        mutants(&variant.kernel.expect("traces")).len()
    };
    let total: usize = lathe::kernels::entries().iter().map(count).sum();
    assert!(total >= 600, "{total}");
}
