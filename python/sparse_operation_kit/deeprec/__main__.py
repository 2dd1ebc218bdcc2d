"""python -m sparse_operation_kit.deeprec PROGRAM [ARGUMENT]... runs a DeepRec program unchanged."""

import sys

from sparse_operation_kit.deeprec.launcher import main

main(sys.argv[1:])
