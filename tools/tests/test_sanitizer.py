"""Tests of sanitizer without a GPU: python3 -m unittest discover tools/tests"""

import contextlib
import io
import json
import os
import pathlib
import stat
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import sanitizer  # noqa: E402

#: A `compute-sanitizer` that finds the fault that a tool is meant for, and nothing else.
FAKE_SANITIZER = """#!{python}
import sys
tool, command = sys.argv[sys.argv.index("--tool") + 1], " ".join(sys.argv)
meant = {meant!r}
errors = sum(name in command and tool == of for name, of in meant.items())
print("========= COMPUTE-SANITIZER")
if errors:
    print("========= Invalid __global__ read of size 4 bytes\\n=========     at somewhere")
print(f"========= ERROR SUMMARY: {{errors}} errors")
"""

#: A `lathe` that finds every fault on the emulator.
FAKE_LATHE = """#!{python}
import json, sys
if sys.argv[1] == "run":
    print(json.dumps({{"findings": [{{"kind": "shared_race"}}]}}))
else:
    print(json.dumps({{"kernels": [{{"findings": [], "failures": []}}]}}))
"""


class ReadTest(unittest.TestCase):
    def test_silence_is_no_error(self):
        self.assertEqual(sanitizer.read_sanitizer("x\n========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"), sanitizer.Cell(0, ""))

    def test_calls_that_fail_after_the_kernel_are_no_findings(self):
        cell = sanitizer.read_sanitizer(
            "========= COMPUTE-SANITIZER\n"
            "========= Invalid __global__ read of size 4 bytes\n"
            "=========     at past_the_end+0xe0 in past_the_end.cu:4\n"
            "=========\n"
            '========= Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) due to "unspecified launch failure"\n'
            "========= Target application returned an error\n"
            "========= ERROR SUMMARY: 2 errors\n"
        )
        self.assertEqual(cell, sanitizer.Cell(1, "Invalid __global__ read of size 4 bytes"))

    def test_races_have_a_summary_of_their_own(self):
        cell = sanitizer.read_sanitizer(
            "========= COMPUTE-SANITIZER\n"
            "========= Error: Race reported between Write access at missing_barrier+0x70 in missing_barrier.cu:4\n"
            "=========     and Read access at missing_barrier+0x80 in missing_barrier.cu:5 [64 hazards]\n"
            "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"
        )
        self.assertEqual(cell, sanitizer.Cell(1, "Error: Race reported"))

    def test_a_tool_that_did_not_run_found_nothing_and_is_not_silent(self):
        cell = sanitizer.read_sanitizer("========= Error: Device not supported.\n")
        self.assertEqual(cell, sanitizer.Cell(None, "did not run: Error: Device not supported."))
        self.assertEqual(sanitizer.read_sanitizer("").errors, None)


class RunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def program(self, name, text, **values):
        path = self.folder / name
        path.write_text(text.format(python=sys.executable, **values))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    def run_tool(self, meant, *more):
        lathe = self.program("lathe", FAKE_LATHE)
        fake = self.program("compute-sanitizer", FAKE_SANITIZER, meant=meant)
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            status = sanitizer.main(["--lathe", lathe, "--sanitizer", fake, *more])
        return status, out.getvalue()

    def test_every_fault_found_and_silent_kernels_pass(self):
        meant = {name: tool for name, tool in sanitizer.FAULTS.items() if tool}
        status, text = self.run_tool(meant)
        self.assertEqual(status, 0, text)
        self.assertIn("1: Invalid __global__ read of size 4 bytes", text)

    def test_a_fault_that_is_missed_and_a_kernel_that_is_not_silent_fail_by_name(self):
        status, text = self.run_tool({"past_the_end": "memcheck", "topk_page_transform": "racecheck"}, "--json")
        result = json.loads(text)
        self.assertEqual(status, 1)
        self.assertIn("racecheck on topk_page_transform: 1: Invalid __global__ read of size 4 bytes", result["wrong"])
        self.assertIn("synccheck does not find divergent_barrier: 0", result["wrong"])
        self.assertNotIn("past_the_end", " ".join(result["wrong"]))

    def test_only_what_is_asked_for_runs_and_its_output_is_kept(self):
        status, text = self.run_tool({"missing_barrier": "racecheck"}, "--only", "missing_barrier", "--keep", str(self.folder / "kept"))
        self.assertEqual(status, 0, text)
        self.assertEqual(sorted(os.listdir(self.folder / "kept")), [f"missing_barrier.{tool}.txt" for tool in sorted(sanitizer.TOOLS)])

    def test_names_and_programs_that_are_not_there_are_refused(self):
        with self.assertRaisesRegex(SystemExit, "nothing here is called 'topk'"):
            self.run_tool({}, "--only", "topk")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(sanitizer.main(["--lathe", str(self.folder / "none")]), 2)
        self.assertIn("say where it is with `--lathe`", said.getvalue())

    def test_each_subject_is_there(self):
        for name in sanitizer.FAULTS:
            for kind in ("cu", "ptx", "toml"):
                self.assertTrue((sanitizer.FOLDER / f"{name}.{kind}").exists())


if __name__ == "__main__":
    unittest.main()
