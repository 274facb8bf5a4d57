//! Copies of boxes of tensors: what lands where, what is cut off, and what is refused.

mod common;

use common::{Memory, kernel, run, run_clean, schedules};
use lathe_emulator::{FindingKind, Init, Launch, Options, TensorMap, TensorSwizzle};

/// The tensor: 10 rows of 40 numbers, 56 apart.
const COLUMNS: usize = 40;
const ROWS: usize = 10;
const PITCH: usize = 56;

fn number(row: i32, column: i32) -> u16 {
    let inside = (0..ROWS as i32).contains(&row) && (0..COLUMNS as i32).contains(&column);
    if inside { (1 + row * COLUMNS as i32 + column) as u16 } else { 0 }
}

/// A tensor of 16-bit numbers whose rows are padded with what must not be read.
fn tensor(m: &mut Memory) -> u64 {
    let values: Vec<u16> = (0..ROWS * PITCH)
        .map(|i| (i / PITCH, i % PITCH))
        .map(|(row, column)| if column < COLUMNS { number(row as i32, column as i32) } else { 0xdead })
        .collect();
    m.with("tensor", &values)
}

fn map(address: u64, swizzle: TensorSwizzle) -> TensorMap {
    TensorMap {
        address,
        element_bytes: 2,
        dims: vec![COLUMNS as u64, ROWS as u64],
        strides: vec![PITCH as u64 * 2],
        box_dims: vec![16, 4],
        swizzle,
    }
}

const BOX_BYTES: i32 = 16 * 4 * 2;

/// The box's numbers as they lie in shared memory.
fn loaded(column: i32, row: i32) -> Vec<u16> {
    (0..64).map(|i| number(row + i / 16, column + i % 16)).collect()
}

fn launch(out: u64, map: &TensorMap, column: i32, row: i32) -> Launch {
    let launch = Launch::new([1, 1, 1], [64, 1, 1]).dynamic_shared(BOX_BYTES as u32);
    launch.arg(out).arg(map.encode().unwrap()).arg(column).arg(row).arg(BOX_BYTES)
}

#[test]
fn boxes_land_with_zeros_where_the_tensor_ends() {
    let k = kernel("tensor", "load_box");
    for (column, row) in [(0, 0), (8, 3), (3, 1), (32, 8), (-5, -2), (40, 0), (0, 10), (-16, 0)] {
        for options in schedules() {
            let mut m = Memory::default();
            let (out, tensor) = (m.with("out", &[7u16; 64]), tensor(&mut m));
            let map = map(tensor, TensorSwizzle::None);
            run_clean(&k, &launch(out, &map, column, row), &mut m, &options);
            assert_eq!(m.read::<u16>(out, 64), loaded(column, row), "at ({column}, {row})");
        }
    }
}

#[test]
fn a_swizzle_of_128_bytes_is_that_of_matrix_tiles() {
    let k = kernel("tensor", "load_box");
    let mut m = Memory::default();
    let values: Vec<u8> = (0..64 * 256).map(|i| (i / 16 % 251) as u8).collect();
    let (out, tensor) = (m.with("out", &[0u8; 64 * 128]), m.with("tensor", &values));
    let map = TensorMap {
        address: tensor,
        element_bytes: 1,
        dims: vec![256, 64],
        strides: vec![256],
        box_dims: vec![128, 64],
        swizzle: TensorSwizzle::B128,
    };
    let launch = Launch::new([1, 1, 1], [128, 1, 1]).dynamic_shared(64 * 128);
    let launch = launch.arg(out).arg(map.encode().unwrap()).arg(128i32).arg(0i32).arg(64 * 128i32);
    run_clean(&k, &launch, &mut m, &Options::default());
    let found = m.read::<u8>(out, 64 * 128);
    for row in 0..64 {
        for chunk in 0..8 {
            let at = row * 128 + (chunk ^ (row % 8)) * 16;
            assert_eq!(found[at..at + 16], values[row * 256 + 128 + chunk * 16..][..16], "row {row}, chunk {chunk}");
        }
    }
}

#[test]
fn a_map_may_lie_in_global_memory_and_have_more_dimensions() {
    let k = kernel("tensor", "load_box_3d");
    let mut m = Memory::default();
    let values: Vec<u32> = (0..5 * 4 * 8).collect();
    let (out, tensor) = (m.with("out", &[0u32; 2 * 2 * 4]), m.with("tensor", &values));
    let map = TensorMap {
        address: tensor,
        element_bytes: 4,
        dims: vec![8, 4, 5],
        strides: vec![32, 128],
        box_dims: vec![4, 2, 2],
        swizzle: TensorSwizzle::None,
    };
    let place = m.with("map", &map.encode().unwrap());
    let launch = Launch::new([1, 1, 1], [32, 1, 1]).dynamic_shared(64);
    let launch = launch.arg(out).arg(place).arg(4i32).arg(1i32).arg(3i32).arg(64i32);
    run_clean(&k, &launch, &mut m, &Options::default());
    let expected: Vec<u32> = (0..16).map(|i| (3 + i / 8) * 32 + (1 + i / 4 % 2) * 8 + 4 + i % 4).collect();
    assert_eq!(m.read::<u32>(out, 16), expected);
}

#[test]
fn stores_write_the_box_and_nothing_past_the_tensor() {
    let k = kernel("tensor", "store_box");
    for options in schedules() {
        let mut m = Memory::default();
        let tensor = tensor(&mut m);
        let before = m.read::<u16>(tensor, ROWS * PITCH);
        let launch = Launch::new([1, 1, 1], [64, 1, 1]).dynamic_shared(BOX_BYTES as u32);
        let launch = launch.arg(map(tensor, TensorSwizzle::None).encode().unwrap()).arg(30i32).arg(8i32).arg(BOX_BYTES);
        run_clean(&k, &launch, &mut m, &options);
        for (i, (after, before)) in m.read::<u16>(tensor, ROWS * PITCH).into_iter().zip(before).enumerate() {
            let (row, column) = (i / PITCH, i % PITCH);
            let written = row >= 8 && (30..40).contains(&column);
            let stored = if written { (row - 8) * 16 + column - 30 } else { 0 };
            // Pairs of 16-bit numbers: 0, 0, 1, 0, 2, 0, ...
            let expected = if !written {
                before
            } else if stored % 2 == 0 {
                stored as u16 / 2
            } else {
                0
            };
            assert_eq!(after, expected, "[{row}][{column}]");
        }
    }
}

#[test]
fn what_is_no_map_is_a_finding() {
    let k = kernel("tensor", "load_box");
    let mut m = Memory::default();
    let out = m.with("out", &[7u16; 64]);
    let launch = Launch::new([1, 1, 1], [64, 1, 1]).dynamic_shared(BOX_BYTES as u32);
    let report =
        run(&k, &launch.arg(out).arg([1u64; 16]).arg(0i32).arg(0i32).arg(BOX_BYTES), &mut m, &Options::default());
    assert!(report.findings.iter().any(|f| f.kind == FindingKind::TensorMap && f.detail.contains("no tensor map")));
}

#[test]
fn a_map_of_other_dimensions_or_past_its_memory_is_a_finding() {
    let k = kernel("tensor", "load_box");
    let mut m = Memory::default();
    let (out, tensor) = (m.with("out", &[7u16; 64]), tensor(&mut m));
    let flat = TensorMap { dims: vec![40], strides: vec![], box_dims: vec![64], ..map(tensor, TensorSwizzle::None) };
    let report = run(&k, &launch(out, &flat, 0, 0), &mut m, &Options::default());
    let found = report.findings.iter().find(|f| f.kind == FindingKind::TensorMap).expect("a finding");
    assert_eq!(found.detail, "a copy of 2 dimensions, and its tensor map has 1");

    let long = TensorMap { dims: vec![COLUMNS as u64, 100], ..map(tensor, TensorSwizzle::None) };
    let report = run(&k, &launch(out, &long, 0, 50), &mut m, &Options::default());
    assert!(report.findings.iter().any(|f| f.kind == FindingKind::OutOfBounds), "{report:#?}");
}

#[test]
fn a_box_that_is_read_before_its_phase_is_a_copy_in_flight() {
    let text = common::text("tensor");
    let wait = text.find("mbarrier.try_wait").unwrap();
    let (before, after) = text.split_at(wait);
    let (_, rest) = after.split_once(';').unwrap();
    let passes = format!("setp.ge.s32 p, 1, 0;{rest}");
    let k = lathe_emulator::Module::parse(format!("{before}{passes}")).unwrap().entry("load_box").unwrap();
    for options in schedules() {
        let mut m = Memory::default();
        let (out, tensor) = (m.with("out", &[7u16; 64]), tensor(&mut m));
        let report = run(&k, &launch(out, &map(tensor, TensorSwizzle::None), 0, 0), &mut m, &options);
        assert!(report.findings.iter().any(|f| f.kind == FindingKind::CopyInFlight), "{options:?}: {report:#?}");
    }
}

#[test]
fn what_the_tensor_never_held_is_undefined_and_what_it_lacks_is_zero() {
    let k = kernel("tensor", "load_box");
    let mut m = Memory::default();
    let out = m.with("out", &[7u16; 64]);
    let tensor = m.0.allocate("tensor", (ROWS * PITCH * 2) as u64, Init::Undefined).unwrap();
    // Column 40 is past the tensor: zeros, which are defined.
    let clean = run(&k, &launch(out, &map(tensor, TensorSwizzle::None), 40, 0), &mut m, &Options::default());
    assert_eq!((clean.findings.as_slice(), m.0.is_defined(out, 128)), (&[][..], Ok(true)));
    run(&k, &launch(out, &map(tensor, TensorSwizzle::None), 0, 0), &mut m, &Options::default());
    assert_eq!(m.0.is_defined(out, 128), Ok(false));
}
