"""Dump what a CUDA graph captured by PyTorch really holds, for `lathe torch check`.

    import lathe_dump

    with lathe_dump.capture("step", out="step.json") as g:     # in place of torch.cuda.graph(...)
        q = hidden @ wq
        g.name(q=q)                                            # optional: names for the report
        ...
    g.replay()

Standard library and ctypes only, besides the PyTorch of the process. The file format is described in docs/torch-dump-format.md.

What is recorded: nodes, edges and parameter words from the driver; the caching allocator's events during the capture with their Python
lines; the operators that launched the nodes with their tensor arguments; PTX of Triton kernels; the allocator's blocks at the end.
Recording changes no address and no edge of the captured graph.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import gc
import json
import linecache
import os
import sys
import weakref
from typing import Any, Iterable, Iterator, Sequence

__all__ = ["DumpError", "Captured", "capture", "dump", "writes", "ordered"]

FORMAT = "lathe-torch-dump"
VERSION = 1
ROLES = ("input", "output", "persistent", "transient")
MAX_EVENTS = 1_000_000

_HERE = os.path.abspath(__file__)


class DumpError(RuntimeError):
    """A graph that cannot be dumped, or a request that makes no sense; the message says what to do."""


# ---- the driver ------------------------------------------------------------------------------------------------------------


class _KernelParams(ctypes.Structure):  # CUDA_KERNEL_NODE_PARAMS_v2
    _fields_ = [
        ("func", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("params", ctypes.POINTER(ctypes.c_void_p)),
        ("extra", ctypes.POINTER(ctypes.c_void_p)),
        ("kern", ctypes.c_void_p),
        ("ctx", ctypes.c_void_p),
    ]


class _EdgeData(ctypes.Structure):  # CUgraphEdgeData
    _fields_ = [
        ("from_port", ctypes.c_ubyte),
        ("to_port", ctypes.c_ubyte),
        ("type", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 5),
    ]


def _copy_side(prefix: str) -> list[tuple[str, Any]]:
    return [
        (f"{prefix}_x", ctypes.c_size_t),
        (f"{prefix}_y", ctypes.c_size_t),
        (f"{prefix}_z", ctypes.c_size_t),
        (f"{prefix}_lod", ctypes.c_size_t),
        (f"{prefix}_type", ctypes.c_uint),
        (f"{prefix}_host", ctypes.c_void_p),
        (f"{prefix}_device", ctypes.c_void_p),
        (f"{prefix}_array", ctypes.c_void_p),
        (f"{prefix}_reserved", ctypes.c_void_p),
        (f"{prefix}_pitch", ctypes.c_size_t),
        (f"{prefix}_height", ctypes.c_size_t),
    ]


class _Copy(ctypes.Structure):  # CUDA_MEMCPY3D
    _fields_ = [
        *_copy_side("src"),
        *_copy_side("dst"),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("depth", ctypes.c_size_t),
    ]


class _Fill(ctypes.Structure):  # CUDA_MEMSET_NODE_PARAMS
    _fields_ = [
        ("dst", ctypes.c_void_p),
        ("pitch", ctypes.c_size_t),
        ("value", ctypes.c_uint),
        ("element", ctypes.c_uint),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    ]


class _MemAlloc(ctypes.Structure):  # CUDA_MEM_ALLOC_NODE_PARAMS_v1; the pool's properties take 88 bytes
    _fields_ = [
        ("pool", ctypes.c_uint64 * 11),
        ("access", ctypes.c_void_p),
        ("access_count", ctypes.c_size_t),
        ("bytes", ctypes.c_size_t),
        ("address", ctypes.c_uint64),
    ]


class _Host(ctypes.Structure):  # CUDA_HOST_NODE_PARAMS_v1
    _fields_ = [("fn", ctypes.c_void_p), ("data", ctypes.c_void_p)]


_NODE_TYPES = {
    0: "kernel",
    1: "memcpy",
    2: "memset",
    3: "host",
    4: "graph",
    5: "empty",
    6: "wait_event",
    7: "event_record",
    8: "semaphore_signal",
    9: "semaphore_wait",
    10: "mem_alloc",
    11: "mem_free",
    12: "batch_mem_op",
    13: "conditional",
}
_MEMORY_HOST, _MEMORY_ARRAY = 1, 3
_EXTRA_END, _EXTRA_BUFFER, _EXTRA_SIZE = 0, 1, 2


class Driver:
    """The part of libcuda that reads graphs. `library` is the loaded library; tests pass a fake one."""

    def __init__(self, library: Any = None) -> None:
        if library is None:
            try:
                library = ctypes.CDLL("libcuda.so.1")
            except OSError as error:
                raise DumpError(f"the CUDA driver library libcuda.so.1 cannot be loaded ({error}): run this in the process that owns the GPU") from None
        self._library = library
        self._layouts: dict[int, tuple[str, list[list[int]]]] = {}

    def has(self, name: str) -> bool:
        """Whether the driver has this function."""
        return getattr(self._library, name, None) is not None

    def call(self, name: str, *args: Any) -> None:
        """Calls a driver function and turns its status into an exception that names it."""
        function = getattr(self._library, name, None)
        if function is None:
            raise DumpError(f"this driver has no {name}: lathe_dump needs driver 545 (CUDA 12.3) or newer")
        status = function(*args)
        if status:
            text = ctypes.c_char_p()
            known = self._library.cuGetErrorName(status, ctypes.byref(text)) == 0 and text.value
            raise DumpError(f"{name} failed with {text.value.decode() if known else status}")

    def nodes(self, graph: int) -> list[int]:
        """Handles of a graph's nodes, in the order in which they were recorded."""
        count = self.node_count(graph)
        handles = (ctypes.c_void_p * count)()
        if count:
            total = ctypes.c_size_t(count)
            self.call("cuGraphGetNodes", ctypes.c_void_p(graph), handles, ctypes.byref(total))
        return [handle or 0 for handle in handles]

    def node_count(self, graph: int) -> int:
        """How many nodes a graph has, also while it is being captured."""
        count = ctypes.c_size_t(0)
        self.call("cuGraphGetNodes", ctypes.c_void_p(graph), None, ctypes.byref(count))
        return count.value

    def edges(self, graph: int, index: dict[int, int]) -> list[list[int]]:
        """Edges as `[src, dst]`, or `[src, dst, type, from_port, to_port]` where one is not a plain full edge."""
        count = ctypes.c_size_t(0)
        self.call("cuGraphGetEdges_v2", ctypes.c_void_p(graph), None, None, None, ctypes.byref(count))
        if not count.value:  # asking for zero edges is an error
            return []
        sources, targets = (ctypes.c_void_p * count.value)(), (ctypes.c_void_p * count.value)()
        data = (_EdgeData * count.value)()
        self.call("cuGraphGetEdges_v2", ctypes.c_void_p(graph), sources, targets, data, ctypes.byref(count))
        edges = []
        for source, target, extra in zip(sources, targets, data):
            edge = [index[source], index[target]]
            if extra.type or extra.from_port or extra.to_port:
                edge += [extra.type, extra.from_port, extra.to_port]
            edges.append(edge)
        return edges

    def node_type(self, node: int) -> str:
        """The kind of a node, by name."""
        kind = ctypes.c_int(-1)
        self.call("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
        return _NODE_TYPES.get(kind.value, f"type {kind.value}")

    def kernel_params(self, node: int) -> _KernelParams:
        """Launch parameters of a kernel node; the pointers inside belong to the node."""
        params = _KernelParams()
        self.call("cuGraphKernelNodeGetParams_v2", ctypes.c_void_p(node), ctypes.byref(params))
        return params

    def layout(self, params: _KernelParams) -> tuple[str, list[list[int]]]:
        """Name and `[offset, bytes]` of every parameter of a launched function; a cudaKernel handle where there is no function."""
        handle, is_function = (params.func, True) if params.func else (params.kern, False)
        if handle not in self._layouts:
            name = ctypes.c_char_p()
            self.call("cuFuncGetName" if is_function else "cuKernelGetName", ctypes.byref(name), ctypes.c_void_p(handle))
            info = getattr(self._library, "cuFuncGetParamInfo" if is_function else "cuKernelGetParamInfo")
            layout: list[list[int]] = []
            offset, size = ctypes.c_size_t(0), ctypes.c_size_t(0)
            while not info(ctypes.c_void_p(handle), ctypes.c_size_t(len(layout)), ctypes.byref(offset), ctypes.byref(size)):
                layout.append([offset.value, size.value])
            self._layouts[handle] = ((name.value or b"?").decode(errors="replace"), layout)
        return self._layouts[handle]

    def parameter_buffer(self, params: _KernelParams, layout: Sequence[Sequence[int]]) -> bytes:
        """The parameters at their offsets, gaps zero."""
        total = max((offset + size for offset, size in layout), default=0)
        buffer = bytearray(total)
        if params.params:
            for index, (offset, size) in enumerate(layout):
                if params.params[index]:
                    buffer[offset : offset + size] = ctypes.string_at(params.params[index], size)
        elif params.extra:
            packed, size, index = 0, 0, 0
            while params.extra[index] and params.extra[index] != _EXTRA_END:
                key, value = params.extra[index], params.extra[index + 1]
                if key == _EXTRA_BUFFER:
                    packed = value
                elif key == _EXTRA_SIZE:
                    size = ctypes.c_size_t.from_address(value).value
                index += 2
            if packed:
                buffer[: min(size, total)] = ctypes.string_at(packed, min(size, total))
        return bytes(buffer)

    def capturing_graph(self, stream: int) -> int:
        """The graph that is being captured on a stream, 0 when none is."""
        status, identity = ctypes.c_int(0), ctypes.c_uint64(0)
        graph, count = ctypes.c_void_p(), ctypes.c_size_t(0)
        out = (ctypes.c_void_p(stream), ctypes.byref(status), ctypes.byref(identity), ctypes.byref(graph))
        if self.has("cuStreamGetCaptureInfo_v2"):
            self.call("cuStreamGetCaptureInfo_v2", *out, None, ctypes.byref(count))
        else:
            self.call("cuStreamGetCaptureInfo_v3", *out, None, None, ctypes.byref(count))
        return graph.value or 0


def _copy_span(copy: _Copy, side: str) -> int:
    """The first device byte of one side of a copy, 0 for host memory and arrays."""
    kind = getattr(copy, f"{side}_type")
    if kind in (_MEMORY_HOST, _MEMORY_ARRAY):
        return 0
    base = getattr(copy, f"{side}_device") or 0
    pitch, height = getattr(copy, f"{side}_pitch"), getattr(copy, f"{side}_height")
    return base + getattr(copy, f"{side}_x") + pitch * (getattr(copy, f"{side}_y") + height * getattr(copy, f"{side}_z")) if base else 0


def _copy_bytes(copy: _Copy) -> int:
    """Bytes from the first to the last that a copy touches, on its wider side."""
    height, depth = max(copy.height, 1), max(copy.depth, 1)
    pitch = max(copy.src_pitch, copy.dst_pitch) if height > 1 else copy.width
    plane = max(copy.src_height, copy.dst_height, height) * pitch if depth > 1 else 0
    return copy.width + (height - 1) * pitch + (depth - 1) * plane


# ---- what the file holds ------------------------------------------------------------------------------------------------------


class _Tables:
    """Frames and functions of a file, each stored once."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self._frame_ids: dict[tuple[str, int, str], int] = {}
        self.functions: list[dict[str, Any]] = []
        self._function_ids: dict[int, int] = {}

    def frame(self, at: tuple[str, int, str] | None) -> int | None:
        if at is None:
            return None
        if at not in self._frame_ids:
            file, line, function = at
            text = linecache.getline(file, line).strip()
            self._frame_ids[at] = len(self.frames)
            self.frames.append({"file": file, "line": line, "function": function, "text": text})
        return self._frame_ids[at]

    def function(self, handle: int, name: str, layout: list[list[int]], ptx: dict[int, str]) -> int:
        if handle not in self._function_ids:
            entry: dict[str, Any] = {"name": name, "params": layout}
            if handle in ptx:
                entry["ptx"] = ptx[handle]
            self._function_ids[handle] = len(self.functions)
            self.functions.append(entry)
        return self._function_ids[handle]


def _read_body(driver: Driver, graph: int, tables: _Tables, ptx: dict[int, str]) -> dict[str, Any]:
    """Nodes and edges of a graph or child graph."""
    handles = driver.nodes(graph)
    nodes = [_read_node(driver, handle, tables, ptx) for handle in handles]
    return {"nodes": nodes, "edges": driver.edges(graph, {handle: index for index, handle in enumerate(handles)})}


def _read_node(driver: Driver, handle: int, tables: _Tables, ptx: dict[int, str]) -> dict[str, Any]:
    kind = driver.node_type(handle)
    node: dict[str, Any] = {"type": kind}
    pointer = ctypes.c_void_p(handle)
    if kind == "kernel":
        params = driver.kernel_params(handle)
        name, layout = driver.layout(params)
        node["function"] = tables.function(params.func or params.kern, name, layout, ptx)
        node["grid"], node["block"], node["shared"] = list(params.grid), list(params.block), params.shared
        node["params"] = driver.parameter_buffer(params, layout).hex()
    elif kind == "memcpy":
        copy = _Copy()
        driver.call("cuGraphMemcpyNodeGetParams", pointer, ctypes.byref(copy))
        node["src"], node["dst"] = hex(_copy_span(copy, "src")), hex(_copy_span(copy, "dst"))
        node["bytes"] = _copy_bytes(copy)
    elif kind == "memset":
        fill = _Fill()
        driver.call("cuGraphMemsetNodeGetParams", pointer, ctypes.byref(fill))
        row = fill.element * fill.width
        node["dst"], node["bytes"] = hex(fill.dst or 0), row + (max(fill.height, 1) - 1) * fill.pitch
    elif kind == "mem_alloc":
        alloc = _MemAlloc()
        driver.call("cuGraphMemAllocNodeGetParams", pointer, ctypes.byref(alloc))
        node["dst"], node["bytes"] = hex(alloc.address), alloc.bytes
    elif kind == "mem_free":
        address = ctypes.c_uint64(0)
        driver.call("cuGraphMemFreeNodeGetParams", pointer, ctypes.byref(address))
        node["dst"] = hex(address.value)
    elif kind == "graph":
        child = ctypes.c_void_p()
        driver.call("cuGraphChildGraphNodeGetGraph", pointer, ctypes.byref(child))
        node["graph"] = _read_body(driver, child.value or 0, tables, ptx)
    return node


def _read_blocks(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    """The caching allocator's blocks: address, bytes, pool (None: the general one), and whether a tensor holds them."""
    blocks = []
    for segment in snapshot["segments"]:
        pool = tuple(segment.get("segment_pool_id", (0, 0)))
        address = segment["address"]
        for block in segment["blocks"]:
            start = block.get("address", address)
            blocks.append(
                {
                    "addr": hex(start),
                    "bytes": block["size"],
                    "requested": block.get("requested_size", block["size"]),
                    "pool": None if pool == (0, 0) else _pool_name(pool),
                    "live": block["state"] == "active_allocated",
                }
            )
            address = start + block["size"]
    return blocks


def _pool_name(pool: Sequence[int]) -> str:
    return ":".join(str(part) for part in pool)


def _triton_ptx() -> dict[int, str]:
    """PTX by CUfunction handle, for every kernel that Triton or torch.compile loaded in this process."""
    if "triton" not in sys.modules:
        return {}
    found = {}
    for thing in gc.get_objects():
        kind, handle = type(thing), None
        if kind.__name__ == "CompiledKernel" and kind.__module__.startswith("triton"):
            handle, assembly = getattr(thing, "function", None), getattr(thing, "asm", None)
            text = assembly["ptx"] if assembly is not None and "ptx" in assembly else None
        elif kind.__name__.startswith("StaticallyLaunched") and kind.__module__.startswith("torch._inductor"):
            # torch.compile keeps the machine code only; the PTX lies in Triton's cache.
            handle, text = getattr(thing, "function", None), _cached_ptx(getattr(thing, "hash", ""), getattr(thing, "name", ""))
        if isinstance(handle, int) and text is not None:
            found[handle] = text if isinstance(text, str) else text.decode()
    return found


def _cached_ptx(key: str, name: str) -> str | None:
    """The PTX of a kernel from Triton's cache on disk, by the kernel's hash."""
    try:
        folder = base64.b32encode(bytes.fromhex(key)).decode().rstrip("=")
    except ValueError:
        return None
    for root in _triton_caches():
        try:
            with open(os.path.join(root, folder, f"{name}.ptx"), encoding="utf-8") as stream:
                return stream.read()
        except OSError:
            continue
    return None


def _triton_caches() -> list[str]:
    """Where this process may have had Triton's files written."""
    roots = [os.environ.get("TRITON_CACHE_DIR"), getattr(getattr(getattr(sys.modules["triton"], "knobs", None), "cache", None), "dir", None)]
    inductor = sys.modules.get("torch._inductor.runtime.cache_dir_utils")
    if hasattr(inductor, "triton_cache_dir"):
        roots.append(inductor.triton_cache_dir(sys.modules["torch"].cuda.current_device()))
    return [root for root in roots if isinstance(root, str)]


# ---- watching a capture -------------------------------------------------------------------------------------------------------


def _user_frame(depth: int) -> tuple[str, int, str] | None:
    """The innermost Python line that is neither PyTorch's nor ours."""
    frame = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        if not _is_internal(code.co_filename):
            return code.co_filename, frame.f_lineno, code.co_name
        frame = frame.f_back
    return None


_internal: dict[str, bool] = {}


def _is_internal(file: str) -> bool:
    if file not in _internal:
        modules = [sys.modules.get(name) for name in ("torch", "triton")]
        roots = [os.path.dirname(module.__file__) + os.sep for module in modules if getattr(module, "__file__", None)]
        path = os.path.abspath(file)
        _internal[file] = file.startswith("<") or path in (_HERE, contextlib.__file__) or path.startswith(tuple(roots))
    return _internal[file]


def _operand(tensor: Any) -> dict[str, Any] | None:
    """Address and reach of a strided CUDA tensor, `None` for anything else."""
    try:
        if not tensor.is_cuda or tensor.numel() == 0:
            return None
        item, address = tensor.element_size(), tensor.data_ptr()
        dims = sorted(((stride, size) for size, stride in zip(tensor.size(), tensor.stride()) if size > 1), key=lambda dim: abs(dim[0]))
    except (AttributeError, NotImplementedError, RuntimeError):
        return None
    reach = item * (1 + sum(stride * (size - 1) for stride, size in dims))
    row, rest = item, list(dims)
    while rest and rest[0][0] * item == row:
        row *= rest.pop(0)[1]
    operand: dict[str, Any] = {"ptr": hex(address), "bytes": reach}
    if rest:
        operand["row"], operand["pitch"] = row, rest[0][0] * item
    return operand


def _tensors(value: Any) -> Iterator[Any]:
    if hasattr(value, "data_ptr"):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _operands(schema: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> tuple[list[dict], list[dict]]:
    """What an operator may read and what it may write, by its schema."""
    reads, writes = [], []
    values = list(args) + [None] * max(0, len(schema.arguments) - len(args))
    for argument, value in zip(schema.arguments, values):
        value = kwargs.get(argument.name, value)
        written = argument.alias_info is not None and argument.alias_info.is_write
        spans = [span for span in map(_operand, _tensors(value)) if span]
        writes += spans if written else []
        reads += spans if not (written and getattr(argument, "is_out", argument.name.startswith("out"))) else []
    known = {span["ptr"] for span in reads + writes}
    writes += [span for span in map(_operand, _tensors(result)) if span and span["ptr"] not in known]
    return reads, writes


class _Watch:
    """The log of a capture: which operator, on which line and stream, recorded which nodes between which allocations."""

    def __init__(self, torch: Any, driver: Driver) -> None:
        self.torch, self.driver = torch, driver
        self.stream = self.graph = 0
        self.device = torch.cuda.current_device()
        self.entries: list[dict[str, Any]] = []
        self.first_alloc = self.allocated()
        self.last_alloc = self.first_alloc

    def allocated(self) -> int:
        """How many blocks the allocator ever handed out."""
        stats = self.torch._C._cuda_memoryStats(self.device)
        return stats["allocation"]["all"]["allocated"] if stats else 0

    def nodes(self) -> int:
        if not self.graph:
            self.graph = self.driver.capturing_graph(self.stream)
        return self.driver.node_count(self.graph) if self.graph else 0

    def begin(self, name: str, at: tuple[str, int, str] | None) -> dict[str, Any]:
        return {
            "name": name,
            "at": at,
            "stream": self.torch.cuda.current_stream().cuda_stream,
            "nodes": [self.nodes(), None],
            "allocs": [self.allocated() - self.first_alloc, None],
        }

    def end(self, entry: dict[str, Any], reads: list[dict], writes: list[dict]) -> None:
        entry["nodes"][1], entry["allocs"][1] = self.nodes(), self.allocated() - self.first_alloc
        entry["reads"], entry["writes"] = reads, writes
        self.entries.append(entry)

    def mark(self, name: str, at: tuple[str, int, str] | None) -> None:
        """A launch outside the dispatcher (Triton): the next node is its."""
        entry = self.begin(name, at)
        entry["nodes"][1], entry["allocs"][1] = entry["nodes"][0] + 1, entry["allocs"][0]
        self.entries.append(entry)


def _operator_mode(watch: _Watch) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class OperatorLog(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # noqa: ANN001 - PyTorch's signature
            kwargs = kwargs or {}
            schema = getattr(func, "_schema", None)
            if schema is None:  # a higher-order operator: what it runs comes by itself
                return func(*args, **kwargs)
            overload = f".{schema.overload_name}" if schema.overload_name else ""
            entry = watch.begin(schema.name + overload, _user_frame(2))
            result = func(*args, **kwargs)
            if watch.nodes() != entry["nodes"][0]:
                watch.end(entry, *_operands(schema, args, kwargs, result))
            return result

    return OperatorLog()


class _TritonHook:
    """Notes every Triton launch while it is installed."""

    def __init__(self, watch: _Watch) -> None:
        self._watch = watch
        self._chain: Any = None

    def __call__(self, metadata: Any) -> None:
        try:
            name = metadata.get()["name"]
        except (AttributeError, KeyError, TypeError):
            name = "triton kernel"
        self._watch.mark(str(name), _user_frame(2))

    def install(self) -> None:
        triton = sys.modules.get("triton")
        runtime = getattr(getattr(triton, "knobs", None), "runtime", None)
        chain = getattr(runtime, "launch_enter_hook", None)
        if hasattr(chain, "add"):
            chain.add(self)
            self._chain = chain

    def remove(self) -> None:
        if self._chain is not None:
            self._chain.remove(self)
            self._chain = None


class Captured:
    """A captured graph and what was recorded about it. `graph` is the `torch.cuda.CUDAGraph`."""

    def __init__(self, name: str, graph: Any) -> None:
        self.label, self.graph = name, graph
        self.note = ""
        self.observed: list[dict[str, Any]] = []
        self._history: list[dict[str, Any]] | None = None
        self._watch: _Watch | None = None
        self._streams: dict[int, str] = {}
        self._tensors: list[dict[str, Any]] = []
        self._held: dict[str, int] = {}

    def replay(self) -> None:
        """Replays the graph."""
        self.graph.replay()

    def pool(self) -> Any:
        """The memory pool, to pass to another `capture`."""
        return self.graph.pool()

    def name(self, role: str = "transient", **tensors: Any) -> None:
        """Names tensors for the report, at the point of the capture where they are alive. Roles: input, output, persistent, transient."""
        if role not in ROLES:
            raise DumpError(f"role is {role!r}, expected one of {', '.join(ROLES)}")
        for name, tensor in tensors.items():
            span = _operand(tensor)
            if span is None:
                raise DumpError(f"tensor {name!r} is empty or not a strided CUDA tensor: only device memory can be named")
            entry = {"name": name, "ptr": span["ptr"], "bytes": span["bytes"], "role": role, "allocs": None, "alive": _weak(tensor)}
            if self._watch is not None:
                entry["allocs"] = self._watch.allocated() - self._watch.first_alloc
            self._tensors.append(entry)

    def stream_name(self, name: str, stream: Any) -> None:
        """Names a stream for the report."""
        self._streams[stream.cuda_stream] = name

    def _lowered(self, driver: Driver, tables: _Tables, ptx: dict[int, str]) -> dict[str, Any]:
        graph: dict[str, Any] = {"name": self.label, "note": self.note}
        graph.update(_read_body(driver, _raw_graph(self.graph), tables, ptx))
        pool = self.graph.pool() if hasattr(self.graph, "pool") else None
        graph["pool"] = _pool_name(pool) if pool else None
        graph["observed"] = self.observed
        streams, births = dict(self._streams), None
        if self._history is not None:
            births = self._add_history(graph, tables, streams)
        graph["tensors"] = [self._lowered_tensor(tensor, births) for tensor in self._tensors]
        graph["streams"] = list(streams.values())
        return graph

    def _lowered_tensor(self, tensor: dict[str, Any], births: list[int] | None) -> dict[str, Any]:
        entry = {key: tensor[key] for key in ("name", "ptr", "bytes", "role")}
        if births is not None and tensor["allocs"] is not None:
            entry["event"] = _position(births, tensor["allocs"])
        return entry

    def _add_history(self, graph: dict[str, Any], tables: _Tables, streams: dict[int, str]) -> list[int] | None:
        """Adds events, operators and, to every node, its line, stream and place among the events; returns the birth positions."""

        def stream_index(handle: int) -> int:
            streams.setdefault(handle, f"stream {len(streams)}")
            return list(streams).index(handle)

        events = self._history or []
        graph["allocations"] = [
            {"action": event["action"], "addr": hex(event["addr"]), "bytes": event["size"], "stream": stream_index(event["stream"]), "at": tables.frame(event["at"])}
            for event in events
        ]
        watch = self._watch
        if watch is None:
            return None
        births = [position for position, event in enumerate(events) if event["action"] == "alloc"]
        # Without a birth for every allocation (the history overflowed, or another allocator answered) positions would be wrong.
        known = len(births) == watch.last_alloc - watch.first_alloc
        if not known:
            births = None
        graph["ops"] = ops = []
        last = 0
        for entry in watch.entries:
            low, high = entry["allocs"]
            op = None
            if "reads" in entry:
                op = len(ops)
                ops.append({"name": entry["name"], "reads": entry["reads"], "writes": entry["writes"]})
            for index in range(entry["nodes"][0], min(entry["nodes"][1], len(graph["nodes"]))):
                node = graph["nodes"][index]
                node["at"], node["stream"] = tables.frame(entry["at"]), stream_index(entry["stream"])
                if op is not None:
                    node["op"] = op
                if births is not None:
                    node["events"] = [_position(births, low), _position(births, high + 1, len(events), before=True)]
            last = max(last, high)
        return births


def _position(births: list[int], allocs: int, end: int = 0, before: bool = False) -> int:
    """The history position just after the `allocs`-th birth, or just before it."""
    if before:
        return births[allocs - 1] if allocs - 1 < len(births) else end
    return births[min(allocs, len(births)) - 1] + 1 if allocs and births else 0


def _weak(tensor: Any) -> Any:
    try:
        return weakref.ref(tensor)
    except TypeError:
        return None


class capture:
    """Captures a CUDA graph like `torch.cuda.graph` and records what is needed to check it.

    `out` is the file to write when the block ends; without it, pass the result to `dump`. `pool` and `stream` are those of
    `torch.cuda.graph`. `lines=False` leaves out operators and their Python lines: they are recorded with a dispatch mode, under which
    `torch.compile` regions do not run compiled.
    """

    def __init__(self, name: str, out: str | os.PathLike | None = None, *, pool: Any = None, stream: Any = None, lines: bool = True, note: str = "") -> None:
        self._out, self._pool, self._stream, self._lines = out, pool, stream, lines
        self._name, self._note = name, note

    def __enter__(self) -> Captured:
        import torch

        self._torch = torch
        self._driver = Driver()
        try:
            graph = torch.cuda.CUDAGraph(keep_graph=True)
        except TypeError:
            raise DumpError("this PyTorch has no CUDAGraph(keep_graph=True), without which a captured graph cannot be read back: use 2.8 or newer") from None
        self._captured = Captured(self._name, graph)
        self._captured.note = self._note
        torch.cuda.synchronize()
        # Someone else's recording goes on; ours starts at this mark.
        self._recording = torch._C._cuda_isHistoryEnabled() if hasattr(torch._C, "_cuda_isHistoryEnabled") else False
        self._skip = len(_trace(torch, torch.cuda.memory._snapshot())) if self._recording else 0
        if not self._recording:
            torch.cuda.memory._record_memory_history(enabled="all", context="all", stacks="python", max_entries=MAX_EVENTS)
        self._watch = _Watch(torch, self._driver)
        self._captured._watch = self._watch
        # The stream is PyTorch's choice when none is given: another one would change which blocks are reused.
        self._context = torch.cuda.graph(graph, pool=self._pool, **({} if self._stream is None else {"stream": self._stream}))
        self._context.__enter__()
        self._watch.stream = torch.cuda.current_stream().cuda_stream
        self._captured._streams[self._watch.stream] = "main"
        self._mode = _operator_mode(self._watch) if self._lines else None
        self._hook = _TritonHook(self._watch)
        if self._mode is not None:
            self._mode.__enter__()
            self._hook.install()
        return self._captured

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._hook.remove()
        if self._mode is not None:
            self._mode.__exit__(kind, error, trace)
        try:
            self._context.__exit__(kind, error, trace)
            self._watch.last_alloc = self._watch.allocated()
            snapshot = self._torch.cuda.memory._snapshot()
        finally:
            if not self._recording:
                self._torch.cuda.memory._record_memory_history(enabled=None)
        if error is not None:
            return
        events = _trace(self._torch, snapshot)[self._skip :]
        self._captured._history = [_event(event) for event in events if event["action"] in ("alloc", "free_requested", "free_completed")]
        self._captured._held = {block["addr"]: block["requested"] for block in _read_blocks(snapshot) if block["live"]}
        if self._out is not None:
            dump(self._captured, out=self._out)


def _trace(torch: Any, snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    traces = snapshot["device_traces"]
    return traces[torch.cuda.current_device()] if traces else []


def _event(event: dict[str, Any]) -> dict[str, Any]:
    frames = ((frame["filename"], frame["line"], frame["name"]) for frame in event.get("frames", []))
    at = next((frame for frame in frames if not _is_internal(frame[0])), None)
    return {"action": event["action"], "addr": event.get("addr", 0), "size": event.get("size", 0), "stream": event.get("stream", 0), "at": at}


# ---- dumping ------------------------------------------------------------------------------------------------------------------


def _raw_graph(graph: Any) -> int:
    """The CUgraph behind a `torch.cuda.CUDAGraph`."""
    try:
        handle = graph.raw_cuda_graph()
    except AttributeError:
        raise DumpError("this PyTorch cannot give out captured graphs (no raw_cuda_graph): use 2.8 or newer") from None
    except RuntimeError as error:
        raise DumpError(f"the graph was not kept: capture it with torch.cuda.CUDAGraph(keep_graph=True) or lathe_dump.capture ({error})") from None
    return int(handle)


def dump(
    graphs: Any,
    out: str | os.PathLike,
    *,
    name: str = "graph",
    tensors: dict[str, Any] | None = None,
    twin: Captured | None = None,
    ptx: dict[str, str] | None = None,
    driver: Driver | None = None,
) -> None:
    """Writes one or several graphs of a pool to the file `out`.

    `graphs` is what `capture` gave, a `torch.cuda.CUDAGraph(keep_graph=True)`, or a list of them in capture order. `tensors` are names
    for tensors of a bare CUDAGraph, `twin` a second capture of the same program (of the first graph), made while the first is alive: it
    tells pointers from numbers that look like pointers. `ptx` is PTX by kernel name, for kernels from NVRTC.
    """
    import torch

    many = list(graphs) if isinstance(graphs, (list, tuple)) else [graphs]
    if not many:
        raise DumpError("no graph was given: pass what lathe_dump.capture returned")
    captured = [graph if isinstance(graph, Captured) else Captured(name if len(many) == 1 else f"{name} {index}", graph) for index, graph in enumerate(many)]
    if tensors:
        captured[0].name(**tensors)
    driver, tables, known = driver or Driver(), _Tables(), _triton_ptx()
    blocks = _read_blocks(torch.cuda.memory._snapshot())
    file: dict[str, Any] = {"format": FORMAT, "version": VERSION, "made_by": _made_by(torch)}
    lowered = [graph._lowered(driver, tables, known) for graph in captured]
    if twin is not None:
        lowered[0]["twin"] = twin._lowered(driver, tables, known)
    for function in tables.functions:
        if ptx and function["name"] in ptx:
            function["ptx"] = ptx[function["name"]]
    file["frames"], file["functions"] = tables.frames, tables.functions
    file["blocks"] = _since_capture(blocks, captured)
    file["graphs"] = lowered
    _write(file, out)


def _since_capture(blocks: list[dict[str, Any]], captured: Iterable[Captured]) -> list[dict[str, Any]]:
    """Blocks for the file; one that was live after a capture and was given back since (or handed out again) is not live for it."""
    by_address = {block["addr"]: block for block in blocks}
    for graph in captured:
        for address, requested in graph._held.items():
            block = by_address.get(address)
            if block is None:
                blocks.append({"addr": address, "bytes": requested, "pool": None, "live": False})
            elif block["requested"] != requested:
                block["live"] = False
        for tensor in graph._tensors:
            block = by_address.get(tensor["ptr"])
            if block is not None and block["pool"] is None and tensor["alive"] is not None and tensor["alive"]() is None:
                block["live"] = False
    return [{key: block[key] for key in ("addr", "bytes", "pool", "live")} for block in blocks]


def _made_by(torch: Any) -> dict[str, Any]:
    return {"torch": str(torch.__version__), "device": torch.cuda.get_device_name(), "cuda": str(torch.version.cuda), "python": sys.version.split()[0]}


def _write(file: dict[str, Any], out: str | os.PathLike) -> None:
    """Writes beside the target, then renames: a reader never sees half a file."""
    target = os.fspath(out)
    partial = f"{target}.{os.getpid()}.tmp"
    try:
        with open(partial, "w", encoding="utf-8") as stream:
            stream.write(json.dumps(file, separators=(",", ":")))
        os.replace(partial, target)
    except OSError as error:
        raise DumpError(f"cannot write {target}: {error}") from error
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


# ---- running a captured graph in other ways -----------------------------------------------------------------------------------


class _Memory:
    """Device bytes as PyTorch sees them, without a copy."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}


def _bytes_at(torch: Any, address: int, size: int) -> Any:
    return torch.as_tensor(_Memory(address, size), device="cuda")


class Ordered:
    """A captured graph with more edges, at the same addresses."""

    def __init__(self, driver: Driver, graph: int, edges: Sequence[tuple[int, int]]) -> None:
        self._driver = driver
        clone, self._exec = ctypes.c_void_p(), ctypes.c_void_p()
        driver.call("cuGraphClone", ctypes.byref(clone), ctypes.c_void_p(graph))
        try:
            originals = driver.nodes(graph)
            # The driver refuses an edge that is there already.
            present = {tuple(edge[:2]) for edge in driver.edges(graph, {node: index for index, node in enumerate(originals)})}
            for before, after in edges:
                if (before, after) in present:
                    continue
                pair = []
                for index in (before, after):
                    if not 0 <= index < len(originals):
                        raise DumpError(f"node {index} does not exist: the graph has nodes 0 to {len(originals) - 1}")
                    node = ctypes.c_void_p()
                    driver.call("cuGraphNodeFindInClone", ctypes.byref(node), ctypes.c_void_p(originals[index]), clone)
                    pair.append((ctypes.c_void_p * 1)(node.value))
                if driver.has("cuGraphAddDependencies_v2"):
                    driver.call("cuGraphAddDependencies_v2", clone, pair[0], pair[1], None, ctypes.c_size_t(1))
                else:
                    driver.call("cuGraphAddDependencies", clone, pair[0], pair[1], ctypes.c_size_t(1))
            driver.call("cuGraphInstantiateWithFlags", ctypes.byref(self._exec), clone, ctypes.c_ulonglong(0))
        finally:
            driver.call("cuGraphDestroy", clone)

    def replay(self) -> None:
        """Replays on PyTorch's current stream."""
        import torch

        self._driver.call("cuGraphLaunch", self._exec, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))

    def close(self) -> None:
        """Frees the executable graph."""
        if self._exec:
            self._driver.call("cuGraphExecDestroy", self._exec)
            self._exec = ctypes.c_void_p()


def ordered(graph: Any, edges: Sequence[tuple[int, int]], *, driver: Driver | None = None) -> Ordered:
    """The graph again with edges `(before, after)` added, every address kept: forces one order of a suspected pair.

    Node numbers are those of the dump. A pair that was ordered the other way makes a cycle, which the driver refuses.
    """
    raw = graph.graph if isinstance(graph, Captured) else graph
    return Ordered(driver or Driver(), _raw_graph(raw), edges)


_GRANULE = 512


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of every run of consecutive numbers; `numbers` ascend."""
    first = last = None
    for number in numbers:
        if last is not None and number == last + 1:
            last = number
            continue
        if first is not None:
            yield first, last
        first = last = number
    if first is not None:
        yield first, last


_RUNNABLE = ("kernel", "memcpy", "memset", "host", "empty", "event_record", "wait_event")


def writes(captured: Captured, *, fill: int | None = 0xA5, driver: Driver | None = None) -> list[dict[str, Any]]:
    """Runs the graph node by node, serialised, and notes which blocks every kernel changed: `[{"node", "addr", "bytes"}]`.

    The result is kept on `captured`, so that a later `dump` carries it and the checker says "observed" where it said "assumed". Memory
    is put back as it was. Bytes of the pool that no tensor holds are filled with `fill` first, so that a repeated value shows as a write;
    a kernel that writes what was there already is still not seen, so a block without a note may be written all the same.
    """
    import torch

    driver = driver or Driver()
    raw = _raw_graph(captured.graph)
    handles = driver.nodes(raw)
    kinds = [driver.node_type(handle) for handle in handles]
    for index, kind in enumerate(kinds):
        if kind not in _RUNNABLE:
            raise DumpError(f"node {index} is a {kind} node, which cannot run alone: writes() takes graphs of kernels, copies and fills")
    pool = _pool_name(captured.pool())
    blocks = [(int(block["addr"], 16), block["bytes"], block) for block in _read_blocks(torch.cuda.memory._snapshot())]
    blocks = sorted((start, size, block) for start, size, block in blocks if block["live"] or block["pool"] == pool)
    need, free = sum(size for _, size, _ in blocks), torch.cuda.mem_get_info()[0]
    if need > free:
        raise DumpError(f"writes() keeps a copy of {need} bytes of blocks, but {free} are free: run it on a smaller batch")
    torch.cuda.synchronize()
    saved = [(_bytes_at(torch, start, size), _bytes_at(torch, start, size).clone()) for start, size, _ in blocks]
    seen: list[dict[str, Any]] = []
    try:
        for start, size, block in blocks:
            if fill is not None and not block["live"]:
                _bytes_at(torch, start, size).fill_(fill)
        for index, (handle, kind) in enumerate(zip(handles, kinds)):
            touched = _blocks_of(driver, handle, blocks) if kind == "kernel" else []
            before = [(start, _bytes_at(torch, start, size).clone()) for start, size in touched]
            torch.cuda.synchronize()
            _run_alone(driver, handle, kind)
            for start, old in before:
                changed = (_bytes_at(torch, start, old.numel()) != old).nonzero().flatten()
                # In granules of the allocator, so that a run never spans two tensors of which one was left alone.
                for first, last in _runs(torch.unique(changed // _GRANULE).tolist()):
                    end = min((last + 1) * _GRANULE, old.numel())
                    seen.append({"node": index, "addr": hex(start + first * _GRANULE), "bytes": end - first * _GRANULE})
    finally:
        for view, old in saved:
            view.copy_(old)
        torch.cuda.synchronize()
    captured.observed = seen
    return seen


def _blocks_of(driver: Driver, handle: int, blocks: Sequence[tuple[int, int, Any]]) -> list[tuple[int, int]]:
    """Blocks that some 8-byte word of a kernel's parameters points into."""
    params = driver.kernel_params(handle)
    _, layout = driver.layout(params)
    buffer = driver.parameter_buffer(params, layout)
    words = {int.from_bytes(buffer[offset : offset + 8], "little") for offset in range(0, len(buffer) - 7, 8)}
    return [(start, size) for start, size, _ in blocks if any(start <= word < start + size for word in words)]


def _run_alone(driver: Driver, handle: int, kind: str) -> None:
    """Runs one node as a graph of its own and waits for it."""
    if kind in ("empty", "event_record", "wait_event"):
        return
    graph, node, executable = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    source, context = ctypes.c_void_p(handle), ctypes.c_void_p()
    driver.call("cuGraphCreate", ctypes.byref(graph), ctypes.c_uint(0))
    try:
        head = (ctypes.byref(node), graph, None, ctypes.c_size_t(0))
        if kind == "kernel":
            params = driver.kernel_params(handle)
            driver.call("cuGraphAddKernelNode_v2", *head, ctypes.byref(params))
            driver.call("cuGraphKernelNodeCopyAttributes", node, source)
        elif kind == "memcpy":
            copy = _Copy()
            driver.call("cuGraphMemcpyNodeGetParams", source, ctypes.byref(copy))
            driver.call("cuCtxGetCurrent", ctypes.byref(context))
            driver.call("cuGraphAddMemcpyNode", *head, ctypes.byref(copy), context)
        elif kind == "memset":
            fill = _Fill()
            driver.call("cuGraphMemsetNodeGetParams", source, ctypes.byref(fill))
            driver.call("cuCtxGetCurrent", ctypes.byref(context))
            driver.call("cuGraphAddMemsetNode", *head, ctypes.byref(fill), context)
        else:
            host = _Host()
            driver.call("cuGraphHostNodeGetParams", source, ctypes.byref(host))
            driver.call("cuGraphAddHostNode", *head, ctypes.byref(host))
        driver.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
        driver.call("cuGraphLaunch", executable, ctypes.c_void_p(0))
        driver.call("cuCtxSynchronize")
    finally:
        if executable:
            driver.call("cuGraphExecDestroy", executable)
        driver.call("cuGraphDestroy", graph)
