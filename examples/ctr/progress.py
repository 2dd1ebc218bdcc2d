"""A progress bar with loss, samples per second and time left."""

from __future__ import annotations

import sys
from typing import TextIO

import tqdm

# Seconds between updates of the bar on a terminal, and between lines in a log file.
_TERMINAL_INTERVAL_S = 0.2
_LOG_INTERVAL_S = 10.0
# Weight of the newest loss in the displayed moving average.
_SMOOTHING = 0.02


class Progress:
    """A progress bar over the samples of all epochs. A context manager that closes the bar."""

    def __init__(self, total_samples: int, stream: TextIO = sys.stderr, shown: bool = True) -> None:
        """`total_samples` may be an estimate. If not `shown`, nothing is printed."""
        interval = _TERMINAL_INTERVAL_S if stream.isatty() else _LOG_INTERVAL_S
        self._stream, self._shown = stream, shown
        self._loss = None
        self._bar = tqdm.tqdm(
            total=total_samples,
            unit=" samples",
            unit_scale=True,
            mininterval=interval,
            file=stream,
            disable=not shown,
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.close()

    def advance(self, samples: int, loss: float, epoch: int) -> None:
        """Adds a step of `samples` with mean loss `loss`."""
        self._loss = loss if self._loss is None else self._loss + _SMOOTHING * (loss - self._loss)
        if self._bar.n + samples > self._bar.total:
            self._bar.total = self._bar.n + samples
        self._bar.set_postfix_str(f"epoch {epoch}, loss {self._loss:.4f}", refresh=False)
        self._bar.update(samples)

    def say(self, message: str) -> None:
        """Prints a line above the bar."""
        if self._shown:
            self._bar.write(message, file=self._stream)
