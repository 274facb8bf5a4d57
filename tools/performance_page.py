"""Measure the tables of docs/performance.md anew, and write them into the page.

    python3 tools/performance_page.py measure OUT [--lathe PROGRAM]    (on the GPU; PyTorch and Triton for the peers)
    python3 tools/performance_page.py write OUT                       (anywhere)

`measure` leaves JSON files, the picture and what the peers printed in OUT, in one run of some six minutes on an H200. `write`
replaces the tables between `<!-- table: NAME -->` and `<!-- end -->`, the line on the device, and docs/performance.svg. What the
page says about the figures is written by hand: read it again.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "benches" / "peers"
PAGE = ROOT / "docs" / "performance.md"
LOGITS = ["bf16_paged_mqa_logits", "fp8_paged_mqa_logits"]
STORES = ["bf16_index_k_store", "fp8_index_k_store", "bf16_fused_index_k_store", "fp8_fused_index_k_store"]

Row = dict[str, Any]


def kernels(names: list[str]) -> list[str]:
    return [word for name in names for word in ("--kernel", name)]


def peers(*paths: Path) -> list[str]:
    return [word for path in paths for word in ("--vs", str(path))]


def runs(out: Path) -> dict[str, list[str]]:
    """The arguments of `lathe bench`, by the name of the file that takes its JSON."""
    floors = PEERS / "floors" / "peer.toml"
    rivals = [PEERS / "handwritten" / "peer.toml", floors, out / "triton.jsonl", PEERS / "deepgemm_h200.jsonl"]
    shapes = kernels(LOGITS)
    captured = [*shapes, "--batch", "1,16,64", "--keys", "1024"]
    return {
        "logits": [*shapes, *peers(*rivals), "--svg", str(out / "performance.svg")],
        "uneven": [*shapes, "--batch", "32", "--keys", "1024", "--long-row", "65536"],
        "even": [*shapes, "--batch", "32", "--keys", "3040"],
        "next_n": [*shapes, "--batch", "64", "--keys", "16384", "--next-n", "1,2,4"],
        "captured": [*captured, "--captured-for", "131072"],
        "uncaptured": captured,
        "stores": [*kernels(STORES), *peers(floors)],
        "topk": [*kernels(["topk_page_transform"]), *peers(floors, out / "topk.jsonl")],
        "step": ["--step"],
    }


def measure(out: Path, lathe: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, script in [("triton", "triton_logits.py"), ("topk", "torch_topk.py")]:
        print(f"== {script}", file=sys.stderr)
        with open(out / f"{name}.jsonl", "w") as file:
            subprocess.run([sys.executable, PEERS / script], stdout=file, check=True)
    for name, arguments in runs(out).items():
        print(f"== lathe bench {' '.join(arguments)}", file=sys.stderr)
        with open(out / f"{name}.json", "w") as file:
            subprocess.run([lathe, "bench", *arguments, "--json"], stdout=file, check=True)


def us(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.1f}"


def own(row: Row) -> str:
    """A row's times with plain and with programmatic edges."""
    return " / ".join(us(time["us"]) for time in row["times"])


def rival(time: Row, name: str) -> Row | None:
    return next((rival for rival in time["rivals"] if rival["name"].startswith(name)), None)


def rivals(row: Row, name: str, show: Callable[[Row], str] = lambda rival: us(rival["us"])) -> str:
    """The same of a rival; a dash where it did not take part, one for both if it never did."""
    found = [rival(time, name) for time in row["times"]]
    return " / ".join(show(seen) if seen else "-" for seen in found) if any(found) else "-"


def ratio(digits: int) -> Callable[[Row], str]:
    return lambda rival: f"{rival['ratio']:.{digits}f}"


def size(row: Row) -> str:
    return f"{row['batch']}, {row['keys']}"


def logits(data: dict[str, Row], kernel: str) -> tuple[list[str], list[list[str]]]:
    recorded = ["DeepGEMM"] if kernel.startswith("fp8") else []
    head = ["B, keys", "schedule", "ours plain / pdl", "hand-written", "ratio plain / pdl", "Triton"]
    head += [f"{name} plain / pdl" for name in recorded] + ["floor plain / pdl", "TB/s", "of read"]
    body = []
    for row in data["logits"]["rows"]:
        if row["kernel"] != kernel:
            continue
        plain = row["times"][0]
        triton = rival(plain, "Triton")
        cells = [size(row), schedule(row), own(row), rivals(row, "hand-written"), rivals(row, "hand-written", ratio(3))]
        cells += [us(triton["us"]) if triton else "-", *(rivals(row, name) for name in recorded), rivals(row, "floor")]
        body.append([*cells, f"{plain['tb_per_s']:.2f}", f"{100 * plain['of_read_bandwidth']:.0f} %"])
    return head, body


def schedule(row: Row) -> str:
    return row["configuration"].replace(" ", ", ").replace("pages_per_cta", "pages").replace("=", " ")


def shapes(data: dict[str, Row]) -> tuple[list[str], list[list[str]]]:
    def both(file: str, **of: int) -> list[str]:
        rows = data[file]["rows"]
        return [own(row) for row in rows if all(row[key] == value for key, value in of.items())]

    body = [
        ["one row of 65,536 and 31 of 1,024 (`--batch 32 --keys 1024 --long-row 65536`)", *both("uneven")],
        ["32 even rows of the same bytes (`--keys 3040`)", *both("even")],
        *([f"(64, 16384), next_n {n}", *both("next_n", next_n=n)] for n in (1, 2, 4)),
    ]
    for batch in (1, 16, 64):
        body.append([f"({batch}, 1024), captured for 1,024", *both("uncaptured", batch=batch)])
        body.append([f"({batch}, 1024), captured for 131,072 (`--captured-for 131072`)", *both("captured", batch=batch)])
    return ["", "bf16 plain / pdl", "fp8 plain / pdl"], body


def stores(data: dict[str, Row]) -> tuple[list[str], list[list[str]]]:
    copied = data["stores"]["copy_bytes_per_s"] / 1e12
    head = ["kernel", "rows", "ours plain / pdl", "floor plain / pdl", "ratio plain / pdl", "TB/s", "of copy"]
    body = []
    for row in data["stores"]["rows"]:
        rate = row["times"][0]["tb_per_s"]
        cells = [row["kernel"], str(row["keys"]), own(row), rivals(row, "floor"), rivals(row, "floor", ratio(2))]
        body.append([*cells, f"{rate:.2f}", f"{100 * rate / copied:.0f} %"])
    return head, body


def topk(data: dict[str, Row]) -> tuple[list[str], list[list[str]]]:
    body = []
    for row in data["topk"]["rows"]:
        torch = rival(row["times"][0], "torch.topk")
        seen = [us(torch["us"]), ratio(2)(torch)] if torch else ["-", "-"]
        body.append([size(row), own(row), *seen, rivals(row, "floor")])
    return ["B, keys", "ours plain / pdl", "torch.topk", "ratio", "floor plain / pdl"], body


def step(data: dict[str, Row]) -> tuple[list[str], list[list[str]]]:
    head = ["step", "B, keys", "whole plain / pdl", "sum of parts plain / pdl", "ratio", "store", "logits", "top-k"]
    body = []
    for row in data["step"]["rows"]:
        parts = [part["name"] for part in row["times"][0]["rivals"] if part["name"] != "sum of parts"]
        sums = [rivals(row, "sum of parts"), rivals(row, "sum of parts", ratio(2))]
        body.append([row["kernel"], size(row), own(row), *sums, *(rivals(row, part) for part in parts)])
    return head, body


TABLES: dict[str, Callable[[dict[str, Row]], tuple[list[str], list[list[str]]]]] = {
    "bf16 logits": lambda data: logits(data, LOGITS[0]),
    "fp8 logits": lambda data: logits(data, LOGITS[1]),
    "shapes": shapes,
    "stores": stores,
    "top-k": topk,
    "decode step": step,
}


def markdown(head: list[str], body: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def page(text: str, data: dict[str, Row]) -> str:
    """The page with the tables of `data`."""
    for name, table in TABLES.items():
        block = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if len(block.findall(text)) != 1:
            raise SystemExit(f"{PAGE}: the table `{name}` stands there once, between <!-- table: {name} --> and <!-- end -->")
        made = markdown(*table(data))
        text = block.sub(lambda found: f"{found[1]}{made}{found[2]}", text)
    device = data["logits"]
    read, copied = (device[key] / 1e12 for key in ("read_bytes_per_s", "copy_bytes_per_s"))
    line = f"({device['sms']} SMs, {read:.2f} TB/s read, {copied:.2f} TB/s copied"
    return re.sub(r"\(\d+ SMs, [\d.]+ TB/s read, [\d.]+ TB/s copied", line, text)


def write(out: Path) -> None:
    data = {name: json.loads((out / f"{name}.json").read_text()) for name in runs(out)}
    PAGE.write_text(page(PAGE.read_text(), data))
    shutil.copy(out / "performance.svg", PAGE.parent / "performance.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "write"])
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--lathe", default=str(ROOT / "target" / "release" / "lathe"), metavar="PROGRAM")
    arguments = parser.parse_args()
    if arguments.what == "measure":
        measure(arguments.out, arguments.lathe)
    else:
        write(arguments.out)


if __name__ == "__main__":
    main()
