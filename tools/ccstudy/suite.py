"""`ccstream-eval suite`: evaluates the test sets of a folder in one pass, with one or several processes.

    DIR/wds_NAME/ --links--> OUT/index/NAME/ --ccpack index, ccstream-eval embed--> images.npy --metrics--> a line of
    all prompts of all sets  -----------------ccstream-eval embed-----------------> prompts.npy     eval_results.jsonl

A line is written when a set is finished; a second run skips sets that have one. Several ranks divide the sets by locks in
OUT/index: the rank that holds a set's lock evaluates it. A lock ends with its process, so that another rank can take over the
set of a killed one.

suite_folder.py reads the folders, suite_encode.py calls the other programs, suite_metrics.py has the metrics, suite_sets.py the
list of sets, suite_page.py table and page.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from . import page as pages
from . import suite_metrics as metrics
from . import suite_remote, suite_sets
from .study import DataError, NotFoundError, Option, Options, Progress, StudyError, UsageError, np
from .suite_encode import ChildError, Encoding, Lock, Model, Prompts, read_meta
from .suite_folder import PARTS, One, check_links, read_json, read_set, read_text
from .suite_page import averages, clean, page, shown, table

__all__ = ["page", "table"]
PURPOSE = "evaluates a checkpoint on the test sets of a folder, in clip-benchmark's layout, in one pass"
TITLE = "Test sets"
USAGE = ["CHECKPOINT --sets DIR -o OUT [options]"]
ARGUMENTS = (1, 1)
OPTIONS = [
    Option("sets", metavar="DIR", help="folder of test sets: wds_NAME as in clip-benchmark and DataComp, packed datasets, and winogavil, "
                                       "winoground and sugar_crepe with their images; or a remote location of such folders, in which {} "
                                       "is replaced by the names of --only"),
    Option("out", "o", metavar="OUT", help="folder for eval_results.jsonl, suite.json and suite.html; run again to evaluate the sets that "
                                           "are missing in eval_results.jsonl"),
    Option("only", kind=list, metavar="NAME,...", help="only these sets, by folder name or DataComp key"),
    Option("group", kind=list, metavar="NAME,...", help="only sets of these groups: " + ", ".join(suite_sets.GROUPS)),
    Option("follow-links", kind=bool, help="follow links that lead out of the folder of sets, as in a Hub cache"),
    Option("force", kind=bool, help="remove results of another checkpoint from OUT"),
    Option("keep-embeddings", kind=bool, help="keep embeddings, class vectors and labels as .npy files in OUT/embeddings"),
    Option("json", kind=bool, help="suite.json on stdout instead of the table"),
    Option("quiet", "q", bool, help="no progress and no table"),
    Option("cache", metavar="CACHE", help="folder in which files of remote sets are kept; without it, a set's files are in OUT/cache "
                                          "until the set is finished"),
    Option("endpoint", metavar="URL", help="server of s3:// locations, as in the other programs"),
    Option("allow-private", kind=bool, help="allow host names and redirects that lead to private addresses, as in the other programs"),
    Option("ranks", kind=int, default=1, metavar="N", help="number of processes among which the sets are divided; with --device cuda, "
                                                           "process K uses GPU K", least=1, most=1024),
    Option("transform", default="own", metavar="KIND", choices=("own", "clip", "crop", "squash"), group="Model",
           help="how images are brought to the model's size. own: open_clip's way for its models, else clip; the others are described in "
                "ccstream-eval zeroshot --help"),
    Option("image-norm", default="own", metavar="NAME", group="Model",
           help="channel mean and std, as in ccstream-eval zeroshot"),
    Option("device", default="cpu", metavar="NAME", group="Model", help="cpu, cuda, cuda:N or auto"),
    Option("batch-size", "b", int, 128, "N", "images or prompts per forward pass", least=1, most=32768, group="Model"),
    Option("threads", "t", int, 0, "N", "compute threads; 0: all CPUs", least=0, most=1024, group="Model"),
]
NOTES = [
    "Each image is decoded and encoded once, each prompt once for all sets that use it. A class is the mean of its prompts' embeddings; "
    "ties go to the lower label. Images are read as by Pillow's convert('RGB') and clip-benchmark: EXIF orientation is ignored and "
    "transparency dropped; both are counted. Images that cannot be decoded are counted, listed in suite.json, and excluded from metrics.",
    "Metrics are fractions in the files, with DataComp's names, and percent in the table. Sets that are not among the 38 are evaluated "
    "too, but not averaged. Averages over incomplete groups are marked.",
]
EXAMPLES = ["ccstream-eval suite runs/a --sets sets -o runs/a-suite",
            "ccstream-eval suite runs/a --sets sets -o out --group imagenet,shifts --device cuda",
            "ccstream-eval suite runs/a --sets 'hf://datasets/clip-benchmark/wds_{}' --only imagenetv2,flickr30k -o out"]


# ---- which sets


def find(options: Options) -> list[One]:
    """The sets selected by the options, in the order of DataComp's list; other sets follow."""
    only = {n for text in options.only for n in text.split(",") if n}
    groups = {n for text in options.group for n in text.split(",") if n}
    if groups - set(suite_sets.GROUPS):
        raise UsageError(f"--group {min(groups - set(suite_sets.GROUPS))}: expected one of {', '.join(suite_sets.GROUPS)}")
    found = suite_remote.find(options, only, groups) if "://" in options.sets else _find_here(options, only, groups)
    return sorted(found, key=lambda o: (suite_sets.place(o.known.key), o.name))


def _find_here(options: Options, only: set[str], groups: set[str]) -> list[One]:
    top = Path(options.sets)
    if not top.is_dir():
        raise NotFoundError(f"{top}: no such folder")
    found: list[One] = []
    unused = set(only)
    for folder in sorted(p for p in top.iterdir() if p.is_dir()):
        short = suite_sets.short_name(folder.name)
        known = suite_sets.BY_FOLDER.get(short)
        names = {folder.name, short} | ({known.key, known.name} if known else set())
        unused -= names
        if (only and not only & names) or (groups and not (known and groups & set(known.groups))):
            continue
        if not options.follow_links:
            check_links(folder, top)
        one = read_set(folder)
        if one is not None:
            twin = next((o for o in found if o.known.key == one.known.key), None)
            if twin:
                raise DataError(f"{twin.folder} and {folder} are the same set, {one.known.key}; choose one with --only")
            found.append(one)
    if unused:
        raise UsageError(f"--only {min(unused)}: no such set in {top}")
    if not found:
        raise NotFoundError(f"{top}: contains none of the sets; expected folders wds_NAME with test/nshards.txt")
    return found


# ---- one set


def _same_vectors(one: One, vectors: Any) -> list[str]:
    """Notes about classes with different names but equal vectors."""
    first: dict[bytes, int] = {}
    pairs = [(first.setdefault(v.tobytes(), i), i) for i, v in enumerate(vectors)]
    same = [(a, b) for a, b in pairs if one.names[a] != one.names[b]]
    return [f"{len(same)} classes have the vector of another, such as '{one.names[same[0][0]]}' and "
            f"'{one.names[same[0][1]]}': the model's context ends before the name in every template, or its tokenizer "
            "does not know the letters"] if same else []


def _winogavil(one: One, prompts: Prompts, images: Any, place: dict[int, int]) -> dict[str, Any]:
    found = []
    for row in one.instances:
        there = [(place[i], right) for i, right in zip(row["images"], row["right"]) if i in place]
        truth = np.array([right for _, right in there], bool)
        if not truth.any():
            one.notes.append(f"no association of '{row['texts'][0]}' decodes: the instance is omitted")
            continue
        found.append((len(row["images"]), metrics.jaccard(images[[k for k, _ in there]] @ prompts.get(row["texts"])[0], truth)))
    return metrics.winogavil(found)


def _pairing(one: One, prompts: Prompts, images: Any, place: dict[int, int]) -> dict[str, Any]:
    found: dict[str, list[Any]] = {}
    for row in one.instances:
        if all(i in place for i in row["images"]):
            found.setdefault(row["task"], []).append(images[[place[i] for i in row["images"]]] @ prompts.get(row["texts"]).T)
    omitted = len(one.instances) - sum(map(len, found.values()))
    one.notes += [f"{omitted} instances with an image that does not decode are omitted"] if omitted else []
    return metrics.pairing(found)


def _classes(one: One, prompts: Prompts, arrays: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    images, ids, labels = arrays["images"], arrays["ids"].astype(np.int64), arrays["labels"].astype(np.int64)
    key = one.known.key
    meta = read_meta(one.tars, ids, metrics.META.get(key, 1)) if key in metrics.META or one.kind == "multilabel" else None
    if one.has_faces:
        every = {p: prompts.classes(one.prompts(p)) for p in PARTS}
        arrays |= {f"class_vectors_{p}": v for p, v in every.items()}
        return metrics.faces({p: metrics.classify(images, v, ids * 0)[0] for p, v in every.items()}, meta.astype(np.int64))
    vectors = arrays["class_vectors"] = prompts.classes(one.prompts())
    one.notes += _same_vectors(one, vectors)
    if one.kind == "multilabel":
        if meta.shape[1] != len(one.names):
            raise DataError(f"{one.folder}: the .npy files have {meta.shape[1]} numbers for {len(one.names)} classes")
        return metrics.mean_average_precision(images, vectors, meta)
    if (labels < 0).any():
        raise DataError(f"{one.folder}: {int((labels < 0).sum())} of {len(labels)} images have no label (.cls file)")
    predicted, ranks = metrics.classify(images, vectors, labels)
    arrays["predicted"] = predicted
    out = metrics.accuracies(predicted, ranks, labels, len(vectors))
    if meta is not None:
        groups, others = metrics.wilds(key, predicted, ranks, labels, meta.astype(np.int64))
        out |= groups
        more |= others
    return out


def _evaluate(encoding: Encoding, prompts: Prompts, keep: Path | None) -> dict[str, Any]:
    """The result line of a set."""
    one = encoding.one
    arrays, answer = encoding.wait()
    images = arrays["images"]
    place = {int(i): k for k, i in enumerate(arrays["ids"])}
    more: dict[str, Any] = {}
    if one.kind == "retrieval":
        out = metrics.retrieval(images, arrays["texts"], arrays["owners"])
        more = metrics.first_captions(images, arrays["texts"], arrays["owners"])
    elif one.kind == "winogavil":
        out = _winogavil(one, prompts, images, place)
    elif one.kind == "pairing":
        out = _pairing(one, prompts, images, place)
    else:
        out = _classes(one, prompts, arrays, more)
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        for name, array in arrays.items():
            np.save(keep / f"{one.name}.{name}.npy", array)
    ignored = {"an EXIF orientation": answer["exif_ignored"], "transparency": answer["transparency_ignored"]}
    notes = one.notes + [f"{count} images have {what}, which is ignored as clip-benchmark does"
                         for what, count in ignored.items() if count]
    skipped = [{k: clean(str(r.get(k, ""))) for k in ("key", "reason", "detail")} for r in encoding.rejected]
    main = None if one.known.main is None else out.get(one.known.main)
    return {"key": one.known.key, "dataset": one.known.name, "metrics": out | {"main_metric": main}, "more": more,
            "folder": one.name, "images": len(images), "exif_ignored": answer["exif_ignored"],
            "transparency_ignored": answer["transparency_ignored"], "skipped": skipped, "notes": [clean(n) for n in notes]}


# ---- the results, which all ranks share


def finished(path: Path, model: str, force: bool) -> list[dict[str, Any]]:
    """The lines of eval_results.jsonl. A line of another model is an error."""
    if not path.exists():
        return []
    out = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        row = read_json(path, number, line)
        if not isinstance(row.get("metrics"), dict) or not isinstance(row.get("key"), str):
            raise DataError(f"{path}: line {number}: not the result of a test set; remove it, or use another --out")
        if row.get("model") != model and not force:
            raise pages.ExistsError(f"{path}: line {number}: belongs to another checkpoint or other options; pass --force to evaluate again")
        out += [row] if row.get("model") == model else []
    return out


class Work:
    """The remaining sets, for any number of ranks."""

    def __init__(self, options: Options, model: Model, own: str, sets: list[One], of: int):
        self.options, self.model, self.own, self.sets, self.of = options, model, own, sets, of
        self.out = Path(options.out)
        self.path, self.folder = self.out / "eval_results.jsonl", self.out / "index"
        self.bytes, self.begun = {one.known.key: one.bytes() for one in sets}, time.monotonic()

    def run(self, ranks: int) -> None:
        cpus = len(os.sched_getaffinity(0))
        if ranks == 1:
            self._rank(0)
            return
        context = multiprocessing.get_context("fork")
        children = []
        for number in range(ranks):
            if self.options.device == "cuda":
                self.model.device = f"cuda:{number}"
            self.model.threads = self.options.threads or max(1, cpus // ranks)
            children.append(context.Process(target=self._child, args=(number,)))
            children[-1].start()
        try:
            for child in children:
                child.join()
        except BaseException:
            for child in children:
                child.terminate()
            raise
        for number, child in enumerate(children):
            path = self.folder / f"rank-{number}.error"
            if path.exists():
                code, _, text = path.read_text("utf-8").partition(" ")
                raise ChildError(text, int(code))
        left = sum(not self._is_done(one) for one in self.sets)
        if left:
            raise StudyError(f"all ranks were stopped; {left} sets are not evaluated yet; run the same command again to continue")

    def _child(self, number: int) -> None:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        code = 0
        try:
            self._rank(number)
        except StudyError as error:
            code = error.code
            (self.folder / f"rank-{number}.error").write_text(f"{code} {error}", "utf-8")
        except KeyboardInterrupt:
            code = 130
        os._exit(code)

    def _rank(self, number: int) -> None:
        prompts = Prompts(self.sets, self.model, self.folder)
        before: tuple[Encoding, Lock] | None = None
        try:
            if number == 0:
                prompts.ask()
            for one in self.sets:
                lock = self._take(one, wait=False)
                started = self._begin(one, lock) if lock else None
                if started:
                    self._finish(before, prompts)
                    before = started
            self._finish(before, prompts)
            prompts.load()
            for one in self.sets:  # those that others had: a rank that was killed has left its own
                lock = self._take(one, wait=True)
                if lock:
                    self._finish(self._begin(one, lock), prompts)
        finally:
            self.model.close()

    def _take(self, one: One, wait: bool) -> Lock | None:
        """The set's lock; None: the set is finished, or another rank has it."""
        lock = Lock.take(self.folder / f"{one.name}.lock", wait)
        if lock and self._is_done(one):
            lock.release()
            return None
        return lock

    def _is_done(self, one: One) -> bool:
        return self._failure(one).exists() or one.known.key in {r["key"] for r in finished(self.path, self.own, True)}

    def _begin(self, one: One, lock: Lock) -> tuple[Encoding, Lock] | None:
        try:
            return Encoding(one, self.model, self.folder / one.name), lock
        except (ChildError, DataError) as error:
            self._fail(one, error)
            lock.release()
            return None

    def _finish(self, started: tuple[Encoding, Lock] | None, prompts: Prompts) -> None:
        if started is None:
            return
        encoding, lock = started
        one, begun = encoding.one, time.monotonic()
        try:
            row = _evaluate(encoding, prompts, self.out / "embeddings" if self.options.keep_embeddings else None)
            row["seconds"] = round(time.monotonic() - begun, 1)
            with Lock.take(self.folder / "results.lock", wait=True):
                rows = finished(self.path, self.own, True) + [row | {"model": self.own}]
                pages.write(self.path, "".join(json.dumps(pages._finite(r)) + "\n" for r in rows).encode())
            self._say(row, {r["key"] for r in rows})
        except (ChildError, DataError) as error:
            self._fail(one, error)
        finally:
            shutil.rmtree(self.folder / one.name, ignore_errors=True)
            if one.location and not self.options.cache:
                shutil.rmtree(one.folder, ignore_errors=True)
            lock.release()

    # A set that cannot be read does not end the others.

    def _failure(self, one: One) -> Path:
        return self.folder / f"{one.name}.failed"

    def _fail(self, one: One, error: StudyError) -> None:
        if error.code not in (65, 66):
            raise error
        text = f"{one.name}: {error}"
        pages.write(self._failure(one), text.encode())
        print(f"ccstream-eval suite: {text}", file=sys.stderr)

    def failed(self) -> list[str]:
        return [self._failure(one).read_text("utf-8") for one in self.sets if self._failure(one).exists()]

    def _say(self, row: dict[str, Any], done: set[str]) -> None:
        if not self.options.quiet:
            passed = sum(n for key, n in self.bytes.items() if key in done)
            left = (time.monotonic() - self.begun) / passed * (sum(self.bytes.values()) - passed)
            print(f"{sum(key in done for key in self.bytes)} of {len(self.sets)}  {row['dataset']}  {shown(row)}, "
                  f"{Progress.duration(left)} left", file=sys.stderr, flush=True)


def check(options: Options) -> None:
    if options.sets is None or options.out is None:
        raise UsageError("pass --sets DIR (test sets) and --out DIR (results)")


def exit_code(result: dict[str, Any]) -> int:
    return 65 if result["failed"] else 0


def run(options: Options, progress: Progress) -> dict[str, Any]:
    model, begun = Model(options), time.monotonic()
    own, out = model.hash(), Path(options.out)
    sets = find(options)
    path = out / "eval_results.jsonl"
    done = {r["key"] for r in finished(path, own, options.force)}
    work = Work(options, model, own, [one for one in sets if one.known.key not in done], len(sets))
    failed: list[str] = []
    if work.sets:
        out.mkdir(parents=True, exist_ok=True)
        with Lock.take(out, wait=False) or _busy(out):
            shutil.rmtree(work.folder, ignore_errors=True) if options.force else None
            work.folder.mkdir(exist_ok=True)
            for old in [*work.folder.glob("*.failed"), *work.folder.glob("*.error")]:
                old.unlink()
            if not options.quiet:
                print(f"{len(work.sets)} of {len(sets)} sets to evaluate; their prompts", file=sys.stderr, flush=True)
            work.run(min(options.ranks, len(work.sets)))
            failed = work.failed()
            shutil.rmtree(work.folder, ignore_errors=True)
    if not options.cache:
        shutil.rmtree(out / "cache", ignore_errors=True)  # of remote sets: texts
    rows = finished(path, own, True)
    if failed and not rows:
        raise DataError(failed[0])
    rows.sort(key=lambda r: (suite_sets.place(r["key"]), r["key"]))
    chosen = {one.known.key for one in sets} | {r["key"] for r in rows}
    return {"checkpoint": model.path, "model": own, "transform": options.transform, "sets": rows, "averages": averages(rows),
            "failed": failed, "missing": [s.key for s in suite_sets.SETS if s.main and s.key not in chosen],
            "seconds": round(time.monotonic() - begun, 1)}


def _busy(out: Path) -> Any:
    raise pages.ExistsError(f"{out}: in use by another run")
