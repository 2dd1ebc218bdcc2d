"""Draws what cuda/programs/predict predicts: the share of a GPU's memory bandwidth by the length of rows.

Usage: bazel run //cuda/programs:predict -- --json > predictions.json
       python cuda/programs/plot_predictions.py predictions.json docs/images/gpu_predictions.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# In the order of the legend, with their colors.
OPERATIONS = {
    "find and copy rows": "#e9a03b",
    "pooled forward": "#6aa84f",
    "backward, SGD": "#9fc5e8",
    "backward, Adagrad": "#4a90c8",
    "backward, LazyAdam": "#1b6ca8",
    "backward, Adam": "#7d3c98",
}
# Published measurements of other libraries' kernels on devices: the share of the bandwidth, and the length of
# rows if known.
PUBLISHED = {"HierarchicalKV, find": (0.73, 64), "FBGEMM, backward": (0.52, None)}


def draw(predictions: list[dict[str, Any]], path: Path) -> None:
    """Draws a panel for each device."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    devices = list(dict.fromkeys(prediction["device"] for prediction in predictions))
    dims = sorted({prediction["dim"] for prediction in predictions if prediction["dim"] > 0})
    figure, grid = plt.subplots(1, len(devices), figsize=(5 * len(devices), 3.6), sharey=True, squeeze=False)
    for axes, device in zip(grid.flat, devices, strict=True):
        for operation, color in OPERATIONS.items():
            shares = {
                prediction["dim"]: 100 * prediction["share"]
                for prediction in predictions
                if (prediction["device"], prediction["operation"]) == (device, operation)
            }
            values = [shares[dim] for dim in dims]
            axes.plot(dims, values, color=color, marker="o", markersize=3, label=f"{operation} (predicted)")
        for name, (share, dim) in PUBLISHED.items():
            if dim is None:
                axes.axhline(
                    100 * share, color="black", linewidth=0.8, linestyle=":", label=f"{name} (published)"
                )
            else:
                axes.plot([dim], [100 * share], "k*", markersize=9, label=f"{name} (published)")
        axes.set_xscale("log", base=2)
        axes.set_xticks(dims, dims)
        axes.set_title(device, fontsize=10)
        axes.set_xlabel("floats of a row", fontsize=8)
        axes.set_ylim(0, 100)
        axes.spines[["top", "right"]].set_visible(False)
    grid.flat[0].set_ylabel("% of the data sheet's bandwidth", fontsize=8)
    grid.flat[-1].legend(frameon=False, fontsize=7, loc="lower right")
    figure.suptitle("Predicted, not measured", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Runs the command line."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    draw(json.loads(Path(sys.argv[1]).read_text())["predictions"], Path(sys.argv[2]))


if __name__ == "__main__":
    main()
