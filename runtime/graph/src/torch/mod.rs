//! Graphs that PyTorch captured: read a dump, build the model, check it, say what was found and how sure that is.
//!
//! ```no_run
//! use lathe_graph::torch::{Dump, Imported, Rules};
//!
//! let dump = Dump::load("step.json".as_ref())?;
//! let imported = Imported::of(dump, &Rules::builtin());
//! println!("{}", imported.coverage);
//! # Ok::<(), lathe_graph::torch::DumpError>(())
//! ```

mod access;
mod advice;
mod check;
mod coverage;
mod dump;
mod evidence;
mod history;
mod import;
mod names;
mod picture;
mod ptx;
mod report;
mod rules;
mod wire;

pub use check::{Checked, Finding, Side, check};
pub use coverage::Coverage;
pub use dump::{Dump, DumpError, Frame, GraphDump, Span, VERSION};
pub use evidence::{Certainty, Evidence};
pub use history::{Allocation, Origin};
pub use import::{Because, Imported, NodeInfo, Stale, StaleKind};
pub use names::KernelName;
pub use ptx::Flow;
pub use report::View;
pub use rules::{RuleError, Rules, Use};
