# Tags: versions, old_version
# Not on GPUs: graphs, names and libraries
"""sparse_operation_kit.deeprec adds names to TensorFlow and removes them again; TensorFlow's names stay."""

import functools
import importlib
import sys

import pytest
import tensorflow as tf

import forked
from sparse_operation_kit import compat, deeprec
from sparse_operation_kit.changes import replacements
from sparse_operation_kit.changes.replacement_table import How
from sparse_operation_kit.compat import namespaces
from sparse_operation_kit.deeprec.names import ADDED, ERRORS
from sparse_operation_kit.deeprec.replacement_entries import (
    LATE_OWNERS_OF_ABSENT_NAMES,
    OWNERS_OF_ABSENT_NAMES,
)

PATHS = [
    "CBFFilter",
    "CacheStrategy",
    "CounterFilter",
    "EmbeddingVariableOption",
    "GlobalStepEvict",
    "InitializerOption",
    "L2WeightEvict",
    "StorageOption",
    "StorageType",
    "config.experimental.enable_distributed_strategy",
    "config.experimental.enable_group_embedding",
    "data.experimental.DataFrame",
    "data.experimental.ParquetDataset",
    "feature_column.categorical_column_with_adaptive_embedding",
    "feature_column.categorical_column_with_embedding",
    "feature_column.categorical_column_with_multihash",
    "feature_column.group_embedding_column_scope",
    "feature_column.sequence_categorical_column_with_embedding",
    "get_dynamic_dimension_embedding_variable",
    "get_embedding_variable",
    "get_multihash_variable",
    "make_prefetch_hook",
    "nn.adaptive_embedding_lookup_sparse",
    "nn.embedding_lookup_sparse_multi_dim",
    "nn.fused_embedding_lookup_sparse",
    "nn.fused_safe_embedding_lookup_sparse",
    "nn.group_embedding_lookup",
    "nn.group_embedding_lookup_sparse",
    "nn.safe_embedding_lookup_multi_dim",
    "staged",
    "train.AdagradDecayOptimizer",
    "train.AdagradDecayOptimizerV2",
    "train.AdamAsyncOptimizer",
    "train.AdamWOptimizer",
    "train.mark_target_node",
    "train.IncrementalSaver",
]
# In tf.compat.v1 only.
GRAPH_KEYS = ["EMBEDDING_VARIABLES", "EV_INIT_SLOT_OPS", "EV_INIT_VAR_OPS"]
ROOTS = [tf, tf.compat.v1]


def find(root, path):
    return functools.reduce(getattr, path.split("."), root)


def has(root, path):
    namespace, _, name = path.rpartition(".")
    return hasattr(find(root, namespace) if namespace else root, name)


@pytest.fixture(autouse=True)
def installed():
    """The names are installed before and after each test."""
    deeprec.install()
    yield
    deeprec.install()


@pytest.mark.parametrize("path", PATHS)
def test_both_namespaces_have_the_name(path):
    name = path.rpartition(".")[2]
    assert all(find(root, path) is getattr(deeprec, name) for root in ROOTS)


def test_the_names_are_all_that_there_are():
    added = [entry.name for entry in replacements.entries() if entry.how == How.ADDED]
    added = [name for name in added if name.startswith("tf.")]
    of_classes = [f"tf.compat.v1.GraphKeys.{name}" for name in GRAPH_KEYS]
    of_classes.append("tf.compat.v1.variable_scope.keep_weights")
    assert sorted(added) == sorted([*(f"tf.{path}" for path in PATHS), *of_classes])


# The names that DeepRec's own modules have; the modules that TensorFlow lacks go with the names.
MODULES = {
    "ops.variables": ["EmbeddingVariableOption", "StorageOption"],
    "ops.variable_scope": ["get_embedding_variable"],
    "ops.embedding_ops": ["fused_safe_embedding_lookup_sparse"],
    "data.experimental.ops.dataframe": ["DataFrame"],
    "data.experimental.ops.parquet_dataset_ops": ["DataFrame", "ParquetDataset", "read_parquet"],
    "distribute.group_embedding_collective_strategy": ["CollectiveStrategy"],
}


@pytest.mark.parametrize("name", MODULES)
def test_deeprecs_modules_have_the_names(name):
    module = importlib.import_module(f"tensorflow.python.{name}")
    assert all(getattr(module, one) is getattr(deeprec, one) for one in MODULES[name])
    deeprec.uninstall()
    assert module.__name__ not in sys.modules or not any(hasattr(module, one) for one in MODULES[name])


def test_the_graph_keys():
    assert [getattr(tf.compat.v1.GraphKeys, name) for name in GRAPH_KEYS] == [
        name.lower() for name in GRAPH_KEYS
    ]
    deeprec.uninstall()
    assert not any(hasattr(tf.compat.v1.GraphKeys, name) for name in GRAPH_KEYS)


def test_names_come_through_every_way_of_importing():
    import tensorflow.compat.v1 as one
    from tensorflow.compat import v1 as other

    assert one.get_embedding_variable is deeprec.get_embedding_variable
    assert other.get_embedding_variable is deeprec.get_embedding_variable
    assert one.nn.group_embedding_lookup is deeprec.group_embedding_lookup


def test_the_classes_of_tables_come_from_deeprecs_module():
    from tensorflow.python.ops import kv_variable_ops

    with tf.Graph().as_default():
        table = tf.compat.v1.get_embedding_variable("table", 2)
        pair = tf.compat.v1.get_multihash_variable("pair", [[2, 2], [2, 2]])
        blocks = tf.compat.v1.get_dynamic_dimension_embedding_variable("blocks", 2, 2)
    assert isinstance(table, kv_variable_ops.EmbeddingVariable)
    assert isinstance(pair, kv_variable_ops.MultiHashVariable)
    assert isinstance(blocks, kv_variable_ops.DynamicEmbeddingVariable)
    deeprec.uninstall()
    assert "tensorflow.python.ops.kv_variable_ops" not in sys.modules


def test_uninstalling_takes_them_away_and_installing_brings_them_back():
    deeprec.install()
    deeprec.uninstall()
    assert not deeprec.is_installed()
    assert not any(has(root, path) for root in ROOTS for path in PATHS)
    deeprec.uninstall()
    deeprec.install()
    assert deeprec.is_installed()
    assert all(has(root, path) for root in ROOTS for path in PATHS)


def test_a_name_of_tensorflow_is_never_changed(caplog):
    deeprec.uninstall()
    theirs = object()
    tf.compat.v1.CounterFilter = theirs
    try:
        deeprec.install()
        assert tf.compat.v1.CounterFilter is theirs
        assert tf.CounterFilter is deeprec.CounterFilter
        assert "CounterFilter" in caplog.text
        deeprec.uninstall()
        assert tf.compat.v1.CounterFilter is theirs
    finally:
        namespaces.remove_name(tf.compat.v1, "CounterFilter")


def test_a_name_that_someone_removed_is_no_error():
    namespaces.remove_name(tf, "CounterFilter")
    deeprec.uninstall()
    assert not has(tf, "CounterFilter")


def find_in_a_program(name):
    """What a program finds that was written for `import tensorflow as tf` of version 1."""
    if name.startswith("tf."):
        return find(tf.compat.v1, name[len("tf.") :])
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def test_every_name_of_the_list_is_there():
    assert len(ADDED) == len(set(ADDED)) and not set(ADDED) & set(ERRORS)
    for name in ADDED:
        assert callable(find_in_a_program(name)) or name.startswith("tf.GraphKeys."), name


def assert_absent(root, path, error):
    """Asserts that the name, or the namespace that has it, raises an error that says what to use instead."""
    first, _, rest = path.partition(".")
    if rest and hasattr(root, first):
        return assert_absent(getattr(root, first), rest, error)
    assert not hasattr(root, first)
    with pytest.raises(AttributeError) as raised:
        getattr(root, first)
    assert str(raised.value) in ERRORS.values() and (rest or str(raised.value) == error)


@pytest.mark.parametrize("name", [name for name in ERRORS if name.startswith("tf.")])
def test_an_absent_name_says_what_to_use_instead(name):
    path = name[len("tf.") :]
    if path == "contrib" and compat.VERSION < (2, 0):
        return  # version 1 has it
    for root in ROOTS:
        assert_absent(root, path, ERRORS[name])
    with pytest.raises(AttributeError) as raised:
        getattr(deeprec, path.rpartition(".")[2])
    assert ERRORS[name].partition(": ")[2] in str(raised.value)


@pytest.mark.parametrize("name", [name for name in ERRORS if name.startswith("tensorflow.")])
def test_an_absent_module_says_what_to_use_instead_when_its_parent_is_asked(name):
    parent, _, attribute = name.rpartition(".")
    module = importlib.import_module(parent)
    with pytest.raises(AttributeError) as raised:
        getattr(module, attribute)
    assert str(raised.value) == ERRORS[name]
    assert not hasattr(module, attribute)
    deeprec.uninstall()
    with pytest.raises(AttributeError, match=f"has no attribute '{attribute}'"):
        getattr(module, attribute)


# Reads names of modules of tf.contrib that were imported before or after DeepRec's names were installed.
_CONTRIB_PROGRAM = """
import importlib, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
if sys.argv[1] == "contrib first":
    import tensorflow.contrib.layers
from sparse_operation_kit import deeprec
deeprec.install()
assert ("tensorflow.contrib.layers" in sys.modules) == (sys.argv[1] == "contrib first")
modules = [importlib.import_module(name) for name in sys.argv[2:]]

def errors(name):
    for module in modules:
        try:
            getattr(module, name)
        except AttributeError as error:
            yield str(error)

assert not list(errors("__name__"))
for install in (deeprec.install, deeprec.uninstall, deeprec.install):
    install()
    ours = ".embedding_column"
    end = "no attribute 'sparse_column_with_embedding'" if install is deeprec.uninstall else ours
    found = list(errors("sparse_column_with_embedding"))
    assert len(found) == 3 and all(error.endswith(end) for error in found), found
    found = list(errors("no_such_name"))
    assert len(found) == 3 and all(error.endswith("no attribute 'no_such_name'") for error in found), found
"""

if compat.VERSION < (2, 0):  # version 2 has no tf.contrib

    @pytest.mark.parametrize("first", ["contrib first", "names first"])
    def test_absent_names_of_modules_that_are_imported_later(first):
        modules = LATE_OWNERS_OF_ABSENT_NAMES
        forked.succeeded(forked.run_interpreter("-c", _CONTRIB_PROGRAM, first, *modules))


def test_every_absent_name_belongs_to_a_module_with_errors():
    names = [name for name in ERRORS if not name.startswith("tf.")]
    assert {name.rpartition(".")[0] for name in names} <= set(OWNERS_OF_ABSENT_NAMES)


def test_an_absent_name_says_what_to_use_instead_when_it_is_imported():
    with pytest.raises(ImportError, match="sok.init_from_checkpoint loads"):
        from tensorflow import CheckpointOption  # noqa: F401
    with pytest.raises(ImportError, match="sok.init_from_checkpoint loads"):
        from tensorflow.compat.v1 import CheckpointOption  # noqa: F401, F811
    with pytest.raises(ImportError, match="sok.init_from_checkpoint loads"):
        from sparse_operation_kit.deeprec import CheckpointOption  # noqa: F401, F811
    with pytest.raises(ImportError, match="horovodrun -np N starts the ranks"):
        import tensorflow.python.distribute.launch  # noqa: F401
    with pytest.raises(ImportError, match="horovodrun -np N starts the ranks"):
        from tensorflow.python.distribute import launch  # noqa: F401
    with pytest.raises(ImportError, match="get_embedding_variable makes tables"):
        from tensorflow.python.ops.hash_table import hash_table  # noqa: F401
    if compat.VERSION >= (2, 0):
        with pytest.raises(ImportError, match="TensorFlow 2 has no tf.contrib"):
            from tensorflow.contrib.layers.python.layers import feature_column  # noqa: F401


def test_other_missing_names_have_tensorflows_errors():
    for root in (*ROOTS, deeprec):
        with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
            root.no_such_name  # noqa: B018
    with pytest.raises(ImportError, match="no_such_name"):
        from tensorflow import no_such_name  # noqa: F401
    with pytest.raises(ImportError, match="no_such_module"):
        import tensorflow.no_such_module  # noqa: F401


def test_absent_names_have_tensorflows_errors_without_deeprecs_names():
    deeprec.uninstall()
    for root in ROOTS:
        with pytest.raises(AttributeError, match="has no attribute 'CheckpointOption'"):
            root.CheckpointOption  # noqa: B018
    with pytest.raises(ImportError, match="No module named"):
        import tensorflow.python.distribute.launch  # noqa: F401


def test_errors_of_another_library_stay():
    def others(name):
        raise AttributeError(f"{name} of another library")

    deeprec.uninstall()
    tf.compat.v1.__getattr__ = others
    try:
        deeprec.install()
        with pytest.raises(AttributeError, match="init_from_checkpoint"):
            tf.compat.v1.CheckpointOption  # noqa: B018
        with pytest.raises(AttributeError, match="no_such_name of another library"):
            tf.compat.v1.no_such_name  # noqa: B018
        deeprec.uninstall()
        assert vars(tf.compat.v1)["__getattr__"] is others
    finally:
        namespaces.remove_name(tf.compat.v1, "__getattr__")


# Compares `dir` and `vars` of TensorFlow's public namespaces before, with and after the names.
_PROGRAM = """
import importlib, os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
import sparse_operation_kit

def names():
    found = {}
    for root in (tf, tf.compat.v1):
        spaces = "nn", "train", "feature_column", "config.experimental", "data.experimental", "estimator"
        for path in ("", *spaces):
            space = root
            for part in filter(None, path.split(".")):
                space = getattr(space, part, None)
            if space is not None:
                found[root.__name__, path] = {n: getattr(space, n, None) for n in dir(space)}
    return found

names()  # has lazy modules loaded
before = names()
import sparse_operation_kit.deeprec as deeprec
from sparse_operation_kit.changes.replacement_table import How
from sparse_operation_kit.deeprec.replacement_entries import TABLE, Part

# Functions that get DeepRec's arguments.
of_deeprec = [entry for entry in TABLE if entry.part is Part.NAMES]
wrapped = {entry.attribute for entry in of_deeprec if entry.how is How.WRAPPED}
during = names()
for space, known in before.items():
    for name, value in known.items():
        assert during[space][name] is value or name in wrapped, (space, name)
added = {(*space, name) for space in during for name in during[space] if name not in before[space]}
assert added, "nothing was installed"
added = {names for names in added if names[-1] != "__getattr__"}
deeprec.uninstall()
after = names()
assert after == before
print(len(added))
"""


def test_installing_changes_nothing_else_of_tensorflow():
    assert int(forked.succeeded(forked.run_interpreter("-c", _PROGRAM))) == 2 * len(PATHS)
