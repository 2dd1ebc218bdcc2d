"""The example on SOK's tables: every data set and every model, as TensorFlow optimizes their graphs."""

import pytest

from ctr.flags import DEFAULTS
from ctr.models import MODELS
from example_runs_program import train
from example_support import SMALL_FLAGS, data_flags, results_of

# MovieLens has all kinds of features. Criteo has no combined ones, of which a wide part is made otherwise.
RUNS = {
    "movielens": tuple(MODELS),
    "census": ("dlrm",),
    "criteo": ("wide_and_deep", "dcn_v2"),
    "synthetic": ("wide_and_deep",),
}


def test_runs_have_every_data_set():
    assert RUNS.keys() == DEFAULTS.keys()


@pytest.mark.parametrize("dataset, model", [(dataset, model) for dataset in RUNS for model in RUNS[dataset]])
def test_models_train_on_sok_tables(tmp_path, dataset, model):
    flags = [*SMALL_FLAGS, *data_flags(dataset, tmp_path), "--epochs", "4", "--learning_rate", "0.01"]
    flags += ["--dropout", "0", "--embedding_l2", "0", "--model", model, "--output_dir", str(tmp_path)]
    assert train(flags, optimize=True) == 0
    results = results_of(tmp_path)
    assert results["tables"] == "sok" and len(results["evaluations"]) == 4
    # Below ln 2, the loss of an untrained model.
    assert results["last_training_loss"] < 0.65
