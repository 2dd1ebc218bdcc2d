"""Records Ctrl-C, so that it can be checked between steps."""

from __future__ import annotations

import signal
import threading
from types import FrameType


class Interrupts:
    """A context manager that sets `pending` on Ctrl-C, instead of raising KeyboardInterrupt.

    An exception would interrupt a step for which other ranks wait. Outside of the main thread, where Python
    cannot handle signals, it does nothing.
    """

    def __init__(self) -> None:
        self.pending = False

    def clear(self) -> None:
        """Resets `pending`."""
        self.pending = False

    def __enter__(self) -> Interrupts:
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            self._handler_before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._main:
            signal.signal(signal.SIGINT, self._handler_before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.pending = True
