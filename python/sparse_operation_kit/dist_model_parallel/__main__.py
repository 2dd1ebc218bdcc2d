"""python -m sparse_operation_kit.dist_model_parallel plan TABLES --ranks N."""

import sys

from sparse_operation_kit.dist_model_parallel.cli import main

sys.exit(main())
