#!/usr/bin/env python3
"""The lint checks find what they are for, and nothing in a clean tree."""
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import include_direction  # noqa: E402
import tests_in_targets  # noqa: E402
import words  # noqa: E402


class LintTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.scratch.name)

    def tearDown(self):
        self.scratch.cleanup()

    def write(self, path, text):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def test_includes_may_point_down_only(self):
        self.write("runtime/comm/a.cc", '#include "tracedb/base/result.h"\n#include "runtime/comm/a.h"\n#include <vector>\n')
        self.assertEqual(include_direction.check(self.root), [])
        self.write("tracedb/base/b.h", '#include "tracedb/store/store.h"\n')
        self.write("runtime/train/c.cc", '#include "tools/analyze/analyze.h"\n')
        wrong = include_direction.check(self.root)
        self.assertEqual(len(wrong), 2)
        self.assertIn("tracedb/base/b.h:1: tracedb/base may not use tracedb/store", wrong[0])
        self.assertIn("runtime/train/c.cc:1: runtime/train may not use tools/analyze", wrong[1])

    def test_reserved_libraries_and_unknown_folders(self):
        self.write("runtime/comm/a.cc", "#include <mutex>\n")
        self.write("probes/nvtx/b.cc", "#include <sqlite3.h>\n")
        self.write("tracedb/model/c.h", "#include <fmt/core.h>\n")
        self.write("runtime/attic/d.cc", "\n")
        self.write("runtime/sched/e.cc", "#include <thread>\n")
        self.assertEqual(len(include_direction.check(self.root)), 4)

    def test_a_test_without_a_target_is_found(self):
        for name in ("a_test.cc", "b_test.cc", "c_bench.cc", "cuda_merge_test.cc", "helper.cc"):
            self.write("tests/x/" + name, "")
        command = {"directory": str(self.root), "file": str(self.root / "tests/x/a_test.cc"), "command": ""}
        self.write("build/compile_commands.json", json.dumps([command]))
        wrong = tests_in_targets.check(self.root, self.root / "build")
        self.assertEqual([line.split(":")[0] for line in wrong], ["tests/x/b_test.cc", "tests/x/c_bench.cc"])
        self.write("build/CMakeCache.txt", "RINGSCOPE_CUDA:BOOL=ON\n")
        self.assertEqual(len(tests_in_targets.check(self.root, self.root / "build")), 3)

    def test_forbidden_words_are_found(self):
        self.write("a.cc", "// fine: ${root}/work/ and todo lists, a test named enabled_\n")
        self.assertEqual(words.check(self.root), [])
        self.write("b.cc", "// TO" + "DO later\n")
        self.write("c.md", "see /wo" + "rk/main\n")
        self.write("d.cc", "GTEST_" + "SKIP();\n")
        self.write("cuda_e_test.cc", "GTEST_" + "SKIP() << reason;\n")
        self.assertEqual(len(words.check(self.root)), 3)


if __name__ == "__main__":
    unittest.main()
