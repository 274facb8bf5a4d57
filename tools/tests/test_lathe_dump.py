"""Tests of lathe_dump without a GPU: python3 -m unittest discover tools/tests"""

import json
import os
import struct
import sys
import tempfile
import types
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import lathe_dump  # noqa: E402
from fakes import (  # noqa: E402
    CONDITIONAL,
    GRAPH,
    KERNEL,
    MEM_ALLOC,
    MEM_FREE,
    MEMCPY,
    MEMSET,
    FakeCuda,
    FakeGraph,
    FakeTensor,
    FakeTorch,
    installed,
)


def pointer(address: int) -> bytes:
    return struct.pack("<Q", address)


class DumpCase(unittest.TestCase):
    def setUp(self):
        self.cuda, self.torch = FakeCuda(), FakeTorch()
        self.driver = lathe_dump.Driver(self.cuda)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = os.path.join(folder.name, "step.json")

    def dump(self, nodes, edges=(), **options):
        graph = FakeGraph(keep_graph=True)
        graph.raw = self.cuda.graph(nodes, edges)
        with installed(self.torch):
            lathe_dump.dump(graph, self.out, driver=self.driver, **options)
        with open(self.out, encoding="utf-8") as stream:
            return json.load(stream)


class ReadingTheDriver(DumpCase):
    def test_a_kernel_has_its_parameters_at_their_offsets(self):
        add = self.cuda.function("add", [(0, 4), (8, 8), (16, 8)])
        node = {"type": KERNEL, "func": add, "grid": (4, 2, 1), "values": [struct.pack("<i", 7), pointer(0x1000), pointer(0x2000)]}
        file = self.dump([node])
        self.assertEqual((file["format"], file["version"]), ("lathe-torch-dump", 1))
        self.assertEqual(file["functions"], [{"name": "add", "params": [[0, 4], [8, 8], [16, 8]]}])
        [kernel] = file["graphs"][0]["nodes"]
        self.assertEqual(kernel["grid"], [4, 2, 1])
        self.assertEqual(bytes.fromhex(kernel["params"]), struct.pack("<iiQQ", 7, 0, 0x1000, 0x2000))

    def test_packed_parameters_and_cuda_kernel_handles(self):
        handle = self.cuda.function("packed", [(0, 8)])
        file = self.dump([{"type": KERNEL, "kern": handle, "packed": pointer(0xABC0)}])
        self.assertEqual(file["functions"][0]["name"], "packed")
        self.assertEqual(file["graphs"][0]["nodes"][0]["params"], pointer(0xABC0).hex())

    def test_a_large_parameter_struct_is_kept_whole(self):
        big = self.cuda.function("big", [(0, 32764)])
        file = self.dump([{"type": KERNEL, "func": big, "values": [bytes(32756) + pointer(0x77)]}])
        self.assertEqual(bytes.fromhex(file["graphs"][0]["nodes"][0]["params"])[-8:], pointer(0x77))

    def test_copies_fills_and_memory_nodes(self):
        copy = {"src_device": 0x1000, "src_type": 2, "dst_host": 0x5, "dst_type": 1, "width": 64, "height": 1, "depth": 1}
        pitched = {"src_device": 0x1000, "dst_device": 0x9000, "src_y": 2, "src_pitch": 100, "dst_pitch": 40, "width": 40, "height": 3, "depth": 1}
        nodes = [
            {"type": MEMCPY, "copy": copy},
            {"type": MEMCPY, "copy": pitched},
            {"type": MEMSET, "fill": {"dst": 0x2000, "element": 4, "width": 10, "height": 1}},
            {"type": MEM_ALLOC, "span": (0x3000, 512)},
            {"type": MEM_FREE, "address": 0x3000},
        ]
        host, rows, fill, alloc, free = self.dump(nodes)["graphs"][0]["nodes"]
        self.assertEqual((host["src"], host["dst"], host["bytes"]), ("0x1000", "0x0", 64))
        self.assertEqual((rows["src"], rows["bytes"]), (hex(0x1000 + 200), 240))
        self.assertEqual((fill["dst"], fill["bytes"]), ("0x2000", 40))
        self.assertEqual((alloc["dst"], alloc["bytes"], free["dst"]), ("0x3000", 512, "0x3000"))

    def test_child_graphs_conditionals_and_programmatic_edges(self):
        empty = self.cuda.function("k", [])
        child = self.cuda.graph([{"type": KERNEL, "func": empty}] * 2, [(0, 1)])
        nodes = [{"type": GRAPH, "graph": child}, {"type": CONDITIONAL}, {"type": KERNEL, "func": empty}]
        graph = self.dump(nodes, [(0, 1), (1, 2, 1, 1, 0)])["graphs"][0]
        self.assertEqual(graph["nodes"][0]["graph"]["edges"], [[0, 1]])
        self.assertEqual(graph["nodes"][1]["type"], "conditional")
        self.assertEqual(graph["edges"], [[0, 1], [1, 2, 1, 1, 0]])

    def test_ten_thousand_nodes(self):
        add = self.cuda.function("add", [(0, 8)])
        nodes = [{"type": KERNEL, "func": add, "values": [pointer(0x1000 + index)]} for index in range(10_000)]
        graph = self.dump(nodes, [(index, index + 1) for index in range(9_999)])["graphs"][0]
        self.assertEqual((len(graph["nodes"]), len(graph["edges"])), (10_000, 9_999))

    def test_a_failing_call_is_named(self):
        self.cuda.cuGraphGetNodes = lambda *_: 1
        with self.assertRaisesRegex(lathe_dump.DumpError, "cuGraphGetNodes failed with CUDA_ERROR_INVALID_VALUE"):
            self.dump([])

    def test_an_old_driver_is_named(self):
        driver = lathe_dump.Driver(types.SimpleNamespace())
        with self.assertRaisesRegex(lathe_dump.DumpError, "no cuGraphGetNodes.*driver 545"):
            driver.node_count(1)

    def test_a_graph_that_was_not_kept_says_how_to_keep_it(self):
        with installed(self.torch), self.assertRaisesRegex(lathe_dump.DumpError, "keep_graph=True"):
            lathe_dump.dump(FakeGraph(), self.out, driver=self.driver)

    def test_nothing_is_left_when_the_file_cannot_be_written(self):
        with installed(self.torch), self.assertRaisesRegex(lathe_dump.DumpError, "cannot write"):
            graph = FakeGraph(keep_graph=True)
            graph.raw = self.cuda.graph([])
            lathe_dump.dump(graph, os.path.join(self.out, "no", "such", "folder.json"), driver=self.driver)

    def test_more_edges_force_an_order(self):
        nodes = [{"type": KERNEL}, {"type": KERNEL}]
        graph = FakeGraph(keep_graph=True)
        graph.raw = self.cuda.graph(nodes)
        first, second = self.cuda.graphs[graph.raw]["nodes"]
        lathe_dump.ordered(graph, [(1, 0)], driver=self.driver)
        self.assertEqual(self.cuda.instantiated, [(second, first)])
        graph.raw = self.cuda.graph([{"type": KERNEL}, {"type": KERNEL}], [(0, 1)])
        lathe_dump.ordered(graph, [(0, 1)], driver=self.driver)
        self.assertEqual(len(self.cuda.instantiated), 1, "an edge that is there already is not added again")
        with self.assertRaisesRegex(lathe_dump.DumpError, "node 7 does not exist"):
            lathe_dump.ordered(graph, [(0, 7)], driver=self.driver)


class WatchingACapture(DumpCase):
    """`capture` around a program that the fakes play: allocations, nodes and operators are added by hand."""

    def capture(self, program, **options):
        self.cuda.capturing = self.cuda.graph([])
        real = lathe_dump.Driver
        lathe_dump.Driver = lambda: real(self.cuda)
        try:
            with installed(self.torch):
                with lathe_dump.capture("step", out=self.out, lines=False, **options) as captured:
                    self.torch.last_graph.raw = self.cuda.capturing
                    program(captured)
        finally:
            lathe_dump.Driver = real
        with open(self.out, encoding="utf-8") as stream:
            return json.load(stream)["graphs"][0]

    def node(self, values):
        function = self.cuda.function("k", [(8 * index, 8) for index in range(len(values))])
        handle = 0x100000 + len(self.cuda.nodes)
        self.cuda.nodes[handle] = {"type": KERNEL, "func": function, "values": [pointer(value) for value in values]}
        self.cuda.graphs[self.cuda.capturing]["nodes"].append(handle)

    def test_history_has_the_users_lines_and_names_their_place(self):
        def program(captured):
            self.torch.alloc(0x1000, 64, line=5)
            captured.name(a=FakeTensor(0x1000, (16,)))
            self.torch.free(0x1000, 64, line=6)
            self.torch.alloc(0x1000, 64, line=7)
            captured.name(b=FakeTensor(0x1000, (16,)), role="output")

        graph = self.capture(program)
        self.assertEqual([event["action"] for event in graph["allocations"]], ["alloc", "free_requested", "free_completed", "alloc"])
        self.assertEqual([tensor["event"] for tensor in graph["tensors"]], [1, 4])
        self.assertEqual(graph["tensors"][1]["role"], "output")
        self.assertEqual(graph["pool"], "0:1")
        with open(self.out, encoding="utf-8") as stream:
            frames = json.load(stream)["frames"]
        self.assertEqual([(frame["file"], frame["line"]) for frame in frames], [("model.py", 5), ("model.py", 6), ("model.py", 7)])

    def test_nodes_know_their_operator_stream_and_place_in_the_history(self):
        argument = lambda name, write=False, out=False: types.SimpleNamespace(  # noqa: E731
            name=name, is_out=out, alias_info=types.SimpleNamespace(is_write=True) if write else None
        )
        schema = types.SimpleNamespace(arguments=[argument("self"), argument("out", write=True, out=True)])

        def program(captured):
            watch = captured._watch
            self.torch.alloc(0x1000, 64)
            entry = watch.begin("aten::neg.out", ("model.py", 9, "forward"))
            self.torch.alloc(0x2000, 64)
            self.node([0x1000, 0x2000])
            watch.end(entry, *lathe_dump._operands(schema, [FakeTensor(0x1000, (16,))], {"out": FakeTensor(0x2000, (16,))}, None))
            self.torch.alloc(0x3000, 64)

        graph = self.capture(program)
        self.assertEqual(graph["ops"], [{"name": "aten::neg.out", "reads": [{"ptr": "0x1000", "bytes": 64}], "writes": [{"ptr": "0x2000", "bytes": 64}]}])
        [node] = graph["nodes"]
        self.assertEqual((node["op"], node["events"], graph["streams"][node["stream"]]), (0, [1, 2], "main"))

    def test_someone_elses_recording_goes_on(self):
        self.torch.recording = True
        self.torch.alloc(0x9000, 64)
        graph = self.capture(lambda captured: self.torch.alloc(0x1000, 64))
        self.assertTrue(self.torch.recording)
        self.assertEqual([event["addr"] for event in graph["allocations"]], ["0x1000"])

    def test_a_block_given_back_after_the_capture_is_not_live_in_the_file(self):
        block = {"address": 0x1000, "size": 512, "requested_size": 64, "state": "active_allocated"}
        self.torch.segments = [{"address": 0x1000, "segment_pool_id": (0, 0), "blocks": [block]}]
        self.cuda.capturing = self.cuda.graph([])
        captured = lathe_dump.Captured("step", FakeGraph(keep_graph=True))
        captured.graph.raw = self.cuda.capturing
        captured._held = {"0x1000": 64}
        for size, state, live in ((64, "active_allocated", True), (64, "inactive", False), (80, "active_allocated", False)):
            block.update(requested_size=size, state=state)
            with installed(self.torch):
                lathe_dump.dump(captured, self.out, driver=self.driver)
            with open(self.out, encoding="utf-8") as stream:
                self.assertEqual([block["live"] for block in json.load(stream)["blocks"]], [live], (size, state))

    def test_names_are_refused_by_name(self):
        captured = lathe_dump.Captured("step", FakeGraph())
        with self.assertRaisesRegex(lathe_dump.DumpError, "'scratch'.*input, output, persistent, transient"):
            captured.name(role="scratch", a=FakeTensor(0, (1,)))
        with self.assertRaisesRegex(lathe_dump.DumpError, "'a' is empty or not"):
            captured.name(a=FakeTensor(0x10, (0,)))


class Compiled(unittest.TestCase):
    def test_what_torch_compile_loaded_has_its_ptx_from_tritons_cache(self):
        kernel_type = type("StaticallyLaunchedCudaKernel", (), {"__module__": "torch._inductor.runtime.static_triton_launcher"})
        kernels = [kernel_type() for _ in range(3)]
        key = bytes(range(32)).hex()
        for kernel, (handle, name) in zip(kernels, [(77, "fused"), (78, "not_in_the_cache"), (None, "fused")]):
            kernel.function, kernel.name, kernel.hash = handle, name, key
        triton, before = types.ModuleType("triton"), os.environ.get("TRITON_CACHE_DIR")
        with tempfile.TemporaryDirectory() as folder:
            place = os.path.join(folder, "AAAQEAYEAUDAOCAJBIFQYDIOB4IBCEQTCQKRMFYYDENBWHA5DYPQ")
            os.mkdir(place)
            with open(os.path.join(place, "fused.ptx"), "w", encoding="utf-8") as stream:
                stream.write(".version 8.0")
            sys.modules["triton"], os.environ["TRITON_CACHE_DIR"] = triton, folder
            try:
                self.assertEqual(lathe_dump._triton_ptx(), {77: ".version 8.0"})
            finally:
                del sys.modules["triton"]
                os.environ.pop("TRITON_CACHE_DIR")
                if before is not None:
                    os.environ["TRITON_CACHE_DIR"] = before


class Runs(unittest.TestCase):
    def test_consecutive_numbers_are_one_run(self):
        self.assertEqual(list(lathe_dump._runs([])), [])
        self.assertEqual(list(lathe_dump._runs([0, 1, 2, 5, 7, 8])), [(0, 2), (5, 5), (7, 8)])


class Operands(unittest.TestCase):
    def test_dense_rows_and_broadcasts(self):
        span = lambda size, stride=None: lathe_dump._operand(FakeTensor(0x1000, size, stride))  # noqa: E731
        self.assertEqual(span((4, 8)), {"ptr": "0x1000", "bytes": 128})
        self.assertEqual(span((4, 8), (32, 1)), {"ptr": "0x1000", "bytes": 4 * (3 * 32 + 8), "row": 32, "pitch": 128})
        self.assertEqual(span((8, 4), (1, 8)), {"ptr": "0x1000", "bytes": 128}, "a transposed view is dense")
        self.assertIsNone(lathe_dump._operand(FakeTensor(0x1000, (0, 4))))

    def test_an_in_place_argument_is_read_and_written(self):
        argument = types.SimpleNamespace(name="self", is_out=False, alias_info=types.SimpleNamespace(is_write=True))
        tensor = FakeTensor(0x1000, (4,))
        reads, writes = lathe_dump._operands(types.SimpleNamespace(arguments=[argument]), [tensor], {}, tensor)
        self.assertEqual((len(reads), len(writes)), (1, 1), "the result is the argument, not one more write")


if __name__ == "__main__":
    unittest.main()
