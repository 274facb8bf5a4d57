use std::fmt;

use crate::loc::Loc;

/// A mistake found while tracing.
#[derive(Clone, PartialEq, Debug)]
pub struct TraceError {
    /// What is wrong and what to do.
    pub message: String,
    /// Where.
    pub loc: Loc,
    /// A second place that matters, and why.
    pub related: Option<(Loc, String)>,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.loc, self.message)?;
        match &self.related {
            Some((loc, why)) => write!(f, "\n  {loc}: {why}"),
            None => Ok(()),
        }
    }
}

/// Every mistake of a kernel, in the order of its source.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub struct TraceErrors {
    /// The kernel.
    pub kernel: String,
    /// The mistakes; at least one.
    pub errors: Vec<TraceError>,
}

impl fmt::Display for TraceErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.errors.len() == 1 { "error" } else { "errors" };
        write!(f, "kernel `{}` has {} {plural}:", self.kernel, self.errors.len())?;
        self.errors.iter().try_for_each(|error| write!(f, "\n{error}"))
    }
}
