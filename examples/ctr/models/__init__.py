"""The click-through models, by their names on the command line."""

from ctr.models.dcn_v2 import dcn_v2
from ctr.models.dlrm import dlrm
from ctr.models.wide_and_deep import wide_and_deep

MODELS = {"wide_and_deep": wide_and_deep, "dlrm": dlrm, "dcn_v2": dcn_v2}
