"""Report the progress of long tasks: the cost at the start, then a bar, or plain lines if the output is a file.

Nothing is shown for tasks that end within a second. One thread refreshes all bars, so that they move during compilation
too, and show the current activity.
"""

import sys
import threading
import time
from contextlib import suppress
from types import FrameType

from tqdm.auto import tqdm

# Seconds before anything is shown, so that short tasks print nothing.
_DELAY = 1.0
# Seconds between refreshes of a bar, which should move smoothly.
_REFRESH = 0.5
# Seconds between lines in a file. The file should stay short even after hours.
_INTERVAL = 60.0
# The activity to show while code of a module, or of its submodules, runs.
_ACTIVITIES = {
    "jax._src.compiler": "compiling",
    "jax._src.interpreters.mlir": "compiling",
    "jax._src.interpreters.partial_eval": "compiling",
    "theorykit.codegen": "compiling",
    "theorykit.bpkr.action": "deriving the action",
    "theorykit.derivation": "deriving the action",
    "theorykit.dmft.derivation": "deriving the map",
    "theorykit.symbolic": "deriving the action",
}

_lock = threading.RLock()
# Open reports, the outermost first.
_open: "list[Progress]" = []
# The thread that refreshes the open reports.
_thread: threading.Thread | None = None
# Costs that are printed already, so that nested reports do not repeat them.
_told: set[str] = set()


class Progress:
    """Report the progress of a task within a context.

    Args:
        work: name of the task, in a word or two.
        total: number of pieces of the task, if known.
        unit: name of a piece. Without a unit, the task is a single piece.
        shown: whether to show anything.
        cost: description of the cost, printed first.
        initial: number of pieces that are done already.
        alike: whether pieces take similar times. Otherwise the remaining time is unknown and not shown.
    """

    def __init__(
        self,
        work: str,
        total: int | None = None,
        unit: str | None = None,
        *,
        shown: bool = True,
        cost: str = "",
        initial: int = 0,
        alike: bool = True,
    ):
        self.work, self.total, self.unit, self.shown, self.cost, self.alike = work, total, unit, shown, cost, alike
        self.done = self._free = initial
        self._note, self._bar = "", None

    def __enter__(self) -> "Progress":
        self._began = self._reported = time.monotonic()
        self._prepared = self._worked = 0.0
        if self.shown:
            with _lock:
                if _IN_NOTEBOOK:
                    # A widget appears under the notebook cell whose thread creates it.
                    self._bar = self._open_bar()
                _open.append(self)
                _start_thread()
        return self

    def __exit__(self, kind: type | None, *_) -> None:
        if not self.shown:
            return
        with _lock:
            is_outermost = self is _open[0]
            _open.remove(self)
            if self._bar is not None:
                self._bar.set_postfix_str(self._note, refresh=False)
                self._bar.n = self.done
                self._bar.refresh()
                self._bar.close()
            elif is_outermost and self._is_long() and not _has_bars() and (self.unit or self._reported > self._began):
                taken = tqdm.format_interval(time.monotonic() - self._began)
                tell(f"{self.work}: {'stopped' if kind else 'done'}{self._count()}, {taken}")
            if not _open:
                _told.clear()

    def update(self, count: int = 1, note: str = "") -> None:
        """Report that `count` more pieces are done, with a `note` on the last one."""
        with _lock:
            self.done += count
            self._note = note or self._note
            self._worked = self._working()
            if not self._is_long():
                # Pieces that are done at once, such as pieces of an earlier run, do not count in the estimate of the
                # remaining time.
                self._free = self.done

    def _is_long(self) -> bool:
        return time.monotonic() - self._began > _DELAY

    def _count(self) -> str:
        known = "" if self.total is None else f" of {self.total:,}"
        return "" if self.unit is None else f", {self.done:,}{known} {_plural(self.unit)}"

    def _working(self) -> float:
        """Return the time since the start without compilation time."""
        return max(time.monotonic() - self._began - self._prepared, 0.0)

    def _left(self) -> str:
        """Estimate the remaining time from the pieces done so far, without compilation time."""
        done = self.done - self._free
        if not done or self.total is None or not self.alike:
            return ""
        # Count down during a piece: its own time does not count until it is done, or the estimate would grow.
        left = self._worked / done * (self.total - self.done) - (self._working() - self._worked)
        # Later pieces may take longer than the earlier ones.
        return f"about {tqdm.format_interval(left)} left" if left > 0 else ""

    def _open_bar(self) -> tqdm:
        options = {"desc": self.work, "total": self.total, "initial": self.done, "unit": f" {_plural(self.unit or '')}"}
        form = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]" if self.total else None
        form = form if self.unit else "{desc}: {elapsed}{postfix}"
        # Only the outermost bar stays when it is full.
        is_outermost = not _open or self is _open[0]
        bar = tqdm(**options, bar_format=form, leave=is_outermost, dynamic_ncols=True)
        bar.start_t -= time.monotonic() - self._began
        return bar

    def _refresh(self, doing: str) -> None:
        self._prepared += _REFRESH if doing else 0.0
        if not self._is_long():
            return
        if self.cost and self.cost not in _told:
            _told.add(self.cost)
            tell(f"{self.work}: {self.cost}")
        if not doing and self.unit and self.done == self._free:
            doing = f"first {self.unit} under way"
        if _has_bars():
            if self._bar is None:
                self._bar = self._open_bar()
            self._bar.n = self.done
            self._bar.set_postfix_str(", ".join(filter(None, (doing or self._left(), self._note))))
        elif self is _open[0] and time.monotonic() - self._reported > _INTERVAL:
            self._reported = time.monotonic()
            taken = tqdm.format_interval(self._reported - self._began)
            tell(", ".join(filter(None, (f"{self.work}{self._count()}", taken, self._left(), doing, self._note))))


def _plural(unit: str) -> str:
    return f"{unit}{'es' if unit.endswith('ch') else 's'}"


def tell(line: str) -> None:
    """Write a line to standard error, above any bars."""
    if sys.stderr is not None:
        with _lock:
            tqdm.write(line, file=sys.stderr)
            sys.stderr.flush()


def activity() -> str:
    """Return a slow activity of this program, such as "compiling", or an empty string."""
    for thread, frame in sys._current_frames().items():
        if thread != threading.get_ident() and (found := activity_of(frame)):
            return found
    return ""


def activity_of(frame: FrameType | None) -> str:
    """Return the activity of the thread at this frame."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        for name, activity in _ACTIVITIES.items():
            if module == name or module.startswith(f"{name}."):
                return activity
        frame = frame.f_back
    return ""


_IN_NOTEBOOK = any(parent.__module__ == "tqdm.notebook" for parent in tqdm.__mro__)


def _has_bars() -> bool:
    """Check whether bars can be drawn: in a notebook (with or without widgets) or a terminal, but not in a file."""
    return "ipykernel.zmqshell" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())


def _start_thread() -> None:
    global _thread
    if _thread is None:
        _thread = threading.Thread(target=_refresh_all, daemon=True)
        _thread.start()


def _refresh_all() -> None:
    global _thread
    while True:
        time.sleep(_REFRESH)
        doing = activity()
        with _lock:
            if not _open:
                _thread = None
                return
            for report in _open:
                # The output may be closed by now.
                with suppress(OSError, ValueError):
                    report._refresh(doing)
