//! A captured graph read back from the driver: nodes, edges with their ports, launches, parameters.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;

use cudarc::driver::sys;
use lathe_graph::driver::{CapturedEdge, CapturedGraph, CapturedKind, CapturedNode, Driver, DriverError, Word};
use lathe_graph::model::KernelLaunch;

use super::capture::DriverGraph;

/// The driver's names of node types, by number; a newer driver may have more.
const KINDS: [(sys::CUgraphNodeType, CapturedKind); 10] = {
    use sys::CUgraphNodeType as Type;
    [
        (Type::CU_GRAPH_NODE_TYPE_KERNEL, CapturedKind::Kernel),
        (Type::CU_GRAPH_NODE_TYPE_MEMCPY, CapturedKind::Memcpy),
        (Type::CU_GRAPH_NODE_TYPE_MEMSET, CapturedKind::Memset),
        (Type::CU_GRAPH_NODE_TYPE_HOST, CapturedKind::Host),
        (Type::CU_GRAPH_NODE_TYPE_GRAPH, CapturedKind::ChildGraph),
        (Type::CU_GRAPH_NODE_TYPE_EMPTY, CapturedKind::Empty),
        (Type::CU_GRAPH_NODE_TYPE_WAIT_EVENT, CapturedKind::EventWait),
        (Type::CU_GRAPH_NODE_TYPE_EVENT_RECORD, CapturedKind::EventRecord),
        (Type::CU_GRAPH_NODE_TYPE_MEM_ALLOC, CapturedKind::MemAlloc),
        (Type::CU_GRAPH_NODE_TYPE_MEM_FREE, CapturedKind::MemFree),
    ]
};

const CONDITIONAL: u32 = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL as u32;
const PROGRAMMATIC: u8 = sys::CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u8;

/// The largest parameter space of a kernel, in bytes.
const MAX_PARAMETER: usize = 32_764;

fn check(call: &str, result: sys::CUresult) -> Result<(), DriverError> {
    result.result().map_err(|error| DriverError { call: call.to_owned(), reason: error.to_string() })
}

impl DriverGraph {
    /// The whole graph as plain data, to be kept and compared without a device.
    ///
    /// # Errors
    /// [`DriverError`] if the driver does not answer.
    pub fn dump(&self) -> Result<CapturedGraph, DriverError> {
        let nodes = self.nodes()?;
        let words = (0..nodes.len()).map(|node| self.words(node)).collect::<Result<_, _>>()?;
        Ok(CapturedGraph { edges: self.edges()?, nodes, words })
    }

    fn handles(&self) -> Result<Vec<sys::CUgraphNode>, DriverError> {
        let mut count = 0;
        // SAFETY: without an array the driver only counts.
        check("cuGraphGetNodes", unsafe { sys::cuGraphGetNodes(self.graph, std::ptr::null_mut(), &mut count) })?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut nodes = vec![std::ptr::null_mut(); count];
        // SAFETY: the array has room for `count` handles.
        check("cuGraphGetNodes", unsafe { sys::cuGraphGetNodes(self.graph, nodes.as_mut_ptr(), &mut count) })?;
        nodes.truncate(count);
        Ok(nodes)
    }
}

impl Driver for DriverGraph {
    fn nodes(&self) -> Result<Vec<CapturedNode>, DriverError> {
        self.handles()?.into_iter().map(describe).collect()
    }

    fn edges(&self) -> Result<Vec<CapturedEdge>, DriverError> {
        let handles = self.handles()?;
        let mut count = 0;
        let nowhere = std::ptr::null_mut::<sys::CUgraphNode>;
        // SAFETY: without arrays the driver only counts.
        let counted =
            unsafe { sys::cuGraphGetEdges_v2(self.graph, nowhere(), nowhere(), std::ptr::null_mut(), &mut count) };
        check("cuGraphGetEdges", counted)?;
        // The driver refuses to list none.
        if count == 0 {
            return Ok(Vec::new());
        }
        let nobody: sys::CUgraphNode = std::ptr::null_mut();
        let (mut from, mut to) = (vec![nobody; count], vec![nobody; count]);
        let nothing = sys::CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] };
        let mut data = vec![nothing; count];
        // SAFETY: the arrays have room for `count` edges.
        let listed = unsafe {
            sys::cuGraphGetEdges_v2(self.graph, from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr(), &mut count)
        };
        check("cuGraphGetEdges", listed)?;
        let index = |handle: &sys::CUgraphNode| {
            let unlisted = || DriverError {
                call: "cuGraphGetEdges".into(),
                reason: "an edge of a node that cuGraphGetNodes does not list".into(),
            };
            handles.iter().position(|known| known == handle).ok_or_else(unlisted)
        };
        let edges = from.iter().zip(&to).zip(&data).take(count);
        edges
            .map(|((from, to), data)| {
                let programmatic = data.type_ == PROGRAMMATIC;
                Ok(CapturedEdge { from: index(from)?, to: index(to)?, from_port: data.from_port, programmatic })
            })
            .collect()
    }

    fn words(&self, node: usize) -> Result<Vec<Word>, DriverError> {
        let Some(&handle) = self.handles()?.get(node) else {
            return Err(DriverError { call: "cuGraphGetNodes".into(), reason: format!("there is no node {node}") });
        };
        match kind(handle)? {
            CapturedKind::Kernel => Ok(kernel_words(&kernel(handle)?.parameters)),
            CapturedKind::Memcpy => {
                let mut params = MaybeUninit::<sys::CUDA_MEMCPY3D>::zeroed();
                // SAFETY: the node is a copy, and the driver fills the structure.
                check("cuGraphMemcpyNodeGetParams", unsafe {
                    sys::cuGraphMemcpyNodeGetParams(handle, params.as_mut_ptr())
                })?;
                // SAFETY: filled by the driver; zeroed before.
                let params = unsafe { params.assume_init() };
                let word = |parameter, value| Word { parameter, offset: 0, value };
                Ok(vec![word(0, params.dstDevice), word(1, params.srcDevice)])
            }
            CapturedKind::Memset => {
                let mut params = MaybeUninit::<sys::CUDA_MEMSET_NODE_PARAMS>::zeroed();
                // SAFETY: the node is a fill, and the driver fills the structure.
                check("cuGraphMemsetNodeGetParams", unsafe {
                    sys::cuGraphMemsetNodeGetParams(handle, params.as_mut_ptr())
                })?;
                // SAFETY: plain numbers, all zeros before.
                let params = unsafe { params.assume_init() };
                Ok(vec![Word { parameter: 0, offset: 0, value: params.dst }])
            }
            _ => Ok(Vec::new()),
        }
    }
}

fn kind(node: sys::CUgraphNode) -> Result<CapturedKind, DriverError> {
    let mut number = u32::MAX;
    // SAFETY: the node is alive; the type is an enumeration of 32 bits, read as a number because a newer driver may
    // have more of them.
    check("cuGraphNodeGetType", unsafe { sys::cuGraphNodeGetType(node, (&raw mut number).cast()) })?;
    let known = KINDS.iter().find(|(of, _)| *of as u32 == number);
    Ok(match known {
        Some((_, kind)) => *kind,
        None if number == CONDITIONAL => CapturedKind::Conditional,
        None => CapturedKind::Other,
    })
}

fn describe(node: sys::CUgraphNode) -> Result<CapturedNode, DriverError> {
    let kind = kind(node)?;
    if kind != CapturedKind::Kernel {
        return Ok(CapturedNode::new(kind, ""));
    }
    let Kernel { name, params, parameters } = kernel(node)?;
    let scalars = parameters.iter().enumerate().filter(|(_, bytes)| bytes.len() <= 8).map(|(index, bytes)| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        (index as u32, u64::from_le_bytes(word))
    });
    let launch = KernelLaunch {
        grid: [params.gridDimX, params.gridDimY, params.gridDimZ],
        block: [params.blockDimX, params.blockDimY, params.blockDimZ],
        shared_bytes: params.sharedMemBytes,
        cluster: cluster(node)?,
        cooperative: attribute(node, sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, |value| {
            // SAFETY: the driver filled the union for this attribute.
            unsafe { value.cooperative != 0 }
        })?,
        scalars: scalars.collect(),
    };
    Ok(CapturedNode { kind, name, launch: Some(launch) })
}

struct Kernel {
    name: String,
    params: sys::CUDA_KERNEL_NODE_PARAMS,
    /// The bytes of each parameter.
    parameters: Vec<Vec<u8>>,
}

fn kernel(node: sys::CUgraphNode) -> Result<Kernel, DriverError> {
    let mut params = MaybeUninit::<sys::CUDA_KERNEL_NODE_PARAMS>::zeroed();
    // SAFETY: the node is a kernel, and the driver fills the structure.
    check("cuGraphKernelNodeGetParams", unsafe { sys::cuGraphKernelNodeGetParams_v2(node, params.as_mut_ptr()) })?;
    // SAFETY: pointers and numbers, all zeros before.
    let mut params = unsafe { params.assume_init() };
    if params.func.is_null() {
        // SAFETY: a node without a function has a kernel, which has one in every context.
        check("cuKernelGetFunction", unsafe { sys::cuKernelGetFunction(&mut params.func, params.kern) })?;
    }
    let mut name: *const c_char = std::ptr::null();
    // SAFETY: the function is alive as long as the graph that holds it; so is its name.
    check("cuFuncGetName", unsafe { sys::cuFuncGetName(&mut name, params.func) })?;
    // SAFETY: the driver gives a string that ends in zero.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    let sizes = super::module::parameter_sizes(params.func);
    if params.kernelParams.is_null() && !sizes.is_empty() {
        let reason = format!("`{name}` has {} parameters and the node lists none", sizes.len());
        return Err(DriverError { call: "cuGraphKernelNodeGetParams".into(), reason });
    }
    let parameters = sizes.iter().enumerate().map(|(index, &size)| {
        // SAFETY: `kernelParams` holds a pointer for each parameter, to memory of the graph of the parameter's size.
        unsafe {
            let from: *const u8 = (*params.kernelParams.add(index)).cast();
            std::slice::from_raw_parts(from, size.min(MAX_PARAMETER)).to_vec()
        }
    });
    Ok(Kernel { name, params, parameters: parameters.collect() })
}

fn kernel_words(parameters: &[Vec<u8>]) -> Vec<Word> {
    let mut words = Vec::new();
    for (parameter, bytes) in parameters.iter().enumerate() {
        words.extend(bytes.as_chunks::<8>().0.iter().enumerate().map(|(at, chunk)| Word {
            parameter: parameter as u32,
            offset: 8 * at as u32,
            value: u64::from_le_bytes(*chunk),
        }));
    }
    words
}

fn cluster(node: sys::CUgraphNode) -> Result<[u32; 3], DriverError> {
    attribute(node, sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, |value| {
        // SAFETY: the driver filled the union for this attribute; zeros say that there is none.
        let of = unsafe { value.clusterDim };
        [of.x, of.y, of.z].map(|extent| extent.max(1))
    })
}

fn attribute<T>(
    node: sys::CUgraphNode,
    which: sys::CUlaunchAttributeID,
    read: impl FnOnce(&sys::CUlaunchAttributeValue) -> T,
) -> Result<T, DriverError> {
    let mut value = sys::CUlaunchAttributeValue { pad: [0; 64] };
    // SAFETY: the node is a kernel, and the driver fills the union.
    check("cuGraphKernelNodeGetAttribute", unsafe { sys::cuGraphKernelNodeGetAttribute(node, which, &mut value) })?;
    Ok(read(&value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_aligned_eight_bytes_of_each_parameter() {
        let structure: Vec<u8> = (0..20).collect();
        let words = kernel_words(&[7u64.to_le_bytes().to_vec(), vec![1, 0, 0, 0], structure]);
        let seen: Vec<_> = words.iter().map(|w| (w.parameter, w.offset)).collect();
        assert_eq!(seen, [(0, 0), (2, 0), (2, 8)], "four bytes hold no pointer, and 20 hold two words");
        assert_eq!(words[0].value, 7);
        assert_eq!(words[2].value.to_le_bytes(), [8, 9, 10, 11, 12, 13, 14, 15]);
    }
}
