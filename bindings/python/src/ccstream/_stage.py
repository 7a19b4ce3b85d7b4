"""A background thread that prepares the next batches with the loader's Python functions (tokenizer, fields)."""

from __future__ import annotations

import _thread
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from . import _ccstream

_SLICE_SECONDS = 0.1


class Stage:
    """Calls take and then work for one batch after another on its own thread, at most `room` batches ahead.

    take(seconds): returns the next item; TimeoutError: not ready yet; UsageError: too many batches are held, treated as
    not ready. Any other exception ends the thread and is raised by every later get(). The thread holds references to
    these two functions only.
    """

    def __init__(self, take: Callable[[float], Any], work: Callable[[Any], Any], room: int):
        self._queue: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(room)
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._process = os.getpid()
        self._late: list[Exception] = []  # why there is no batch yet
        self._thread = threading.Thread(target=_run, name="ccstream batches", daemon=True,
                                        args=(take, work, self._queue, self._stopping, self._late))
        self._thread.start()

    def get(self, timeout: float | None) -> Any:
        """The next item. After `timeout` seconds raises the exception that explains the delay, or TimeoutError."""
        if os.getpid() != self._process:
            raise _ccstream.ForkedError("the loader belongs to the parent process: open one in this process")
        if self._failure is not None:
            raise self._failure
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                left = _SLICE_SECONDS if end is None else min(_SLICE_SECONDS, max(0.0, end - time.monotonic()))
                item, self._failure = self._queue.get(timeout=left)
                break
            except queue.Empty:
                if end is not None and time.monotonic() >= end:
                    raise self._late[-1] if self._late else _ccstream.TimeoutError(
                        f"no batch within {timeout} seconds: a Python function of the loader (tokenizer) is slower") from None
        if self._failure is not None:
            raise self._failure
        return item

    def drop(self) -> None:
        """As stop, for use in callbacks in which Python discards exceptions: Ctrl-C during it is raised again afterwards."""
        try:
            self.stop()
        except KeyboardInterrupt:
            self._stopping.set()
            threading.Timer(0.01, _thread.interrupt_main).start()

    def stop(self) -> None:
        """Ends the thread; batches that were not requested are dropped."""
        self._stopping.set()
        self._drop_batches()  # the thread may be waiting for a free place
        if os.getpid() == self._process and self._thread is not threading.current_thread():
            self._thread.join()
        self._drop_batches()

    def _drop_batches(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()


def _run(take: Callable[[float], Any], work: Callable[[Any], Any], out: queue.Queue[tuple[Any, BaseException | None]],
         stopping: threading.Event, late: list[Exception]) -> None:
    while not stopping.is_set():
        pair: tuple[Any, BaseException | None] | None = None
        try:
            item = take(_SLICE_SECONDS)
            late.clear()
        except _ccstream.TimeoutError as error:
            late[:] = [error]
            continue
        except _ccstream.UsageError as error:
            late[:] = [error]
            stopping.wait(_SLICE_SECONDS / 10)
            continue
        except BaseException as error:
            pair = None, error
        else:
            try:
                pair = work(item), None
            except BaseException as error:
                pair = None, error
            del item
        while not stopping.is_set():
            try:
                out.put(pair, timeout=_SLICE_SECONDS)
                break
            except queue.Full:
                continue
        if pair[1] is not None:
            return
        del pair  # else it keeps its batch alive
