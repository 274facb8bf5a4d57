//! Launches of the index-K scatters: exact to the byte, everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lathe_codegen::contract::{Arg, Buffer, Case, ScalarValue, Scale, Verdict};
use lathe_codegen::dtype::Dtype;

use super::Noise;
use super::logits_list::{FIRST_FAR_PAGE, PACKED_PAGE_STRIDES};
use super::memory::{Failures, append, buffer, expect_unchanged};
use crate::contract::{HEAD_DIM, KeyFormat, PAGE_SLOTS, SCALES_OFFSET};
use crate::launch::store_grid;
use crate::reference::convert::f64_to_bf16;
use crate::reference::store::quantise;

/// What a launch is like; [`ScatterSpec::case`] makes it.
#[derive(Clone, Debug, PartialEq)]
pub struct ScatterSpec {
    /// What distinguishes it, for the case's name.
    pub label: String,
    /// How the pool stores keys.
    pub format: KeyFormat,
    /// fp8: whether scales are powers of two.
    pub power_of_two: bool,
    /// Element type of the slots: i32 or i64.
    pub slot_dtype: Dtype,
    /// Slot of each row; negative stores nothing.
    pub slots: Vec<i64>,
    /// Bytes between pages, a multiple of 16.
    pub page_stride: u64,
    /// Elements between the end of a row and the next, a multiple of 8: they are not mapped.
    pub key_gap: u64,
    /// What the rows hold.
    pub rows: Rows,
    /// Seed of everything random.
    pub seed: u64,
}

/// What the rows of a scatter hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Bell-shaped, a different magnitude each row.
    Random,
    /// Every bf16 bit pattern once in a while, NaN payloads and infinities included (bf16 pools only).
    AnyBits,
    /// Rows of zeros, of values below the smallest scale, of one non-zero element, and of the largest bf16.
    Extremes,
}

impl ScatterSpec {
    /// A plain launch: random rows, tight pages, i32 slots.
    pub fn new(format: KeyFormat, slots: Vec<i64>) -> Self {
        ScatterSpec {
            label: String::new(),
            format,
            power_of_two: false,
            slot_dtype: Dtype::I32,
            slots,
            page_stride: format.page_bytes() as u64,
            key_gap: 0,
            rows: Rows::Random,
            seed: 1,
        }
    }

    /// The case: memory, arguments and judge.
    ///
    /// Arguments, in order: `keys` (row stride), `slots`, `k_pages` (page stride), in fp8 `k_scales` (the scales of the
    /// first page, page stride), `rows: i32`.
    pub fn case(&self) -> Case {
        let keys = self.keys();
        let slots = match self.slot_dtype {
            Dtype::I64 => buffer("slots", Dtype::I64, &self.slots, i64::to_le_bytes),
            _ => buffer("slots", Dtype::I32, &self.slots, |slot| (slot as i32).to_le_bytes()),
        };
        let keys_buffer = self.keys_buffer(&keys);
        let pool = self.pool();
        let expected = Arc::new([keys_buffer.clone(), slots.clone(), self.expected_pool(&keys, &pool)]);
        let element = self.format.pool_dtype().size() as i64;
        let pointer = |buffer, strides| Arg::Pointer { buffer, offset: 0, strides };
        let mut args = vec![
            pointer(0, vec![self.key_stride() as i64]),
            pointer(1, vec![]),
            pointer(2, vec![self.page_stride as i64 / element]),
        ];
        if self.format == KeyFormat::Fp8 {
            args.push(Arg::Pointer {
                buffer: 2,
                offset: SCALES_OFFSET as u64,
                strides: vec![self.page_stride as i64 / 4],
            });
        }
        args.push(Arg::Scalar(ScalarValue::I32(self.slots.len() as i32)));
        let (spec, buffers) = (self.clone(), vec![keys_buffer, slots, pool]);
        Case {
            name: format!("N={} {}: {}", self.slots.len(), self.slot_dtype, self.label),
            grid: store_grid(self.slots.len(), 1),
            buffers,
            args,
            verify: Box::new(move |after| spec.verify(&expected[..], after)),
        }
    }

    fn key_stride(&self) -> u64 {
        HEAD_DIM as u64 + self.key_gap
    }

    fn keys_buffer(&self, keys: &[u16]) -> Buffer {
        let mut segments = Vec::new();
        for (row, key) in keys.chunks_exact(HEAD_DIM).enumerate() {
            let bytes: Vec<u8> = key.iter().flat_map(|bits| bits.to_le_bytes()).collect();
            append(&mut segments, row as u64 * self.key_stride() * 2, &bytes, true);
        }
        let len = segments.last().map_or(0, |s| s.offset + s.bytes.len() as u64);
        Buffer { name: "keys".into(), dtype: Dtype::Bf16, len, segments, racy: 0..0 }
    }

    /// The rows, as bf16 bits.
    fn keys(&self) -> Vec<u16> {
        let noise = Noise::new(self.seed);
        let bits = |row: usize, d: usize| {
            let at = (row * HEAD_DIM + d) as u64;
            let bell = f64::from(noise.bell(at));
            match self.rows {
                Rows::Random => f64_to_bf16(bell * f64::powi(2.0, (row % 17) as i32 - 8)),
                Rows::AnyBits => noise.bits(at) as u16,
                Rows::Extremes => match row % 5 {
                    0 => 0,
                    1 => f64_to_bf16(bell * 1e-6),
                    2 => f64_to_bf16(if d == row % HEAD_DIM { -3.0 } else { 0.0 }),
                    3 => 0x7f7f | if noise.bits(at) & 1 == 0 { 0x8000 } else { 0 },
                    _ => f64_to_bf16(bell),
                },
            }
        };
        (0..self.slots.len())
            .flat_map(|row| (0..HEAD_DIM).map(move |d| (row, d)))
            .map(|(row, d)| bits(row, d))
            .collect()
    }

    /// The pages that a slot lies in, full of other keys; nothing else is mapped.
    fn pool(&self) -> Buffer {
        let noise = Noise::new(self.seed).stream(1);
        let stored = self.slots.iter().filter(|slot| **slot >= 0);
        let pages: BTreeSet<u64> = stored.map(|&slot| slot as u64 / PAGE_SLOTS as u64).chain([0]).collect();
        let mut segments = Vec::new();
        for &page in &pages {
            let bytes: Vec<u8> =
                (0..self.format.page_bytes() as u64).map(|i| noise.stream(page).bits(i) as u8).collect();
            append(&mut segments, page * self.page_stride, &bytes, true);
        }
        let len = segments.last().map_or(0, |s| s.offset + s.bytes.len() as u64);
        // Padding goes to the dummy page, several rows to a slot.
        let racy = 0..self.format.page_bytes() as u64;
        Buffer { name: "k_pages".into(), dtype: self.format.pool_dtype(), len, segments, racy }
    }

    /// The byte ranges of a slot in the pool, and what they hold after `row` is stored there.
    fn stored(&self, row: &[u16], slot: u64) -> Vec<(u64, Vec<u8>)> {
        let page = slot / PAGE_SLOTS as u64 * self.page_stride;
        let offset = slot % PAGE_SLOTS as u64;
        let key = page + offset * (HEAD_DIM * self.format.element_bytes()) as u64;
        match self.format {
            KeyFormat::Bf16 => vec![(key, row.iter().flat_map(|bits| bits.to_le_bytes()).collect())],
            KeyFormat::Fp8 => {
                let values = std::array::from_fn(|d| f32::from_bits(u32::from(row[d]) << 16));
                let quantised = quantise(&values, self.power_of_two);
                let scale = page + SCALES_OFFSET as u64 + 4 * offset;
                vec![(key, quantised.payload.to_vec()), (scale, quantised.scale.to_le_bytes().to_vec())]
            }
        }
    }

    fn expected_pool(&self, keys: &[u16], pool: &Buffer) -> Buffer {
        let mut pool = pool.clone();
        for (row, &slot) in keys.chunks_exact(HEAD_DIM).zip(&self.slots) {
            let Ok(slot) = u64::try_from(slot) else { continue };
            for (at, bytes) in self.stored(row, slot) {
                write(&mut pool, at, &bytes);
            }
        }
        pool
    }

    fn verify(&self, expected: &[Buffer], after: &[Buffer]) -> Verdict {
        let mut failures = Failures::default();
        expect_unchanged(&expected[0], &after[0], &mut failures);
        expect_unchanged(&expected[1], &after[1], &mut failures);

        // Rows that race for a slot of page 0 may leave anything there.
        let mut hits: BTreeMap<u64, usize> = BTreeMap::new();
        for &slot in self.slots.iter().filter(|slot| (0..PAGE_SLOTS as i64).contains(*slot)) {
            *hits.entry(slot as u64).or_default() += 1;
        }
        let mut pool = after[2].clone();
        for (slot, _) in hits.into_iter().filter(|(_, hits)| *hits > 1) {
            for (at, bytes) in self.stored(&[0; HEAD_DIM], slot) {
                if let Some(raced) = expected[2].slice(at, bytes.len()) {
                    write(&mut pool, at, raced);
                }
            }
        }
        if expected[2] != pool {
            self.report(&expected[2], &pool, &mut failures);
        }
        Verdict { worst_row_diff: 0.0, failures: failures.into_lines() }
    }

    /// Names the slots in which the pool is not as expected.
    fn report(&self, expected: &Buffer, pool: &Buffer, failures: &mut Failures) {
        let rows: BTreeMap<i64, usize> = self.slots.iter().enumerate().map(|(row, &slot)| (slot, row)).collect();
        for (want, got) in expected.segments.iter().zip(&pool.segments) {
            let mut last = None;
            for i in (0..want.bytes.len()).filter(|&i| want.bytes[i] != got.bytes[i]) {
                let at = want.offset + i as u64;
                let (page, inside) = (at / self.page_stride, (at % self.page_stride) as usize);
                let key_bytes = HEAD_DIM * self.format.element_bytes();
                let (part, offset) = match inside.checked_sub(PAGE_SLOTS * key_bytes) {
                    None => ("key", inside / key_bytes),
                    Some(scale) => ("scale", scale / 4),
                };
                if last.replace((page, part, offset)) == Some((page, part, offset)) {
                    continue;
                }
                let slot = page as i64 * PAGE_SLOTS as i64 + offset as i64;
                let why = rows.get(&slot).map_or("which no row stores to".to_owned(), |row| format!("of row {row}"));
                failures.push(|| {
                    format!(
                        "slot {slot} (page {page}, offset {offset}), {why}: its {part} has byte {inside} of the page \
                         {:#04x}, expected {:#04x}",
                        got.bytes[i], want.bytes[i]
                    )
                });
            }
        }
    }
}

/// Writes `bytes` at `at`, which one segment must hold.
fn write(buffer: &mut Buffer, at: u64, bytes: &[u8]) {
    let segment = buffer.segments.iter_mut().rev().find(|s| s.offset <= at).expect("slot is mapped");
    let from = (at - segment.offset) as usize;
    segment.bytes[from..from + bytes.len()].copy_from_slice(bytes);
}

/// All cases of a scatter into this format, with slots of this type.
pub fn scatter_cases(format: KeyFormat, slot_dtype: Dtype, power_of_two: bool, scale: Scale) -> Vec<Case> {
    scatter_specs(format, slot_dtype, power_of_two, scale).iter().map(ScatterSpec::case).collect()
}

/// What [`scatter_cases`] are made from.
pub fn scatter_specs(format: KeyFormat, slot_dtype: Dtype, power_of_two: bool, scale: Scale) -> Vec<ScatterSpec> {
    let mut specs = Vec::new();
    let mut add = |label: &str, slots: Vec<i64>, change: &dyn Fn(&mut ScatterSpec)| {
        let mut spec = ScatterSpec::new(format, slots);
        spec.label = label.to_owned();
        (spec.slot_dtype, spec.power_of_two) = (slot_dtype, power_of_two);
        spec.seed = specs.len() as u64 + 1;
        change(&mut spec);
        specs.push(spec);
    };
    let plain = |_: &mut ScatterSpec| {};

    add("nothing", vec![], &plain);
    for rows in [1, 2, 3, 7, 8, 9, 31, 65] {
        add("consecutive slots", (100..100 + rows).collect(), &plain);
    }
    add("page boundaries", vec![63, 64, 127, 128, 191, 192, 0, 255, 256], &plain);
    add("negative slots", vec![-1, 70, -64, -1, 71, i32::MIN.into(), 72, -2, -1], &plain);
    add("all negative", vec![-1; 20], &plain);
    add("padded rows, several a slot of page 0", vec![0, 200, 0, 3, 3, 201, 0, 0, 63, 0, 0, 0], &plain);
    add("rows 2^29 elements apart", vec![64, 300, -1, 65, 66], &|s| s.key_gap = (1 << 29) - 128);
    add("random slots", shuffled_slots(300, 640, 11), &plain);
    add("extreme rows", shuffled_slots(40, 128, 12), &|s| s.rows = Rows::Extremes);
    if format == KeyFormat::Bf16 {
        add("every kind of bits", shuffled_slots(64, 256, 13), &|s| s.rows = Rows::AnyBits);
    }
    for stride in PACKED_PAGE_STRIDES {
        let far = i64::from(FIRST_FAR_PAGE) * PAGE_SLOTS as i64;
        let slots = vec![far, far + 63, far + 64, 5, far + 200, -1];
        add(&format!("packed pages {stride} B apart, past 2^31 elements"), slots, &|s| s.page_stride = stride);
    }
    if slot_dtype == Dtype::I64 {
        // As 32 bits, -2^32 + 5 is slot 5.
        add("negative in 64 bits only", vec![5 - (1 << 32), 70, i64::MIN, -(1 << 40)], &plain);
        // A terabyte of addresses: no GPU has them.
        if scale == Scale::Emulator {
            add("slots past 2^32", vec![(1 << 32) + 7, (1 << 32) + 64, 7], &plain);
        }
    }
    if scale == Scale::Gpu {
        add("a prefill chunk", shuffled_slots(16_384, 40_000, 14), &plain);
    }
    specs
}

/// `rows` different slots out of `64..64 + range`.
fn shuffled_slots(rows: usize, range: i64, seed: u64) -> Vec<i64> {
    let mut slots: Vec<i64> = (64..64 + range).collect();
    Noise::new(seed).shuffle(&mut slots);
    slots.truncate(rows);
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores as the contract says, by other means than the judge: row by row into the case's own memory.
    fn run(case: &mut Case, spec: &ScatterSpec) {
        for (row, &slot) in spec.slots.iter().enumerate() {
            if slot < 0 {
                continue;
            }
            let row = case.buffers[0].slice(row as u64 * spec.key_stride() * 2, 256).unwrap().to_vec();
            let at = slot as u64 / 64 * spec.page_stride + slot as u64 % 64 * 256;
            write(&mut case.buffers[2], at, &row);
        }
    }

    #[test]
    fn a_right_scatter_passes_every_listed_case() {
        for dtype in [Dtype::I32, Dtype::I64] {
            for spec in scatter_specs(KeyFormat::Bf16, dtype, false, Scale::Emulator) {
                let mut case = spec.case();
                run(&mut case, &spec);
                assert_eq!((case.verify)(&case.buffers), Verdict::default(), "{}", case.name);
            }
        }
    }

    #[test]
    fn a_missing_a_wrong_and_an_extra_store_are_named() {
        let spec = ScatterSpec::new(KeyFormat::Bf16, vec![70, -1, 130]);
        let mut case = spec.case();
        let missing = (case.verify)(&case.buffers).failures;
        assert!(missing[0].starts_with("slot 70 (page 1, offset 6), of row 0: its key has byte 1536"), "{missing:?}");
        assert_eq!(missing.len(), 2);

        run(&mut case, &spec);
        write(&mut case.buffers[2], 256, &[1, 2, 3]);
        let extra = (case.verify)(&case.buffers).failures;
        assert!(extra[0].starts_with("slot 1 (page 0, offset 1), which no row stores to"), "{extra:?}");
        assert_eq!(extra.len(), 1);
    }

    #[test]
    fn only_raced_slots_of_page_0_may_hold_anything() {
        let spec = ScatterSpec::new(KeyFormat::Bf16, vec![3, 3, 4]);
        let mut case = spec.case();
        run(&mut case, &spec);
        write(&mut case.buffers[2], 3 * 256, &[9; 256]);
        assert_eq!((case.verify)(&case.buffers).failures, Vec::<String>::new());
        write(&mut case.buffers[2], 4 * 256, &[9]);
        assert_eq!((case.verify)(&case.buffers).failures.len(), 1);
    }

    #[test]
    fn fp8_pages_get_a_payload_and_a_scale() {
        let spec = ScatterSpec::new(KeyFormat::Fp8, vec![65]);
        let case = spec.case();
        let failures = (case.verify)(&case.buffers).failures;
        assert_eq!(failures.len(), 2, "{failures:?}");
        assert!(failures[0].contains("its key has byte"), "{failures:?}");
        assert!(failures[1].contains("its scale has byte 8196"), "{failures:?}");
    }
}
