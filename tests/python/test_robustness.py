r"""Loaders that are ended in every way: many opened and closed, fork, spawn, pickling, the end of the interpreter while it
loads, exceptions in functions of the user, and Ctrl-C at any moment. A thousand rounds of each, by hand:

    B=$PWD/build/release T=$PWD/tests/python; cd "$(mktemp -d)" && CCSTREAM_TEST_ROUNDS=1000 TESTBIN=$B/tests/bin PYTHONPATH=$B/python \
        python3 "$T/test_robustness.py" -v [RobustnessTest.test_ctrl_c_at_any_moment...]
"""

import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
import time
import unittest

try:
    import numpy
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

import ccstream
from ccstream import _ccstream

ROUNDS = int(os.environ.get("CCSTREAM_TEST_ROUNDS", "0"))
SAMPLES, BATCH, SIZE = 60, 12, 16


def rounds(usual):
    return range(ROUNDS or usual)


def setUpModule():
    subprocess.run([os.path.join(os.environ["TESTBIN"], "make_images"), "d", str(SAMPLES)], check=True)


def lengths(texts):
    return numpy.array([[len(t)] for t in texts])


def loader(**options):
    return ccstream.DataLoader("d", **{"batch_size": BATCH, "image_size": SIZE, "num_threads": 2, **options})


def count_rows(path):
    """In another process: rows of an epoch."""
    with ccstream.DataLoader(path, BATCH, SIZE, num_threads=1, tokenizer=lengths) as dl:
        return sum(len(b["id"]) for b in dl)


def held():
    """Threads, descriptors, and resident memory in MiB."""
    with open("/proc/self/statm") as file:
        return (len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")),
                int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20)


def settle(before):
    """held() when no more threads than before are listed: one that was joined may be for a moment."""
    end = time.monotonic() + 20
    while held()[0] > before and time.monotonic() < end:
        time.sleep(0.01)
    return held()


class RobustnessTest(unittest.TestCase):
    def test_180_loaders_leave_nothing(self):
        kinds = ({}, {"tokenizer": lengths, "fields": ["text", "encoded"]}, {"views": 0, "captions": False},
                 {"dtype": "float32", "norm": "clip", "layout": "nchw"}, {"subset": lambda epoch: every[: 24 + epoch], "image_size": {0: 16, 1: 24}})
        every = ccstream.Dataset("d").ids

        def use(i):
            dl = loader(**kinds[i % len(kinds)])
            for b in dl:
                if i % 3 == 0:
                    break  # and what is made ahead is dropped
            if i % 2:
                dl.close()

        for i in range(40):
            use(i)
        threads, files, memory = held()
        for i in range(60 if os.environ.get("CCS_SANITIZE") else 180):
            use(i)
        gc.collect()
        after = settle(threads)
        self.assertEqual(after[:2], (threads, files))
        self.assertLess(after[2] - memory, 24)

    def test_children_by_fork_and_spawn_have_loaders_of_their_own(self):
        dl = loader(tokenizer=lengths)
        for round in rounds(1):
            batches = iter(dl)
            next(batches)
            for method in ("fork", "spawn") if round % 10 == 0 else ("fork",):  # which takes a second of imports
                with multiprocessing.get_context(method).Pool(2) as pool:
                    self.assertEqual(pool.map_async(count_rows, ["d"] * 3).get(120), [SAMPLES] * 3)
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    next(batches)
                except ccstream.ForkedError:
                    code = 0
                finally:
                    os._exit(code)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual(sum(1 for _ in batches), len(dl) - 1)

    def test_loaders_and_batches_are_not_pickled(self):
        for _ in rounds(1):
            dl = loader()
            for thing in (dl, next(iter(dl)), loader(tokenizer=lengths)):
                with self.assertRaises(TypeError):
                    pickle.dumps(thing)
            state = pickle.loads(pickle.dumps(dl.state_dict()))
            loader().load_state_dict(state)

    def run_children(self, code, *arguments):
        """Children of one process that has imported everything, which spares each of them the time of that: `code` says in which of
        its own children it is, and the interpreter of each ends as any other does."""
        begin = ("import ccstream, numpy, os, random, signal, sys, threading, time\n"
                 f"make = lambda **o: ccstream.DataLoader('d', {BATCH}, {SIZE}, num_threads=2, **o)\n"
                 "def child():\n"
                 "    pid = os.fork()\n"
                 "    if pid == 0: signal.alarm(120)\n"
                 "    return pid\n"
                 "def wait(pid, status, of):\n"
                 "    found = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n"
                 "    if found != status: sys.exit(f'{of}: exit code {found}')\n")
        done = subprocess.run([sys.executable, "-c", begin + code, *map(str, arguments)], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_interpreter_ends_while_it_loads(self):
        code = ("def fork_all():\n"
                "    for round in range(int(sys.argv[1])):\n"
                "        for how in ([], ['raise'], ['thread'], ['cycle'], ['thread', 'raise']):\n"
                "            pid = child()\n"
                "            if pid == 0: return how\n"
                "            wait(pid, 3 if 'raise' in how else 0, (round, how))\n"
                "    sys.exit(0)\n"
                "words = fork_all()\n"
                "tokenize = lambda texts: time.sleep(0.01) or [[1]] * len(texts)\n"
                "a, b = make(), make(tokenizer=tokenize)\n"
                "x, y = iter(a), iter(b)\n"
                "v = numpy.asarray(next(x)['image'])\n"
                "w = next(y)['tokens'] if words else None\n"
                "for how in words:\n"
                "    if how == 'raise': raise SystemExit(3)\n"
                "    if how == 'thread': threading.Thread(target=lambda: [None for _ in make()]).start()\n"
                "    if how == 'cycle': a.own = a; b.own = b; v = w = x = y = a = b = None\n")
        self.run_children(code, len(rounds(4)))

    def test_exceptions_in_functions_of_the_user(self):
        def fail_at(number):
            calls = []

            def tokenize(texts):
                calls.append(1)
                if len(calls) == number:
                    raise RuntimeError("of the tokenizer")
                return lengths(texts)
            return tokenize

        def epoch_fails(epoch):
            if epoch == 1:
                raise RuntimeError("of the subset")
            return ccstream.Dataset("d").ids

        for round in rounds(4):
            dl = loader(tokenizer=fail_at(1 + round % 5))
            with self.assertRaisesRegex(RuntimeError, "of the tokenizer"):
                for _ in dl:
                    pass
            dl.set_epoch(3)  # and it can be used again
            self.assertEqual(sum(1 for _ in dl), len(dl))
            dl = loader(subset=epoch_fails)
            self.assertEqual(sum(1 for _ in dl), len(dl))
            with self.assertRaisesRegex(RuntimeError, "of the subset"):
                next(iter(dl))
            dl.set_epoch(0)
            self.assertEqual(sum(1 for _ in dl), len(dl))
            taken = loader()._options[:-1]
            for allocate in (lambda size: 1 / 0, lambda size: None, lambda size: b"read-only" * size):
                with self.assertRaises(ccstream.OutOfMemoryError):
                    stderr, sys.unraisablehook = sys.unraisablehook, lambda _: None  # which the error is reported to
                    try:
                        _ccstream.Loader(*taken, allocate)
                    finally:
                        sys.unraisablehook = stderr

    def test_ctrl_c_at_any_moment(self):
        # Where Python runs a callback of a weak reference or a __del__, it cannot raise: it gives the interrupt to the hook.
        code = ("signal.signal(signal.SIGINT, signal.default_int_handler)\n"
                "lost = []\n"
                "sys.unraisablehook = lambda u: lost.append(u) if u.exc_type is KeyboardInterrupt else sys.__unraisablehook__(u)\n"
                "def fork_all():\n"
                "    moment = random.Random(5)\n"
                "    for round in range(int(sys.argv[1])):\n"
                "        begun, begins = os.pipe()\n"
                "        pid = child()\n"
                "        if pid == 0: return round, begins\n"
                "        os.read(begun, 1)\n"
                "        time.sleep(moment.uniform(0, 0.2))\n"
                "        os.kill(pid, signal.SIGINT)\n"
                "        wait(pid, 0, round)\n"
                "        os.close(begun); os.close(begins)\n"
                "    sys.exit(0)\n"
                "round, begins = fork_all()\n"
                "options = dict(tokenizer=(lambda t: [[1]] * len(t)) if round % 2 else None)\n"
                "try:\n"
                "    os.write(begins, b'x')\n"
                "    while not lost:\n"
                "        for b in make(**options): pass\n"
                "except KeyboardInterrupt:\n"
                "    pass\n"
                f"sys.exit(sum(len(b['id']) for b in make(**options)) != {SAMPLES})\n")
        self.run_children(code, len(rounds(4)))


if __name__ == "__main__":
    unittest.main()
