"""The picture of a run: loss, AUC and log-loss over time."""

from __future__ import annotations

import numpy as np

from ctr.history import History

# Approximate number of points of the smoothed loss curve.
_POINTS = 400


def _smoothed(values: np.ndarray) -> np.ndarray:
    """Means of consecutive groups, about _POINTS of them."""
    group = max(1, len(values) // _POINTS)
    whole = len(values) // group * group
    return values[:whole].reshape(-1, group).mean(axis=1)


def plot_curves(history: History, title: str, path: str) -> None:
    """Writes a PNG to `path`."""
    # Without pyplot, which takes longer to import, and looks for a display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 4.5))
    loss_axes, auc_axes, log_loss_axes = figure.subplots(1, 3)
    steps = np.array([(entry.seconds, entry.loss) for entry in history.losses]).reshape(-1, 2)
    loss_axes.plot(_smoothed(steps[:, 0]), _smoothed(steps[:, 1]))
    loss_axes.set_ylabel("training loss")
    seconds = [entry.seconds for entry in history.evaluations]
    auc_axes.plot(seconds, [entry.auc for entry in history.evaluations], marker="o", label="reached")
    auc_axes.set_ylabel("held-out AUC")
    log_loss_axes.plot(
        seconds, [entry.log_loss for entry in history.evaluations], marker="o", label="reached"
    )
    log_loss_axes.set_ylabel("held-out log-loss")
    if history.best is not None:
        for axes, value in zip((auc_axes, log_loss_axes), history.best):
            axes.axhline(value, linestyle="--", color="gray", label="best reachable")
            axes.legend()
    for axes in (loss_axes, auc_axes, log_loss_axes):
        axes.set_xlabel("seconds")
        axes.grid(alpha=0.3)
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
