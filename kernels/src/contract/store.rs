//! Arguments of the index-K stores.

use std::collections::HashMap;

use lathe_codegen::dtype::Dtype;

use super::rules::{MAIN_PAGE_SLOTS, RATIO_4};
use super::tensor::VECTOR_BYTES;
use super::{ContractError, HEAD_DIM, KeyFormat, PAGE_SLOTS, ROPE_DIMS, Tensor};

/// The tensors of a scatter, as the caller holds them.
#[derive(Clone, Debug, PartialEq)]
pub struct ScatterTensors {
    /// `[N, 128]` bf16, row stride free (a multiple of 16 bytes).
    pub keys: Tensor,
    /// `[N]` i32 or i64: compressed slots, negative to store nothing.
    pub slots: Tensor,
    /// The pool: bf16 `[pages, 8192]`, or fp8 `[pages, 8448]` bytes. Page stride free.
    pub k_pages: Tensor,
}

/// What a scatter turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScatterShape {
    /// How the pool stores keys.
    pub format: KeyFormat,
    /// Rows, N.
    pub rows: usize,
    /// Element type of the slots: i32 or i64.
    pub slots: Dtype,
    /// Pages in the pool.
    pub pages: u64,
}

impl ScatterShape {
    /// Checks the tensors of a call against each other and against what the kernels support.
    ///
    /// # Errors
    /// Names the first argument that is refused, its value, and what is accepted.
    pub fn of(t: &ScatterTensors) -> Result<Self, ContractError> {
        t.keys.expect_dtype("keys", &[Dtype::Bf16], "bf16")?;
        t.keys.expect_shape("keys", &[None, Some(HEAD_DIM as u64)], "[N, 128]")?;
        t.keys.expect_contiguous_from("keys", 1)?;
        t.keys.expect_outer_stride("keys", "row", HEAD_DIM as u64, VECTOR_BYTES)?;
        let rows = t.keys.shape[0];
        if rows > i32::MAX as u64 {
            let supported = "up to 2,147,483,647";
            return Err(ContractError::Unsupported { arg: "keys", what: "row count", got: rows, supported });
        }

        t.slots.expect_dtype("slots", &[Dtype::I32, Dtype::I64], "i32, i64")?;
        t.slots.expect_shape("slots", &[Some(rows)], "[N]")?;
        t.slots.expect_contiguous_from("slots", 0)?;

        t.k_pages.expect_dtype("k_pages", &[Dtype::Bf16, Dtype::U8], "bf16, or u8 (planar fp8 pages)")?;
        let format = if t.k_pages.dtype == Dtype::Bf16 { KeyFormat::Bf16 } else { KeyFormat::Fp8 };
        let page_elements = (format.page_bytes() / t.k_pages.dtype.size()) as u64;
        t.k_pages.expect_shape("k_pages", &[None, Some(page_elements)], "[pages, elements of 64 slots]")?;
        t.k_pages.expect_contiguous_from("k_pages", 1)?;
        t.k_pages.expect_outer_stride("k_pages", "page", page_elements, VECTOR_BYTES)?;

        let slot_bytes = t.slots.dtype.size() as u64;
        let aligned = [("keys", &t.keys, VECTOR_BYTES), ("slots", &t.slots, slot_bytes)];
        for (arg, tensor, alignment) in aligned.into_iter().chain([("k_pages", &t.k_pages, VECTOR_BYTES)]) {
            tensor.expect_alignment(arg, alignment)?;
            tensor.expect_backed(arg)?;
        }
        Ok(ScatterShape { format, rows: rows as usize, slots: t.slots.dtype, pages: t.k_pages.shape[0] })
    }

    /// Checks slots, where the caller has them on the host.
    ///
    /// # Errors
    /// The first slot past the pool.
    pub fn check_slots(&self, slots: &[i64]) -> Result<(), ContractError> {
        let limit = self.pages.saturating_mul(PAGE_SLOTS as u64);
        match slots.iter().enumerate().find(|(_, slot)| u64::try_from(**slot).is_ok_and(|slot| slot >= limit)) {
            Some((row, &got)) => Err(ContractError::Slot { arg: "slots", row, got, slots: limit, pool: "k_pages" }),
            None => Ok(()),
        }
    }

    /// The debug check: no two rows store to one slot, except in page 0, where padding goes.
    ///
    /// # Errors
    /// The first slot that is hit twice.
    pub fn check_duplicates(&self, slots: &[i64]) -> Result<(), ContractError> {
        let mut seen = HashMap::new();
        for (second, &slot) in slots.iter().enumerate() {
            if slot < PAGE_SLOTS as i64 {
                continue;
            }
            if let Some(first) = seen.insert(slot, second) {
                return Err(ContractError::DuplicateSlot { arg: "slots", first, second, slot });
            }
        }
        Ok(())
    }
}

/// The tensors of a fused store, as the caller holds them.
#[derive(Clone, Debug, PartialEq)]
pub struct FusedTensors {
    /// Rows, slots and pool, as a scatter has them; the slots are main slots, four to a stored key.
    pub scatter: ScatterTensors,
    /// `[N]` i32: tokens of the request up to and with this one.
    pub seq_lens: Tensor,
    /// `[128]` f32.
    pub norm_weight: Tensor,
    /// `[positions, 64]` f32: 32 cosines, then 32 sines. No gaps.
    pub cos_sin: Tensor,
}

/// What a fused store turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FusedShape {
    /// Rows, slots and pool.
    pub scatter: ScatterShape,
    /// Positions that the rotation table covers.
    pub positions: u64,
}

impl FusedShape {
    /// Checks the tensors of a call against each other and against what the kernels support.
    ///
    /// # Errors
    /// Names the first argument that is refused, its value, and what is accepted.
    pub fn of(t: &FusedTensors) -> Result<Self, ContractError> {
        let scatter = ScatterShape::of(&t.scatter)?;
        let rows = scatter.rows as u64;
        t.seq_lens.expect_dtype("seq_lens", &[Dtype::I32], "i32")?;
        t.seq_lens.expect_shape("seq_lens", &[Some(rows)], "[N]")?;
        t.norm_weight.expect_dtype("norm_weight", &[Dtype::F32], "f32")?;
        t.norm_weight.expect_shape("norm_weight", &[Some(HEAD_DIM as u64)], "[128]")?;
        t.cos_sin.expect_dtype("cos_sin", &[Dtype::F32], "f32")?;
        t.cos_sin.expect_shape("cos_sin", &[None, Some(ROPE_DIMS as u64)], "[positions, 64]")?;
        for (arg, tensor, alignment) in [
            ("seq_lens", &t.seq_lens, 4),
            ("norm_weight", &t.norm_weight, VECTOR_BYTES),
            ("cos_sin", &t.cos_sin, VECTOR_BYTES),
        ] {
            tensor.expect_contiguous_from(arg, 0)?;
            tensor.expect_alignment(arg, alignment)?;
            tensor.expect_backed(arg)?;
        }
        Ok(FusedShape { scatter, positions: t.cos_sin.shape[0] })
    }

    /// Checks main slots and sequence lengths, where the caller has them on the host: only tokens that complete a
    /// group of 4 are held to the pool and to the rotation table.
    ///
    /// # Errors
    /// The first slot past the pool, or the first `seq_len` whose position the table does not cover.
    pub fn check_tokens(&self, main_slots: &[i64], seq_lens: &[i32]) -> Result<(), ContractError> {
        let limit = self.scatter.pages.saturating_mul(MAIN_PAGE_SLOTS as u64);
        for (row, (&got, &seq_len)) in main_slots.iter().zip(seq_lens).enumerate() {
            if seq_len <= 0 || seq_len % RATIO_4 != 0 || got < 0 {
                continue;
            }
            if got as u64 >= limit {
                return Err(ContractError::Slot { arg: "slots", row, got, slots: limit, pool: "k_pages" });
            }
            if (seq_len - RATIO_4) as u64 >= self.positions {
                let accepted = format!(
                    "at most {} (row {row}; `cos_sin` covers {} positions)",
                    self.positions + 3,
                    self.positions
                );
                return Err(ContractError::Scalar { arg: "seq_lens", got: seq_len.into(), accepted });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> ScatterTensors {
        ScatterTensors {
            keys: Tensor::contiguous(Dtype::Bf16, &[5, 128]),
            slots: Tensor::contiguous(Dtype::I32, &[5]),
            k_pages: Tensor::contiguous(Dtype::Bf16, &[4, 8192]),
        }
    }

    fn refusal(change: impl Fn(&mut ScatterTensors)) -> String {
        let mut tensors = call();
        change(&mut tensors);
        ScatterShape::of(&tensors).expect_err("must be refused").to_string()
    }

    #[test]
    fn slots_are_i32_or_i64_and_pages_bf16_or_planar_fp8() {
        let shape = ScatterShape::of(&call()).unwrap();
        assert_eq!(shape, ScatterShape { format: KeyFormat::Bf16, rows: 5, slots: Dtype::I32, pages: 4 });
        let mut t = call();
        t.slots = Tensor::contiguous(Dtype::I64, &[5]);
        t.k_pages = Tensor::contiguous(Dtype::U8, &[4, 8448]);
        let shape = ScatterShape::of(&t).unwrap();
        assert_eq!(shape, ScatterShape { format: KeyFormat::Fp8, rows: 5, slots: Dtype::I64, pages: 4 });
    }

    #[test]
    fn each_argument_is_refused_by_name() {
        assert_eq!(refusal(|t| t.keys.dtype = Dtype::F32), "`keys` has dtype f32, accepted: bf16");
        assert_eq!(refusal(|t| t.slots.dtype = Dtype::U32), "`slots` has dtype u32, accepted: i32, i64");
        assert!(refusal(|t| t.keys.shape[1] = 64).starts_with("`keys` has shape [5, 64]"));
        assert!(refusal(|t| t.keys.strides[0] = 132).contains("the stride of row is 132"));
        assert!(refusal(|t| t.slots.shape[0] = 4).starts_with("`slots` has shape [4]"));
        assert!(refusal(|t| t.k_pages.strides[0] = 8196).contains("the stride of page is 8196"));
        assert!(refusal(|t| t.k_pages.bytes = 10).starts_with("`k_pages` is backed by 10 bytes"));
        assert!(refusal(|t| t.keys.address = 2).starts_with("`keys` begins at an address that is 2 modulo 16"));
    }

    #[test]
    fn slots_past_the_pool_are_refused_and_negative_ones_are_not() {
        let shape = ScatterShape::of(&call()).unwrap();
        assert!(shape.check_slots(&[-1, 0, 255, i64::MIN, 64]).is_ok());
        let message = shape.check_slots(&[0, 256]).unwrap_err().to_string();
        assert!(message.starts_with("`slots[1]` is 256, accepted: below 256"), "{message}");
    }

    #[test]
    fn only_page_0_may_be_hit_twice() {
        let shape = ScatterShape::of(&call()).unwrap();
        assert!(shape.check_duplicates(&[0, 0, 63, 63, -1, -1, 64, 65]).is_ok());
        let message = shape.check_duplicates(&[0, 64, 7, 64]).unwrap_err().to_string();
        assert!(message.starts_with("`slots[1]` and `slots[3]` are both slot 64"), "{message}");
    }

    #[test]
    fn fused_calls_check_what_a_completing_token_reaches_and_nothing_else() {
        let tensors = FusedTensors {
            scatter: call(),
            seq_lens: Tensor::contiguous(Dtype::I32, &[5]),
            norm_weight: Tensor::contiguous(Dtype::F32, &[128]),
            cos_sin: Tensor::contiguous(Dtype::F32, &[10, 64]),
        };
        let shape = FusedShape::of(&tensors).unwrap();
        assert_eq!(shape.positions, 10);
        assert!(shape.check_tokens(&[1023, 9999, -1, 0, 4], &[12, 7, 4000, 0, 4]).is_ok());
        let refused = |slots: &[i64], lens: &[i32]| shape.check_tokens(slots, lens).unwrap_err().to_string();
        assert!(refused(&[3, 1024], &[4, 8]).starts_with("`slots[1]` is 1024, accepted: below 1024"));
        assert!(refused(&[3], &[16]).starts_with("`seq_lens` is 16, accepted: at most 13"));
        let mut wrong = tensors.clone();
        wrong.cos_sin = Tensor::contiguous(Dtype::F32, &[10, 128]);
        assert!(FusedShape::of(&wrong).unwrap_err().to_string().starts_with("`cos_sin` has shape [10, 128]"));
        wrong.cos_sin = tensors.cos_sin;
        wrong.seq_lens = Tensor::contiguous(Dtype::I64, &[5]);
        assert!(FusedShape::of(&wrong).unwrap_err().to_string().starts_with("`seq_lens` has dtype i64"));
    }
}
