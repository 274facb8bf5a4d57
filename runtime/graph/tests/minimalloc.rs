//! Static allocation problems from CSV. MiniMalloc's own inputs are not part of this repository: name a folder that
//! holds them in `LATHE_MINIMALLOC` to run them, and print with `--nocapture` how close to the bound each comes.

use lathe_graph::minimalloc::Instance;
use lathe_graph::plan::Problem;

fn valid(instance: &Instance, steps: u64) -> u64 {
    let offsets = instance.place(steps);
    let problem = Problem::of_intervals(&instance.sizes, &instance.lifetimes);
    assert_eq!(problem.overlap(&offsets), None);
    offsets.peak
}

/// Small enough to check by hand: `a` and `g` fill the first moment, `a` and `b` the second.
#[test]
fn a_small_puzzle_is_packed_to_the_byte() {
    let text = "id,lower,upper,size\na,0,2,3\nb,1,4,2\nc,3,7,2\nd,2,4,1\ne,4,6,3\nf,6,8,3\ng,0,1,2\n";
    let instance = Instance::parse(text).unwrap();
    assert_eq!(instance.max_live().bytes, 5);
    assert_eq!(valid(&instance, 10_000), 5);
}

/// Cuts a rectangle of `width` moments and `height` bytes into pieces: they fit exactly, and nothing is wasted.
fn guillotine(seed: u64, cuts: usize) -> (Instance, u64) {
    let (width, height) = (1 << 16, 1 << 16);
    let mut state = seed;
    let mut random = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let mut pieces = vec![(0u64, width, height)];
    while pieces.len() < cuts {
        let at = random(pieces.len() as u64) as usize;
        let (lower, upper, size) = pieces.swap_remove(at);
        if random(2) == 0 && upper - lower > 64 {
            let cut = lower + 16 + random(upper - lower - 32);
            pieces.extend([(lower, cut, size), (cut, upper, size)]);
        } else if size > 64 {
            let cut = 16 + random(size - 32);
            pieces.extend([(lower, upper, cut), (lower, upper, size - cut)]);
        } else {
            pieces.push((lower, upper, size));
        }
    }
    let rows: Vec<String> = pieces.iter().enumerate().map(|(i, (l, u, s))| format!("b{i},{l},{u},{s}")).collect();
    let text = format!("id,lower,upper,size\n{}\n", rows.join("\n"));
    (Instance::parse(&text).unwrap(), height)
}

#[test]
fn rectangles_cut_to_pieces_are_put_together_again() {
    let ratios: Vec<f64> = (1..=8)
        .map(|seed| {
            let (instance, height) = guillotine(seed, 30);
            assert_eq!(instance.max_live().bytes, height);
            valid(&instance, 200_000) as f64 / height as f64
        })
        .collect();
    let exact = ratios.iter().filter(|&&ratio| ratio == 1.0).count();
    println!("{exact} of {} exact, worst {:.4}", ratios.len(), ratios.iter().fold(1.0, |a: f64, &b| a.max(b)));
    assert!(exact >= 6, "{ratios:?}");
}

#[test]
fn minimalloc_inputs_fit_in_their_published_capacity() {
    let Some(folder) = std::env::var_os("LATHE_MINIMALLOC") else {
        println!("skipped: LATHE_MINIMALLOC names no folder of MiniMalloc inputs");
        return;
    };
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ext| ext == "csv"));
    files.sort();
    assert!(!files.is_empty(), "LATHE_MINIMALLOC holds no CSV file");
    for path in files {
        let instance = Instance::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
        // `A.1048576.csv` is known to fit in 1,048,576 bytes.
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let published: u64 = name.rsplit('.').next().unwrap().parse().expect("the name ends with the capacity");
        let bound = instance.max_live().bytes;
        let start = std::time::Instant::now();
        let peak = valid(&instance, 500_000);
        println!(
            "{name}: {} buffers, bound {bound}, planned {peak}, {:.4} of the bound, {:.4} of the published capacity, {:.1?}",
            instance.sizes.len(),
            peak as f64 / bound as f64,
            peak as f64 / published as f64,
            start.elapsed()
        );
        assert!(bound <= published && peak <= published, "{name}");
    }
}
