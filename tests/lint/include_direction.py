#!/usr/bin/env python3
"""Fails when an include points up, or a library is used outside the one folder it belongs to.

The table is ARCHITECTURE.md's: a folder, and the folders it may use. What those may use, it may use too.
usage: include_direction.py SOURCE_DIR
"""
import pathlib
import re
import sys

MAY_USE = {
    "tracedb/base": [],
    "tracedb/model": ["tracedb/base"],
    "tracedb/spool": ["tracedb/model"],
    "tracedb/tensorfile": ["tracedb/model"],
    "tracedb/store": ["tracedb/model"],
    "tracedb/import": ["tracedb/store", "tracedb/spool"],
    "tracedb/export": ["tracedb/store"],
    "probes/recorder": ["tracedb/spool"],
    "probes/nvtx": ["probes/recorder"],
    "probes/cupti": ["probes/recorder"],
    "probes/nccl": ["probes/recorder"],
    "runtime/sched": ["tracedb/base"],
    "runtime/layout": ["tracedb/model"],
    "runtime/oracle": ["runtime/layout"],
    "runtime/config": ["runtime/layout", "runtime/fault", "runtime/comm"],
    "runtime/fault": ["tracedb/model"],
    "runtime/device": ["runtime/sched", "probes/recorder", "probes/nvtx"],
    "runtime/comm": ["runtime/device", "runtime/layout"],
    "runtime/adversary": ["runtime/comm", "runtime/fault"],
    "runtime/kernels": ["runtime/device", "runtime/layout"],
    "runtime/attention": ["runtime/kernels", "runtime/comm"],
    "runtime/model": ["runtime/attention", "runtime/config", "runtime/oracle"],
    "runtime/train": ["runtime/model", "runtime/adversary", "runtime/oracle", "runtime/launch", "tracedb/tensorfile"],
    "runtime/launch": ["runtime/sched", "runtime/layout", "probes/recorder"],
    "tools/analyze": ["tracedb/model"],
    "tools/report": ["tracedb/model"],
    "tools/gate": ["tracedb/tensorfile", "runtime/oracle"],
    "tools/plan": ["runtime/config", "runtime/layout"],
    "tools/cli": ["tools/analyze", "tools/report", "tools/gate", "tools/plan", "runtime/train", "tracedb/import",
                  "tracedb/export", "probes/cupti", "probes/nccl"],
}

# header prefix -> the folders that may include it.
RESERVED = [
    (r"boost/program_options", ["tools/cli"], "Boost.Program_options stays inside tools/cli"),
    (r"sqlite3\.h", ["tracedb/store"], "only tracedb/store knows SQLite"),
    (r"(thread|mutex|condition_variable|shared_mutex|future)$", ["runtime/sched", "tracedb", "probes", "tools"],
     "in the runtime only sched knows threads and waiting"),
    (r"(dnnl|Eigen|hwy)", ["runtime/kernels"], "numeric libraries stay inside runtime/kernels"),
]
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')
TOP = ("tracedb", "probes", "runtime", "tools")


def folder_of(path):
    parts = path.split("/")
    name = "/".join(parts[:2])
    return name if parts[0] in TOP else None


def closure(folder, seen=None):
    seen = set() if seen is None else seen
    for below in MAY_USE.get(folder, []):
        if below not in seen:
            seen.add(below)
            closure(below, seen)
    return seen


def check(root):
    wrong = []
    for top in TOP:
        for source in sorted((root / top).rglob("*")):
            if source.suffix not in (".h", ".cc", ".cu", ".cuh"):
                continue
            path = source.relative_to(root).as_posix()
            folder = folder_of(path)
            if folder not in MAY_USE:
                wrong.append(f"{path}: folder {folder} is not in the table; give it a floor in "
                             "tests/lint/include_direction.py and ARCHITECTURE.md")
                continue
            allowed = closure(folder) | {folder}
            for number, line in enumerate(source.read_text(errors="replace").splitlines(), 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                ours, system = match.groups()
                if ours:
                    target = folder_of(ours)
                    if ours.startswith("tests/"):
                        wrong.append(f"{path}:{number}: includes a test's header {ours}")
                    elif target is not None and target not in allowed:
                        wrong.append(f"{path}:{number}: {folder} may not use {target} ({ours})")
                for pattern, homes, why in RESERVED:
                    name = system or ours
                    if re.match(pattern, name) and not any(path.startswith(home + "/") for home in homes):
                        wrong.append(f"{path}:{number}: <{name}>: {why}")
                if system and source.suffix == ".h" and re.match(r"(fmt|spdlog)/", system):
                    wrong.append(f"{path}:{number}: <{system}> in a header; keep headers cheap, use it in the .cc")
    return wrong


def main():
    wrong = check(pathlib.Path(sys.argv[1]))
    print("\n".join(wrong) if wrong else "include direction: clean")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
