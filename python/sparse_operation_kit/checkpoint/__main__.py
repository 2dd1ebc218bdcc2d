"""python -m sparse_operation_kit.checkpoint inspect|verify|export|diff|compact PATH."""

import sys

from sparse_operation_kit.checkpoint.cli import main

sys.exit(main())
