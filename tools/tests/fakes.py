"""A libcuda and a PyTorch made of dictionaries, with just the behaviour that lathe_dump relies on."""

from __future__ import annotations

import ctypes
import sys
import types

KERNEL, MEMCPY, MEMSET, HOST, GRAPH, MEM_ALLOC, MEM_FREE, CONDITIONAL = 0, 1, 2, 3, 4, 10, 11, 13


def _handle(value) -> int:
    return value.value if isinstance(value, ctypes.c_void_p) else int(value)


def _out(pointer):
    return pointer._obj


class FakeCuda:
    """Graphs by handle; a node is a dictionary with `type` and what its parameters need."""

    def __init__(self) -> None:
        self.graphs: dict[int, dict] = {}
        self.nodes: dict[int, dict] = {}
        self.functions: dict[int, tuple[bytes, list[tuple[int, int]]]] = {}
        self.capturing = 0
        self.calls: list[str] = []
        self._keep: list = []

    def graph(self, nodes: list[dict], edges: list[tuple] = ()) -> int:
        handle = 0x9000 + len(self.graphs)
        handles = []
        for node in nodes:
            handles.append(0x100000 + len(self.nodes))
            self.nodes[handles[-1]] = node
        self.graphs[handle] = {"nodes": handles, "edges": [(handles[edge[0]], handles[edge[1]], *edge[2:]) for edge in edges]}
        return handle

    def function(self, name: str, layout: list[tuple[int, int]]) -> int:
        handle = 0x700000 + len(self.functions)
        self.functions[handle] = (name.encode(), layout)
        return handle

    # -- the driver's functions; each returns a status --

    def cuGetErrorName(self, status, out):
        _out(out).value = b"CUDA_ERROR_INVALID_VALUE"
        return 0

    def cuGraphGetNodes(self, graph, nodes, count):
        handles = self.graphs[_handle(graph)]["nodes"]
        if nodes is None:
            _out(count).value = len(handles)
        else:
            nodes[:] = handles
        return 0

    def cuGraphGetEdges_v2(self, graph, sources, targets, data, count):
        edges = self.graphs[_handle(graph)]["edges"]
        if sources is None:
            _out(count).value = len(edges)
            return 0
        if not edges:
            return 1
        for index, edge in enumerate(edges):
            sources[index], targets[index] = edge[0], edge[1]
            if len(edge) > 2:
                data[index].type, data[index].from_port, data[index].to_port = edge[2:]
        return 0

    def cuGraphNodeGetType(self, node, out):
        _out(out).value = self.nodes[_handle(node)]["type"]
        return 0

    def cuGraphKernelNodeGetParams_v2(self, node, out):
        fields, params = self.nodes[_handle(node)], _out(out)
        params.func, params.kern = fields.get("func"), fields.get("kern")
        params.grid[:], params.block[:] = fields.get("grid", (1, 1, 1)), fields.get("block", (32, 1, 1))
        if "packed" in fields:
            packed = ctypes.create_string_buffer(fields["packed"], len(fields["packed"]))
            size = ctypes.c_size_t(len(fields["packed"]))
            extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(packed), 2, ctypes.addressof(size), 0)
            self._keep += [packed, size, extra]
            params.extra = extra
        else:
            values = [ctypes.create_string_buffer(value, len(value)) for value in fields.get("values", [])]
            pointers = (ctypes.c_void_p * max(len(values), 1))(*[ctypes.addressof(value) for value in values])
            self._keep += [values, pointers]
            params.params = pointers
        return 0

    def _name(self, out, handle):
        _out(out).value = self.functions[_handle(handle)][0]
        return 0

    def _param_info(self, handle, index, offset, size):
        layout = self.functions[_handle(handle)][1]
        if index.value >= len(layout):
            return 1
        _out(offset).value, _out(size).value = layout[index.value]
        return 0

    cuFuncGetName = cuKernelGetName = _name
    cuFuncGetParamInfo = cuKernelGetParamInfo = _param_info

    def cuGraphMemcpyNodeGetParams(self, node, out):
        for key, value in self.nodes[_handle(node)]["copy"].items():
            setattr(_out(out), key, value)
        return 0

    def cuGraphMemsetNodeGetParams(self, node, out):
        for key, value in self.nodes[_handle(node)]["fill"].items():
            setattr(_out(out), key, value)
        return 0

    def cuGraphMemAllocNodeGetParams(self, node, out):
        _out(out).address, _out(out).bytes = self.nodes[_handle(node)]["span"]
        return 0

    def cuGraphMemFreeNodeGetParams(self, node, out):
        _out(out).value = self.nodes[_handle(node)]["address"]
        return 0

    def cuGraphChildGraphNodeGetGraph(self, node, out):
        _out(out).value = self.nodes[_handle(node)]["graph"]
        return 0

    def cuStreamGetCaptureInfo_v2(self, stream, status, identity, graph, deps, count):
        _out(graph).value = self.capturing
        return 0

    # -- a clone shares the node handles, which is enough to see which edges were added --

    def cuGraphClone(self, out, graph):
        original = self.graphs[_handle(graph)]
        clone = 0xC000 + len(self.graphs)
        self.graphs[clone] = {"nodes": list(original["nodes"]), "edges": list(original["edges"])}
        _out(out).value = clone
        return 0

    def cuGraphNodeFindInClone(self, out, node, clone):
        _out(out).value = _handle(node)
        return 0

    def cuGraphAddDependencies_v2(self, graph, sources, targets, data, count):
        self.graphs[_handle(graph)]["edges"].append((sources[0], targets[0]))
        return 0

    def cuGraphInstantiateWithFlags(self, out, graph, flags):
        _out(out).value = 0xE000
        self.instantiated = [tuple(edge[:2]) for edge in self.graphs[_handle(graph)]["edges"]]
        return 0

    def cuGraphDestroy(self, graph):
        self.calls.append("destroy")
        return 0


class FakeTensor:
    is_cuda = True

    def __init__(self, address: int, size: tuple[int, ...], stride: tuple[int, ...] | None = None, item: int = 4) -> None:
        self._address, self._size, self._item = address, size, item
        dense = [1]
        for extent in reversed(size[1:]):
            dense.insert(0, dense[0] * extent)
        self._stride = stride if stride is not None else tuple(dense)

    def data_ptr(self):
        return self._address

    def size(self):
        return self._size

    def stride(self):
        return self._stride

    def element_size(self):
        return self._item

    def numel(self):
        count = 1
        for extent in self._size:
            count *= extent
        return count


class FakeStream:
    def __init__(self, handle: int) -> None:
        self.cuda_stream = handle


class FakeGraph:
    def __init__(self, keep_graph: bool = False) -> None:
        self.keep_graph, self.raw, self.pool_id = keep_graph, 0, (0, 1)

    def raw_cuda_graph(self):
        if not self.keep_graph:
            raise RuntimeError("keep_graph is false")
        return self.raw

    def pool(self):
        return self.pool_id


class FakeTorch(types.ModuleType):
    """`torch` with an allocator history and segments that a test fills in."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.__version__ = "2.11.0"
        self.__file__ = "/site-packages/torch/__init__.py"
        self.trace: list[dict] = []
        self.segments: list[dict] = []
        self.recording = False
        self.current = FakeStream(0x51)
        self.last_graph: FakeGraph | None = None
        torch = self

        class capture_context:
            def __init__(self, graph, pool=None, stream=None):
                torch.last_graph = graph
                self._before, self._stream = torch.current, stream or FakeStream(0x50)

            def __enter__(self):
                torch.current = self._stream

            def __exit__(self, *_):
                torch.current = self._before

        def record(enabled=None, **_):
            torch.recording = enabled is not None
            torch.trace = torch.trace if enabled is not None else []

        memory = types.SimpleNamespace(
            _record_memory_history=record,
            _snapshot=lambda: {"device_traces": [list(torch.trace)], "segments": torch.segments},
        )
        self.cuda = types.SimpleNamespace(
            CUDAGraph=FakeGraph,
            Stream=lambda: FakeStream(0x50),
            graph=capture_context,
            memory=memory,
            synchronize=lambda: None,
            current_device=lambda: 0,
            current_stream=lambda: torch.current,
            get_device_name=lambda: "Fake GPU",
        )
        births = lambda: sum(event["action"] == "alloc" for event in torch.trace)  # noqa: E731
        self._C = types.SimpleNamespace(
            _cuda_memoryStats=lambda device: {"allocation": {"all": {"allocated": births()}}},
            _cuda_isHistoryEnabled=lambda: torch.recording,
        )
        self.version = types.SimpleNamespace(cuda="13.0")

    def alloc(self, address: int, size: int, stream: int = 0x50, line: int = 1) -> None:
        self._event("alloc", address, size, stream, line)

    def free(self, address: int, size: int, stream: int = 0x50, line: int = 1) -> None:
        self._event("free_requested", address, size, stream, line)
        self._event("free_completed", address, size, stream, line)

    def _event(self, action: str, address: int, size: int, stream: int, line: int) -> None:
        inner = {"filename": "/site-packages/torch/_ops.py", "line": 9, "name": "call"}
        user = {"filename": "model.py", "line": line, "name": "forward"}
        self.trace.append({"action": action, "addr": address, "size": size, "stream": stream, "frames": [inner, user]})


class installed:
    """`import torch` finds the fake while the block runs."""

    def __init__(self, torch: FakeTorch) -> None:
        self._torch = torch

    def __enter__(self):
        self._before = sys.modules.get("torch")
        sys.modules["torch"] = self._torch
        return self._torch

    def __exit__(self, *_):
        if self._before is None:
            del sys.modules["torch"]
        else:
            sys.modules["torch"] = self._before
