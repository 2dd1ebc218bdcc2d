"""Several runs of the example in one process, each with its own graph and session, as in a notebook.

Its argument is a list of lists of flags, as JSON. Exit status: the highest of the runs'.
"""

import json
import sys

from ctr.app import main

sys.exit(max([main(run) for run in json.loads(sys.argv[1])]))
