"""Trains a click-through model with Sparse Operation Kit. `--help` lists the flags."""

import os
import sys

# Set before TensorFlow is imported, because its start-up messages would disturb the progress bar.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

from ctr.app import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
