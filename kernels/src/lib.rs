//! The sparse-attention indexer kernels, their contracts and their f64 reference.
#![warn(missing_docs)]

// What `#[kernel]` expands to names the facade crate, which stands above this one.
extern crate lathe_codegen as lathe;

pub mod benchmarks;
pub mod bf16_logits;
pub mod bf16_store;
pub mod cases;
pub mod contract;
mod equivalents;
pub mod fp8_logits;
pub mod fp8_store;
pub mod fused_store;
pub mod launch;
pub mod partition;
pub mod reference;
pub mod topk;

use lathe_codegen::entry::Entry;

/// Every kernel of this crate, as the `lathe` program lists them.
pub fn entries() -> Vec<Entry> {
    vec![
        bf16_logits::entry(),
        bf16_store::entry(),
        fp8_logits::entry(),
        fp8_store::entry(),
        fused_store::bf16_entry(),
        fused_store::fp8_entry(),
        topk::entry(),
    ]
}

#[cfg(test)]
mod tests {
    use lathe_codegen::contract::{Arg, Scale};
    use lathe_codegen::ir::ParamKind;
    use lathe_codegen::target::Target;

    #[test]
    fn every_kernel_prints_for_every_target() {
        for entry in super::entries() {
            for target in Target::ALL {
                for variant in (entry.variants)(target) {
                    let kernel = variant.kernel.unwrap_or_else(|errors| panic!("{}: {errors}", entry.name));
                    kernel.cuda(target).unwrap_or_else(|error| panic!("{} {}: {error}", entry.name, variant.label));
                }
            }
        }
    }

    #[test]
    fn the_arguments_of_every_case_fit_the_parameters() {
        for entry in super::entries() {
            for variant in (entry.variants)(Target::Sm120a) {
                let params = variant.kernel.expect("traces").params;
                for case in (variant.cases)(Scale::Emulator) {
                    assert_eq!(case.args.len(), params.len(), "{}: {}", entry.name, case.name);
                    for (arg, param) in case.args.iter().zip(&params) {
                        let fits = match (arg, param.kind) {
                            (Arg::Pointer { strides, .. }, ParamKind::Pointer { strides: n, .. }) => strides.len() == n,
                            (Arg::Scalar(value), ParamKind::Scalar(dtype)) => value.dtype() == dtype,
                            (Arg::Tensor(tensor), ParamKind::Tensor { rank, tensor_box, .. }) => {
                                (tensor.dims.len(), tensor.tensor_box) == (usize::from(rank), tensor_box)
                            }
                            _ => false,
                        };
                        assert!(fits, "{}: {}: `{}` is given {arg:?}", entry.name, case.name, param.name);
                    }
                }
            }
        }
    }
}
