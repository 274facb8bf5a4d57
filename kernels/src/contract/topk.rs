//! Arguments of top-k with page transform.

use lathe_codegen::dtype::Dtype;

use super::{ContractError, MAX_NEXT_N, PAGE_SLOTS, Tensor};

/// Selection sizes of the models that exist.
pub const TOP_K: [usize; 3] = [512, 1024, 2048];

/// Longest row that is selected from.
pub const MAX_ROW: u64 = 262_144;

/// The tensors of a call, as the caller holds them.
#[derive(Clone, Debug, PartialEq)]
pub struct TopkTensors {
    /// `[B * next_n, >= max_len]` f32, row stride free.
    pub logits: Tensor,
    /// `[B, next_n]` i32, no gaps.
    pub context_lens: Tensor,
    /// `[B, S]` i32, row stride free.
    pub block_table: Tensor,
    /// `[B * next_n, K]` i32, no gaps.
    pub indices: Tensor,
}

/// What a call turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopkShape {
    /// Requests.
    pub batch: usize,
    /// Query tokens a request.
    pub next_n: usize,
    /// Entries selected a row.
    pub k: usize,
    /// Block-table entries a request, S.
    pub table_entries: u64,
    /// Longest length that the launch must serve.
    pub max_len: u64,
}

impl TopkShape {
    /// Checks the tensors of a call against each other and against what the kernels support.
    ///
    /// # Errors
    /// Names the first argument that is refused, its value, and what is accepted.
    pub fn of(t: &TopkTensors) -> Result<Self, ContractError> {
        t.context_lens.expect_dtype("context_lens", &[Dtype::I32], "i32")?;
        t.context_lens.expect_shape("context_lens", &[None, None], "[B, next_n]")?;
        t.context_lens.expect_contiguous_from("context_lens", 0)?;
        let (batch, next_n) = (t.context_lens.shape[0], t.context_lens.shape[1]);
        let unsupported = |arg, what, got, supported| Err(ContractError::Unsupported { arg, what, got, supported });
        if !(1..=MAX_NEXT_N as u64).contains(&next_n) {
            return unsupported("context_lens", "next_n", next_n, "1..=6");
        }
        if batch > i32::MAX as u64 / next_n {
            return unsupported("context_lens", "B", batch, "at most 2,147,483,647 rows (B * next_n)");
        }
        let rows = batch * next_n;

        t.logits.expect_dtype("logits", &[Dtype::F32], "f32")?;
        t.logits.expect_shape("logits", &[Some(rows), None], "[B * next_n, >= max_len]")?;
        t.logits.expect_contiguous_from("logits", 1)?;
        let columns = t.logits.shape[1];
        t.logits.expect_outer_stride("logits", "row", columns, 4)?;

        t.block_table.expect_dtype("block_table", &[Dtype::I32], "i32")?;
        t.block_table.expect_shape("block_table", &[Some(batch), None], "[B, S]")?;
        t.block_table.expect_contiguous_from("block_table", 1)?;
        let table_entries = t.block_table.shape[1];
        t.block_table.expect_outer_stride("block_table", "row", table_entries, 4)?;

        t.indices.expect_dtype("indices", &[Dtype::I32], "i32")?;
        t.indices.expect_shape("indices", &[Some(rows), None], "[B * next_n, K]")?;
        t.indices.expect_contiguous_from("indices", 0)?;
        let k = t.indices.shape[1];
        if !TOP_K.iter().any(|&supported| supported as u64 == k) {
            return unsupported("indices", "K", k, "512, 1024, 2048");
        }

        for (arg, tensor) in [
            ("context_lens", &t.context_lens),
            ("logits", &t.logits),
            ("block_table", &t.block_table),
            ("indices", &t.indices),
        ] {
            tensor.expect_alignment(arg, 4)?;
            tensor.expect_backed(arg)?;
        }
        let max_len = table_entries.saturating_mul(PAGE_SLOTS as u64).min(columns).min(MAX_ROW);
        Ok(TopkShape { batch: batch as usize, next_n: next_n as usize, k: k as usize, table_entries, max_len })
    }

    /// Query rows: B * next_n.
    pub fn rows(&self) -> usize {
        self.batch * self.next_n
    }

    /// Checks lengths, where the caller has them on the host: `[B, next_n]`, row by row.
    ///
    /// # Errors
    /// The first length that is negative or longer than a row can be.
    pub fn check_lens(&self, lens: &[i32]) -> Result<(), ContractError> {
        let fits = |len: i32| u64::try_from(len).is_ok_and(|len| len <= self.max_len);
        match lens.iter().enumerate().find(|(_, len)| !fits(**len)) {
            Some((row, &len)) => Err(ContractError::Length {
                row,
                got: len.into(),
                most: self.max_len,
                reason: "the columns of a row of `logits`, 64 S, and 262,144",
            }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(k: u64) -> TopkTensors {
        TopkTensors {
            logits: Tensor::contiguous(Dtype::F32, &[6, 4000]),
            context_lens: Tensor::contiguous(Dtype::I32, &[3, 2]),
            block_table: Tensor::contiguous(Dtype::I32, &[3, 60]),
            indices: Tensor::contiguous(Dtype::I32, &[6, k]),
        }
    }

    #[test]
    fn the_three_selection_sizes_are_accepted_and_others_named() {
        for k in [512, 1024, 2048] {
            let shape = TopkShape::of(&call(k)).unwrap();
            assert_eq!((shape.rows(), shape.k as u64, shape.max_len), (6, k, 3840));
        }
        let message = TopkShape::of(&call(100)).unwrap_err().to_string();
        assert_eq!(message, "K of `indices` is 100, supported: 512, 1024, 2048");
    }

    #[test]
    fn tensors_that_disagree_are_refused_by_name() {
        let refused = |change: &dyn Fn(&mut TopkTensors)| {
            let mut t = call(512);
            change(&mut t);
            TopkShape::of(&t).unwrap_err().to_string()
        };
        assert!(refused(&|t| t.logits.shape[0] = 3).starts_with("`logits` has shape [3, 4000]"));
        assert!(refused(&|t| t.block_table.shape[0] = 6).starts_with("`block_table` has shape [6, 60]"));
        assert!(refused(&|t| t.indices.dtype = Dtype::I64).starts_with("`indices` has dtype i64"));
        assert!(refused(&|t| t.logits.strides[0] = 10).contains("`logits`: the stride of row is 10"));
        assert!(refused(&|t| t.indices.bytes = 8).starts_with("`indices` is backed by 8 bytes"));
    }

    #[test]
    fn lengths_are_limited_by_the_table() {
        let shape = TopkShape::of(&call(512)).unwrap();
        assert!(shape.check_lens(&[0, 3840, 1, 2, 3, 4]).is_ok());
        assert!(shape.check_lens(&[0, 3841]).unwrap_err().to_string().starts_with("`context_lens[1]` is 3841"));
        assert!(shape.check_lens(&[-5]).unwrap_err().to_string().starts_with("`context_lens[0]` is -5"));
    }
}
