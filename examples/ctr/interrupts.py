"""Ctrl-C as something to ask for between steps."""

from __future__ import annotations

import signal
import threading
from types import FrameType


class Interrupts:
    """While entered, notes Ctrl-C instead of raising KeyboardInterrupt.

    An exception would leave a step halfway, of which the other ranks wait for the rest. A context manager;
    outside of the main thread, where Python lets nobody handle signals, it notes nothing.
    """

    def __init__(self) -> None:
        self.pending = False

    def clear(self) -> None:
        """Makes ready for the next Ctrl-C."""
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
