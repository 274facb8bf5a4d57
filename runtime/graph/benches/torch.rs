//! A dump of 10,000 nodes: parse, import and check. `cargo bench -p lathe-graph --bench torch`

use std::fmt::Write;
use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};
use lathe_graph::torch::{Dump, Imported, Rules, check};

/// `steps` times: two allocations on main, one on the side stream, joined; blocks are handed out again at every step.
fn dump(steps: usize) -> String {
    let (mut nodes, mut edges, mut events, mut ops) = (String::new(), String::new(), String::new(), String::new());
    let address = |tensor: usize| 0x7f00_0000_0000_u64 + tensor as u64 * 0x10000;
    let hex = |value: u64| value.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut births = 0;
    for step in 0..steps {
        for (part, (from, to)) in [(0, 1), (1, 2), (2, 3), (2, 3)].into_iter().enumerate() {
            let node = 4 * step + part;
            let (from, to) = (address(from), address(to));
            let op = |name: &str, ptr: u64| format!(r#"[{{"ptr":"{ptr:#x}","bytes":16384}}],"{name}":"#);
            let _ = write!(
                ops,
                r#"{{"name":"aten::mul.Tensor","reads":{}[{{"ptr":"{to:#x}","bytes":16384}}]}},"#,
                op("writes", from)
            );
            let low = events.matches("action").count();
            if part < 2 {
                let _ = write!(events, r#"{{"action":"alloc","addr":"{to:#x}","bytes":16384,"stream":0}},"#);
                births += 1;
            }
            let params = format!("0010000000000000{}{}", hex(to), hex(from));
            let high = low + usize::from(part < 2);
            let _ = write!(
                nodes,
                r#"{{"type":"kernel","function":0,"params":"{params}","op":{node},"events":[{low},{high}]}},"#
            );
            if node > 0 {
                let _ = write!(edges, "[{},{node}],", node - 1);
            }
        }
        for tensor in [1, 2] {
            let addr = address(tensor);
            let _ = write!(events, r#"{{"action":"free_requested","addr":"{addr:#x}","bytes":16384,"stream":0}},"#);
        }
    }
    assert_eq!(births, 2 * steps);
    let close = |list: &str| format!("[{}]", list.trim_end_matches(','));
    let kernel = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13AUnaryFunctorIfffNS0_15binary_internal10MulFunctorIfEEEESt5arrayIPcLm2EEEEviT0_T1_";
    format!(
        r#"{{"format":"lathe-torch-dump","version":1,"functions":[{{"name":"{kernel}","params":[[0,4],[4,4],[8,16]]}}],"graphs":[{{"name":"large","nodes":{},"edges":{},"ops":{},"allocations":{}}}]}}"#,
        close(&nodes),
        close(&edges),
        close(&ops),
        close(&events)
    )
}

fn ten_thousand_nodes(criterion: &mut Criterion) {
    let text = dump(2_500);
    let rules = Rules::builtin();
    criterion.bench_function("10,000 nodes: parse, import, check", |bencher| {
        bencher.iter(|| {
            let dump = Dump::parse(black_box(&text), Path::new("large.json")).expect("a valid dump");
            let checked = check(Imported::of(dump, &rules)).expect("a valid graph");
            assert!(checked.findings.is_empty());
            checked.imported.coverage.nodes
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = ten_thousand_nodes
}
criterion_main!(benches);
