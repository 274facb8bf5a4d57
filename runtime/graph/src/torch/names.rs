//! Kernel names as a person reads them.

use std::sync::LazyLock;

use regex::Regex;

/// A kernel's name in two lengths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelName {
    /// Demangled, whole; the mangled name when it is not C++.
    pub full: String,
    /// Base name, with the one template argument that says what it computes: `vectorized_elementwise_kernel<MulFunctor>`.
    pub short: String,
}

impl KernelName {
    /// Demangles and shortens a name as the driver gives it.
    pub fn new(mangled: &str) -> KernelName {
        let full = cpp_demangle::Symbol::new(mangled)
            .ok()
            .and_then(|symbol| symbol.demangle().ok())
            .unwrap_or_else(|| mangled.to_owned());
        let short = shorten(&full);
        KernelName { full, short }
    }
}

/// What a template argument must look like to say what the kernel computes, wrappers excluded.
static PURPOSE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b(?:launch_)?(\w+?)(?:_kernel_cuda|_kernel_impl|_cuda_kernel)\b|\bCUDAFunctor\w*?_(\w+)\b|\b(launch_\w+|\w+Functor|\w+_functor|cutlass\w+|\w+Ops)\b")
        .expect("a constant pattern")
});
const WRAPPERS: [&str; 5] = ["AUnaryFunctor", "BUnaryFunctor", "BinaryFunctor", "CUDAFunctor", "gpu_kernel_impl"];
/// Longest name of a kernel that is not C++ (cuBLAS, Triton) before it is cut in the middle.
const LONGEST: usize = 56;

fn shorten(full: &str) -> String {
    let name = full.strip_prefix("void ").unwrap_or(full);
    let end = name.find(['<', '(']).unwrap_or(name.len());
    // `(anonymous namespace)::f` opens with a parenthesis that is no parameter list.
    let name = if name[end..].starts_with("(anonymous namespace)::") {
        &name[end + "(anonymous namespace)::".len()..]
    } else {
        name
    };
    if name.len() < full.len()
        && name.contains("(anonymous namespace)::")
        && !name.starts_with('<')
        && name.find('<').unwrap_or(0) > name.find('(').unwrap_or(usize::MAX)
    {
        return shorten(name);
    }
    let end = name.find(['<', '(']).unwrap_or(name.len());
    let base = name[..end].rsplit("::").next().unwrap_or(name);
    let purpose = PURPOSE
        .captures_iter(&name[end..])
        .filter_map(|found| found.get(1).or(found.get(2)).or(found.get(3)).map(|part| part.as_str()))
        .find(|part| !WRAPPERS.contains(part) && !part.is_empty());
    match purpose {
        Some(purpose) => format!("{base}<{purpose}>"),
        None => middle_cut(base),
    }
}

fn middle_cut(name: &str) -> String {
    if name.chars().count() <= LONGEST {
        return name.to_owned();
    }
    let chars: Vec<char> = name.chars().collect();
    let (head, tail) = (LONGEST * 2 / 3, LONGEST / 3 - 1);
    chars[..head].iter().chain(&['…']).chain(&chars[chars.len() - tail..]).collect()
}

/// The parameter types of a demangled C++ function, `None` when the name has no parameter list.
pub fn parameter_types(full: &str) -> Option<Vec<&str>> {
    let body = full.strip_suffix(')')?;
    let mut depth = 0i32;
    let mut ends = vec![body.len()];
    for (index, byte) in body.bytes().enumerate().rev() {
        match byte {
            b')' | b'>' if !(byte == b'>' && index > 0 && body.as_bytes()[index - 1] == b'-') => depth += 1,
            b'}' | b']' => depth += 1,
            b'(' if depth == 0 => {
                ends.push(index);
                let mut types: Vec<&str> = ends.windows(2).map(|pair| body[pair[1] + 1..pair[0]].trim()).collect();
                types.reverse();
                return Some(if types == [""] { Vec::new() } else { types });
            }
            b'(' | b'<' | b'{' | b'[' => depth -= 1,
            b',' if depth == 0 => ends.push(index),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elementwise_kernels_show_their_functor() {
        let mul = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13AUnaryFunctorIfffNS0_15binary_internal10MulFunctorIfEEEESt5arrayIPcLm2EEEEviT0_T1_";
        assert_eq!(KernelName::new(mul).short, "vectorized_elementwise_kernel<MulFunctor>");
        let gemm = "_ZN7cutlass7Kernel2I42cutlass_80_simt_sgemm_128x32_8x5_nn_align1EEvNT_6ParamsE";
        assert_eq!(KernelName::new(gemm).short, "Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>");
    }

    #[test]
    fn names_that_are_not_cpp_stay_or_are_cut() {
        assert_eq!(KernelName::new("triton_poi_fused_mul_0").short, "triton_poi_fused_mul_0");
        let long = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x32x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas";
        let short = KernelName::new(long).short;
        assert!(
            short.starts_with("sm80_xmma_gemm") && short.ends_with("5x_cublas") && short.chars().count() <= LONGEST,
            "{short}"
        );
    }

    #[test]
    fn parameter_types_split_at_top_level_only() {
        let full = "void f<int, a::b(int, long)::{lambda(int)#1}>(std::array<char*, 2ul>, float const*, void (*)(int, int), float*)";
        assert_eq!(
            parameter_types(full).unwrap(),
            ["std::array<char*, 2ul>", "float const*", "void (*)(int, int)", "float*"]
        );
        assert_eq!(parameter_types("f()").unwrap(), Vec::<&str>::new());
        assert_eq!(parameter_types("triton_kernel"), None);
    }
}
