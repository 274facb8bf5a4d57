"""Check the checker against a GPU: capture small multi-stream programs, right and wrong twins, dump them, and replay forced orders.

    python3 tools/validate_torch.py OUTDIR [PROGRAM...]        (a CUDA GPU, PyTorch 2.8 or newer)

Writes OUTDIR/results.json and OUTDIR/dumps.tar.gz. `results.json` says for every program what the hardware showed: how many of 1,000
replays as captured differ from the recorded order, and for each unordered pair of nodes whether running the later one first changes
an output. `lathe torch check` on the dumps must agree.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from typing import Any, Callable

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch  # noqa: E402

import lathe_dump  # noqa: E402

REPLAYS = 1_000
PER_PAIR = 50
ZOO_PARTS = 4
N = 1 << 20


@dataclass
class Program:
    """A captured program: what to compare, and what eager code does between replays."""

    graphs: list[lathe_dump.Captured]
    outputs: list[torch.Tensor]
    keep: list[Any] = field(default_factory=list)
    eager: Callable[[], bool] | None = None
    """For faults that no order of one graph shows: replays, and says whether memory was corrupted."""
    twin: lathe_dump.Captured | None = None
    expected: list[torch.Tensor] | None = None
    """The right outputs, for graphs that the driver does not clone, so that no order can be forced."""
    ptx: dict[str, str] | None = None


def rand(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*size, device="cuda").to(dtype)


# ---- S1 to S3: order inside one graph ---------------------------------------------------------------------------------------


def s1(fix: str | None = None, sleep: int = 0) -> Program:
    side = torch.cuda.Stream()
    src, out, out2 = rand(N), rand(N), rand(N)
    with lathe_dump.capture("s1") as g:
        main = torch.cuda.current_stream()
        g.stream_name("side", side)
        a = src * 2
        g.name(a=a)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            if sleep:
                torch.cuda._sleep(sleep)
            out.copy_(a)
            if fix == "record_stream":
                a.record_stream(side)
        if fix == "join":
            main.wait_stream(side)
        del a
        b = torch.full((N,), 7.0, device="cuda")
        g.name(b=b)
        out2.copy_(b)
        main.wait_stream(side)
    return Program([g], [out, out2], [src])


def s2(fix: str | None = None) -> Program:
    side = torch.cuda.Stream()
    src, out, out2 = rand(N), rand(N), rand(N)
    with lathe_dump.capture("s2") as g:
        main = torch.cuda.current_stream()
        g.stream_name("side", side)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            first = src * 2
            g.name(first=first)
        main.wait_stream(side)
        torch.mul(first, 3.0, out=out)
        del first
        if fix == "wait":
            side.wait_stream(main)
        with torch.cuda.stream(side):
            second = src + 5
            g.name(second=second)
            out2.copy_(second)
        main.wait_stream(side)
    return Program([g], [out, out2], [src])


def s3(fix: str | None = None) -> Program:
    side = torch.cuda.Stream()
    src, o1, o2, p = rand(N), rand(N), rand(N), rand(N)
    with lathe_dump.capture("s3") as g:
        main = torch.cuda.current_stream()
        g.stream_name("side", side)
        g.name(role="persistent", P=p)
        side.wait_stream(main)
        for layer, o in enumerate((o1, o2)):
            if fix == "edge" and layer:
                side.wait_stream(main)
            with torch.cuda.stream(side):
                torch.mul(src, 2.0 + layer, out=p)
                done = torch.cuda.Event()
                done.record(side)
            main.wait_event(done)
            o.copy_(p)
        main.wait_stream(side)
    return Program([g], [o1, o2], [src, p])


# ---- S4 to S8: memory across graphs and eager code -------------------------------------------------------------------------


def s4(fix: str | None = None) -> Program:
    side = torch.cuda.Stream()
    src, out = rand(N), rand(N)
    with torch.cuda.stream(side):  # the rest of the anchor's segment serves the side stream without a cudaMalloc
        anchor = torch.empty(N, device="cuda")
    torch.cuda.synchronize()
    with lathe_dump.capture("s4") as g:
        main = torch.cuda.current_stream()
        g.stream_name("side", side)
        if fix == "join":
            side.wait_stream(main)
        with torch.cuda.stream(side):
            x = torch.empty(N, device="cuda")
        if fix is None:
            side.wait_stream(main)
        with torch.cuda.stream(side):
            torch.mul(src, 2.0, out=x)
            g.name(x=x)
            out.copy_(x)
        main.wait_stream(side)
        del x
    with torch.cuda.stream(side):
        victims = [torch.full((N,), 7.0, device="cuda") for _ in range(3)]
    torch.cuda.synchronize()

    def eager() -> bool:
        g.replay()
        torch.cuda.synchronize()
        return any(bool((victim != 7.0).any()) for victim in victims)

    return Program([g], [out], [src, victims, anchor], eager)


def s5(fix: str | None = None) -> Program:
    src, out, out2 = rand(N), rand(N), rand(N)
    p = torch.empty(N, device="cuda") if fix == "before" else None
    with lathe_dump.capture("s5") as g:
        a = src * 2
        g.name(a=a)
        out.copy_(a)
        del a
        if p is None:
            p = torch.empty(N, device="cuda")
        g.name(role="persistent", P=p)
        out2.copy_(p)

    def eager() -> bool:
        p.fill_(3.0)
        g.replay()
        torch.cuda.synchronize()
        return bool((out2 != 3.0).any())

    return Program([g], [out], [src, p, out2], eager)


def s6(fix: str | None = None) -> Program:
    src, out = rand(N), rand(N)
    with lathe_dump.capture("s6 first") as g1:
        y = src * 2
        g1.name(role="output", y=y)
    alias = lathe_dump._bytes_at(torch, y.data_ptr(), y.numel() * 4).view(torch.float32)
    held = y if fix == "held" else None
    del y
    with lathe_dump.capture("s6 second", pool=g1.pool()) as g2:
        z = src * 3
        g2.name(z=z)
        out.copy_(z)
        del z

    def eager() -> bool:
        g1.replay()
        g2.replay()
        torch.cuda.synchronize()
        return bool((alias != src * 2).any())

    return Program([g1, g2], [out], [src, held, alias], eager)


def s7(fix: str | None = None) -> Program:
    src, out = rand(N), rand(N)
    workspace = torch.empty(N, device="cuda")
    old = workspace if fix == "kept" else None
    with lathe_dump.capture("s7") as g:
        g.name(role="persistent", workspace=workspace)
        torch.mul(src, 2.0, out=workspace)
        out.copy_(workspace)
    workspace = torch.empty(2 * N, device="cuda")
    victims = [torch.full((N - 64,), 7.0, device="cuda") for _ in range(3)]

    def eager() -> bool:
        g.replay()
        torch.cuda.synchronize()
        return any(bool((victim != 7.0).any()) for victim in victims)

    return Program([g], [out], [src, old, workspace, victims], eager)


def s8(fix: str | None = None) -> Program:
    """A cuBLAS workspace, keyed by stream, that lives in the pool of the graph captured first."""
    stream = torch.cuda.Stream()
    a, b, o1, o2 = rand(8, 2048), rand(2048, 1024), rand(8, 1024), rand(8, 1024)
    with torch.cuda.stream(stream):
        torch.mm(a, b, out=o1)
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    with lathe_dump.capture("s8 first", stream=stream) as g1:
        torch.mm(a, b, out=o1)
    if fix == "own":
        torch._C._cuda_clearCublasWorkspaces()
    with lathe_dump.capture("s8 second", stream=stream) as g2:
        torch.mm(a, b, out=o2)
    return Program([g1, g2], [o2], [a, b, o1, stream])


# ---- no findings: views, in place, disjoint halves ----------------------------------------------------------------------------


def halves(kind: str) -> Program:
    side = torch.cuda.Stream()
    src = rand(1024, 1024)
    out = rand(1024, 1024)
    left, right = (out[:512], out[512:]) if kind == "rows" else (out[:, :512], out[:, 512:])
    with lathe_dump.capture(f"halves {kind}") as g:
        main = torch.cuda.current_stream()
        g.stream_name("side", side)
        side.wait_stream(main)
        torch.mul(src[: left.shape[0], : left.shape[1]], 2.0, out=left)
        with torch.cuda.stream(side):
            torch.mul(src[: right.shape[0], : right.shape[1]], 3.0, out=right)
        main.wait_stream(side)
    return Program([g], [out], [src])


def in_place() -> Program:
    src, out = rand(1024, 1024), rand(1024, 1024)
    with lathe_dump.capture("in place") as g:
        x = src + 1
        g.name(x=x)
        x.mul_(2).relu_()
        view = x.view(-1)[: 512 * 1024]
        view.add_(1)
        x.t().div_(3)
        out.copy_(x)
        del x, view
    return Program([g], [out], [src])


def parallel() -> Program:
    """Two independent branches with their own memory, joined."""
    side = torch.cuda.Stream()
    src, o1, o2 = rand(512, 512), rand(512, 512), rand(512, 512)
    torch.mm(src, src)  # a first cuBLAS call may not come inside a capture
    torch.cuda.synchronize()
    with lathe_dump.capture("parallel") as g:
        main = torch.cuda.current_stream()
        g.stream_name("side", side)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            torch.softmax(src, -1, out=o1)
        torch.mm(src, src, out=o2)
        main.wait_stream(side)
        o2.add_(o1)
    return Program([g], [o1, o2], [src])


# ---- an indexer layer ----------------------------------------------------------------------------------------------------------


def layer(fix: str | None = None, dtype: torch.dtype = torch.float32, twin: bool = False) -> Program:
    batch, length, heads, dim = 8, 4096, 64, 128
    side = torch.cuda.Stream()
    hidden, wq, wk = rand(batch, 2048, dtype=dtype), rand(2048, heads * dim // 8, dtype=dtype), rand(2048, dim, dtype=dtype)
    ww, keys = rand(2048, heads, dtype=dtype), rand(batch, length, dim, dtype=dtype)
    slot, rows = torch.randint(0, length, (batch,), device="cuda"), torch.arange(batch, device="cuda")
    index, result = torch.empty(batch, 512, dtype=torch.int64, device="cuda"), rand(batch, 2048, dtype=dtype)
    for _ in range(2):
        hidden @ wq, hidden @ wk, hidden @ ww

    def once(name: str) -> lathe_dump.Captured:
        with lathe_dump.capture(name) as g:
            main = torch.cuda.current_stream()
            g.stream_name("side", side)
            g.name(role="input", hidden=hidden)
            g.name(role="persistent", keys=keys)
            g.name(role="output", index=index, result=result)
            q = (hidden @ wq).view(batch, heads // 8, dim)
            w = (hidden @ ww)[:, : heads // 8].contiguous()
            g.name(q=q, w=w)
            side.wait_stream(main)
            with torch.cuda.stream(side):
                k = hidden @ wk
                keys.index_put_((rows, slot), k)
                logits = (torch.relu(torch.bmm(keys, q.transpose(1, 2))) * w[:, None]).sum(-1)
                g.name(k=k, logits=logits)
                top = logits.topk(512, dim=1)
                index.copy_(top.indices)
            if fix == "join":
                main.wait_stream(side)
            del q, w
            x = torch.tanh(hidden @ wq)
            y = x @ wq.t()
            g.name(x=x, y=y)
            result.copy_(y)
            main.wait_stream(side)
            del k, logits, top, x, y
        return g

    first = once("layer")
    again = once("layer again") if twin else None
    return Program([first], [index, result], [hidden, wq, wk, ww, keys, slot, rows, side], twin=again)


# ---- Triton --------------------------------------------------------------------------------------------------------------------


def triton_pair(fix: str | None = None) -> Program:
    import triton_kernels_for_validation as kernels

    side = torch.cuda.Stream()
    src, out, out2 = rand(N), rand(N), rand(N)
    kernels.scale(src, out, 2.0)
    torch.cuda.synchronize()
    with lathe_dump.capture("triton") as g:
        main = torch.cuda.current_stream()
        g.stream_name("side", side)
        a = torch.empty_like(src)
        g.name(a=a)
        kernels.scale(src, a, 2.0)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            kernels.scale(a, out, 3.0)
        if fix == "join":
            main.wait_stream(side)
        del a
        b = torch.empty_like(src)
        g.name(b=b)
        kernels.scale(src, b, 5.0)
        kernels.scale(b, out2, 1.0)
        main.wait_stream(side)
        del b
    return Program([g], [out, out2], [src])


def triton_pdl(waits: bool) -> Program:
    """A kernel launched programmatically after the one it reads from, with and without its wait."""
    import triton_kernels_for_validation as kernels

    src, middle, out = rand(N), rand(N), rand(N)
    kernels.scale(src, middle, 2.0)
    kernels.scale_after(src, middle, 2.0, waits)
    torch.cuda.synchronize()
    with lathe_dump.capture("triton pdl") as g:
        g.name(role="persistent", middle=middle)
        kernels.scale(src, middle, 2.0)
        kernels.scale_after(middle, out, 3.0, waits)
    return Program([g], [out], [src, middle])


_TRITON = '''
import triton
import triton.language as tl

@triton.jit
def scale_kernel(source, target, factor, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < count) * factor, mask=at < count)

def scale(source, target, factor):
    count = source.numel()
    scale_kernel[(triton.cdiv(count, 1024),)](source, target, factor, count, BLOCK=1024)

@triton.jit
def scale_after_kernel(source, target, factor, count, WAITS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if WAITS:
        tl.extra.cuda.gdc_wait()
    tl.store(target + at, tl.load(source + at, mask=at < count) * factor, mask=at < count)

def scale_after(source, target, factor, waits):
    count = source.numel()
    grid = (triton.cdiv(count, 1024),)
    scale_after_kernel[grid](source, target, factor, count, WAITS=waits, BLOCK=1024, launch_pdl=True)
'''


# ---- node kinds that PyTorch itself does not capture, and whoever launches beside it --------------------------------------------


def splice(driver: lathe_dump.Driver, add: Callable[[ctypes.c_void_p, Any, ctypes.c_size_t], ctypes.c_void_p]) -> None:
    """Adds a node to the graph under capture, after all that is on the current stream."""
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    status, identity, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
    before, count = ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_size_t()
    out = (ctypes.byref(status), ctypes.byref(identity), ctypes.byref(graph), ctypes.byref(before), ctypes.byref(count))
    driver.call("cuStreamGetCaptureInfo_v2", stream, *out)
    node = (ctypes.c_void_p * 1)(add(graph, before, count).value)
    replace_dependencies = ctypes.c_uint(1)
    driver.call("cuStreamUpdateCaptureDependencies", stream, node, ctypes.c_size_t(1), replace_dependencies)


def child(fix: str | None = None) -> Program:
    """The side stream launches another captured graph, which reads what the main stream writes again."""
    driver, side = lathe_dump.Driver(), torch.cuda.Stream()
    src, p, out = rand(N), rand(N), rand(N)
    inner = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(inner):
        torch.mul(p, 3.0, out=out)
        out.add_(1.0)

    def add(graph: ctypes.c_void_p, before: Any, count: ctypes.c_size_t) -> ctypes.c_void_p:
        node = ctypes.c_void_p()
        driver.call("cuGraphAddChildGraphNode", ctypes.byref(node), graph, before, count, ctypes.c_void_p(inner.raw_cuda_graph()))
        return node

    with lathe_dump.capture("child") as g:
        main = torch.cuda.current_stream()
        g.stream_name("side", side)
        g.name(role="persistent", P=p)
        torch.mul(src, 2.0, out=p)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            splice(driver, add)
        if fix == "join":
            main.wait_stream(side)
        p.fill_(7.0)
        main.wait_stream(side)
    return Program([g], [out], [src, p, inner])


class _Conditional(ctypes.Structure):  # CUgraphNodeParams of a conditional node
    _fields_ = [
        ("type", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
        ("handle", ctypes.c_uint64),
        ("kind", ctypes.c_int),
        ("size", ctypes.c_uint),
        ("bodies", ctypes.POINTER(ctypes.c_void_p)),
        ("context", ctypes.c_void_p),
        ("rest", ctypes.c_ubyte * 208),
    ]


def conditional() -> Program:
    """The side stream fills P in the body of a conditional node, while the main stream reads it."""
    driver, side = lathe_dump.Driver(), torch.cuda.Stream()
    src, p, out = rand(N), rand(N), rand(N)

    def add(graph: ctypes.c_void_p, before: Any, count: ctypes.c_size_t) -> ctypes.c_void_p:
        context, node, inside = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        driver.call("cuCtxGetCurrent", ctypes.byref(context))
        handle = ctypes.c_uint64()
        assign_default = ctypes.c_uint(1)
        driver.call("cuGraphConditionalHandleCreate", ctypes.byref(handle), graph, context, ctypes.c_uint(1), assign_default)
        params = _Conditional(type=13, handle=handle.value, kind=0, size=1, context=context.value)
        driver.call("cuGraphAddNode", ctypes.byref(node), graph, before, count, ctypes.byref(params))
        fill = lathe_dump._Fill(dst=p.data_ptr(), pitch=0, value=0, element=4, width=N, height=1)
        body = ctypes.c_void_p(params.bodies[0])
        driver.call("cuGraphAddMemsetNode", ctypes.byref(inside), body, None, ctypes.c_size_t(0), ctypes.byref(fill), context)
        return node

    with lathe_dump.capture("conditional") as g:
        main = torch.cuda.current_stream()
        g.stream_name("side", side)
        g.name(role="persistent", P=p)
        torch.mul(src, 2.0, out=p)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            splice(driver, add)
        torch.mul(p, 3.0, out=out)
        main.wait_stream(side)
    return Program([g], [out], [src, p], expected=[src * 2.0 * 3.0])


def memory(fix: str | None = None) -> Program:
    """Stream-ordered allocations under capture: the bytes of one are freed, and given to another, while the side stream reads."""
    driver, side = lathe_dump.Driver(), torch.cuda.Stream()
    src, out, out2 = rand(N), rand(N), rand(N)
    size = ctypes.c_size_t(4 * N)

    def alloc() -> ctypes.c_uint64:
        address, stream = ctypes.c_uint64(), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        driver.call("cuMemAllocAsync", ctypes.byref(address), size, stream)
        return address

    def copy(to: int, source: int) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        driver.call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to), ctypes.c_uint64(source), size, stream)

    def free(address: ctypes.c_uint64) -> None:
        driver.call("cuMemFreeAsync", address, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))

    with lathe_dump.capture("memory") as g:
        main = torch.cuda.current_stream()
        g.stream_name("side", side)
        first = alloc()
        copy(first.value, src.data_ptr())
        side.wait_stream(main)
        with torch.cuda.stream(side):
            torch.cuda._sleep(400_000)
            copy(out.data_ptr(), first.value)
        if fix == "join":
            main.wait_stream(side)
        free(first)
        second = alloc()
        driver.call("cuMemsetD32Async", second, ctypes.c_uint(0x40E00000), ctypes.c_size_t(N), ctypes.c_void_p(main.cuda_stream))
        copy(out2.data_ptr(), second.value)
        free(second)
        main.wait_stream(side)
    print("memory nodes:", hex(first.value), hex(second.value), flush=True)
    return Program([g], [out, out2], [src], expected=[src.clone(), torch.full((N,), 7.0, device="cuda")])


_LIBRARY_PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry twice_of_struct(.param .align 8 .b8 s[4032]) {
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<8>;
    .reg .f32 %f<3>;
    ld.param.u64 %rd1, [s+4000];
    ld.param.u64 %rd2, [s+4008];
    ld.param.u32 %r1, [s+4016];
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 ret;
    mul.wide.u32 %rd5, %r5, 4;
    add.s64 %rd6, %rd3, %rd5;
    add.s64 %rd7, %rd4, %rd5;
    ld.global.f32 %f1, [%rd6];
    add.f32 %f2, %f1, %f1;
    st.global.f32 [%rd7], %f2;
    ret;
}
"""


def library(fix: str | None = None, carries_ptx: bool = True) -> Program:
    """Launched through a CUkernel handle, its pointers 4,000 bytes into one parameter."""
    driver, side = lathe_dump.Driver(), torch.cuda.Stream()
    src, out, out2 = rand(N), rand(N), rand(N)
    loaded, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    text = ctypes.c_char_p(_LIBRARY_PTX.encode())
    none = (None, None, ctypes.c_uint(0), None, None, ctypes.c_uint(0))
    driver.call("cuLibraryLoadData", ctypes.byref(loaded), text, *none)
    driver.call("cuLibraryGetKernel", ctypes.byref(kernel), loaded, ctypes.c_char_p(b"twice_of_struct"))

    def twice(source: torch.Tensor, target: torch.Tensor) -> None:
        struct = ctypes.create_string_buffer(4032)
        ctypes.c_uint64.from_buffer(struct, 4000).value = source.data_ptr()
        ctypes.c_uint64.from_buffer(struct, 4008).value = target.data_ptr()
        ctypes.c_uint32.from_buffer(struct, 4016).value = N
        params = (ctypes.c_void_p * 1)(ctypes.addressof(struct))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        grid = [ctypes.c_uint(size) for size in (N // 256, 1, 1, 256, 1, 1, 0)]
        driver.call("cuLaunchKernel", kernel, *grid, stream, params, None)

    twice(src, out)
    torch.cuda.synchronize()
    with lathe_dump.capture("library") as g:
        main = torch.cuda.current_stream()
        g.stream_name("side", side)
        a = torch.empty(N, device="cuda")
        g.name(a=a)
        twice(src, a)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            twice(a, out)
        if fix == "join":
            main.wait_stream(side)
        del a
        b = torch.empty(N, device="cuda")
        g.name(b=b)
        twice(out2, b)
        twice(b, out2)
        main.wait_stream(side)
        del b
    return Program([g], [out], [src, out2, loaded], ptx={"twice_of_struct": _LIBRARY_PTX} if carries_ptx else None)


def compiled(fix: str | None = None) -> Program:
    """Regions that torch.compile turned into Triton kernels."""
    side = torch.cuda.Stream()
    src, out, out2 = rand(1024, 1024), rand(1024, 1024), rand(1024, 1024)

    @torch.compile
    def first(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 2.0 + 1.0, -1)

    @torch.compile
    def second(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) - x.mean(-1, keepdim=True)

    for _ in range(2):
        first(src), second(src)
    torch.cuda.synchronize()
    with lathe_dump.capture("compiled", lines=False) as g:
        main = torch.cuda.current_stream()
        g.stream_name("side", side)
        a = first(src)
        g.name(a=a)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            out.copy_(a)
        if fix == "join":
            main.wait_stream(side)
        del a
        b = second(src)
        g.name(b=b)
        out2.copy_(b)
        main.wait_stream(side)
        del b
    return Program([g], [out, out2], [src])


def nccl(fix: str | None = None) -> Program:
    """A collective of a single rank on the side stream."""
    import torch.distributed as dist

    if not dist.is_initialized():
        store = dist.FileStore(os.path.join(tempfile.mkdtemp(), "store"), 1)
        dist.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=torch.device("cuda", 0))
    side = torch.cuda.Stream()
    src, out, out2 = rand(N), rand(N), rand(N)
    dist.all_gather_into_tensor(out, src)
    torch.cuda.synchronize()
    with lathe_dump.capture("nccl") as g:
        main = torch.cuda.current_stream()
        g.stream_name("side", side)
        a = src * 2
        g.name(a=a)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            dist.all_gather_into_tensor(out, a)
        if fix == "join":
            main.wait_stream(side)
        del a
        b = torch.full((N,), 7.0, device="cuda")
        g.name(b=b)
        out2.copy_(b)
        main.wait_stream(side)
        del b
    return Program([g], [out, out2], [src])


# ---- many library kernels, to hold the rule table against what the GPU shows ----------------------------------------------------


def zoo(part: int) -> Program:
    x, w, bias = rand(64, 1024), rand(1024, 1024), rand(1024)
    half, half_w = x.half(), w.half()
    brain, brain_w = x.bfloat16(), w.bfloat16()
    tall, fp8, fp8_w = rand(2048, 1024, dtype=torch.bfloat16), x.to(torch.float8_e4m3fn), w.to(torch.float8_e4m3fn)
    image, filters, one = rand(4, 16, 32, 32), rand(32, 16, 3, 3), torch.ones((), device="cuda")
    ids, table = torch.randint(0, 1000, (64,), device="cuda"), rand(1000, 1024)
    mask, rows = x > 0, torch.randint(0, 64, (64,), device="cuda")
    query = rand(2, 8, 128, 64, dtype=torch.bfloat16)
    f = torch.nn.functional
    operators: list[Callable[[], Any]] = [
        lambda: x @ w, lambda: half @ half_w, lambda: brain @ brain_w, lambda: tall @ brain_w, lambda: brain[:1] @ brain_w, lambda: x[:1] @ w,
        lambda: torch.addmm(bias, x, w), lambda: f.linear(brain, brain_w, brain_w[0]), lambda: torch.bmm(brain.view(4, 16, 1024), brain_w.expand(4, 1024, 1024)),
        lambda: torch.mv(w, bias), lambda: torch.einsum("ij,kj->ik", x, x), lambda: torch._scaled_mm(fp8, fp8_w.t(), one, one, out_dtype=torch.bfloat16),
        lambda: torch.softmax(x, -1), lambda: torch.softmax(x.t(), 0), lambda: torch.softmax(rand_wide(x), -1), lambda: torch.log_softmax(x, -1),
        lambda: f.layer_norm(x, (1024,), bias, bias), lambda: f.rms_norm(x, (1024,), bias), lambda: f.group_norm(image, 4), lambda: f.batch_norm(image, None, None, training=True),
        lambda: x.sum(), lambda: x.sum(0), lambda: x.mean(-1), lambda: x.max(-1), lambda: x.argmax(-1), lambda: x.var(-1), lambda: torch.logsumexp(x, -1),
        lambda: x.any(), lambda: torch.linalg.vector_norm(x), lambda: x.cumsum(-1), lambda: x.cumsum(0), lambda: x.sort(-1), lambda: rand_wide(x).sort(-1),
        lambda: x.topk(32, -1), lambda: rand_wide(x).topk(64, -1), lambda: x.flatten().topk(64), lambda: x.flatten().sort(), lambda: x.kthvalue(3, -1),
        lambda: torch.cat([x, x], 0), lambda: torch.cat([x, x], 1), lambda: torch.stack([x, x]), lambda: torch.cat([half, half, half], 1),
        lambda: x.t().contiguous(), lambda: x[:, ::2].contiguous(), lambda: half.t().contiguous(), lambda: x.half(), lambda: x.bfloat16(), lambda: brain.float(), lambda: x.to(torch.float8_e4m3fn),
        lambda: table[ids], lambda: f.embedding(ids, table), lambda: x.index_select(0, rows), lambda: x.gather(1, (ids[:, None]).expand(64, 8)), lambda: x.take(ids),
        lambda: torch.zeros_like(x).scatter_(1, ids[:, None], 1.0), lambda: torch.zeros_like(x).scatter_add_(1, ids[:, None], x), lambda: torch.zeros_like(x).index_add_(0, rows, x),
        lambda: torch.zeros_like(x).index_copy_(0, torch.arange(64, device="cuda"), x), lambda: x.index_put((rows,), x), lambda: x.index_put((rows,), x, accumulate=True),
        lambda: x.index_fill(0, rows, 1.0), lambda: x.masked_fill(mask, 0.0), lambda: torch.where(mask, x, -x), lambda: x.clamp(0, 1), lambda: torch.relu(x), lambda: f.gelu(x), lambda: f.silu(brain),
        lambda: brain * x, lambda: x + 1, lambda: x * bias, lambda: x.pow(2), lambda: torch.addcmul(x, x, x), lambda: torch.lerp(x, x, 0.5), lambda: x > bias, lambda: torch.frexp(x),
        lambda: torch._foreach_add([x, w], 1.0), lambda: f.conv2d(image, filters, padding=1), lambda: f.conv2d(image.half(), filters.half()), lambda: f.max_pool2d(image, 2), lambda: f.avg_pool2d(image, 2),
        lambda: f.interpolate(image, scale_factor=2.0), lambda: f.scaled_dot_product_attention(query, query, query), lambda: f.scaled_dot_product_attention(query, query, query, is_causal=True),
        lambda: f.scaled_dot_product_attention(query.float(), query.float(), query.float()), lambda: torch.rand_like(x), lambda: torch.bernoulli(torch.sigmoid(x)), lambda: f.dropout(x, 0.5),
        lambda: x.flip(0), lambda: x.roll(3, 0), lambda: torch.tril(x), lambda: torch.arange(4096, device="cuda"), lambda: torch.linspace(0, 1, 64, device="cuda"), lambda: torch.eye(64, device="cuda"),
        lambda: x.repeat(2, 2), lambda: f.pad(x, (1, 1)), lambda: torch.bucketize(x, bias.sort().values), lambda: f.cross_entropy(x, ids),
    ]  # fmt: skip
    usable = []
    with torch.cuda.stream(torch.cuda.Stream()):
        for operator in operators[part::ZOO_PARTS]:
            try:
                for _ in range(2):
                    operator()
                torch.cuda.synchronize()
                usable.append(operator)
            except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
                print("zoo leaves out:", str(error).splitlines()[0][:150], flush=True)
    with lathe_dump.capture(f"zoo {part}") as g:
        results = [operator() for operator in usable]
    return Program([g], [], [operators, results])


def rand_wide(x: torch.Tensor) -> torch.Tensor:
    return x.view(8, 8192)


PROGRAMS: dict[str, Callable[[], Program] | None] = {
    "s1": s1,
    "s1_slow": lambda: s1(sleep=400_000),
    "s1_slow_join": lambda: s1("join", sleep=400_000),
    "s1_record_stream": lambda: s1("record_stream"),
    "s1_join": lambda: s1("join"),
    "s2": s2,
    "s2_wait": lambda: s2("wait"),
    "s3": s3,
    "s3_edge": lambda: s3("edge"),
    "s4": s4,
    "s4_join": lambda: s4("join"),
    "s5": s5,
    "s5_before": lambda: s5("before"),
    "s6": s6,
    "s6_held": lambda: s6("held"),
    "s7": s7,
    "s7_kept": lambda: s7("kept"),
    "halves_rows": lambda: halves("rows"),
    "halves_columns": lambda: halves("columns"),
    "in_place": in_place,
    "parallel": parallel,
    "layer": layer,
    "layer_join": lambda: layer("join"),
    "layer_bf16": lambda: layer(dtype=torch.bfloat16, twin=True),
    "layer_bf16_join": lambda: layer("join", dtype=torch.bfloat16),
    "triton": triton_pair,
    "triton_join": lambda: triton_pair("join"),
    "triton_pdl": lambda: triton_pdl(False),
    "triton_pdl_wait": lambda: triton_pdl(True),
    "s8": s8,
    "s8_own": lambda: s8("own"),
    "child": child,
    "child_join": lambda: child("join"),
    "conditional": conditional,
    "memory": memory,
    "memory_join": lambda: memory("join"),
    "library": library,
    "library_join": lambda: library("join"),
    "library_unknown": lambda: library(carries_ptx=False),
    "library_unknown_join": lambda: library("join", carries_ptx=False),
    "compiled": compiled,
    "compiled_join": lambda: compiled("join"),
    "large": None,
    **{f"zoo_{part}": lambda part=part: zoo(part) for part in range(ZOO_PARTS)},
    "nccl": nccl,
    "nccl_join": lambda: nccl("join"),
}


# ---- what the hardware says ----------------------------------------------------------------------------------------------------


def closure(nodes: int, edges: list[list[int]]) -> list[int]:
    """For every node the bit set of what happens before it."""
    parents: list[list[int]] = [[] for _ in range(nodes)]
    for edge in edges:
        parents[edge[1]].append(edge[0])
    before = [0] * nodes
    for node in range(nodes):
        for parent in parents[node]:
            before[node] |= before[parent] | 1 << parent
    return before


def bits(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.contiguous().view(torch.uint8).clone() for tensor in tensors]


def count_wrong(replay: Callable[[], None], outputs: list[torch.Tensor], expected: list[torch.Tensor], times: int) -> int:
    """How many of `times` replays leave another bit in an output; outputs are poisoned first."""
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(times):
        for output in outputs:
            output.fill_(-77)
        replay()
        differs = [(output.contiguous().view(torch.uint8) != want).any() for output, want in zip(outputs, expected)]
        wrong += torch.stack(differs).any()
    torch.cuda.synchronize()
    return int(wrong)


def forced(graph: lathe_dump.Captured, order: list[int], run: Callable[[lathe_dump.Ordered], Any]) -> Any:
    """Runs with the graph chained in one complete order."""
    chained = lathe_dump.ordered(graph, list(zip(order, order[1:])))
    try:
        return run(chained)
    finally:
        torch.cuda.synchronize()
        chained.close()


def orders(program: Program, nodes: int, edges: list[list[int]]) -> dict[str, Any]:
    graph, outputs = program.graphs[-1], program.outputs
    record = list(range(nodes))

    def reference(chained: lathe_dump.Ordered) -> list[torch.Tensor]:
        for output in outputs:
            output.fill_(-77)
        chained.replay()
        torch.cuda.synchronize()
        return bits(outputs)

    expected = forced(graph, record, reference)
    serial = forced(graph, record, lambda chained: count_wrong(chained.replay, outputs, expected, REPLAYS // 10))
    as_captured = count_wrong(graph.replay, outputs, expected, REPLAYS)
    before = closure(nodes, edges)
    pairs = [(i, j) for j in range(nodes) for i in range(j) if not before[j] >> i & 1]
    times = max(PER_PAIR, -(-REPLAYS // max(len(pairs), 1)))
    changed, replays = [], 0
    for i, j in pairs:
        early = [node for node in record if before[j] >> node & 1]
        witness = early + [j] + [node for node in record if node != j and node not in early]
        wrong = forced(graph, witness, lambda chained: count_wrong(chained.replay, outputs, expected, times))
        replays += times
        if wrong:
            changed.append([i, j, wrong, times])
    return {
        "replays": REPLAYS,
        "wrong_as_captured": as_captured,
        "wrong_in_record_order": serial,
        "unordered_pairs": len(pairs),
        "forced_replays": replays,
        "pairs_that_change_an_output": changed,
    }


def as_captured(program: Program) -> dict[str, Any]:
    """For graphs that cannot be cloned."""
    expected = bits(program.expected or [])
    return {"replays": REPLAYS, "wrong_as_captured": count_wrong(program.graphs[-1].replay, program.outputs, expected, REPLAYS)}


def validate(name: str, make: Callable[[], Program], folder: str) -> dict[str, Any]:
    started = time.perf_counter()
    program = make()
    path = os.path.join(folder, f"{name}.json")
    lathe_dump.dump(program.graphs, out=path, twin=program.twin, ptx=program.ptx)
    with open(path, encoding="utf-8") as stream:
        dumped = json.load(stream)
    graph = dumped["graphs"][-1]
    result: dict[str, Any] = {"nodes": [len(each["nodes"]) for each in dumped["graphs"]]}
    if program.expected is not None:
        result |= as_captured(program)
    elif program.outputs:
        result |= orders(program, len(graph["nodes"]), graph["edges"])
    if program.eager is not None:
        result["corrupted_outside_the_graph"] = sum(program.eager() for _ in range(REPLAYS // 10))
        result["eager_replays"] = REPLAYS // 10
    try:
        result["observed_writes"] = lathe_dump.writes(program.graphs[-1])
        # With what was seen, the checker is held to the same verdict.
        lathe_dump.dump(program.graphs, out=os.path.join(folder, f"{name}.observed.json"), twin=program.twin, ptx=program.ptx)
    except lathe_dump.DumpError as error:
        result["observed_writes_refused"] = str(error)
    result["seconds"] = round(time.perf_counter() - started, 2)
    return result


def ten_thousand(folder: str) -> dict[str, Any]:
    side, src = torch.cuda.Stream(), rand(4096)
    out = torch.empty_like(src)

    def body(main: torch.cuda.Stream) -> None:
        for step in range(2_500):
            a = src * 2
            b = a + step
            side.wait_stream(main)
            with torch.cuda.stream(side):
                torch.mul(b, 3, out=out)
            main.wait_stream(side)
            out.add_(b)

    result = {}
    for lines in (False, True):
        started = time.perf_counter()
        with lathe_dump.capture("large", lines=lines) as g:
            body(torch.cuda.current_stream())
        captured = time.perf_counter()
        lathe_dump.dump(g, os.path.join(folder, "large.json"))
        result["with_lines" if lines else "without_lines"] = {"capture_s": round(captured - started, 3), "dump_s": round(time.perf_counter() - captured, 3)}
    started = time.perf_counter()
    plain = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(plain):
        body(torch.cuda.current_stream())
    result["plain_capture_s"] = round(time.perf_counter() - started, 3)
    with open(os.path.join(folder, "large.json"), encoding="utf-8") as stream:
        result["nodes"] = len(json.load(stream)["graphs"][0]["nodes"])
    result["bytes"] = os.path.getsize(os.path.join(folder, "large.json"))
    return result


def usable() -> bool:
    """Whether the CUDA context survived."""
    try:
        rand(16)
        torch.cuda.synchronize()
        return True
    except RuntimeError:
        return False


def main(out: str, names: list[str]) -> None:
    folder = os.path.join(tempfile.gettempdir(), "lathe_validate_dumps")
    os.makedirs(out, exist_ok=True)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(out, "results.json")
    results: dict[str, Any] = {"torch": torch.__version__, "device": torch.cuda.get_device_name(), "programs": {}}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as stream:
            results = json.load(stream)
    with open(os.path.join(folder, "triton_kernels_for_validation.py"), "w", encoding="utf-8") as stream:
        stream.write(_TRITON)
    sys.path.insert(0, folder)
    rest = list(names)
    while rest:
        name = rest.pop(0)
        try:
            make = PROGRAMS[name]
            result = ten_thousand(folder) if make is None else validate(name, make, folder)
        except Exception:  # one broken program must not lose the others' results
            result = {"error": traceback.format_exc()[-1500:]}
        results["programs"][name] = result
        shown = {key: value for key, value in result.items() if key != "observed_writes"}
        print(name, json.dumps(shown)[-600:], flush=True)
        gc.collect()
        with open(path, "w", encoding="utf-8") as stream:
            json.dump(results, stream, indent=1)
        if "error" in result and rest and not usable():
            subprocess.run([sys.executable, __file__, out, *rest], check=False)
            return
    with tarfile.open(os.path.join(out, "dumps.tar.gz"), "w:gz") as archive:
        for file in sorted(os.listdir(folder)):
            if file.endswith(".json"):
                archive.add(os.path.join(folder, file), arcname=file)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:] or list(PROGRAMS))
