//! The real compiler, provisioned if need be: what it makes, what it says, and what the cache keeps.

use lathe_codegen::target::Target;
use lathe_runtime::nvrtc::{CompileError, Compiler};
use lathe_runtime::toolchain::{Home, Toolchain};

fn toolchain() -> Toolchain {
    Toolchain::new(false, |event| eprintln!("{event}"))
}

const SOURCE: &str = r#"extern "C" __global__ void __launch_bounds__(32) scale(float* out, const float* in) {
  __shared__ float tile[32];
  tile[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = 2.0f * tile[31 - threadIdx.x];
}
"#;

#[test]
fn every_target_compiles_to_machine_code_ptx_and_figures() {
    let toolchain = toolchain();
    let compiler = Compiler::load(&toolchain).unwrap();
    for target in Target::ALL {
        let compiled = compiler.compile(SOURCE, target).unwrap();
        assert!(compiled.cubin.starts_with(b"\x7fELF"));
        assert!(compiled.ptx.contains(&format!(".target {target}")), "{}", compiled.ptx);
        assert!(compiled.ptx.contains(".loc"), "no line table");
        assert!((1..=255).contains(&compiled.resources.registers), "{:?}", compiled.resources);
        assert_eq!(compiled.resources.static_shared % 1024, 128, "{:?}", compiled.resources);
        assert_eq!(compiled.resources.spills(), 0);
    }
}

#[test]
fn ptx_alone_is_the_same_ptx_without_machine_code() {
    let toolchain = toolchain();
    let compiler = Compiler::load(&toolchain).unwrap();
    for target in Target::ALL {
        let compiled = compiler.compile_ptx(SOURCE, target).unwrap();
        // The last line names the folder in which the compiler ran, and one of the two may be from the cache.
        let code = |ptx: &str| ptx.split("\t.file").next().unwrap().to_owned();
        assert_eq!(code(&compiled.ptx), code(&compiler.compile(SOURCE, target).unwrap().ptx));
        assert!(compiled.cubin.is_empty());
    }
}

#[test]
fn the_second_compilation_comes_from_the_cache_and_a_damaged_entry_is_rebuilt() {
    // The compiler of the real home, the cache of an empty one.
    let shared = toolchain();
    shared.nvrtc().unwrap();
    let home = tempfile::tempdir().unwrap();
    let toolchain = Toolchain::at(Home::at(home.path()), true, |_| ());
    let compiler = Compiler::load(&toolchain).unwrap();

    let first = compiler.compile(SOURCE, Target::Sm120a).unwrap();
    let second = compiler.compile(SOURCE, Target::Sm120a).unwrap();
    assert!(!first.cached && second.cached);
    assert_eq!(first.cubin, second.cubin);
    assert_eq!(first.milliseconds, second.milliseconds);

    let entries: Vec<_> = toolchain.home().cache().read_dir().unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    std::fs::write(&entries[0], b"not an entry").unwrap();
    assert!(!compiler.compile(SOURCE, Target::Sm120a).unwrap().cached);
    assert!(compiler.compile(SOURCE, Target::Sm120a).unwrap().cached);
}

#[test]
fn a_front_end_error_carries_the_compilers_text() {
    let toolchain = toolchain();
    let compiler = Compiler::load(&toolchain).unwrap();
    let error = compiler.compile(&SOURCE.replace("in[", "inn["), Target::Sm120a).unwrap_err();
    let CompileError::Rejected { log, ptx_lines, .. } = error else { panic!("{error}") };
    assert!(log.contains("entry.cu(3): error: identifier \"inn\" is undefined"), "{log}");
    assert!(ptx_lines.is_empty());
}

#[test]
fn an_assembler_error_is_traced_back_to_the_cuda_line() {
    let toolchain = toolchain();
    let compiler = Compiler::load(&toolchain).unwrap();
    let source = SOURCE.replace("__syncthreads();", "asm volatile(\"bar.sink 0;\");");
    let error = compiler.compile(&source, Target::Sm120a).unwrap_err();
    let CompileError::Rejected { ptx_lines, .. } = error else { panic!("{error}") };
    assert!(ptx_lines.iter().any(|(_, cuda)| *cuda == 4), "{ptx_lines:?}");
}
