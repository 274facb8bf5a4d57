"""Tests of tools/performance_page.py: standard library only, no GPU."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import performance_page as tool  # noqa: E402


def row(kernel, rivals=(), **more):
    def time(edges, us):
        seen = [{"name": name, "us": us * of, "ratio": 1 / of} for name, of in rivals]
        return {"edges": edges, "us": us, "tb_per_s": 2.0, "of_read_bandwidth": 0.5, "rivals": seen}

    size = {"batch": 16, "keys": 1024, "next_n": 1, "configuration": "pages_per_cta=4 stages=2"}
    return {"kernel": kernel, **size, **more, "times": [time("plain", 5.0), time("pdl", 120.0)]}


def measured():
    device = {"sms": 132, "read_bytes_per_s": 4.4e12, "copy_bytes_per_s": 4.0e12}
    both = [row(kernel) for kernel in tool.LOGITS]
    rivals = [("hand-written wgmma", 0.5), ("Triton", 2.0)]
    step = [("sum of parts", 2.0), ("store", 0.1), ("logits", 0.5), ("topk", 0.4)]
    rows = {
        "logits": [row(kernel, rivals) for kernel in tool.LOGITS],
        "next_n": [row(kernel, next_n=n) for n in (1, 2, 4) for kernel in tool.LOGITS],
        "captured": [row(kernel, batch=batch) for batch in (1, 16, 64) for kernel in tool.LOGITS],
        "stores": [row(tool.STORES[0], [("floor", 0.8)])],
        "topk": [row("topk_page_transform", [("torch.topk", 4.0)])],
        "step": [row("bf16", step)],
    }
    rows |= {"uneven": both, "even": both, "uncaptured": rows["captured"]}
    return {name: {**device, "rows": of} for name, of in rows.items()}


class Page(unittest.TestCase):
    def setUp(self):
        self.page = "".join(f"<!-- table: {name} -->\n| old |\n<!-- end -->\nWords on it.\n" for name in tool.TABLES)

    def test_tables_are_replaced_and_words_are_kept(self):
        text = tool.page(f"One H200 (1 SMs, 0.1 TB/s read, 0.1 TB/s copied, CUDA 13.0)\n{self.page}", measured())
        self.assertNotIn("| old |", text)
        self.assertEqual(text.count("Words on it.\n"), len(tool.TABLES))
        self.assertIn("One H200 (132 SMs, 4.40 TB/s read, 4.00 TB/s copied, CUDA 13.0)", text)
        cells = "| 16, 1024 | pages 4, stages 2 | 5.00 / 120.0 | 2.50 / 60.00 | 2.000 / 2.000 | 10.00 | - | 2.00 | 50 % |"
        self.assertIn(cells, text)
        self.assertIn("| 16, 1024 | 5.00 / 120.0 | 20.00 | 0.25 | - |", text)
        self.assertIn("| (64, 16384), next_n 4 | 5.00 / 120.0 | 5.00 / 120.0 |", text)

    def test_what_is_written_again_stays_the_same(self):
        once = tool.page(self.page, measured())
        self.assertEqual(tool.page(once, measured()), once)

    def test_a_page_that_lacks_a_table_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "the table `top-k` stands there once"):
            tool.page(self.page.replace("table: top-k", "table: other"), measured())

    def test_the_page_of_the_book_has_every_table(self):
        tool.page(tool.PAGE.read_text(), measured())


if __name__ == "__main__":
    unittest.main()
