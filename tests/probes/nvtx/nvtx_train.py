#!/usr/bin/env python3
"""A training run under a foreign NVTX tool: every ring step arrives there as a range with its place.

usage: nvtx_train.py RINGSCOPE COLLECTOR
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

STEPS, RANKS, LAYERS, CP = 2, 2, 1, 2


def main():
    program, collector = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch, "seen.json")
        env = dict(os.environ, NVTX_INJECTION64_PATH=collector, NVTX_COLLECTOR_OUT=str(out))
        command = [program, "train", "--context-parallel-size", str(CP), "--num-layers", str(LAYERS),
                   "--train-iters", str(STEPS), "--global-batch-size", "1", "--quiet"]
        run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
        assert run.returncode == 0, (command, run.returncode, run.stderr[-2000:])
        seen = json.loads(out.read_text())
    # One range a ring step, in forward and in backward, on every rank.
    expected = STEPS * RANKS * LAYERS * CP * 2
    assert seen["pushes"] >= expected, (seen, expected)
    assert seen["pushes"] == seen["pops"], seen
    assert seen["payloads"] == seen["pushes"] + seen["marks"], seen
    assert seen["bytes"] > 0, seen
    print(f"{seen['pushes']} ranges, all closed, all with a place; at least {expected} ring steps expected")


if __name__ == "__main__":
    main()
