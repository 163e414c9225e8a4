#!/usr/bin/env python3
"""Fails on words that must not be in the tree: paths of one machine, unfinished work, tests switched off.

usage: words.py SOURCE_DIR
"""
import pathlib
import re
import subprocess
import sys

# Written in pieces, so that this file does not find itself.
WORDS = [
    (r"(?<![\w.$}])/" + r"(work|root|farm)/", "a path of one machine"),
    (r"(?<![\w.$}])/" + r"home/\w+/", "a path of one machine"),
    (r"/tmp/" + r"b-\w+", "a path of one machine"),
    (r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b", "unfinished work: finish it, or say what is missing in plain words"),
    (r"not (yet )?" + r"implemented", "unfinished work: refuse by name with the reason"),
    (r"\bDISA" + r"BLED_\w+|GTEST_" + r"SKIP", "a test that is switched off (a cuda_*_test.cc may, where no GPU is)"),
]
NEEDS_A_GPU = re.compile(r"(^|/)cuda_\w+_test\.cc$")
TEXT = {".h", ".cc", ".cu", ".cuh", ".cmake", ".txt", ".md", ".py", ".sql", ".sh", ".json", ""}


def files(root):
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, text=True)
    if listed.returncode == 0 and listed.stdout:
        return [root / name for name in listed.stdout.split("\0") if name]
    return [path for path in root.rglob("*") if path.is_file() and ".git" not in path.parts]


def check(root):
    wrong = []
    for path in sorted(files(root)):
        if path.suffix not in TEXT or not path.is_file() or path.stat().st_size > 1 << 20:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            for pattern, why in WORDS:
                match = re.search(pattern, line)
                if match and not (match.group(0).startswith("GTEST") and NEEDS_A_GPU.search(str(path))):
                    wrong.append(f"{path.relative_to(root)}:{number}: '{match.group(0)}': {why}")
    return wrong


def main():
    wrong = check(pathlib.Path(sys.argv[1]))
    print("\n".join(wrong) if wrong else "words: clean")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
