"""Calls of other programs by `ccstream-eval suite`: `ccpack index` reads tars in place, and one `ccstream-eval embed
--requests` encodes all sets.

    ask(a)  ask(b)  wait(a)  metrics of a  ask(c)  wait(b) ...     while one set is encoded, the next is indexed, its request
                                                                 waits, and metrics of the previous one are computed
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from typing import Any, ClassVar

from . import page as pages
from . import suite_remote
from .study import DataError, NotFoundError, Options, StudyError, np, start
from .suite_folder import One

_MOST_NUMBERS = 1 << 20  # bytes of an image's .npy


class ChildError(StudyError):
    """The failure of a child process: its exit code and last line."""

    def __init__(self, text: str, code: int):
        super().__init__(text)
        self.code = code


class _Errors(threading.Thread):
    """Forwards a child's stderr, except its last line, which is the error message if it fails."""

    def __init__(self, child: subprocess.Popen[str]):
        super().__init__(daemon=True)
        self.child, self.last = child, ""
        self.start()

    def run(self) -> None:
        for line in self.child.stderr:
            sys.stderr.write(self.last)
            self.last = line

    def failure(self, name: str) -> ChildError:
        code = self.child.wait()
        self.join()
        return ChildError(self.last.strip() or f"{name} was killed by signal {-code}", code if code > 0 else 70)


def call(name: str, *words: object) -> None:
    # Should this process be killed, its locks end with the program, which still writes there.
    with start([name, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
               pass_fds=Lock.held) as child:
        errors = _Errors(child)
        try:
            code = child.wait()
        except BaseException:
            child.terminate()
            raise
    if code:
        raise errors.failure(name)
    errors.join()
    sys.stderr.write(errors.last)


class Lock:
    """A locked file or folder; unlocked by release, by the end of a `with` block, or with the process."""

    held: ClassVar[set[int]] = set()

    def __init__(self, descriptor: int):
        self._descriptor = descriptor
        self.held.add(descriptor)

    @classmethod
    def take(cls, path: Path, wait: bool) -> Lock | None:
        """Locks it; None (without wait) if another process holds it."""
        descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                return None
            raise
        return cls(descriptor)

    def release(self) -> None:
        self.held.discard(self._descriptor)
        os.close(self._descriptor)

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Model:
    """The checkpoint, in a ccstream-eval embed process that the first request starts."""

    def __init__(self, options: Options):
        self.path = options.arguments[0]
        self.words = ["--image-norm", options.image_norm, "--transform", options.transform]
        self.how = ["--batch-size", options.batch_size, "--force", *(["-q"] if options.quiet else [])]
        self.device, self.threads = options.device, options.threads
        self._child: subprocess.Popen[str] | None = None
        self._asked = self._answered = 0
        self._answers: dict[int, dict[str, Any]] = {}

    def _words(self) -> list[object]:
        return [*self.words, *self.how, "--device", self.device, "--threads", self.threads]

    def embed(self, prefix: Path, *words: object) -> None:
        """Encodes one dataset, or one file of prompts, in its own process."""
        call("ccstream-eval", "embed", self.path, "-o", prefix, *words, *self._words())

    def hash(self) -> str:
        """Hash of what is evaluated, so that results of another model are not continued."""
        path = Path(self.path)
        if path.is_dir():
            files = [path / "last"] if (path / "last").exists() else sorted(
                p for p in path.iterdir() if p.suffix in (".safetensors", ".json", ".bin", ".txt"))
        else:
            files = [path]
        if not files or not all(f.is_file() for f in files):
            raise NotFoundError(f"{path}: neither a checkpoint nor a run with one")
        digest = hashlib.sha256(" ".join([*self.words, "as stored"]).encode())
        for file in files:
            with file.open("rb") as data:
                digest.update(hashlib.file_digest(data, "sha256").digest())
        return digest.hexdigest()[:16]

    def ask(self, **request: Any) -> int:
        """Sends a request and returns its number, for wait. Answers come in the order of requests."""
        if self._child is None:
            words = ["ccstream-eval", "embed", self.path, "--requests", "--as-stored", *self._words()]
            self._child = start([*map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, errors="replace")
            self._errors = _Errors(self._child)
        try:
            self._child.stdin.write(json.dumps({k: str(v) if isinstance(v, Path) else v for k, v in request.items()}) + "\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            raise self._errors.failure("ccstream-eval embed") from None
        self._asked += 1
        return self._asked

    def wait(self, number: int) -> dict[str, Any]:
        """Raises ChildError."""
        while self._answered < number:
            line = self._child.stdout.readline()
            if not line:
                raise self._errors.failure("ccstream-eval embed")
            self._answered += 1
            self._answers[self._answered] = json.loads(line)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise ChildError(answer["error"], answer["code"])
        return answer

    def close(self) -> None:
        if self._child is not None:
            self._child.terminate()
            self._child.communicate()
            self._child = None


# ---- images


def _work_tars(one: One, work: Path) -> list[Path]:
    if not one.images:
        return one.tars
    path = work / "images.tar"
    with tarfile.open(path, "w") as tar:
        for i, image in enumerate(one.images):
            tar.add(image, f"{i:07d}{image.suffix}")
            info = tarfile.TarInfo(f"{i:07d}.cls")
            info.size = 1
            tar.addfile(info, io.BytesIO(b"0"))
    return [path]


def index(one: One, work: Path, check: bool) -> tuple[Path, list[dict[str, Any]]]:
    """A dataset of links to the tars, and the rejected rows. check: also reject images that do not decode."""
    if one.packed:
        return one.folder, []
    data = work / "data"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    links = []
    if one.location:
        suite_remote.fetch_tars(one)
    for i, tar in enumerate(_work_tars(one, work)):
        links.append(data / f"{i}.tar")
        links[-1].symlink_to(tar.resolve())
    if one.kind != "retrieval":  # numbers: names may be empty or equal
        (data / "classnames.txt").write_text("".join(f"{i}\n" for i in range(max(len(one.names), 1))))
    call("ccpack", "index", "-q", "--max-bad", "100%", *([] if check else ["--no-check"]),
         *(["--caption-lines", "each"] if one.kind == "retrieval" else []), *links)
    with (data / "rejects.jsonl").open(encoding="utf-8") as file:
        return data, [json.loads(line) for line in file]


class Encoding:
    """The embeddings of a set, requested on creation."""

    def __init__(self, one: One, model: Model, work: Path):
        self.one, self.model, self.work = one, model, work
        work.mkdir(parents=True, exist_ok=True)
        self._ask(check=False)

    def _ask(self, check: bool) -> None:
        data, self.rejected = index(self.one, self.work, check)
        self.request = self.model.ask(data=data, out=self.work / "e", texts=self.one.kind == "retrieval")

    def wait(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns arrays by name, and the answer."""
        try:
            answer = self.model.wait(self.request)
        except ChildError as error:
            if error.code != 65 or self.one.packed:
                raise
            self._ask(check=True)
            answer = self.model.wait(self.request)
        names = ["images", "ids", "labels"] + (["texts", "owners"] if self.one.kind == "retrieval" else [])
        return {n: np.load(self.work / f"e.{n}.npy", allow_pickle=False) for n in names}, answer


# ---- numbers beside images


def _rows(tars: list[Path], member: str) -> list[bytes | None]:
    """Per row of the tars, its tar members by extension. Rows are numbered as in ccpack."""
    rows: list[bytes | None] = []
    for path in tars:
        last = None
        try:
            with tarfile.open(path, "r:") as tar:
                for m in tar:
                    folder, base = os.path.split(m.name)
                    key, _, extension = base.partition(".")
                    if not m.isfile() or not key:
                        continue
                    if (folder, key) != last:
                        rows.append(None)
                        last = (folder, key)
                    if extension.lower() == member and m.size <= _MOST_NUMBERS:
                        rows[-1] = tar.extractfile(m).read()
        except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
            raise DataError(f"{path}: {error}") from None
    return rows


def _numbers(data: bytes) -> Any:
    """Parses a .npy; its header may not claim more numbers than the file has bytes. Raises ValueError."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    count = 1
    for n in shape:
        count *= n
    if dtype.kind not in "biuf" or not 0 < count * dtype.itemsize <= len(data):
        raise ValueError
    numbers = np.load(io.BytesIO(data), allow_pickle=False).ravel()
    if not np.isfinite(numbers).all():
        raise ValueError
    return numbers


def read_meta(tars: list[Path], ids: Any, least: int) -> Any:
    """The .npy of each sample, as one array."""
    rows, out = _rows(tars, "npy"), []
    for i in ids:
        data = rows[i] if i < len(rows) else None
        try:
            out.append(_numbers(data or b""))
        except Exception:  # of a damaged header NumPy raises what its parser does: TokenError, TypeError, MemoryError, ...
            raise DataError(f"{tars[0].parent}: row {i}: its .npy is missing or is not an array of numbers") from None
        if len(out[-1]) != len(out[0]) or len(out[-1]) < least:
            raise DataError(f"{tars[0].parent}: row {i}: its .npy has {len(out[-1])} numbers, not {max(least, len(out[0]))}")
    return np.stack(out)


# ---- prompts


class Prompts:
    """The L2-normalised embeddings of all prompts, each encoded once. One rank encodes them; the others wait for its lock and
    load them."""

    def __init__(self, sets: list[One], model: Model, work: Path):
        self.model, self.work = model, work
        self.rows: dict[str, int] = {}
        for one in sets:
            for prompt in one.all_prompts():
                self.rows.setdefault(prompt, len(self.rows))
        self._lock: Lock | None = None
        self._request: int | None = None
        self._vectors: Any = None

    def ask(self) -> None:
        path, done = self.work / "prompts.txt", self.work / "e.prompts.npy"
        text = "".join(f"{p}\n" for p in self.rows).encode()
        self._lock = Lock.take(self.work / "prompts.lock", wait=True)
        if self.rows and not (done.exists() and path.exists() and path.read_bytes() == text):
            done.unlink(missing_ok=True)
            pages.write(path, text)
            self._request = self.model.ask(prompts=path, out=self.work / "new")

    def load(self) -> None:
        if self._vectors is not None or not self.rows:
            return
        if self._lock is None:
            self.ask()
        if self._request is not None:
            self.model.wait(self._request)
            (self.work / "new.prompts.npy").rename(self.work / "e.prompts.npy")
        self._vectors = np.load(self.work / "e.prompts.npy", allow_pickle=False)
        self._lock.release()

    def get(self, texts: list[str]) -> Any:
        self.load()
        return self._vectors[[self.rows[t] for t in texts]]

    def classes(self, prompts: list[list[str]]) -> Any:
        vectors = np.stack([self.get(of_class).mean(0) for of_class in prompts])
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
