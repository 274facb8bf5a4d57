//! The real disassembler on real machine code.

use lathe_codegen::target::Target;
use lathe_runtime::nvrtc::Compiler;
use lathe_runtime::sass::{Sass, SassError};
use lathe_runtime::toolchain::Toolchain;

fn disassemble(source: &str, target: Target) -> Sass {
    let toolchain = Toolchain::new(false, |event| eprintln!("{event}"));
    let compiled = Compiler::load(&toolchain).unwrap().compile(source, target).unwrap();
    Sass::disassemble(&toolchain, &compiled.cubin).unwrap()
}

const WAITS_FIRST: &str = r#"extern "C" __global__ void sum(float* out, const float* in, int n) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  float total = 0.0f;
#pragma unroll 1
  for (int i = 0; i < n; i++) total += in[i];
  *out = total;
}
"#;

const LOADS_FIRST: &str = r#"extern "C" __global__ void copy(float* out, const float* in) {
  float value = *in;
  asm volatile("griddepcontrol.wait;" ::: "memory");
  *out = value;
}
"#;

#[test]
fn on_every_target_the_wait_and_the_loop_are_recognised() {
    for target in Target::ALL {
        let sass = disassemble(WAITS_FIRST, target);
        assert_eq!(sass.count("ACQBULK"), 1, "{target}:\n{}", sass.text);
        assert!(sass.count("LDG") >= 1, "{target}:\n{}", sass.text);
        assert!(sass.global_loads_before_pdl_wait().is_empty(), "{target}:\n{}", sass.text);
        let main_loop = sass.main_loop().expect("a loop");
        assert_eq!(sass.counts(main_loop)["FADD"], 1, "{target}:\n{}", sass.text);
    }
}

#[test]
fn a_load_that_stands_above_the_wait_is_named_with_its_cuda_line() {
    for target in Target::ALL {
        let sass = disassemble(LOADS_FIRST, target);
        let loads = sass.global_loads_before_pdl_wait();
        assert_eq!(loads.iter().map(|load| load.line).collect::<Vec<_>>(), [2], "{target}:\n{}", sass.text);
    }
}

#[test]
fn bytes_that_are_no_cubin_are_refused() {
    let toolchain = Toolchain::new(false, |event| eprintln!("{event}"));
    let error = Sass::disassemble(&toolchain, b"not machine code").unwrap_err();
    assert!(matches!(&error, SassError::Nvdisasm(text) if !text.is_empty()), "{error:?}");
}
