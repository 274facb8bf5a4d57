//! The author's words in the CUDA text, before the real compiler: whatever a Rust program may call a thing or say in a
//! comment, the kernel is the same.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use lathe_codegen::cuda::Cuda;
use lathe_codegen::cuda::reserved::{KEYWORDS, declared};
use lathe_codegen::handles::{Argument, Handle};
use lathe_codegen::ir::{Attr, Kernel, Phase};
use lathe_codegen::loc::Loc;
use lathe_codegen::ops::{CATALOGUE, OpDef, control, example};
use lathe_codegen::prelude::*;
use lathe_codegen::target::Target;
use lathe_codegen::trace;
use lathe_runtime::nvrtc::Compiler;
use lathe_runtime::toolchain::Toolchain;
use proptest::prelude::*;

static TOOLCHAIN: LazyLock<Toolchain> = LazyLock::new(|| Toolchain::new(false, |event| eprintln!("{event}")));

/// A kernel's text, for the last target that has all of its operations.
fn printed(kernel: &Kernel) -> (Cuda, Target) {
    let text = |target: Target| Some((kernel.cuda(target).ok()?, target));
    Target::ALL.into_iter().rev().find_map(text).expect("prints for a target")
}

/// The machine's view of a kernel: its PTX without the places and names that a text has.
fn ptx(kernel: &Kernel) -> String {
    let (cuda, target) = printed(kernel);
    let compiler = Compiler::load(&TOOLCHAIN).expect("has a compiler");
    let compiled = compiler.compile(&cuda.source, target);
    let ptx = compiled.unwrap_or_else(|error| panic!("{error}\n{}", cuda.source)).ptx;
    let code = ptx.split(".section").next().unwrap_or_default();
    let place = |line: &str| [".loc", ".file"].iter().any(|directive| line.trim_start().starts_with(directive));
    let lines = code.lines().filter(|line| !place(line) && !line.starts_with("//"));
    lines.map(|line| format!("{}\n", line.replace(&cuda.entry, "entry"))).collect()
}

fn traced(op: &OpDef) -> Kernel {
    example::kernel("example", op.example).expect("traces")
}

fn ops() -> Vec<&'static OpDef> {
    CATALOGUE.iter().flat_map(|family| family.ops.iter().copied()).collect()
}

/// Words that mean something in CUDA: to the language, to the compiler, and as the device functions of every op.
static WORDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut words: BTreeSet<String> = KEYWORDS.iter().map(|word| (*word).to_owned()).chain(declared()).collect();
    for op in ops() {
        let (Cuda { source, .. }, _) = printed(&traced(op));
        let (helpers, _) = source.split_once("extern \"C\"").expect("has an entry");
        let definitions = helpers.lines().filter(|line| line.starts_with("__device__"));
        let heads = definitions.filter_map(|line| line.split('(').next()?.split_whitespace().last());
        words.extend(heads.map(|name| name.trim_matches('*').to_owned()));
    }
    assert!(["load", "quad_sum", "copy_tile_xor16"].iter().all(|helper| words.contains(*helper)), "{words:?}");
    let others =
        ["bf16", "e4m3", "shared", "lane", "warp", "thread", "shared_memory", "__shared__", "_Bool", "NV_IF_TARGET"];
    words.extend(others.map(str::to_owned));
    words.into_iter().collect()
});

/// Calls the kernel and everything in it by words from `pick`.
fn rename(kernel: &Kernel, mut pick: impl FnMut() -> String) -> Kernel {
    let mut renamed = kernel.clone();
    renamed.name = pick();
    let mut taken = BTreeSet::new();
    for param in &mut renamed.params {
        param.name = std::iter::repeat_with(&mut pick).find(|name| taken.insert(name.clone())).expect("goes on");
    }
    renamed.values.iter_mut().for_each(|value| value.name = Some(pick()));
    renamed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn no_name_changes_a_kernel(op in prop::sample::select(ops()), seed in any::<u64>()) {
        let kernel = traced(op);
        let mut count = 0;
        let plain = rename(&kernel, || {
            count += 1;
            format!("plain_{count}")
        });
        let mut state = seed;
        let hostile = rename(&kernel, || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            WORDS[(state >> 33) as usize % WORDS.len()].clone()
        });
        prop_assert_eq!(ptx(&plain), ptx(&hostile));
    }
}

/// A kernel in which a swallowed line shows: `section(..)` before an `if` and before a store.
fn commented(doc: &str, section_text: &str) -> Kernel {
    let mut kernel = example::kernel("commented", || {
        let out = Slice::<i32, WritePart>::declare("out", Phase::AfterWait, Loc::caller());
        let n = Scalar::<i32>::declare("n", Phase::AfterWait, Loc::caller());
        let loc = Loc::caller();
        let negative = n.lt(0);
        section("");
        trace::with(|b| b.begin_if(negative.id(), loc));
        section("");
        out.at(0).store(n);
        trace::with(|b| b.end_if(loc));
        section("");
        out.at(1).store(n);
    })
    .expect("traces");
    kernel.doc = doc.to_owned();
    let sections = kernel.insts().into_iter().filter(|(_, inst)| std::ptr::eq(inst.op, &control::SECTION));
    let paths: Vec<_> = sections.map(|(path, _)| path).collect();
    for path in paths {
        kernel.inst_mut(&path).expect("is there").attrs.set("text", Attr::Text(section_text.to_owned()));
    }
    kernel
}

/// What ends or continues a comment in some C++, and what does not.
const PARTS: &[&str] =
    &["\\", "??/", "\n", "\r", "\r\n", "\u{2028}", "*/", "/*", "//", "\"", "#error", " ", "\0", "\t", "é", "words"];

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PARTS), 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn no_comment_changes_a_kernel(doc in text(), section in text()) {
        prop_assert_eq!(ptx(&commented("", "")), ptx(&commented(&doc, &section)));
    }
}
