#!/usr/bin/env python3
"""NVIDIA's compute-sanitizer beside Lathe's emulator: what each finds in a small case of every kernel, and in planted faults.

    python3 tools/sanitizer.py                       all four tools, one table
    python3 tools/sanitizer.py --only missing_barrier --only topk_page_transform
    python3 tools/sanitizer.py --json > sanitizer.json

Needs a GPU with NVIDIA's driver, `compute-sanitizer` (of the CUDA toolkit) and the `lathe` program; no Python packages.

The kernels run as `lathe check --backend cuda --small --bare --filter CASE`, the faults, which lie in tools/faults, as
`lathe run FAULT.ptx --args FAULT.toml --backend cuda --bare`. `--bare` matters: guard zones would hide an overrun from
memcheck, and poison an uninitialised read from initcheck. The emulator runs the same case, and the same PTX.

Exit status: 0 if every tool is silent about the kernels, and each fault is found by the tool that is meant for it and by the
emulator; 1 otherwise; 2 if it could not be tried.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import pathlib
import re
import shutil
import subprocess
import sys

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")

#: One small case a kernel, by a part of its name. Those of the logits end at page boundaries: initcheck counts reads, and
#: keys past a row's length may be read as long as they change nothing, which the emulator can tell and initcheck cannot.
KERNELS = {
    "bf16_paged_mqa_logits": "exactly S * 64",
    "bf16_index_k_store": "page boundaries",
    "fp8_paged_mqa_logits": "exactly S * 64",
    "fp8_index_k_store": "page boundaries",
    "bf16_fused_index_k_store": "page boundaries",
    "fp8_fused_index_k_store": "page boundaries",
    "topk_page_transform": "around K",
}

#: The planted faults, and the tool that is meant to find each; none where NVIDIA has none.
FAULTS = {
    "past_the_end": "memcheck",
    "missing_barrier": "racecheck",
    "unwritten_input": "initcheck",
    "divergent_barrier": "synccheck",
    "missing_wait": None,
    "unordered_ctas": None,
}

FOLDER = pathlib.Path(__file__).resolve().parent / "faults"


@dataclasses.dataclass
class Cell:
    """What one tool says of one subject."""

    #: How many errors; none if it did not come to an end, or did not run.
    errors: int | None
    #: The first message, or why there is none.
    what: str

    def __str__(self) -> str:
        return self.what if self.errors is None else str(self.errors) if not self.errors else f"{self.errors}: {self.what}"


def subjects(only: list[str]) -> list[str]:
    """The kernels and faults asked for, or all."""
    known = [*KERNELS, *FAULTS]
    for name in only:
        if name not in known:
            raise SystemExit(f"error: nothing here is called {name!r}; there are {', '.join(known)}")
    return [name for name in known if not only or name in only]


def command(lathe: str, name: str) -> list[str]:
    """What runs a subject on the GPU, without the sanitizer."""
    if name in KERNELS:
        return [lathe, "check", "--backend", "cuda", "--small", "--bare", "--kernel", name, "--filter", KERNELS[name]]
    return [lathe, "run", str(FOLDER / f"{name}.ptx"), "--args", str(FOLDER / f"{name}.toml"), "--backend", "cuda", "--bare"]


def emulated(lathe: str, name: str, target: str) -> list[str]:
    """What runs it on the emulator."""
    if name in KERNELS:
        return [lathe, "check", "--target", target, "--kernel", name, "--filter", KERNELS[name], "--json"]
    return [lathe, "run", str(FOLDER / f"{name}.ptx"), "--args", str(FOLDER / f"{name}.toml"), "--json"]


def read_sanitizer(output: str) -> Cell:
    """Counts the errors that a tool reports, and takes the first one's title."""
    said = [line.removeprefix("========= ") for line in output.splitlines() if line.startswith("========= ")]
    racecheck = next(filter(None, (re.match(r"RACECHECK SUMMARY: (\d+) hazards? displayed", line) for line in said)), None)
    summary = next(filter(None, (re.match(r"ERROR SUMMARY: (\d+) errors?", line) for line in said)), None)
    if racecheck is None and summary is None:
        last = said[-1].strip() if said else (output.strip().splitlines() or ["it says nothing"])[-1]
        return Cell(None, f"did not run: {last}")
    # Once a kernel has failed, so does every call behind it: those are counted too, and are no findings.
    errors = int((racecheck or summary)[1]) - sum(line.startswith("Program hit") for line in said)
    headings = [line for line in said if not line.startswith((" ", "COMPUTE-SANITIZER", "RACECHECK SUMMARY", "ERROR SUMMARY"))]
    kinds = r"Invalid|Misaligned|Uninitialized|Barrier error|Divergent|Potential|(?:Error|Warning): (?:Race|Potential)|Race"
    title = next((line for line in headings if re.match(kinds, line)), headings[0] if headings else "")
    if racecheck:
        title = re.sub(r" (?:Write|Read) access at .*| between .*", "", title)
    return Cell(errors, title.strip().rstrip("."))


def sanitize(args: argparse.Namespace, name: str, tool: str) -> Cell:
    """Runs one tool over one subject."""
    options = [args.sanitizer, "--tool", tool, "--print-limit", "10"]
    if tool == "memcheck":
        # Allocations lie side by side: the byte behind one is the first of another, and no error.
        options += ["--padding", "64"]
    try:
        run = subprocess.run([*options, *command(args.lathe, name)], capture_output=True, text=True, timeout=args.timeout, check=False)
    except subprocess.TimeoutExpired:
        return Cell(None, f"no end in {args.timeout:g} s")
    if args.keep:
        (args.keep / f"{name}.{tool}.txt").write_text(run.stdout + run.stderr)
    cell = read_sanitizer(run.stdout + run.stderr)
    if name in KERNELS and cell.errors == 0 and run.returncode != 0:
        return Cell(None, f"wrong results under {tool}")
    return cell


def emulate(args: argparse.Namespace, name: str) -> Cell:
    """Asks the emulator about one subject."""
    run = subprocess.run(emulated(args.lathe, name, args.target), capture_output=True, text=True, check=False)
    try:
        result = json.loads(run.stdout)
    except json.JSONDecodeError:
        return Cell(None, "did not run: " + (run.stderr.strip().splitlines() or ["it says nothing"])[-1])
    rows = result["kernels"] if name in KERNELS else [result]
    findings = [finding["kind"] for row in rows for finding in row["findings"]]
    findings += ["wrong results" for row in rows for _ in row.get("failures", [])]
    return Cell(len(findings), ", ".join(dict.fromkeys(findings)))


def verdict(results: dict[str, dict[str, Cell]]) -> list[str]:
    """What is not as it should be."""
    wrong = []
    for name, cells in results.items():
        if name in KERNELS:
            wrong += [f"{tool} on {name}: {cell}" for tool, cell in cells.items() if cell.errors != 0]
            continue
        meant = [tool for tool in (FAULTS[name], "emulator") if tool]
        wrong += [f"{tool} does not find {name}: {cells[tool]}" for tool in meant if not cells[tool].errors]
    return wrong


def table(results: dict[str, dict[str, Cell]]) -> str:
    """One line a subject, one column a tool."""
    columns = [*TOOLS, "emulator"]
    rows = [["", *columns], *([name, *(str(cells[column]) for column in columns)] for name, cells in results.items())]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lathe", default="lathe", help="the program (default: the one on the path)")
    parser.add_argument("--sanitizer", default="compute-sanitizer", help="NVIDIA's tool (default: the one on the path)")
    parser.add_argument("--target", default="sm_90a", help="what the emulator compiles kernels for: the GPU's own target (default: sm_90a)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only this kernel or fault (may be given several times)")
    parser.add_argument("--timeout", type=float, default=60, metavar="SECONDS", help="when a tool counts as hanging (default: 60)")
    parser.add_argument("--jobs", type=int, default=4, metavar="N", help="how many tools run at once, each in a process (default: 4)")
    parser.add_argument("--keep", type=pathlib.Path, metavar="FOLDER", help="keep what each tool printed, in files of this folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    args = parser.parse_args(arguments)

    names = subjects(args.only)
    for option, program in (("--lathe", args.lathe), ("--sanitizer", args.sanitizer)):
        if shutil.which(program) is None:
            print(f"error: there is no `{program}`: say where it is with `{option}`", file=sys.stderr)
            return 2
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Cell]] = {name: {} for name in names}
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        running = {pool.submit(sanitize, args, name, tool): (name, tool) for name in names for tool in TOOLS}
        running |= {pool.submit(emulate, args, name): (name, "emulator") for name in names}
        for number, done in enumerate(concurrent.futures.as_completed(running), 1):
            name, tool = running[done]
            results[name][tool] = done.result()
            print(f"{number} of {len(running)}: {tool} on {name}: {done.result()}", file=sys.stderr)

    wrong = verdict(results)
    if args.json:
        plain = {name: {tool: dataclasses.asdict(cell) for tool, cell in cells.items()} for name, cells in results.items()}
        print(json.dumps({"results": plain, "wrong": wrong}, indent=2))
    else:
        print(table(results))
        print("\n" + ("\n".join(wrong) or "silent about every kernel; every fault found by what is meant to find it"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
