use super::*;

/// A launch that does what the contract says, in f32, with no tiles and no GPU: it must pass every case, and each
/// way of breaking it must fail one.
fn run(case: &mut Case, format: KeyFormat, heads: usize, broken: Option<Fault>) {
    let [.., Arg::Scalar(ScalarValue::I32(clean_to))] = case.args[..] else { panic!("clean_to comes last") };
    let stride = |of: usize| {
        let pointer = case.args.iter().find_map(|arg| match arg {
            Arg::Pointer { buffer, strides, .. } if *buffer == of => Some(strides[0] as u64),
            _ => None,
        });
        pointer.expect("a pointer into the buffer")
    };
    let (page_stride, table_stride, out_stride) = (stride(1), stride(4), stride(5));
    let ints = |buffer: &Buffer, index: u64| {
        i32::from_le_bytes(buffer.slice(index * 4, 4).expect("mapped").try_into().unwrap())
    };
    let [next_n, _, batch] = case.grid;
    let element = format.element_bytes();
    let decode = |bytes: &[u8]| -> f32 {
        match format {
            KeyFormat::Bf16 => half::bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
            KeyFormat::Fp8 => crate::reference::convert::e4m3_to_f64(bytes[0]) as f32,
        }
    };
    for row in 0..u64::from(next_n * batch) {
        let len = ints(&case.buffers[3], row) as u64;
        let mut writes: Vec<(u64, f32)> = Vec::new();
        for p in 0..len {
            let page = ints(&case.buffers[4], row / u64::from(next_n) * table_stride + p / 64) as u64;
            let page_at = page * page_stride * element as u64;
            let slot = if broken == Some(Fault::SwappedSlots) { (p % 64) ^ 1 } else { p % 64 };
            let key = case.buffers[1].slice(page_at + slot * 128 * element as u64, 128 * element);
            let Some(key) = key else { continue };
            let scale = match format {
                KeyFormat::Bf16 => 1.0,
                KeyFormat::Fp8 => {
                    f32::from_le_bytes(case.buffers[1].slice(page_at + 8192 + slot * 4, 4).unwrap().try_into().unwrap())
                }
            };
            let mut sum = 0.0f32;
            for h in 0..heads {
                let q = case.buffers[0].slice((row * heads as u64 + h as u64) * 128 * element as u64, 128 * element);
                let q = q.expect("mapped");
                let dot: f32 = (0..128).map(|d| decode(&q[d * element..]) * decode(&key[d * element..])).sum();
                let weights = case.buffers[2].slice((row * heads as u64 + h as u64) * 4, 4).unwrap();
                let relu = if broken == Some(Fault::NoRelu) { dot } else { dot.max(0.0) };
                sum += f32::from_le_bytes(weights.try_into().unwrap()) * relu;
            }
            writes.push((p, sum * scale));
        }
        match broken {
            Some(Fault::OneTooMany) => writes.push((len, 0.0)),
            Some(Fault::OneTooFew) => drop(writes.pop()),
            Some(Fault::OneBit) => {
                if let Some((_, x)) = writes.last_mut() {
                    *x = f32::from_bits(x.to_bits() ^ 1 << 12);
                }
            }
            _ => {}
        }
        writes.extend((len..clean_to.max(0) as u64).map(|p| (p, f32::NEG_INFINITY)));
        for (p, x) in writes {
            let at = (row * out_stride + p) * 4;
            let segment = case.buffers[5].segments.iter_mut().rev().find(|s| s.offset <= at).expect("mapped");
            let at = (at - segment.offset) as usize;
            segment.bytes[at..at + 4].copy_from_slice(&x.to_le_bytes());
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    SwappedSlots,
    NoRelu,
    OneTooMany,
    OneTooFew,
    OneBit,
}

fn small(format: KeyFormat, change: impl FnOnce(&mut LogitsSpec)) -> LogitsSpec {
    let mut spec = LogitsSpec::new(format, 16, 2, vec![65, 66, 0, 3]);
    change(&mut spec);
    spec
}

fn verdict(spec: &LogitsSpec, broken: Option<Fault>) -> Verdict {
    let mut case = spec.case();
    run(&mut case, spec.format, spec.heads, broken);
    (case.verify)(&case.buffers)
}

#[test]
fn a_right_kernel_passes_with_every_kind_of_data() {
    for format in [KeyFormat::Bf16, KeyFormat::Fp8] {
        for data in [
            Data::Random,
            Data::NegativeWeights,
            Data::NegativeDots,
            Data::ZeroKeys,
            Data::OneHot,
            Data::Saturated,
            Data::NanKey,
            Data::NanQuery,
        ] {
            let verdict = verdict(&small(format, |s| s.data = data), None);
            assert_eq!(verdict.failures, Vec::<String>::new(), "{format:?} {data:?}");
            assert!(verdict.worst_row_diff < 1e-12, "{format:?} {data:?}: {}", verdict.worst_row_diff);
        }
    }
}

#[test]
fn a_right_kernel_passes_with_every_layout() {
    let specs = [
        small(KeyFormat::Fp8, |s| s.page_stride = 1_077_120),
        small(KeyFormat::Bf16, |s| s.pages = Pages::Repeated { pool: 1 }),
        small(KeyFormat::Bf16, |s| s.pages = Pages::Shuffled { first: 200_000 }),
        small(KeyFormat::Bf16, |s| (s.logits_gap, s.table_gap) = (300_000_000, 7)),
        small(KeyFormat::Bf16, |s| (s.clean, s.max_len, s.logits_gap) = (true, 99, 3)),
        small(KeyFormat::Bf16, |s| s.tail = TableTail::Stale),
    ];
    for spec in specs {
        assert_eq!(verdict(&spec, None).failures, Vec::<String>::new(), "{spec:?}");
    }
}

#[test]
fn each_fault_is_caught() {
    for (fault, data, complaint) in [
        (Fault::SwappedSlots, Data::OneHot, "position 0"),
        (Fault::NoRelu, Data::NegativeDots, "expected"),
        (Fault::OneTooMany, Data::Random, "must not be written"),
        (Fault::OneTooFew, Data::Random, "never written"),
        (Fault::OneBit, Data::Random, "off by"),
    ] {
        let failures = verdict(&small(KeyFormat::Bf16, |s| (s.data, s.max_len) = (data, 80)), Some(fault)).failures;
        assert!(failures.iter().any(|f| f.contains(complaint)), "{fault:?}: {failures:?}");
    }
}

#[test]
fn an_untouched_output_fails() {
    let case = small(KeyFormat::Bf16, |_| {}).case();
    let failures = (case.verify)(&case.buffers).failures;
    assert!(failures.iter().any(|f| f.contains("never written") || f.contains("got NaN")), "{failures:?}");
}

#[test]
fn a_changed_input_or_gap_fails() {
    let spec = small(KeyFormat::Bf16, |s| s.logits_gap = 9);
    for (buffer, offset, complaint) in [(1, 0, "`k_pages` must not change"), (5, 66 * 4 + 2, "lies behind row 0")] {
        let mut case = spec.case();
        run(&mut case, spec.format, spec.heads, None);
        case.buffers[buffer].segments[0].bytes[offset] ^= 0x55;
        let failures = (case.verify)(&case.buffers).failures;
        assert!(failures.iter().any(|f| f.contains(complaint)), "{failures:?}");
    }
}

#[test]
fn what_must_not_be_read_is_unmapped_or_undefined() {
    let spec = small(KeyFormat::Bf16, |s| s.pages = Pages::Shuffled { first: 5 });
    let k = &spec.case().buffers[1];
    assert!(k.slice(16_384, 16).is_none(), "pages below the first are unmapped");
    let defined: usize = k.segments.iter().filter(|s| s.defined).map(|s| s.bytes.len()).sum();
    assert_eq!(defined, (66 + 3) * 256, "only slots that some row reaches are defined");
    assert!(k.segments.iter().all(|s| s.defined || s.bytes.iter().all(|b| *b == POISON)));
}

#[test]
fn cases_repeat() {
    let spec = small(KeyFormat::Fp8, |s| s.seed = 9);
    assert_eq!(spec.case().buffers, spec.case().buffers);
    assert_ne!(spec.case().buffers, small(KeyFormat::Fp8, |s| s.seed = 10).case().buffers);
}

#[test]
fn every_listed_case_obeys_the_contract() {
    use crate::cases::logits_list::logits_specs;
    use lathe_codegen::contract::Scale;
    for format in [KeyFormat::Bf16, KeyFormat::Fp8] {
        for heads in crate::contract::HEADS {
            let specs = logits_specs(format, heads, 1, Scale::Emulator);
            let names: std::collections::BTreeSet<String> =
                specs.iter().map(|s| format!("{} seed {}", s.name(), s.seed)).collect();
            assert_eq!(names.len(), specs.len());
            for spec in &specs {
                assert_eq!(spec.page_stride % 16, 0);
                assert!(spec.lens.iter().all(|&len| len as u32 <= spec.max_len));
            }
            let pages: i32 = specs.iter().flat_map(|s| &s.lens).map(|len| (len + 63) / 64).sum();
            assert!(pages < 2_000, "{pages} pages are too many for a quick check");
        }
    }
}
