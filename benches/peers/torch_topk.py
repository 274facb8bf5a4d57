"""Times torch.topk on rows of logits and prints JSON lines that `lathe bench --vs FILE.jsonl` reads.

    python3 benches/peers/torch_topk.py > topk.jsonl
    lathe bench --kernel topk_page_transform --vs topk.jsonl

torch.topk gives values and positions; the pool slots that `topk_page_transform` gives would take another kernel.
"""

import argparse
import json
import math

import torch

ROTATION = 300 << 20


def microseconds(batch, keys, k, replays):
    """Median of replays of a graph over enough rows that the L2 never holds the next call's, a call."""
    count = min(24, max(2, math.ceil(ROTATION / (batch * keys * 4))))
    sets = [torch.randn(batch, keys, device="cuda") for _ in range(count)]
    for rows in sets:
        torch.topk(rows, k, sorted=False)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for rows in sets:
            torch.topk(rows, k, sorted=False)
    times = []
    for replay in range(replays + 3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / count)
    return sorted(times[3:])[replays // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1x4096,1x65536,16x16384,64x16384,64x65536,128x65536", help="BATCHxKEYS,..")
    parser.add_argument("--top-k", type=int, default=2048)
    arguments = parser.parse_args()
    for size in arguments.sizes.split(","):
        batch, keys = map(int, size.split("x"))
        time = round(microseconds(batch, keys, arguments.top_k, 11), 3)
        line = {"peer": "torch.topk", "kernel": "topk_page_transform", "batch": batch, "keys": keys, "edges": "plain"}
        print(json.dumps(line | {"top_k": arguments.top_k, "us": time}), flush=True)


if __name__ == "__main__":
    main()
