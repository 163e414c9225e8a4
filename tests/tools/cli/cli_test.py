"""End-to-end tests of the command line: python3 cli_test.py PROGRAM MODELS [unittest arguments]."""

import gzip
import hashlib
import json
import math
import os
import resource
import shlex
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = MODELS = None
PATIENCE = 240  # seconds; sanitizer builds are slow

# A job that takes a moment: two layers, narrow, short.
SMALL = ["--num-layers", "2", "--hidden-size", "32", "--num-attention-heads", "4", "--seq-length", "32",
         "--global-batch-size", "2", "--train-iters", "3"]
VERBS = ["train", "eval", "diagnose", "info", "query", "faults", "playbook", "help"]


def read_safetensors(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = file.read()
    header.pop("__metadata__", None)
    return header, data


def write_safetensors(path, header, data):
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def tensor(path, name):
    header, data = read_safetensors(path)
    entry = header[name]
    begin, end = entry["data_offsets"]
    code = {"F64": "d", "F32": "f", "I64": "q"}[entry["dtype"]]
    values = struct.unpack("<%d%s" % ((end - begin) // struct.calcsize(code), code), data[begin:end])
    return entry["dtype"], entry["shape"], values


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class CliTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="ringscope-cli-test-")
        self.tmp = os.path.join(self.dir, "tmp")
        os.mkdir(self.tmp)
        self.env = dict(os.environ, TMPDIR=self.tmp)
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def call(self, *args, **options):
        return subprocess.run([PROGRAM, *args], cwd=self.dir, env=self.env, capture_output=True, text=True,
                              timeout=PATIENCE, **options)

    def run_ok(self, *args, code=0):
        done = self.call(*args)
        self.assertEqual(done.returncode, code, "%s\n%s\n%s" % (args, done.stdout, done.stderr))
        return done

    def json_of(self, *args, code=0):
        return json.loads(self.run_ok(*args, code=code).stdout)

    # One line that says what is wrong, the exit code, nothing on stdout.
    def refused(self, code, part, *args, **options):
        done = self.call(*args, **options)
        self.assertEqual(done.returncode, code, "%s\n%s\n%s" % (args, done.stdout, done.stderr))
        lines = [line for line in done.stderr.splitlines() if line.startswith("ringscope: ")]
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertIn(part, lines[0])
        self.assertEqual(done.stdout, "")

    def left_over(self):
        return sorted(name for name in os.listdir(self.dir) if name != "tmp") + os.listdir(self.tmp)

    # A long run in the background, once it has recorded some steps.
    def long_run(self, *flags):
        process = subprocess.Popen([PROGRAM, "train", *SMALL[:-1], "1000000", "--cp", "2", *flags], cwd=self.dir,
                                   env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (process.poll() is None and process.kill(), process.communicate()))
        seen = 0
        while seen < 3:
            line = process.stderr.readline()
            self.assertNotEqual(line, "", "the run ended by itself")
            seen += line.startswith("step")
        return process


class Words(CliTest):
    def test_version_and_overview(self):
        self.assertRegex(self.run_ok("--version").stdout, r"^ringscope \d+\.\d+\.\d+\n$")
        for args in (["help"], ["--help"]):
            text = self.run_ok(*args).stdout
            for verb in VERBS:
                self.assertRegex(text, r"(?m)^  %s " % verb)
        self.assertIn("Verbs:", self.run_ok(code=2).stderr)

    def test_every_verb_has_help_with_examples(self):
        listed = [verb["name"] for verb in self.json_of("help", "--json")["verbs"]]
        self.assertEqual(listed, VERBS)
        for verb in VERBS:
            text = self.run_ok(verb, "--help").stdout
            self.assertIn("Examples:\n  ringscope " + verb, text)
            self.assertIn("--json", text)
            self.assertEqual(text, self.run_ok("help", verb).stdout)

    def test_unknown_words_name_the_nearest(self):
        self.refused(2, "unknown verb 'diagnoes'; did you mean 'diagnose'?", "diagnoes")
        self.refused(2, "unknown flag --seq-lenght; did you mean --seq-length?", "train", "--seq-lenght", "64")
        self.refused(2, "unknown flag --trac", "train", "--trac", "x.db")  # no guessing of prefixes
        self.refused(2, "is nothing that faults does", "faults", "x")
        self.refused(2, "needs a value", "train", "--trace")
        self.refused(2, "given twice", "train", "--tp", "2", "--tensor-model-parallel-size", "2")
        self.refused(2, "is a switch", "train", "--quiet=yes")
        self.refused(2, "name a trace", "diagnose")
        self.refused(2, "did you mean 'hang.ring_break'", "playbook", "hang.ring_brake")
        self.write("some.db", "x")
        self.refused(2, "did you mean 'ringscope diagnose some.db'?", "some.db")

    def test_faults(self):
        listed = self.json_of("faults", "--json")
        self.assertEqual(listed["schema"], "ringscope.faults/1")
        self.assertEqual(len(listed["faults"]), 15)
        for fault in listed["faults"]:
            self.assertEqual(set(fault), {"name", "what", "finding", "implied", "outcome", "ranks", "keys", "layout", "imitates"})
            self.assertIn(fault["outcome"], ["hang", "corrupt", "slow", "none"])
            self.assertIn(fault["name"], self.run_ok("faults").stdout)
        early = next(f for f in listed["faults"] if f["name"] == "ring-early-exit")
        self.assertEqual(early["finding"], "hang.ring_break")
        self.assertEqual(early["implied"], ["ring.step_count"])

    def test_every_finding_of_a_fault_has_its_page(self):
        for fault in self.json_of("faults", "--json")["faults"]:
            if fault["finding"]:
                page = self.run_ok("playbook", fault["finding"]).stdout
                self.assertIn(fault["finding"], page)
                self.assertEqual(self.json_of("playbook", fault["finding"], "--json")["text"], page)
        self.assertIn("hang.ring_break", self.run_ok("playbook").stdout)


class Train(CliTest):
    def test_records_and_every_reader_reads(self):
        result = self.json_of("train", *SMALL, "--cp", "2", "--trace", "a.db", "--json")
        self.assertEqual(result["schema"], "ringscope.train/1")
        self.assertEqual(result["outcome"], "completed")
        self.assertIsNone(result["report"])
        self.assertEqual([s["step"] for s in result["steps"]], [0, 1, 2])
        for step in result["steps"]:
            self.assertEqual(set(step), {"step", "loss", "grad_norm", "lr", "tokens_per_s", "peak_bytes"})
            self.assertTrue(0 < step["loss"] < 10)
        self.assertEqual(self.left_over(), ["a.db"])

        before = digest(self.path("a.db"))
        self.assertIn("clean", self.run_ok("diagnose", "a.db").stdout)
        report = self.json_of("diagnose", "--json", "a.db")
        self.assertEqual((report["schema"], report["verdict"], report["findings"]), ("ringscope.report/1", "clean", []))
        self.assertEqual(report["sources"][0]["path"], "a.db")

        info = self.json_of("info", "a.db", "--json")
        self.assertEqual((info["schema"], info["outcome"], info["ranks"]), ("ringscope.info/1", "completed", 2))
        self.assertEqual((info["layout"]["cp"], info["training"]["steps"]), (2, 3))
        self.assertEqual(info["config"]["context_parallel_size"], 2)
        self.assertAlmostEqual(info["training"]["first_loss"], result["steps"][0]["loss"])
        self.assertIn("completed", self.run_ok("info", "a.db").stdout)

        rows = self.json_of("query", "a.db", "SELECT step, loss FROM train_step WHERE rank = 0 ORDER BY step", "--json")
        self.assertEqual(rows["columns"], ["step", "loss"])
        self.assertEqual([row[1] for row in rows["rows"]], [s["loss"] for s in result["steps"]])
        self.assertEqual(len(self.run_ok("query", "a.db", "SELECT step, loss FROM train_step WHERE rank = 0").stdout.splitlines()), 4)
        self.assertEqual(self.json_of("query", "a.db", "SELECT NULL, 1.5, 'x'", "--json")["rows"], [[None, 1.5, "x"]])
        self.refused(2, "may only read", "query", "a.db", "DELETE FROM op")
        self.refused(2, "SQL: ", "query", "a.db", "SELECT nope FROM op")
        self.refused(2, "name a trace and a statement", "query", "a.db")
        self.assertEqual(digest(self.path("a.db")), before, "a reader wrote to the trace")

    def test_progress_goes_to_stderr_and_quiet_silences_it(self):
        done = self.run_ok("train", *SMALL, "--tp", "1")
        self.assertEqual(len([line for line in done.stderr.splitlines() if line.startswith("step ")]), 3)
        self.assertIn("tokens/s", done.stderr)
        self.assertTrue(done.stdout.startswith("completed after 3 steps, loss "), done.stdout)
        self.assertEqual(self.run_ok("train", *SMALL, "--tp", "1", "--quiet").stderr, "")
        self.assertEqual(self.left_over(), [])

    def test_turns_repeat_and_layouts_agree(self):
        losses = [[s["loss"] for s in self.json_of("train", *SMALL, "--dtype", "fp64", "--json", *flags)["steps"]]
                  for flags in (["--tp", "1"], ["--cp", "2", "--turns", "5"], ["--cp", "2", "--turns", "5"], ["--tp", "2", "--sp"])]
        self.assertEqual(losses[1], losses[2])
        for other in (losses[1], losses[3]):
            for a, b in zip(losses[0], other):
                self.assertTrue(math.isclose(a, b, rel_tol=1e-9), (a, b))

    def test_config_file_and_flags_add_up(self):
        self.write("job.json", json.dumps({"tensor_model_parallel_size": 2, "num_layers": 1, "hidden_size": 32, "seq_length": 16,
                                           "num_attention_heads": 4, "global_batch_size": 2, "train_iters": 2}))
        self.run_ok("train", "job.json", "--cp", "2", "--trace", "a.db", "--quiet")
        config = self.json_of("info", "a.db", "--json")["config"]
        self.assertEqual((config["tensor_model_parallel_size"], config["context_parallel_size"], config["data_parallel_size"]), (2, 2, 1))

    def test_an_existing_trace_is_not_replaced(self):
        run = ["train", *SMALL, "--tp", "1", "--quiet", "--trace", "a.db"]
        self.run_ok(*run)
        first = digest(self.path("a.db"))
        self.refused(3, "a.db exists already", *run)
        self.assertEqual(digest(self.path("a.db")), first)
        self.run_ok(*run, "--force")
        self.assertNotEqual(digest(self.path("a.db")), first)
        self.write("notes.txt", "mine")
        self.refused(3, "is no ringscope trace", "train", *SMALL, "--tp", "1", "--quiet", "--trace", "notes.txt", "--force")
        os.mkdir(self.path("b.db.spool"))
        self.refused(3, "b.db.spool exists already", "train", *SMALL, "--tp", "1", "--quiet", "--trace", "b.db")
        with open(self.path("notes.txt")) as file:
            self.assertEqual(file.read(), "mine")
        self.refused(2, "goes with --trace", "train", "--force")

    def test_keep_spool_stays_and_is_not_recovered_again(self):
        self.run_ok("train", *SMALL, "--cp", "2", "--quiet", "--trace", "a.db", "--keep-spool")
        self.assertEqual(self.left_over(), ["a.db", "a.db.spool"])
        before = digest(self.path("a.db"))
        self.assertNotIn("recovered", self.run_ok("diagnose", "a.db").stderr)
        self.assertEqual(digest(self.path("a.db")), before)
        self.run_ok("diagnose", "a.db.spool")
        self.assertEqual(self.json_of("info", "a.db.spool", "--json")["training"]["steps"], 3)

    def test_a_dump_of_attention(self):
        self.run_ok("train", *SMALL, "--cp", "2", "--quiet", "--trace", "a.db", "--dump-attention", "1,2")
        self.assertEqual(sorted(os.listdir(self.path("a.db.attention"))),
                         ["layout.json", "rank_000.safetensors", "rank_001.safetensors"])
        with open(self.path("a.db.attention/layout.json")) as file:
            layout = json.load(file)
        self.assertEqual((layout["format"], layout["parallel"]["cp"], layout["heads"]["q"]), ("ringscope-dump", 2, 4))
        self.assertEqual(read_safetensors(self.path("a.db.attention/rank_001.safetensors"))[0]["q"]["shape"], [1, 16, 4, 8])
        again = ["train", *SMALL, "--cp", "2", "--quiet", "--trace", "b.db", "--dump-attention"]
        os.rename(self.path("a.db.attention"), self.path("b.db.attention"))
        self.refused(3, "exists already", *again, "0,0")
        self.run_ok(*again, "0,0", "--force")
        self.refused(2, "layer 2", *again[:-2], "c.db", "--dump-attention", "2,0")
        self.refused(2, "step 3", *again[:-2], "c.db", "--dump-attention", "0,3")
        self.refused(2, "LAYER,STEP", *again[:-2], "c.db", "--dump-attention", "0")
        self.refused(2, "--trace DB", "train", *SMALL, "--cp", "2", "--quiet", "--dump-attention", "0,0")

    def test_statistics_in_a_trace(self):
        self.run_ok("train", *SMALL, "--cp", "2", "--dp", "2", "--quiet", "--trace", "a.db")
        statistics = self.json_of("info", "a.db", "--json")["statistics"]
        self.assertEqual(statistics["softmax_stats"], 4 * 3 * 2)  # ranks x steps x layers
        self.assertGreater(statistics["tensor_stats"], 4 * 3 * 2 * 10)
        self.assertEqual((statistics["bad_elements"], statistics["bad_softmax_rows"], statistics["replica_mismatches"]), (0, 0, 0))
        self.assertIn("replicas agree bit by bit", self.run_ok("info", "a.db").stdout)

    def test_one_trace_has_one_writer_and_ctrl_c_completes_it(self):
        process = self.long_run("--trace", "a.db")
        self.refused(3, "being written by another run", "train", *SMALL, "--tp", "1", "--quiet", "--trace", "a.db")
        self.refused(3, "being written by another run", "train", *SMALL, "--tp", "1", "--quiet", "--trace", "a.db", "--force")
        self.assertIn("being written by a run", self.run_ok("info", "a.db").stderr)
        self.assertFalse(os.path.exists(self.path("a.db")), "a reader of a running job must not make its database")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 130)
        self.assertTrue(out.startswith("interrupted after "), out)
        self.assertEqual(self.left_over(), ["a.db"])
        self.assertEqual(self.json_of("info", "a.db", "--json")["outcome"], "interrupted")
        report = self.json_of("diagnose", "a.db", "--json", code=4)
        self.assertEqual((report["verdict"], report["findings"]), ("incomplete", []))
        self.assertIn("interrupted after step", report["missing_evidence"][0])

    def test_a_truncated_database_is_no_verdict(self):
        self.run_ok("train", *SMALL, "--cp", "2", "--quiet", "--trace", "a.db")
        with open(self.path("a.db"), "rb") as file:
            whole = file.read()
        for missing in (1, 4072, 20480, 40000, len(whole) // 2):
            with open(self.path("cut.db"), "wb") as file:
                file.write(whole[:-missing])
            self.refused(3, "truncated", "diagnose", "cut.db")
            self.refused(3, "truncated", "info", "cut.db")
        with open(self.path("cut.db"), "wb") as file:
            file.write(whole[:40000] + bytes(len(whole) - 40000))
        self.assertEqual(self.call("diagnose", "cut.db").returncode, 3)

    def test_a_query_writes_nothing(self):
        self.run_ok("train", *SMALL, "--tp", "1", "--quiet", "--trace", "a.db")
        self.refused(2, "may only read", "query", "a.db", "VACUUM INTO '%s'" % self.path("copy.db"))
        self.assertEqual(self.left_over(), ["a.db"])

    def test_a_recording_of_which_nothing_is_left(self):
        process = self.long_run("--trace", "a.db")
        process.kill()
        process.wait()
        spool = self.path("a.db.spool")
        self.refused(3, "diagnose a.db recovers it", "train", *SMALL, "--tp", "1", "--quiet", "--trace", "a.db")
        for name in os.listdir(spool):
            if name.endswith(".ring"):
                os.truncate(os.path.join(spool, name), 100)
        self.refused(3, "not one record", "diagnose", "a.db.spool")

    def test_a_killed_run_is_recovered(self):
        process = self.long_run("--trace", "a.db")
        process.kill()
        process.wait()
        self.assertEqual(self.left_over(), ["a.db.spool"])
        report = self.call("diagnose", "a.db", "--json")
        self.assertEqual(report.returncode, 4, report.stdout + report.stderr)
        self.assertEqual((json.loads(report.stdout)["verdict"], json.loads(report.stdout)["findings"]), ("incomplete", []))
        self.assertIn("recovered", report.stderr)
        self.assertIn("killed or still runs after step", json.loads(report.stdout)["missing_evidence"][0])
        before = digest(self.path("a.db"))
        self.assertEqual(self.call("diagnose", "a.db", "--json").stdout, report.stdout)
        self.assertEqual(digest(self.path("a.db")), before)
        self.assertIsNone(self.json_of("info", "a.db", "--json")["outcome"])


class Faults(CliTest):
    def roots(self, report):
        return [(f["id"], f["ranks"]) for f in report["findings"] if f["root"]]

    def test_a_stalled_run_names_its_cause_and_exits_1(self):
        begin = time.monotonic()
        done = self.run_ok("train", *SMALL, "--fault", "ring-early-exit:rank=2,step=1", "--trace", "a.db", code=1)
        self.assertIn("hang.ring_break", done.stdout)
        self.assertIn("stalled after 1 step", done.stdout)
        self.assertIn("planted on purpose: ring-early-exit", done.stderr)
        self.assertLess(time.monotonic() - begin, 60)
        report = self.json_of("diagnose", "a.db", "--json", code=1)
        self.assertEqual(self.roots(report), [("hang.ring_break", [2])])
        self.assertEqual(report["findings"][0]["where"]["step"], 1)
        self.assertIn("hang.ring_break", self.run_ok("info", "a.db").stdout)

    def test_a_stall_is_diagnosed_without_a_trace_too(self):
        result = self.json_of("train", *SMALL, "--fault", "rank-exit", "--json", code=1)
        self.assertEqual(result["outcome"], "stalled")
        self.assertEqual(self.roots(result["report"]), [("hang.dead_rank", [1])])
        self.assertEqual(self.left_over(), [])

    def test_a_completed_run_exits_by_its_verdict_only_when_asked(self):
        flags = ["train", *SMALL, "--fault", "no-global-max", "--quiet", "--json"]
        self.assertIsNone(self.json_of(*flags)["report"])
        asked = self.json_of(*flags, "--diagnose", code=1)
        self.assertEqual(asked["outcome"], "completed")
        self.assertEqual(self.roots(asked["report"]), [("softmax.no_global_max", [0, 1])])
        self.assertEqual(self.left_over(), [])

    def test_the_clean_twin_is_clean(self):
        self.assertIn("clean", self.run_ok("train", *SMALL, "--fault", "cross-group-order-one", "--diagnose").stdout)


class Campaign(CliTest):
    FLAGS = ["--seed", "5", "--dp", "2", "--train-iters", "1", "--arch", "llama"]

    # A campaign exits 1 where a verdict is wrong; its form is the same.
    def campaign(self, *args):
        done = self.call("faults", "campaign", *self.FLAGS, *args)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return done.stdout

    def test_rows_have_the_command_that_repeats_them(self):
        out = json.loads(self.campaign("--count", "3", "--json"))
        self.assertEqual(out["schema"], "ringscope.campaign/1")
        self.assertEqual(out["summary"]["errors"], [])
        self.assertEqual(len(out["runs"]), out["summary"]["mutants"])
        for row in out["runs"]:
            self.assertIn(row["effect"], ("hang", "exit", "corrupt", "order", "harmless"))
            self.assertIn(row["verdict"],
                          ("right", "partly", "careful", "missed", "wrong", "false_alarm", "silent"))
            self.assertLessEqual({"ids", "ranks", "visible"}, set(row["expected"]))
            self.assertIn("--dp 2", row["flags"])
            self.assertIn("--mutate '%s'" % row["mutation"], row["command"])
        again = json.loads(self.campaign("--count", "3", "--json"))
        self.assertEqual([row["command"] for row in again["runs"]], [row["command"] for row in out["runs"]])
        done = self.call(*shlex.split(out["runs"][0]["command"])[1:])
        self.assertIn(done.returncode, (0, 1, 4), done.stderr)

    def test_text_and_table(self):
        text = self.campaign("--count", "2")
        self.assertIn("hangs that can be decided", text)
        self.assertIn("ringscope train --tp 1 --cp 1 --dp 2", text)
        self.assertIn("softmax.sum_for_max", self.run_ok("faults", "campaign", "--table").stdout)

    def test_wrong_flags(self):
        for args, hint in [(["campain"], "did you mean 'campaign'"), (["--count", "3"], "faults campaign --count 3"),
                           (["campaign", "--count", "0"], "--count"), (["campaign", "--count", "x"], "--count"),
                           (["campaign", "--seed", "-1"], "--seed"), (["campaign", "--sede", "1"], "--seed"),
                           (["campaign", "--tp", "3"], "no job fits")]:
            self.refused(2, hint, "faults", *args)

    def test_ctrl_c_prints_what_there_is(self):
        process = subprocess.Popen([PROGRAM, "faults", "campaign", "--count", "100000", "--json", *self.FLAGS],
                                   cwd=self.dir, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (process.poll() is None and process.kill(), process.communicate()))
        self.assertIn("mutants", process.stderr.readline())
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 130)
        document = json.loads(out)
        self.assertTrue(document["summary"]["interrupted"])
        self.assertGreater(len(document["runs"]), 0)
        self.assertEqual(self.left_over(), [])


class BadInput(CliTest):
    def test_config(self):
        refuse = lambda code, part, text: self.refused(code, part, "train", self.write("job.json", text), "--trace", "a.db")
        refuse(2, "unknown key 'seq_lenght'; did you mean 'seq_length'?", '{"seq_lenght": 64}')
        refuse(2, "num_attention_heads 6 cannot be split over tensor_model_parallel_size 4: use 4 or 8 heads, or --tp 2",
               '{"num_attention_heads": 6, "num_query_groups": 2, "hidden_size": 96, "tensor_model_parallel_size": 4}')
        refuse(2, "hidden_size 66 cannot be split over num_attention_heads 4: use 64 or 68", '{"hidden_size": 66, "num_attention_heads": 4}')
        refuse(2, "global_batch_size 6 is no multiple of micro_batch_size 1 x data_parallel_size 4: use 4 or 8",
               '{"global_batch_size": 6, "data_parallel_size": 4}')
        refuse(2, "bf16 is not in this version", '{"dtype": "bf16"}')
        refuse(2, "pipeline_model_parallel_size 2 is not in this version", '{"pipeline_model_parallel_size": 2}')
        refuse(3, "job.json:1: not valid JSON", '{"seq_length": }')
        refuse(3, "the file is empty", "")
        self.refused(3, "no such file", "train", "nowhere.json")
        self.refused(3, "is a folder", "train", self.tmp)
        self.assertEqual(self.left_over(), ["job.json"])

    def test_data(self):
        refuse = lambda part, path: self.refused(3, part, "train", *SMALL, "--tp", "1", "--quiet", "--data", path, "--trace", "a.db")
        refuse("nowhere.txt", "nowhere.txt")
        refuse("empty", self.write("empty.txt", ""))
        refuse("short.txt", self.write("short.txt", "too short"))
        refuse(os.path.basename(self.tmp), self.tmp)
        self.assertEqual(self.left_over(), ["empty.txt", "short.txt"])

    def test_faults(self):
        self.refused(2, "did you mean 'ring-early-exit'", "train", "--fault", "ring-early-exti")
        self.refused(2, "has no key 'rnk'", "train", "--fault", "rank-exit:rnk=1")
        self.refused(2, "fault ring-buffer-reuse needs --cp 4 or more", "train", "--cp", "2", "--fault", "ring-buffer-reuse")
        self.refused(2, "the job has 4 ranks", "train", "--fault", "ring-early-exit:rank=9")

    def test_traces(self):
        self.run_ok("train", *SMALL, "--tp", "1", "--quiet", "--trace", "a.db")
        refuse = lambda part, path: (self.refused(3, part, "diagnose", path), self.refused(3, part, "info", path))
        refuse("no such file", "nowhere.db")
        refuse("empty", self.write("empty.db", ""))
        refuse("not recognised", self.write("notes.txt", "a text " * 100))
        shutil.copy(self.path("a.db"), self.path("new.db"))
        database = sqlite3.connect(self.path("new.db"))
        database.execute("PRAGMA user_version = 99")
        database.commit()
        database.close()
        refuse("schema version 99 is newer", "new.db")
        with open(self.path("a.db"), "rb") as file:
            whole = file.read()
        with open(self.path("cut.db"), "wb") as file:
            file.write(whole[: len(whole) // 2])
        refuse("cut.db", "cut.db")
        foreign = sqlite3.connect(self.path("foreign.db"))
        foreign.execute("CREATE TABLE t(x)")
        foreign.commit()
        foreign.close()
        refuse("foreign.db", "foreign.db")
        broken = self.call("diagnose", "--json", "cut.db")
        self.assertEqual(broken.returncode, 3)
        self.assertEqual(json.loads(broken.stdout)["verdict"], "unreadable")

    def test_no_place_to_write(self):
        self.refused(3, "make the folder first", "train", *SMALL, "--tp", "1", "--quiet", "--trace", "no/such/folder/a.db")
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))  # as a full disk would
        done = self.call("train", *SMALL, "--tp", "1", "--quiet", "--trace", "a.db", preexec_fn=limit)
        self.assertEqual(done.returncode, 3, done.stderr)
        warning, error = done.stderr.splitlines()
        self.assertRegex(warning, r"^warning: \d+ of \d+ records were lost: cannot create a ring")
        self.assertTrue(error.startswith("ringscope: "), error)
        self.assertNotIn("a.db", os.listdir(self.dir))
        self.assertNotIn("a.db.tmp", os.listdir(self.dir))


# What is not there is missing, never clean: the verdict is `incomplete`, exit 4, and its first line says what.
class Missing(CliTest):
    def recorded(self, *flags):
        self.run_ok("train", *SMALL, "--cp", "2", "--quiet", "--trace", "a.db", "--keep-spool", *flags)

    def incomplete(self, part, *paths):
        text = self.run_ok("diagnose", *paths, code=4).stdout
        first = text.splitlines()[0]
        self.assertTrue(first.startswith("incomplete: nothing found, but this is missing: "), text)
        self.assertIn(part, text)
        report = self.json_of("diagnose", "--json", *paths, code=4)
        self.assertEqual((report["verdict"], report["findings"]), ("incomplete", []))
        self.assertTrue(any(part in missing for missing in report["missing_evidence"]), report["missing_evidence"])
        self.assertIn(report["missing_evidence"][0], first)
        return report

    def rings(self, where):
        query = "SELECT printf('ring-%%06d.', ring) FROM thread WHERE %s" % where
        return [row[0] for row in self.json_of("query", "a.db", query, "--json")["rows"]]

    def without(self, prefixes):
        shutil.rmtree(self.path("less"), ignore_errors=True)
        shutil.copytree(self.path("a.db.spool"), self.path("less"))
        for name in os.listdir(self.path("less")):
            if name.startswith(tuple(prefixes)):
                os.remove(os.path.join(self.path("less"), name))
        return "less"

    def test_rings_that_are_gone(self):
        self.recorded()
        self.assertIn("clean", self.run_ok("diagnose", "a.db.spool").stdout)
        rings = self.rings("1")
        for ring in rings:
            self.incomplete("less/" + ring, self.without([ring]))
        self.incomplete("rank 1 on stream compute", self.without(self.rings("name = 'rank1.compute'")))
        self.incomplete("the end of the run", self.without(self.rings("rank = -1")))
        self.incomplete("the trace of rank 1", self.without(self.rings("rank = 1")))
        self.incomplete("names", self.without(["process-"]))
        self.refused(3, "not one record could be read back", "diagnose", self.without(["ring-"]))
        last = sorted(rings)[-1]  # its absence leaves no gap in the numbers
        self.incomplete("less/" + last, self.without([last]))

    def test_damaged_rings(self):
        self.recorded()
        ring = self.rings("name = 'rank0.cp'")[0] + "ring"
        self.without([])
        os.truncate(self.path("less/" + ring), 5000)
        self.incomplete(ring, "less")

    def test_no_operations(self):
        self.recorded()
        database = sqlite3.connect(self.path("a.db"))
        for table in ("op", "coll", "p2p", "access", "sync"):
            database.execute("DELETE FROM " + table)
        database.commit()
        database.close()
        self.incomplete("any operation", "a.db")

    def test_files_that_are_no_traces(self):
        self.run_ok("train", *SMALL, "--cp", "2", "--quiet", "--trace", "a.db", "--dump-attention", "0,0")
        os.makedirs(self.path("runs/deep/er"))
        shutil.copy(self.path("a.db"), self.path("runs/deep"))
        shutil.copytree(self.path("a.db.attention"), self.path("runs/a.db.attention"))
        with open(self.path("runs/verdict.json"), "w") as file:
            file.write(self.run_ok("diagnose", "--json", "a.db").stdout)
        self.assertIn("clean", self.run_ok("diagnose", "runs").stdout)  # what ringscope left there is known
        self.write("runs/deep/er/notes.txt", "mine")
        self.write("runs/empty", "")
        os.mkfifo(self.path("runs/pipe"))
        report = self.incomplete("runs/deep/er/notes.txt, runs/empty, runs/pipe", "runs")
        self.assertIn(("input.unrecognised", "error", 3), [(s["name"], s["severity"], s["count"]) for s in report["import_stats"]])
        with open(self.path("a.db"), "rb") as file, open(self.path("cut.db"), "wb") as cut:
            cut.write(file.read(50000))
        self.incomplete("cut.db: the file is truncated", "a.db", "cut.db")

    def test_findings_stay_findings(self):
        self.run_ok("train", *SMALL, "--fault", "rank-exit", "--quiet", "--trace", "a.db", code=1)
        self.write("notes.txt", "mine")
        report = self.json_of("diagnose", "--json", "a.db", "notes.txt", code=1)
        self.assertEqual((report["verdict"], report["findings"][0]["id"]), ("findings", "hang.dead_rank"))
        self.assertTrue(any("notes.txt" in missing for missing in report["missing_evidence"]))

    def test_nothing_that_could_be_read(self):
        os.mkdir(self.path("empty"))
        self.refused(3, "the folder is empty", "diagnose", "empty")
        self.write("empty/notes.txt", "mine")
        self.refused(3, "empty/notes.txt", "diagnose", "empty")
        self.refused(3, "nowhere: no such file", "diagnose", "nowhere", "empty")
        self.refused(2, "stdin is not in this version", "diagnose", "-")
        self.refused(2, "a path is empty", "diagnose", "")
        with gzip.open(self.path("a.db.gz"), "wb") as file:
            file.write(b"x")
        self.refused(3, "an archive, unpack it first", "diagnose", "a.db.gz")
        os.mkfifo(self.path("pipe"))
        self.refused(3, "pipe", "diagnose", "pipe")
        report = self.json_of("diagnose", "--json", "empty", code=3)
        self.assertEqual((report["schema"], report["verdict"]), ("ringscope.report/1", "unreadable"))

    # The same recording gives the same verdict, whoever asks.
    def test_train_and_diagnose_agree_on_a_recording_that_lost_everything(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))  # as a full disk would
        done = self.call("train", *SMALL, "--cp", "2", "--quiet", "--diagnose", "--json", preexec_fn=limit)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertEqual(json.loads(done.stdout)["report"]["verdict"], "unreadable")
        self.assertRegex(done.stderr, r"warning: \d+ of \d+ records were lost")
        done = self.call("train", *SMALL, "--cp", "2", "--quiet", "--diagnose", preexec_fn=limit)
        self.assertIn("unreadable: not one record", done.stdout)

    def test_a_ring_that_goes_while_the_run_records(self):
        process = self.long_run("--trace", "a.db")
        os.remove(self.path("a.db.spool/ring-000002.ring"))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
        self.assertRegex(err, r"warning: 1 ring files? .* not in the folder any more")
        self.incomplete("ring-000002.ring", "a.db")

    def test_a_read_only_trace(self):
        self.recorded()
        for name in ("a.db", "a.db.spool"):
            os.chmod(self.path(name), 0o555 if name.endswith("spool") else 0o444)
        os.chmod(self.dir, 0o555)
        try:
            self.assertIn("clean", self.run_ok("diagnose", "a.db").stdout)
            self.assertIn("clean", self.run_ok("diagnose", "a.db.spool").stdout)
        finally:
            for name in (self.dir, self.path("a.db"), self.path("a.db.spool")):
                os.chmod(name, 0o755)

    def test_a_loss_that_is_no_number_is_shown_and_said(self):
        done = self.run_ok("train", *SMALL, "--cp", "2", "--lr-warmup-iters", "0", "--clip-grad", "0", "--lr", "1e20",
                           "--min-lr", "1e20", "--trace", "a.db")
        self.assertIn("loss nan", done.stderr)
        self.assertNotIn("-nan", done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"warning: the loss is no finite number since step \d")


class Several(CliTest):
    def test_two_runs_give_two_reports(self):
        self.run_ok("train", *SMALL, "--cp", "2", "--quiet", "--trace", "a.db")
        self.run_ok("train", *SMALL, "--fault", "rank-exit", "--quiet", "--trace", "b.db", code=1)
        os.mkdir(self.path("runs"))
        for name in ("a.db", "b.db"):
            shutil.copy(self.path(name), self.path("runs"))
        for paths, prefix in ((["b.db", "a.db"], ""), (["runs"], "runs/")):
            text = self.run_ok("diagnose", *paths, code=1).stdout
            self.assertTrue(text.startswith("== %sa.db\nclean: nothing found\n\n== %sb.db\n1 finding\n" % (prefix, prefix)), text)
            document = self.json_of("diagnose", "--json", *paths, code=1)
            self.assertEqual((document["schema"], document["verdict"]), ("ringscope.report/1", "findings"))
            self.assertEqual([r["verdict"] for r in document["reports"]], ["clean", "findings"])
            self.assertEqual([r["sources"][0]["path"] for r in document["reports"]], [prefix + "a.db", prefix + "b.db"])
        self.refused(2, "holds 2 jobs", "info", "runs")
        self.refused(2, "holds 2 jobs", "query", "runs", "SELECT 1")

    def test_the_worst_verdict_decides(self):
        self.run_ok("train", *SMALL, "--cp", "2", "--quiet", "--trace", "a.db")
        self.run_ok("train", *SMALL, "--cp", "2", "--quiet", "--trace", "b.db")
        self.assertEqual(self.json_of("diagnose", "--json", "a.db", "b.db")["verdict"], "clean")
        self.write("notes.txt", "mine")
        self.assertEqual(self.json_of("diagnose", "--json", "a.db", "b.db", "notes.txt", code=4)["verdict"], "incomplete")

    def test_one_run_named_twice_is_read_once(self):
        self.run_ok("train", *SMALL, "--cp", "2", "--quiet", "--trace", "a.db", "--keep-spool")
        os.symlink("a.db", self.path("link.db"))
        shutil.copy(self.path("a.db"), self.path("copy.db"))
        for paths in (["a.db", "a.db"], ["a.db", "./a.db", "link.db"], ["a.db", "a.db.spool"], ["a.db.spool", "a.db"], ["copy.db", "a.db"]):
            report = self.json_of("diagnose", "--json", *paths)
            self.assertEqual((report["verdict"], len(report["sources"])), ("clean", 1), paths)

    # Each host brings the trace of its own ranks: the verdict is that of the whole, and a row names its file.
    def test_parts_of_one_job_are_one_report(self):
        self.run_ok("train", *SMALL, "--fault", "rank-exit", "--quiet", "--trace", "a.db", code=1)
        whole = self.json_of("diagnose", "--json", "a.db", code=1)["findings"][0]
        os.mkdir(self.path("hosts"))
        for rank in (0, 1):
            shutil.copy(self.path("a.db"), self.path("hosts/rank%d.db" % rank))
            database = sqlite3.connect(self.path("hosts/rank%d.db" % rank))
            for (table,) in database.execute("SELECT m.name FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table' "
                                             "AND c.name = 'rank' AND m.name NOT IN ('source', 'comm_rank', 'lost', 'thread')").fetchall():
                database.execute("DELETE FROM %s WHERE rank <> %d" % (table, rank))
            database.commit()
            database.close()
        report = self.json_of("diagnose", "--json", "hosts", code=1)
        self.assertEqual([s["path"] for s in report["sources"]], ["hosts/rank0.db", "hosts/rank1.db"])
        for field in ("id", "ranks", "sentence"):
            self.assertEqual(report["findings"][0][field], whole[field])
        self.assertEqual({e["source"] for e in report["findings"][0]["evidence"]}, {0, 1})
        text = self.run_ok("diagnose", "hosts", code=1).stdout
        for evidence in report["findings"][0]["evidence"]:
            self.assertIn("[rank%d.db %s id %d]" % (evidence["source"], evidence["table"], evidence["row"]), text)
            path = report["sources"][evidence["source"]]["path"]
            self.assertEqual(len(self.json_of("query", path, "SELECT 1 FROM %s WHERE id = %d" % (evidence["table"], evidence["row"]), "--json")["rows"]), 1)
        self.assertEqual(self.json_of("info", "hosts", "--json")["ranks"], 2)
        self.assertEqual(self.json_of("query", "hosts", "SELECT count(DISTINCT rank) FROM op", "--json")["rows"], [[2]])
        os.remove(self.path("hosts/rank1.db"))
        report = json.loads(self.call("diagnose", "--json", "hosts").stdout)
        self.assertIn("the trace of rank 1", report["missing_evidence"])

    # The spool of a killed run is worth more than the database that an earlier look at it left.
    def test_the_form_that_holds_more_is_read(self):
        process = self.long_run("--trace", "a.db")
        process.kill()
        process.wait()
        self.run_ok("diagnose", "a.db", code=4)
        os.rename(self.path("a.db"), self.path("b.db"))
        database = sqlite3.connect(self.path("b.db"))
        database.execute("UPDATE source SET rows = rows - 1")
        database.commit()
        database.close()
        report = self.json_of("diagnose", "--json", "b.db", "a.db.spool", code=4)
        self.assertEqual([s["path"] for s in report["sources"]], ["a.db.spool"])


class Query(CliTest):
    MANY = ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "
            "SELECT i, i * 0.5 AS half, 'a row of text' AS text FROM n")

    def setUp(self):
        super().setUp()
        self.run_ok("train", *SMALL, "--tp", "1", "--quiet", "--trace", "a.db")

    def start(self, rows, *flags, **options):
        # AddressSanitizer holds freed memory back: no measure of what the program keeps.
        sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1:thread_local_quarantine_size_kb=64"
        return subprocess.Popen([PROGRAM, "query", "a.db", self.MANY % rows, *flags], cwd=self.dir,
                                env=dict(self.env, ASAN_OPTIONS=sanitizer),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    # Bytes of output and the most memory that they took (kB).
    def peak(self, rows, *flags):
        process = self.start(rows, *flags)
        size = 0
        while block := process.stdout.read(1 << 20):
            size += len(block)
        process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        self.assertEqual(status, 0)
        process.returncode = 0
        process.stdout.close(), process.stderr.close()
        return size, usage.ru_maxrss

    def test_rows_are_passed_on_as_they_come(self):
        for flags in ([], ["--json"]):
            _, few = self.peak(2000, *flags)
            size, many = self.peak(400000, *flags)
            self.assertGreater(size, 10 << 20)
            self.assertLess(many - few, 4 << 10, "%d bytes of output took %d kB" % (size, many - few))

    def test_a_reader_that_has_enough(self):
        for flags in ([], ["--json"]):
            for ignored in (False, True):  # SIGPIPE: shells leave it, some supervisors ignore it
                process = self.start(1000000000, *flags, restore_signals=not ignored)
                process.stdout.readline()
                process.stdout.close()
                self.assertEqual(process.stderr.read(), b"")
                process.stderr.close()
                self.assertEqual(process.wait(timeout=PATIENCE), 0 if ignored else -signal.SIGPIPE)

    def test_ctrl_c_stops_it(self):
        process = self.start(1000000000)
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=PATIENCE), -signal.SIGINT)  # 130 in a shell
        process.stdout.close(), process.stderr.close()

    def test_a_wide_cell_behind_the_first_rows(self):
        sql = self.MANY % 1500 + " UNION ALL SELECT 1501, NULL, '%s'" % ("wide " * 20)
        lines = self.run_ok("query", "a.db", sql).stdout.splitlines()
        self.assertEqual(len(lines), 1502)
        self.assertEqual(lines[0].split(), ["i", "half", "text"])
        self.assertEqual(lines[1500].split(), ["1500", "750", "a", "row", "of", "text"])
        self.assertTrue(lines[1501].endswith("wide"))
        rows = self.json_of("query", "a.db", sql, "--json")["rows"]
        self.assertEqual((len(rows), rows[0], rows[1500][:2]), (1501, [1, 0.5, "a row of text"], [1501, None]))

    def test_an_error_behind_the_first_rows(self):
        sql = "SELECT 1 UNION ALL SELECT abs(-9223372036854775807 - 1)"
        done = self.call("query", "a.db", sql, "--json")
        self.assertEqual(done.returncode, 2)
        document = json.loads(done.stdout)
        self.assertEqual((document["rows"], document["error"]["kind"]), ([[1]], "usage"))
        self.assertIn("integer overflow", done.stderr)
        self.assertEqual(self.json_of("query", "a.db", "SELECT 1 WHERE 0", "--json")["rows"], [])


class Errors(CliTest):
    def test_every_verb_answers_in_json(self):
        self.write("notes.txt", "mine")
        for code, kind, args in ((2, "usage", ["train", "--nope"]), (2, "usage", ["frobnicate"]), (2, "usage", ["query", "x"]),
                                 (3, "data", ["info", "nowhere"]), (3, "data", ["query", "notes.txt", "SELECT 1"]),
                                 (2, "usage", ["diagnose"]), (2, "usage", ["playbook", "hang.nothing"]),
                                 (3, "data", ["eval", "--checkpoint", "nowhere", "--tokens", "x", "-o", "y"])):
            done = self.call(*args, "--json")
            self.assertEqual(done.returncode, code, args)
            document = json.loads(done.stdout)
            self.assertEqual((document["schema"], document["error"]["kind"]), ("ringscope.error/1", kind))
            self.assertEqual(set(document["error"]), {"kind", "message", "hint"})
            self.assertIn("ringscope: " + document["error"]["message"], done.stderr)


class Eval(CliTest):
    def evaluate(self, *flags, model="llama", code=0, tokens=None):
        return self.call("eval", "--checkpoint", os.path.join(MODELS, model), "--tokens",
                         tokens or os.path.join(MODELS, model, "inputs.safetensors"), "--prefix", "plain.", "-o", "out.safetensors", *flags)

    def test_matches_pytorch_under_layouts(self):
        for model in ("llama", "gpt2"):
            expected = os.path.join(MODELS, model, "expected.plain.fp64.safetensors")
            for flags in ([], ["--cp", "2"], ["--tp", "2", "--sp"]):
                done = self.evaluate("--dtype", "fp64", "--grad", "--json", *flags, model=model)
                self.assertEqual(done.returncode, 0, done.stderr)
                result = json.loads(done.stdout)
                self.assertEqual(result["schema"], "ringscope.eval/1")
                header, _ = read_safetensors(self.path("out.safetensors"))
                wanted, _ = read_safetensors(expected)
                self.assertEqual(set(header), {n for n in wanted if not n.startswith("hidden.")})
                for name in ("loss", "grad_norm"):
                    dtype, shape, values = tensor(self.path("out.safetensors"), name)
                    self.assertEqual((dtype, shape), ("F64", []))
                    self.assertTrue(math.isclose(values[0], tensor(expected, name)[2][0], rel_tol=1e-10))
                _, shape, logits = tensor(self.path("out.safetensors"), "logits")
                _, expected_shape, expected_logits = tensor(expected, "logits")
                self.assertEqual(shape, expected_shape)
                distance = math.sqrt(sum((a - b) ** 2 for a, b in zip(logits, expected_logits)))
                self.assertLess(distance, 1e-10 * math.sqrt(sum(b * b for b in expected_logits)))

    def test_writes_the_dtype_asked_for(self):
        self.assertEqual(self.evaluate().returncode, 0)
        self.assertEqual(tensor(self.path("out.safetensors"), "logits")[0], "F32")

    def test_bad_arguments_and_tokens(self):
        inputs = os.path.join(MODELS, "llama", "inputs.safetensors")
        base = ["eval", "--checkpoint", os.path.join(MODELS, "llama"), "-o", "out.safetensors"]
        self.refused(2, "--tokens is missing", *base)
        self.refused(2, "--checkpoint is missing", "eval", "--tokens", inputs, "-o", "out.safetensors")
        self.refused(3, "no tensor 'nope.input_ids'", *base, "--tokens", inputs, "--prefix", "nope.")
        self.refused(3, "nowhere", *base, "--tokens", "nowhere.safetensors")
        ids = {"input_ids": {"dtype": "I64", "shape": [1, 4], "data_offsets": [0, 32]}}
        write_safetensors(self.path("t.safetensors"), ids, struct.pack("<4q", 1, 2, 3, 9999))
        self.refused(3, "9999", *base, "--tokens", "t.safetensors")
        write_safetensors(self.path("t.safetensors"), ids, struct.pack("<3q", 1, 2, 3))
        self.refused(3, "t.safetensors", *base, "--tokens", "t.safetensors")
        write_safetensors(self.path("t.safetensors"), ids, struct.pack("<4q", 1, 2, 3, 4))
        self.refused(3, "no tensor 'labels'", *base, "--tokens", "t.safetensors", "--grad")
        self.refused(3, "cannot write", *base[:-1], "no/such/out.safetensors", "--tokens", "t.safetensors")
        self.assertEqual(self.left_over(), ["t.safetensors"])

    def test_tensors_that_nobody_reads(self):
        base = ["eval", "--checkpoint", os.path.join(MODELS, "llama"), "-o", "out.safetensors", "--tokens", "t.safetensors"]
        entry = lambda i: {"dtype": "I64", "shape": [1, 4], "data_offsets": [32 * i, 32 * i + 32]}
        tokens = struct.pack("<8q", 1, 2, 3, 4, 1, 1, 1, 1)
        for name in ("attention_mask", "token_type_ids", "label_ids", "inputs_embeds"):
            write_safetensors(self.path("t.safetensors"), {"input_ids": entry(0), name: entry(1)}, tokens)
            self.refused(2, f"tensor '{name}'", *base)
        self.refused(2, "did you mean 'position_ids'", *self.with_tensor("postion_ids", entry, tokens, base))
        # Another prefix's names are not looked at.
        write_safetensors(self.path("t.safetensors"), {"input_ids": entry(0), "odd.attention_mask": entry(1)}, tokens)
        self.assertEqual(self.call(*base).returncode, 0)
        lengths = {"dtype": "I64", "shape": [1], "data_offsets": [32, 40]}
        write_safetensors(self.path("t.safetensors"), {"input_ids": entry(0), "valid_lengths": lengths}, struct.pack("<5q", 1, 2, 3, 4, 3))
        self.assertEqual(self.call(*base).returncode, 0)
        write_safetensors(self.path("t.safetensors"), {"input_ids": entry(0), "valid_lengths": lengths}, struct.pack("<5q", 1, 2, 3, 4, 5))
        self.refused(3, "valid_lengths[0] is 5", *base)

    def with_tensor(self, name, entry, data, command):
        write_safetensors(self.path("t.safetensors"), {"input_ids": entry(0), name: entry(1)}, data)
        return command

    def test_names_what_is_not_finite(self):
        os.mkdir(self.path("model"))
        shutil.copy(os.path.join(MODELS, "llama", "config.json"), self.path("model"))
        header, data = read_safetensors(os.path.join(MODELS, "llama", "model.safetensors"))
        name = "model.layers.1.mlp.up_proj.weight"
        begin = header[name]["data_offsets"][0]
        write_safetensors(self.path("model/model.safetensors"), header,
                          data[:begin] + struct.pack("<f", math.nan) + data[begin + 4:])
        done = self.call("eval", "--checkpoint", "model", "--tokens", os.path.join(MODELS, "llama", "inputs.safetensors"),
                         "--prefix", "plain.", "-o", "out.safetensors", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"'{name}' is not finite: 1 NaN and 0 infinite of 1920 values", done.stderr)
        self.assertIn("the result is not finite: logits", done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual(result["non_finite"]["checkpoint"], [{"tensor": name, "nan": 1, "infinite": 0, "values": 1920}])
        self.assertEqual([t["tensor"] for t in result["non_finite"]["output"]], ["logits", "loss"])
        self.assertIsNone(result["loss"])
        clean = json.loads(self.evaluate("--json").stdout)
        self.assertEqual(clean["non_finite"], {"checkpoint": [], "output": []})

    def test_bad_checkpoints(self):
        header, data = read_safetensors(os.path.join(MODELS, "llama", "model.safetensors"))
        os.mkdir(self.path("model"))
        shutil.copy(os.path.join(MODELS, "llama", "config.json"), self.path("model"))
        weights = self.path("model/model.safetensors")
        norm = "model.norm.weight"

        def refuse(part, new_header, new_data):
            write_safetensors(weights, new_header, new_data)
            for verb in (["eval", "--checkpoint", "model", "--tokens", os.path.join(MODELS, "llama", "inputs.safetensors"),
                          "--prefix", "plain.", "-o", "out.safetensors"],
                         ["train", "--checkpoint", "model", "--tp", "1", "--quiet", "--trace", "a.db"]):
                self.refused(3, part, *verb)
            self.assertEqual(self.left_over(), ["model"])

        # Without stray bytes: each tensor is written again, one after another.
        def packed(change):
            out, blob = {}, b""
            for name, entry in header.items():
                entry, begin, end = dict(entry), *entry["data_offsets"]
                piece = data[begin:end]
                name, entry, piece = change(name, entry, piece)
                if name is None:
                    continue
                entry["data_offsets"] = [len(blob), len(blob) + len(piece)]
                out[name] = entry
                blob += piece
            return out, blob

        refuse(norm, *packed(lambda n, e, p: (None if n == norm else n, e, p)))
        extra, blob = packed(lambda n, e, p: (n, e, p))
        extra["model.extra.weight"] = {"dtype": "F32", "shape": [1], "data_offsets": [len(blob), len(blob) + 4]}
        refuse("model.extra.weight", extra, blob + bytes(4))
        refuse(norm, *packed(lambda n, e, p: (n, dict(e, shape=[2, 24]) if n == norm else e, p)))
        refuse("model.safetensors", header, data[:-10])
        refuse("model.safetensors", header, b"")
        # A vocabulary without room for 256 bytes and the padding id.
        with open(self.path("model/config.json")) as file:
            config = json.load(file)
        with open(self.path("model/config.json"), "w") as file:
            json.dump(dict(config, vocab_size=200), file)
        write_safetensors(weights, *packed(lambda n, e, p: (n, dict(e, shape=[200] + e["shape"][1:]), p[:len(p) // 257 * 200])
                                           if e["shape"][0] == 257 else (n, e, p)))
        self.refused(2, "vocab_size 200 is too small", "train", "--checkpoint", "model", "--tp", "1", "--quiet", "--trace", "a.db")
        self.assertEqual(self.left_over(), ["model"])
        os.remove(weights)
        self.refused(3, "model", "eval", "--checkpoint", "model", "--tokens", os.path.join(MODELS, "llama", "inputs.safetensors"),
                     "--prefix", "plain.", "-o", "out.safetensors")
        self.refused(3, "nowhere", "train", "--checkpoint", "nowhere", "--tp", "1", "--quiet")


if __name__ == "__main__":
    PROGRAM, MODELS = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=1)
