//! The driver functions that graphs need, asked for before the first use, which would panic without them.

use libloading::Library;

use super::DeviceError;

/// What capture, replay and read-back call beyond what every driver has.
pub const GRAPH_SYMBOLS: [&str; 13] = [
    "cuLaunchKernelEx",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags",
    "cuGraphExecUpdate_v2",
    "cuGraphLaunch",
    "cuGraphGetNodes",
    "cuGraphGetEdges_v2",
    "cuGraphKernelNodeGetParams_v2",
    "cuGraphKernelNodeGetAttribute",
    "cuGraphMemcpyNodeGetParams",
    "cuFuncGetName",
    "cuFuncGetParamInfo",
];

/// Says which of `symbols` the library lacks, if any.
///
/// # Errors
/// [`DeviceError::MissingSymbol`] with the first.
pub fn require(library: &Library, symbols: &[&str]) -> Result<(), DeviceError> {
    // SAFETY: the symbol is looked up and not called.
    let is_missing = |symbol: &&&str| unsafe { library.get::<*const ()>(symbol.as_bytes()) }.is_err();
    match symbols.iter().find(is_missing) {
        Some(symbol) => Err(DeviceError::MissingSymbol { symbol: (*symbol).to_owned() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_without_a_symbol_is_refused_by_the_symbols_name() {
        let this = Library::from(libloading::os::unix::Library::this());
        assert!(require(&this, &["malloc", "free"]).is_ok());
        let error = require(&this, &["malloc", "cuGraphFly"]).unwrap_err();
        assert!(error.to_string().contains("no `cuGraphFly`"), "{error}");
    }
}
