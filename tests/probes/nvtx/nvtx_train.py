#!/usr/bin/env python3
"""A training run under a foreign NVTX tool: steps, layers, ring steps, kernels and transfers arrive as ranges with places.

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
    # Host side: a range a step, a layer and a ring step, in forward and in backward, on every rank.
    names = seen["names"]
    calls = STEPS * RANKS * LAYERS
    assert names["train.step"] == STEPS * RANKS, names
    assert names["block.forward"] == names["block.backward"] == calls, names
    assert names["ring.step"] == calls * CP * 2, names
    # Stream side: kernels and the transfers of the ring, one hop fewer than steps; K/V and dK/dV travel in backward.
    assert names["attention_delta"] == calls, names
    assert names["ring.kv_recv"] == calls * (CP - 1) * 2, names
    assert names["ring.dkv_recv"] == calls * CP, names
    assert seen["pushes"] == seen["pops"] == sum(names.values()), seen
    assert seen["payloads"] == seen["pushes"] + seen["marks"], seen
    assert seen["bytes"] > 0, seen
    print(f"{seen['pushes']} ranges of {len(names)} names, all closed, all with a place")


if __name__ == "__main__":
    main()
