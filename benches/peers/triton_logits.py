"""Times paged MQA logits in Triton and prints JSON lines that `lathe bench --vs FILE.jsonl` reads.

    python3 benches/peers/triton_logits.py > triton.jsonl
    lathe bench --kernel bf16_paged_mqa_logits --kernel fp8_paged_mqa_logits --vs triton.jsonl

Needs torch and triton. The method is that of `lathe bench`: graphs over enough input sets that the L2 never holds the
next one, each configuration checked against float64 before it is timed, the median of replays over calls. The fastest
of the configurations below is reported for each size.
"""

import argparse
import json
import math
import sys

import torch
import triton
import triton.language as tl

HEADS, DIM, PAGE = 64, 128, 64
ROTATION = 300 << 20

# (pages a program walks, pipeline stages, warps)
PAGES = (1, 2, 4, 8, 16)
PIPELINES = ((2, 4), (3, 4), (4, 4), (3, 8))


@triton.jit
def logits_kernel(q_ptr, k_ptr, scales_ptr, w_ptr, lens_ptr, table_ptr, out_ptr, table_stride, out_stride,
                  PAGES: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, PAGE: tl.constexpr,
                  PAGE_ELEMENTS: tl.constexpr, FP8: tl.constexpr, STAGES: tl.constexpr):
    row = tl.program_id(0)
    first = tl.program_id(1) * PAGES
    length = tl.load(lens_ptr + row)
    if first * PAGE >= length:
        return
    slots = tl.arange(0, PAGE)
    heads = tl.arange(0, HEADS)
    dims = tl.arange(0, DIM)
    q = tl.load(q_ptr + (row * HEADS + heads[:, None]) * DIM + dims[None, :])
    w = tl.load(w_ptr + row * HEADS + heads)
    for p in tl.range(0, PAGES, num_stages=STAGES):
        position = (first + p) * PAGE + slots
        page = tl.load(table_ptr + row * table_stride + first + p, mask=(first + p) * PAGE < length, other=0).to(tl.int64)
        k = tl.load(k_ptr + page * PAGE_ELEMENTS + slots[:, None] * DIM + dims[None, :])
        dots = tl.dot(q, tl.trans(k))
        score = tl.sum(tl.maximum(dots, 0.0) * w[:, None], axis=0)
        if FP8:
            score *= tl.load(scales_ptr + page * (PAGE_ELEMENTS // 4) + PAGE * DIM // 4 + slots)
        tl.store(out_ptr + row.to(tl.int64) * out_stride + position, score, mask=position < length)


def make(batch, keys, fp8, seed):
    """One set of inputs, and a poisoned output."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    entries = -(-keys // PAGE)
    pages = entries * batch + 1
    randn = lambda *shape: torch.randn(*shape, device="cuda", generator=generator)
    table = (torch.randperm(pages - 1, device="cuda", generator=generator).int() + 1).view(batch, entries)
    inputs = {
        "q": randn(batch, HEADS, DIM).to(torch.float8_e4m3fn if fp8 else torch.bfloat16),
        "w": randn(batch, HEADS),
        "lens": torch.full((batch,), keys, device="cuda", dtype=torch.int32),
        "table": table.contiguous(),
        "out": torch.full((batch, -(-keys // 256) * 256), float("nan"), device="cuda"),
    }
    values = randn(pages, PAGE, DIM)
    if not fp8:
        return inputs | {"k": values.bfloat16()}
    scales = torch.exp2(torch.ceil(torch.log2(values.abs().amax(-1).clamp(1e-4) / 448.0)))
    pool = torch.empty(pages, PAGE * (DIM + 4), device="cuda", dtype=torch.uint8)
    pool[:, : PAGE * DIM] = (values / scales[..., None]).to(torch.float8_e4m3fn).view(torch.uint8).view(pages, -1)
    pool[:, PAGE * DIM :] = scales.contiguous().view(torch.uint8).view(pages, -1)
    return inputs | {"k": pool}


def reference(inputs, row):
    """Logits of one row in float64."""
    pages = inputs["k"][inputs["table"][row].long()]
    length = int(inputs["lens"][row])
    if inputs["k"].dtype == torch.bfloat16:
        keys = pages.reshape(-1, DIM).double()
    else:
        scales = pages[:, PAGE * DIM :].contiguous().view(torch.float32).reshape(-1, 1).double()
        keys = pages[:, : PAGE * DIM].contiguous().view(torch.float8_e4m3fn).reshape(-1, DIM).double() * scales
    dots = torch.relu(keys[:length] @ inputs["q"][row].double().T)
    return (dots * inputs["w"][row].double()).sum(-1)


def call(inputs, fp8, pages, stages, warps):
    batch, entries = inputs["table"].shape
    grid = (batch, -(-entries // pages))
    k = inputs["k"].view(torch.float8_e4m3fn) if fp8 else inputs["k"]
    scales = inputs["k"].view(torch.float32) if fp8 else inputs["w"]
    return lambda: logits_kernel[grid](
        inputs["q"], k, scales, inputs["w"], inputs["lens"], inputs["table"], inputs["out"],
        inputs["table"].stride(0), inputs["out"].stride(0), PAGES=pages, HEADS=HEADS, DIM=DIM, PAGE=PAGE,
        PAGE_ELEMENTS=PAGE * (DIM + 4) if fp8 else PAGE * DIM, FP8=fp8, STAGES=stages, num_warps=warps)


def is_right(inputs, expected, run):
    inputs["out"].fill_(float("nan"))
    run()
    torch.cuda.synchronize()
    errors = [(inputs["out"][row, : len(e)].double() - e).norm() / e.norm() for row, e in enumerate(expected)]
    return all(float(error) < 1e-3 for error in errors)


def microseconds(calls, replays):
    """Median of replays of a graph over all calls, a call."""
    for run in calls:
        run()
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        for run in calls:
            run()
    times = []
    for replay in range(replays + 3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / len(calls))
    return sorted(times[3:])[replays // 2]


def fastest(batch, keys, fp8, replays):
    key_bytes = batch * keys * DIM * (1 if fp8 else 2)
    count = min(24, max(2, math.ceil(ROTATION / key_bytes)))
    sets = [make(batch, keys, fp8, seed) for seed in range(count)]
    expected = [reference(sets[0], row) for row in range(min(batch, 4))]
    best = None
    for pages in PAGES:
        if pages > 1 and batch * keys // PAGE // pages < 32:
            continue
        for stages, warps in PIPELINES:
            try:
                if not is_right(sets[0], expected, call(sets[0], fp8, pages, stages, warps)):
                    print(f"wrong: {batch} x {keys}, {pages} pages, {stages} stages, {warps} warps", file=sys.stderr)
                    continue
                time = microseconds([call(inputs, fp8, pages, stages, warps) for inputs in sets], replays)
            except triton.runtime.errors.OutOfResources as error:
                print(f"does not fit: {pages} pages, {stages} stages, {warps} warps: {error}", file=sys.stderr)
                continue
            best = time if best is None else min(best, time)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1x1024,1x4096,1x16384,1x65536,4x16384,4x65536,16x4096,16x16384,64x4096,"
                        "64x16384,64x65536,128x65536", help="BATCHxKEYS,..")
    parser.add_argument("--replays", type=int, default=7)
    arguments = parser.parse_args()
    for fp8 in (False, True):
        for size in arguments.sizes.split(","):
            batch, keys = map(int, size.split("x"))
            time = fastest(batch, keys, fp8, arguments.replays)
            if time is not None:
                kernel = "fp8_paged_mqa_logits" if fp8 else "bf16_paged_mqa_logits"
                line = {"peer": "Triton", "kernel": kernel, "batch": batch, "keys": keys, "edges": "plain", "us": round(time, 3)}
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
