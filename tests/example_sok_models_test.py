"""The example on SOK's tables: every data set with every model."""

import pytest

from ctr.flags import DEFAULTS
from ctr.models import MODELS
from example_support import SMALL_FLAGS, data_flags, results_of, run_all


@pytest.mark.parametrize("dataset", DEFAULTS)
def test_every_model_trains_on_sok_tables(tmp_path, dataset):
    flags = [*SMALL_FLAGS, *data_flags(dataset, tmp_path), "--epochs", "4", "--learning_rate", "0.01"]
    flags += ["--dropout", "0", "--embedding_l2", "0"]
    run_all([[*flags, "--model", model, "--output_dir", str(tmp_path / model)] for model in MODELS])
    for model in MODELS:
        results = results_of(tmp_path / model)
        assert results["tables"] == "sok" and len(results["evaluations"]) == 4
        # Below ln 2, the loss of an untrained model.
        assert results["last_training_loss"] < 0.65
