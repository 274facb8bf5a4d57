use lathe_codegen::dtype::Dtype;

use super::ContractError;

/// A tensor as a framework would describe it: no data, only where elements lie.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Element type.
    pub dtype: Dtype,
    /// Elements along each dimension, outermost first.
    pub shape: Vec<u64>,
    /// Elements between neighbours along each dimension.
    pub strides: Vec<i64>,
    /// Address of the first element; only its alignment matters here.
    pub address: u64,
    /// Bytes from the first element to the end of the memory behind it.
    pub bytes: u64,
}

/// Alignment that vector accesses and asynchronous copies need, in bytes.
pub(super) const VECTOR_BYTES: u64 = 16;

impl Tensor {
    /// A tensor whose elements lie without gaps, in memory that ends with it.
    pub fn contiguous(dtype: Dtype, shape: &[u64]) -> Self {
        let mut strides = vec![1i64; shape.len()];
        for i in (1..shape.len()).rev() {
            strides[i - 1] = strides[i] * shape[i] as i64;
        }
        let bytes = shape.iter().product::<u64>() * dtype.size() as u64;
        Tensor { dtype, shape: shape.to_vec(), strides, address: 0, bytes }
    }

    pub(super) fn expect_dtype(
        &self,
        arg: &'static str,
        accepted: &[Dtype],
        names: &'static str,
    ) -> Result<(), ContractError> {
        match accepted.contains(&self.dtype) {
            true => Ok(()),
            false => Err(ContractError::Dtype { arg, got: self.dtype, accepted: names }),
        }
    }

    /// Refuses any shape but `expected`, where `None` stands for any size; `form` is how the contract writes it.
    pub(super) fn expect_shape(
        &self,
        arg: &'static str,
        expected: &[Option<u64>],
        form: &str,
    ) -> Result<(), ContractError> {
        let fits = self.shape.len() == expected.len()
            && self.strides.len() == expected.len()
            && self.shape.iter().zip(expected).all(|(got, expected)| expected.is_none_or(|e| e == *got));
        if fits {
            return Ok(());
        }
        let sizes: Vec<String> = expected.iter().map(|e| e.map_or("any".to_owned(), |e| e.to_string())).collect();
        let accepted = format!("{form} = [{}], with a stride for each dimension", sizes.join(", "));
        Err(ContractError::Shape { arg, got: self.shape.clone(), accepted })
    }

    /// Refuses gaps in the dimensions from `first` inwards.
    pub(super) fn expect_contiguous_from(&self, arg: &'static str, first: usize) -> Result<(), ContractError> {
        let mut expected = 1i64;
        for dim in (first..self.shape.len()).rev() {
            // The stride of a dimension of one element is never used.
            if self.shape[dim] > 1 && self.strides[dim] != expected {
                let what = ["dimension 0", "dimension 1", "dimension 2", "dimension 3"][dim.min(3)];
                return Err(self.bad_stride(arg, what, dim, format!("{expected} elements (no gaps)")));
            }
            expected = expected.saturating_mul(i64::try_from(self.shape[dim]).unwrap_or(i64::MAX));
        }
        Ok(())
    }

    /// Refuses a stride of dimension 0 under `least` elements, or one that is not a multiple of `multiple` bytes.
    pub(super) fn expect_outer_stride(
        &self,
        arg: &'static str,
        what: &'static str,
        least: u64,
        multiple: u64,
    ) -> Result<(), ContractError> {
        let bytes = i128::from(self.strides[0]) * self.dtype.size() as i128;
        if i128::from(self.strides[0]) < i128::from(least) || bytes % i128::from(multiple) != 0 {
            let size = self.dtype.size() as u64;
            let mut accepted = format!("at least {least} elements ({} bytes)", least * size);
            if multiple > size {
                accepted += &format!(" and a multiple of {multiple} bytes");
            }
            return Err(self.bad_stride(arg, what, 0, accepted));
        }
        Ok(())
    }

    fn bad_stride(&self, arg: &'static str, what: &'static str, dim: usize, accepted: String) -> ContractError {
        let bytes = i128::from(self.strides[dim]) * self.dtype.size() as i128;
        ContractError::Stride { arg, what, got: self.strides[dim], bytes, accepted }
    }

    /// Refuses an address that is not a multiple of `alignment` bytes.
    pub(super) fn expect_alignment(&self, arg: &'static str, alignment: u64) -> Result<(), ContractError> {
        match self.address % alignment {
            0 => Ok(()),
            got => Err(ContractError::Misaligned { arg, alignment, got }),
        }
    }

    /// Refuses memory that ends before the last element does. Strides must be known to be positive.
    pub(super) fn expect_backed(&self, arg: &'static str) -> Result<(), ContractError> {
        if self.shape.contains(&0) {
            return Ok(());
        }
        let last: i128 = self.shape.iter().zip(&self.strides).map(|(&n, &s)| i128::from(n - 1) * i128::from(s)).sum();
        let needed = (last + 1) * self.dtype.size() as i128;
        match needed <= i128::from(self.bytes) {
            true => Ok(()),
            false => Err(ContractError::TooSmall { arg, got: self.bytes, needed }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_strides_count_elements() {
        let t = Tensor::contiguous(Dtype::Bf16, &[2, 3, 128]);
        assert_eq!((t.strides.as_slice(), t.bytes), ([384, 128, 1].as_slice(), 1536));
        assert!(t.expect_contiguous_from("q", 0).is_ok());
        assert!(t.expect_backed("q").is_ok());
    }

    #[test]
    fn backing_counts_to_the_end_of_the_last_element_in_128_bits() {
        let mut t = Tensor::contiguous(Dtype::F32, &[3, 8]);
        t.strides[0] = i64::MAX / 2;
        let Err(ContractError::TooSmall { needed, .. }) = t.expect_backed("logits") else { panic!() };
        assert_eq!(needed, (i128::from(i64::MAX / 2) * 2 + 8) * 4);
    }

    #[test]
    fn a_dimension_of_one_may_have_any_stride() {
        let mut t = Tensor::contiguous(Dtype::Bf16, &[1, 128]);
        t.strides[0] = 7;
        assert!(t.expect_contiguous_from("q", 0).is_ok());
    }
}
