//! Reads the assembler's report (`--ptxas-options=-v`) out of NVRTC's log.

use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

/// What a kernel takes of an SM, by the assembler's own account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Registers a thread.
    pub registers: u32,
    /// Bytes stored by spills, a thread.
    pub spill_stores: u32,
    /// Bytes loaded by spills, a thread.
    pub spill_loads: u32,
    /// Bytes of stack, a thread.
    pub stack: u32,
    /// Bytes of statically declared shared memory, a CTA. Dynamic shared memory comes on top.
    pub static_shared: u32,
    /// Named barriers used.
    pub barriers: u32,
}

impl Resources {
    /// Bytes that spills move, in both directions.
    pub fn spills(&self) -> u32 {
        self.spill_stores + self.spill_loads
    }
}

/// The report for the source's one kernel; the largest of each figure when the log holds several.
pub fn resources(log: &str) -> Resources {
    macro_rules! largest {
        ($pattern:literal) => {{
            static PATTERN: LazyLock<Regex> = LazyLock::new(|| Regex::new($pattern).expect("a constant pattern"));
            PATTERN.captures_iter(log).filter_map(|found| found[1].parse().ok()).max().unwrap_or(0)
        }};
    }
    Resources {
        registers: largest!(r"Used (\d+) registers"),
        spill_stores: largest!(r"(\d+) bytes spill stores"),
        spill_loads: largest!(r"(\d+) bytes spill loads"),
        stack: largest!(r"(\d+) bytes stack frame"),
        static_shared: largest!(r"(\d+) bytes smem"),
        barriers: largest!(r"used (\d+) barriers"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_read() {
        let log = "ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_120a'
ptxas info    : Function properties for k
ptxas         .     256 bytes stack frame, 12 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 48 registers, used 1 barriers, 256 bytes cumulative stack size, 16 bytes smem
ptxas info    : Compile time = 30.975 ms
";
        let expected =
            Resources { registers: 48, spill_stores: 12, spill_loads: 24, stack: 256, static_shared: 16, barriers: 1 };
        assert_eq!(resources(log), expected);
        assert_eq!(expected.spills(), 36);
    }

    #[test]
    fn a_log_without_a_report_gives_zeros() {
        assert_eq!(resources("entry.cu(1): warning: unused variable"), Resources::default());
    }
}
