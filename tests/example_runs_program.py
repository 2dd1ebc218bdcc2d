"""Several runs of the example in one process, with a graph and session for each, as in a notebook.

Its argument is a list of lists of flags, as JSON. Exit status: the highest of the runs'.
"""

import json
import sys

from ctr.app import main

sys.exit(max([main(run) for run in json.loads(sys.argv[1])]))
