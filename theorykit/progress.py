"""How far tasks are that are computed elsewhere: told step by step, and shown as one bar."""

import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

Tell = Callable[[int], None]
"""What a task calls with the number of its steps that are done."""

Heard = Callable[[int, int], None]
"""Called with the number of a task and how many of its steps are done."""

_HERE = "127.0.0.1"
_LONGEST = 128


class TaskBar:
    """One bar over the steps of several tasks; to be used in a `with` statement.

    A step that is told twice, as where a task is computed again, counts once. `postfix` says what stands behind the
    bar, from the number of a task and of its latest step.
    """

    def __init__(
        self, total: int, *, progress: bool, postfix: Callable[[int, int], dict[str, Any]] | None = None, **shown: Any
    ):
        self._bar = tqdm(total=total, disable=not progress, dynamic_ncols=True, **shown)
        self._done: dict[int, int] = {}
        self._postfix = postfix
        # tasks in threads tell of their steps at any time
        self._lock = threading.Lock()

    def __enter__(self) -> "TaskBar":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def heard(self, task: int, done: int) -> None:
        """So many steps of a task are done."""
        with self._lock:
            new = done - self._done.get(task, 0)
            if new <= 0:
                return
            self._done[task] = done
            if self._postfix is not None:
                self._bar.set_postfix(self._postfix(task, done), refresh=False)
            self._bar.update(new)


@contextmanager
def listen(executor: Any, heard: Heard) -> Iterator[Callable[[int], Tell]]:
    """What makes the `Tell` of a task by its number, while the block runs; it can be pickled for workers.

    Workers of a dask `Client` tell by its scheduler's events, all others by datagrams on this machine. What gets lost
    on the way only makes a bar late.
    """
    # a dask Client
    if callable(getattr(executor, "subscribe_topic", None)):
        with _events(executor, heard) as made:
            yield made
    else:
        with _datagrams(heard) as made:
            yield made


@contextmanager
def _events(client: Any, heard: Heard) -> Iterator[Callable[[int], Tell]]:
    topic = f"theorykit-{secrets.token_hex(8)}"

    def handle(event: tuple[float, Any]) -> None:
        task, done = event[1]
        heard(task, done)

    client.subscribe_topic(topic, handle)
    try:
        yield lambda task: _ByEvent(topic, task)
    finally:
        # a scheduler that is lost has no topics
        with suppress(Exception):
            client.unsubscribe_topic(topic)


@dataclass(frozen=True)
class _ByEvent:
    topic: str
    task: int

    def __call__(self, done: int) -> None:
        from distributed import get_worker

        get_worker().log_event(self.topic, (self.task, done))


@contextmanager
def _datagrams(heard: Heard) -> Iterator[Callable[[int], Tell]]:
    # that others on this machine may send what they like to an open port
    token = secrets.token_hex(8)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as received:
        received.bind((_HERE, 0))
        port = received.getsockname()[1]
        listener = threading.Thread(target=_hear, args=(received, token, heard), daemon=True)
        listener.start()
        try:
            yield lambda task: _ByDatagram(port, token, task)
        finally:
            _send(port, f"{token} end")
            listener.join(timeout=1.0)


def _hear(received: socket.socket, token: str, heard: Heard) -> None:
    while True:
        words = received.recv(_LONGEST).decode(errors="replace").split()
        if words[:1] != [token]:
            continue
        if words[1:] == ["end"]:
            return
        heard(int(words[1]), int(words[2]))


@dataclass(frozen=True)
class _ByDatagram:
    port: int
    token: str
    task: int

    def __call__(self, done: int) -> None:
        _send(self.port, f"{self.token} {self.task} {done}")


def _send(port: int, text: str) -> None:
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(text.encode(), (_HERE, port))
