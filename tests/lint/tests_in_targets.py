#!/usr/bin/env python3
"""Fails when a *_test.cc, *_bench.cc or *_fuzz.cc is compiled by no target.

The configured build is the witness (compile_commands.json), so a listing that is never added is seen too.
usage: tests_in_targets.py SOURCE_DIR BUILD_DIR
"""
import json
import pathlib
import re
import sys

KINDS = re.compile(r"_(test|bench|fuzz)\.cc$")
# These exist only where RINGSCOPE_CUDA is ON.
CUDA_ONLY = re.compile(r"(^|/)cuda(_[a-z_]+)?_(test|bench)\.cc$|/cuda/")


def check(root, build):
    commands = json.loads((build / "compile_commands.json").read_text())
    compiled = {pathlib.Path(c["directory"], c["file"]).resolve() for c in commands}
    cache = (build / "CMakeCache.txt").read_text() if (build / "CMakeCache.txt").exists() else ""
    with_cuda = re.search(r"^RINGSCOPE_CUDA:\w+=ON$", cache, re.M) is not None
    wrong = []
    for source in sorted((root / "tests").rglob("*.cc")):
        path = source.relative_to(root).as_posix()
        if not KINDS.search(path) or (CUDA_ONLY.search(path) and not with_cuda):
            continue
        if source.resolve() not in compiled:
            wrong.append(f"{path}: in no target; list it in a CMakeLists.txt beside it")
    return wrong


def main():
    wrong = check(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
    print("\n".join(wrong) if wrong else "tests in targets: clean")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
