"""The command line of all programs. Its names are those of the scripts of DeepRec's model zoo."""

from __future__ import annotations

import argparse
from typing import Any


def boolean(text: str) -> bool:
    """The value of a flag such as `--smartstaged False`."""
    values = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"True or False, not {text!r}")
    return values[text.lower()]


def parse(description: str | None, arguments: list[str] | None, **defaults: Any) -> argparse.Namespace:
    """The flags of a program.

    Args:
      description: What --help prints.
      arguments: The command line; None for that of the process.
      **defaults: Values that differ from the defaults below.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--data_location", help="folder of the published files; without it, samples are generated")
    add("--samples", type=int, help="the most samples to read, or the number to generate")
    add("--steps", type=int, default=300, help="global step to stop at")
    add("--batch_size", type=int, default=512, help="samples of a step on each rank")
    add("--checkpoint", help="folder of checkpoints, the same on all ranks; a run continues from it")
    add("--save_steps", type=int, default=100, help="steps between two checkpoints")
    add("--incremental_ckpt", type=int, default=0, help="seconds between incremental checkpoints; 0: none")
    add("--keep_checkpoint_max", type=int, default=2)
    add("--seed", type=int, default=2021)
    add("--optimizer", choices=("adam", "adamasync", "adagrad", "adagraddecay", "ftrl"), default="adamasync")
    add("--learning_rate", type=float, default=0.01)
    add("--embedding_dim", type=int, default=16)
    add("--bf16", action="store_true", help="dense layers compute in bfloat16, with weights in float32")
    add("--smartstaged", type=boolean, default=True, help="batches are computed ahead of the steps")
    add("--emb_fusion", type=boolean, default=True, help="do_fusion of columns")
    add("--op_fusion", type=boolean, default=True, help="do_op_fusion of the session")
    add("--micro_batch", type=int, default=0)
    add("--workqueue", action="store_true", help="files are given out by a WorkQueue")
    add("--group_embedding", choices=("collective", "localized"), default="collective")
    add("--ev_filter", choices=("counter", "cbf"), help="rare ids get no rows")
    add("--ev_elimination", choices=("gstep", "l2"), help="old or small rows are evicted when saving")
    add("--adaptive_emb", type=boolean, default=False, help="films that are rare so far share rows")
    add("--dense_layer_partitioner", type=int, default=16, help="least kilobytes of a part of a variable")
    add("--inter", type=int, default=0, help="threads between ops; 0: one for each core")
    add("--intra", type=int, default=0, help="threads in an op; 0: one for each core")
    parser.set_defaults(**defaults)
    return parser.parse_args(arguments)
