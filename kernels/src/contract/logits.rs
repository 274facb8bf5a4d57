//! Arguments of the paged MQA logits kernels.

use lathe_codegen::dtype::Dtype;

use super::tensor::VECTOR_BYTES;
use super::{ContractError, HEAD_DIM, HEADS, KeyFormat, MAX_NEXT_N, PAGE_SLOTS, Tensor};
use crate::launch::MAX_WALK;

/// The tensors of a call, as the caller holds them.
#[derive(Clone, Debug, PartialEq)]
pub struct LogitsTensors {
    /// `[B, next_n, H, 128]`, bf16 or e4m3, no gaps.
    pub q: Tensor,
    /// `[pages, page bytes / element]`: bf16 `[pages, 8192]`; fp8 `[pages, 8448]` bytes. Page stride free.
    pub k_pages: Tensor,
    /// `[B * next_n, H]` f32, no gaps.
    pub weights: Tensor,
    /// `[B, next_n]` i32, no gaps.
    pub context_lens: Tensor,
    /// `[B, S]` i32, row stride free.
    pub block_table: Tensor,
    /// `[B * next_n, >= max_len]` f32, row stride free.
    pub logits: Tensor,
}

/// What a call turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogitsShape {
    /// How keys and q are stored.
    pub format: KeyFormat,
    /// Requests.
    pub batch: usize,
    /// Query tokens a request.
    pub next_n: usize,
    /// Heads.
    pub heads: usize,
    /// Block-table entries a request, S.
    pub table_entries: u64,
    /// Pages in the pool.
    pub pages: u64,
    /// Longest length that the launch must serve: 64 S, or the columns of `logits`, whichever is less.
    pub max_len: u64,
}

/// Longest row: the grid counts its splits in 16 bits, each of at most 32 pages, and positions some steps past its end still
/// count in 32 bits.
pub const MAX_LEN: u64 = 1 << 27;

/// Most rows in a launch: 65,535 requests are the grid's z dimension.
pub const MAX_ROWS: usize = 65_535;

impl LogitsShape {
    /// Checks the tensors of a call against each other and against what the kernels support.
    ///
    /// # Errors
    /// Names the first argument that is refused, its value, and what is accepted.
    pub fn of(t: &LogitsTensors) -> Result<Self, ContractError> {
        t.q.expect_dtype("q", &[Dtype::Bf16, Dtype::E4m3], "bf16, e4m3")?;
        let format = if t.q.dtype == Dtype::Bf16 { KeyFormat::Bf16 } else { KeyFormat::Fp8 };
        t.q.expect_shape("q", &[None, None, None, None], "[B, next_n, H, 128]")?;
        let [batch, next_n, heads, head_dim] = t.q.shape[..] else { unreachable!("four dimensions") };
        let unsupported = |what, got, supported| Err(ContractError::Unsupported { arg: "q", what, got, supported });
        if head_dim != HEAD_DIM as u64 {
            return unsupported("head dim", head_dim, "128");
        }
        if !HEADS.iter().any(|&h| h as u64 == heads) {
            return unsupported("head count", heads, "16, 32, 64");
        }
        if !(1..=MAX_NEXT_N as u64).contains(&next_n) {
            return unsupported("next_n", next_n, "1..=6");
        }
        if batch > MAX_ROWS as u64 / next_n {
            return unsupported("B", batch, "at most 65,535 rows (B * next_n) a launch");
        }
        let rows = batch * next_n;
        t.q.expect_contiguous_from("q", 0)?;

        match format {
            KeyFormat::Bf16 => t.k_pages.expect_dtype("k_pages", &[Dtype::Bf16], "bf16, as q is")?,
            KeyFormat::Fp8 => t.k_pages.expect_dtype(
                "k_pages",
                &[Dtype::U8, Dtype::E4m3],
                "u8 or e4m3 (planar pages of 8,448 bytes), as q is e4m3",
            )?,
        }
        let page_elements = (format.page_bytes() / t.k_pages.dtype.size()) as u64;
        t.k_pages.expect_shape("k_pages", &[None, Some(page_elements)], "[pages, elements of 64 slots]")?;
        t.k_pages.expect_contiguous_from("k_pages", 1)?;
        t.k_pages.expect_outer_stride("k_pages", "page", page_elements, VECTOR_BYTES)?;

        t.weights.expect_dtype("weights", &[Dtype::F32], "f32")?;
        t.weights.expect_shape("weights", &[Some(rows), Some(heads)], "[B * next_n, H]")?;
        t.weights.expect_contiguous_from("weights", 0)?;

        t.context_lens.expect_dtype("context_lens", &[Dtype::I32], "i32")?;
        t.context_lens.expect_shape("context_lens", &[Some(batch), Some(next_n)], "[B, next_n]")?;
        t.context_lens.expect_contiguous_from("context_lens", 0)?;

        t.block_table.expect_dtype("block_table", &[Dtype::I32], "i32")?;
        t.block_table.expect_shape("block_table", &[Some(batch), None], "[B, S]")?;
        t.block_table.expect_contiguous_from("block_table", 1)?;
        let table_entries = t.block_table.shape[1];
        t.block_table.expect_outer_stride("block_table", "row", table_entries, 4)?;

        t.logits.expect_dtype("logits", &[Dtype::F32], "f32")?;
        t.logits.expect_shape("logits", &[Some(rows), None], "[B * next_n, >= max_len]")?;
        t.logits.expect_contiguous_from("logits", 1)?;
        let columns = t.logits.shape[1];
        t.logits.expect_outer_stride("logits", "row", columns, 4)?;

        for (arg, tensor, alignment) in [
            ("q", &t.q, VECTOR_BYTES),
            ("k_pages", &t.k_pages, VECTOR_BYTES),
            ("weights", &t.weights, VECTOR_BYTES),
            ("context_lens", &t.context_lens, 4),
            ("block_table", &t.block_table, 4),
            ("logits", &t.logits, 4),
        ] {
            tensor.expect_alignment(arg, alignment)?;
            tensor.expect_backed(arg)?;
        }

        let max_len = table_entries.saturating_mul(PAGE_SLOTS as u64).min(columns).min(i32::MAX as u64);
        if max_len > MAX_LEN {
            return Err(ContractError::Unsupported {
                arg: "block_table",
                what: "the longest length (64 S, or the columns of `logits`, whichever is less)",
                got: max_len,
                supported: "at most 134,217,728 keys",
            });
        }
        Ok(LogitsShape {
            format,
            batch: batch as usize,
            next_n: next_n as usize,
            heads: heads as usize,
            table_entries,
            pages: t.k_pages.shape[0],
            max_len,
        })
    }

    /// Query rows: B * next_n.
    pub fn rows(&self) -> usize {
        self.batch * self.next_n
    }

    /// Checks `splits`, the grid's y: the CTAs that share the pages of a row, each of at most [`MAX_WALK`].
    ///
    /// # Errors
    /// A number that leaves a CTA more pages of the longest row than it can walk.
    pub fn check_splits(&self, splits: u32) -> Result<(), ContractError> {
        let pages = self.max_len.div_ceil(PAGE_SLOTS as u64);
        let least = pages.div_ceil(MAX_WALK).max(1);
        if u64::from(splits) >= least {
            return Ok(());
        }
        let accepted = format!("{least} or more: a CTA walks at most {MAX_WALK} of a row's {pages} pages");
        Err(ContractError::Scalar { arg: "splits", got: splits.into(), accepted })
    }

    /// Checks lengths, where the caller has them on the host: `[B, next_n]`, row by row.
    ///
    /// # Errors
    /// The first length that is negative, longer than the table can name, or longer than a row of `logits`.
    pub fn check_lens(&self, lens: &[i32]) -> Result<(), ContractError> {
        if lens.len() != self.rows() {
            let accepted = format!("[B, next_n] = [{}, {}]", self.batch, self.next_n);
            return Err(ContractError::Shape { arg: "context_lens", got: vec![lens.len() as u64], accepted });
        }
        let by_table = self.table_entries.saturating_mul(PAGE_SLOTS as u64);
        for (row, &len) in lens.iter().enumerate() {
            let refused = |most, reason| Err(ContractError::Length { row, got: len.into(), most, reason });
            match u64::try_from(len) {
                Err(_) => return refused(self.max_len, "a length counts keys"),
                Ok(len) if len > by_table => return refused(by_table, "64 slots for each of the S table entries"),
                Ok(len) if len > self.max_len => return refused(self.max_len, "the columns of a row of `logits`"),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Checks the block-table entries that rows of these lengths will follow; the rest may hold anything.
    ///
    /// `table` is `[B, S]` without gaps, `lens` has passed [`check_lens`](Self::check_lens).
    ///
    /// # Errors
    /// The first entry that names no page of the pool.
    pub fn check_table(&self, lens: &[i32], table: &[i32]) -> Result<(), ContractError> {
        let entries = self.table_entries as usize;
        if table.len() != self.batch * entries {
            let accepted = format!("[B, S] = [{}, {entries}]", self.batch);
            return Err(ContractError::Shape { arg: "block_table", got: vec![table.len() as u64], accepted });
        }
        for request in 0..self.batch {
            let longest = lens[request * self.next_n..][..self.next_n].iter().max().copied().unwrap_or(0);
            for entry in 0..(longest as usize).div_ceil(PAGE_SLOTS) {
                let got = table[request * entries + entry];
                if u64::try_from(got).is_ok_and(|page| page < self.pages) {
                    continue;
                }
                return Err(ContractError::Page { request, entry, got, pages: self.pages, pool: "k_pages" });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(format: KeyFormat) -> LogitsTensors {
        let page = match format {
            KeyFormat::Bf16 => Tensor::contiguous(Dtype::Bf16, &[10, 8192]),
            KeyFormat::Fp8 => Tensor::contiguous(Dtype::U8, &[10, 8448]),
        };
        LogitsTensors {
            q: Tensor::contiguous(format.dtype(), &[3, 2, 64, 128]),
            k_pages: page,
            weights: Tensor::contiguous(Dtype::F32, &[6, 64]),
            context_lens: Tensor::contiguous(Dtype::I32, &[3, 2]),
            block_table: Tensor::contiguous(Dtype::I32, &[3, 5]),
            logits: Tensor::contiguous(Dtype::F32, &[6, 300]),
        }
    }

    fn refusal(change: impl Fn(&mut LogitsTensors)) -> String {
        let mut tensors = call(KeyFormat::Bf16);
        change(&mut tensors);
        LogitsShape::of(&tensors).expect_err("must be refused").to_string()
    }

    #[test]
    fn a_call_in_order_is_accepted_in_both_formats() {
        for format in [KeyFormat::Bf16, KeyFormat::Fp8] {
            let shape = LogitsShape::of(&call(format)).unwrap();
            let expected =
                LogitsShape { format, batch: 3, next_n: 2, heads: 64, table_entries: 5, pages: 10, max_len: 300 };
            assert_eq!(shape, expected);
            assert_eq!(shape.rows(), 6);
        }
    }

    #[test]
    fn an_empty_batch_is_accepted() {
        let mut t = call(KeyFormat::Bf16);
        for tensor in [&mut t.q, &mut t.weights, &mut t.context_lens, &mut t.block_table, &mut t.logits] {
            tensor.shape[0] = 0;
            tensor.bytes = 0;
        }
        assert_eq!(LogitsShape::of(&t).unwrap().rows(), 0);
    }

    #[test]
    fn each_size_without_a_kernel_is_refused_by_name() {
        let q = |shape: [u64; 4]| refusal(|t| t.q = Tensor::contiguous(Dtype::Bf16, &shape));
        assert_eq!(q([3, 2, 48, 128]), "head count of `q` is 48, supported: 16, 32, 64");
        assert_eq!(q([3, 2, 64, 64]), "head dim of `q` is 64, supported: 128");
        assert_eq!(q([3, 7, 64, 128]), "next_n of `q` is 7, supported: 1..=6");
        assert_eq!(q([3, 0, 64, 128]), "next_n of `q` is 0, supported: 1..=6");
        assert_eq!(q([40_000, 2, 64, 128]), "B of `q` is 40000, supported: at most 65,535 rows (B * next_n) a launch");
    }

    #[test]
    fn another_page_size_is_refused() {
        let message = refusal(|t| t.k_pages = Tensor::contiguous(Dtype::Bf16, &[10, 4096]));
        assert!(message.starts_with("`k_pages` has shape [10, 4096], accepted:"), "{message}");
        assert!(message.contains("[any, 8192]"), "{message}");
    }

    #[test]
    fn each_wrong_dtype_is_refused_by_name() {
        assert_eq!(refusal(|t| t.q.dtype = Dtype::F16), "`q` has dtype f16, accepted: bf16, e4m3");
        assert_eq!(refusal(|t| t.k_pages.dtype = Dtype::E4m3), "`k_pages` has dtype e4m3, accepted: bf16, as q is");
        assert_eq!(refusal(|t| t.weights.dtype = Dtype::Bf16), "`weights` has dtype bf16, accepted: f32");
        assert_eq!(refusal(|t| t.context_lens.dtype = Dtype::I64), "`context_lens` has dtype i64, accepted: i32");
        assert_eq!(refusal(|t| t.block_table.dtype = Dtype::I64), "`block_table` has dtype i64, accepted: i32");
        assert_eq!(refusal(|t| t.logits.dtype = Dtype::Bf16), "`logits` has dtype bf16, accepted: f32");
    }

    #[test]
    fn each_shape_that_disagrees_with_q_is_refused_by_name() {
        for (arg, message) in [
            ("weights", refusal(|t| t.weights = Tensor::contiguous(Dtype::F32, &[6, 32]))),
            ("context_lens", refusal(|t| t.context_lens = Tensor::contiguous(Dtype::I32, &[6]))),
            ("block_table", refusal(|t| t.block_table = Tensor::contiguous(Dtype::I32, &[4, 5]))),
            ("logits", refusal(|t| t.logits = Tensor::contiguous(Dtype::F32, &[3, 300]))),
        ] {
            assert!(message.starts_with(&format!("`{arg}` has shape")), "{message}");
        }
    }

    #[test]
    fn page_strides_are_free_multiples_of_16_bytes() {
        let strided = |bytes: i64| {
            let mut t = call(KeyFormat::Fp8);
            t.k_pages.strides[0] = bytes;
            t.k_pages.bytes = 1 << 40;
            LogitsShape::of(&t)
        };
        for bytes in [8_448, 1_077_120, 1_435_968, 1 << 35] {
            assert!(strided(bytes).is_ok(), "{bytes}");
        }
        for bytes in [8_449, 8_456, 8_432, 0, -8_448] {
            let message = strided(bytes).unwrap_err().to_string();
            assert!(message.starts_with("`k_pages`: the stride of page is"), "{message}");
            assert!(message.contains("a multiple of 16 bytes"), "{message}");
        }
    }

    #[test]
    fn a_row_stride_shorter_than_its_row_is_refused() {
        let message = refusal(|t| t.logits.strides[0] = 299);
        assert!(message.contains("`logits`: the stride of row is 299"), "{message}");
        let message = refusal(|t| t.block_table.strides[0] = 4);
        assert!(message.contains("`block_table`: the stride of row is 4"), "{message}");
        let message = refusal(|t| t.q.strides[1] = 64 * 128 + 8);
        assert!(message.contains("`q`: the stride of dimension 1 is 8200"), "{message}");
    }

    #[test]
    fn memory_that_ends_early_and_misaligned_addresses_are_refused() {
        assert_eq!(
            refusal(|t| t.logits.bytes -= 1),
            "`logits` is backed by 7199 bytes, but its shape and strides reach 7200"
        );
        assert!(refusal(|t| t.k_pages.bytes = 0).starts_with("`k_pages` is backed by 0 bytes"));
        assert!(refusal(|t| t.q.address = 8).starts_with("`q` begins at an address that is 8 modulo 16"));
    }

    #[test]
    fn lengths_are_checked_against_the_table_and_the_row() {
        let shape = LogitsShape::of(&call(KeyFormat::Bf16)).unwrap();
        assert!(shape.check_lens(&[0, 0, 300, 299, 64, 63]).is_ok());
        let refused = |lens: &[i32]| shape.check_lens(lens).unwrap_err().to_string();
        assert!(refused(&[0, -1, 0, 0, 0, 0]).starts_with("`context_lens[1]` is -1, accepted: 0..=300"));
        assert!(refused(&[0, 0, 0, 0, 0, 301]).contains("the columns of a row of `logits`"));
        assert!(refused(&[0, 0, 321, 0, 0, 0]).contains("64 slots for each of the S table entries"));
        assert!(refused(&[0; 5]).starts_with("`context_lens` has shape [5]"));
    }

    #[test]
    fn rows_longer_than_a_launch_can_count_are_refused() {
        let message = refusal(|t| {
            t.block_table = Tensor::contiguous(Dtype::I32, &[3, 1 << 22]);
            t.logits = Tensor::contiguous(Dtype::F32, &[6, 1 << 28]);
        });
        assert!(message.contains("is 268435456, supported: at most 134,217,728 keys"), "{message}");
    }

    #[test]
    fn a_grid_that_leaves_a_cta_more_pages_than_lanes_is_refused() {
        let mut shape = LogitsShape::of(&call(KeyFormat::Bf16)).unwrap();
        assert!(shape.check_splits(1).is_ok());
        shape.max_len = 64 * 65;
        assert!(shape.check_splits(3).is_ok());
        assert_eq!(
            shape.check_splits(2).unwrap_err().to_string(),
            "`splits` is 2, accepted: 3 or more: a CTA walks at most 32 of a row's 65 pages"
        );
    }

    #[test]
    fn only_table_entries_that_a_length_reaches_are_checked() {
        let shape = LogitsShape::of(&call(KeyFormat::Bf16)).unwrap();
        let lens = [64, 65, 0, 0, 1, 1];
        let mut table = vec![i32::MAX; 15];
        table[0] = 9;
        table[1] = 3;
        table[10] = 0;
        assert!(shape.check_table(&lens, &table).is_ok());
        table[1] = 10;
        let message = shape.check_table(&lens, &table).unwrap_err().to_string();
        assert_eq!(message, "`block_table[0][1]` is 10, accepted: 0..10 (the pages of `k_pages`)");
    }
}
