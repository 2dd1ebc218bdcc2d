# Tags: versions, old_version
# Not on GPUs: a program; the tests gpu_* have one
"""python -m sparse_operation_kit.deeprec runs a DeepRec program unchanged, as Python would run it."""

import os

import pytest

import forked

# What DeepRec's programs look like: TensorFlow 1's names, modules in the program's folder, no import of ours.
_PROGRAM = """
import argparse
import os
import sys

import tensorflow as tf
import tensorflow.compat.v1 as same
from tensorflow import placeholder, feature_column as columns
from tensorflow.python.framework import ops
from tensorflow.python.ops import variable_scope, work_queue
from tensorflow.train import AdagradOptimizer

import package.model
import package.stars

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int)
arguments = parser.parse_args()

class OfTheProgram:
    pass

def main(_):
    assert sys.modules["__main__"].OfTheProgram is OfTheProgram and OfTheProgram.__module__ == "__main__"
    assert placeholder is tf.placeholder is same.placeholder
    assert columns is tf.feature_column and columns.input_layer
    assert AdagradOptimizer is tf.train.AdagradOptimizer
    assert not tf.executing_eagerly()
    stars = package.stars
    assert stars.Session is tf.Session and stars.get_embedding_variable is tf.get_embedding_variable
    assert stars.MomentumOptimizer is tf.train.MomentumOptimizer
    assert variable_scope.get_variable is tf.get_variable
    loss, train = package.model.build()
    with tf.train.MonitoredTrainingSession() as session:
        losses = [session.run([loss, train])[0] for _ in range(arguments.steps)]
    assert losses[-1] < losses[0]
    assert tf.get_variable("weight", [1]).dtype.name == "float32_ref"
    print("trained", arguments.steps, os.path.basename(__file__))

if __name__ == "__main__":
    tf.app.run(argv=sys.argv[:1])
"""
_MODEL = """
import tensorflow as tf


def build():
    table = tf.get_embedding_variable("table", embedding_dim=2)
    rows = tf.nn.embedding_lookup(table, tf.constant([5, 2**40], tf.int64))
    loss = tf.reduce_mean(tf.square(rows - 1))
    return loss, tf.train.AdagradOptimizer(0.1).minimize(loss, tf.train.get_or_create_global_step())
"""
_STARS = """
from tensorflow import *
from tensorflow.train import *
"""


def launch(*arguments, packages=""):
    """Runs the launcher in a process that has TensorFlow already, with a further folder of packages."""
    code = "import sys\nfrom sparse_operation_kit.deeprec import launcher\nlauncher.main(sys.argv[1:])\n"
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    return forked.run_code(code, *map(str, arguments), env=environment, timeout=120)


def test_a_program_trains_without_an_import_of_this_library(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "model.py").write_text(_MODEL)
    (tmp_path / "package" / "stars.py").write_text(_STARS)
    (tmp_path / "train.py").write_text(_PROGRAM)
    program = str(tmp_path / "train.py")
    run = forked.run_interpreter("-m", "sparse_operation_kit.deeprec", program, "--steps", "5")
    assert forked.succeeded(run) == "trained 5 train.py\n"


# Programs for which the launcher must show and return the same as Python.
_ENDS = {
    "names": """
import sys
print(__name__, __file__, sys.argv, sys.path[0], __spec__, __package__, type(__loader__).__name__)
print(sys.modules["__main__"].__dict__ is globals(), "annotations" in globals())
""",
    "exit": "import sys\nsys.exit(3)\n",
    "exit with a text": "import sys\nsys.exit('no data')\n",
    "error": "def fail():\n    raise ValueError('wrong')\n\nfail()\n",
    "error in a module": "import failing\n",
    "error while another is handled": """
try:
    import failing
except OSError as error:
    raise RuntimeError("outer") from error
""",
    "syntax error": "x = (1,\ny = 2\n",
    "error of the program's hook": """
import sys
sys.excepthook = lambda kind, error, traceback: print("shown by the program:", error)
raise ValueError("wrong")
""",
}


@pytest.mark.parametrize("end", _ENDS)
def test_a_program_runs_and_ends_as_with_python(tmp_path, monkeypatch, end):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "failing.py").write_text("def fail():\n    raise OSError('inner')\n\n\nfail()\n")
    (tmp_path / "program.py").write_text(_ENDS[end])
    python = forked.run_interpreter("program.py", "--flag", "a b", PYTHONPATH="")
    ours = launch("program.py", "--flag", "a b")
    # Python 3.7 leaves the program's path as it is given.
    shown = python.stderr.replace('File "program.py"', f'File "{tmp_path}/program.py"')
    printed = python.stdout.replace("__main__ program.py", f"__main__ {tmp_path}/program.py")
    assert ours.returncode == python.returncode
    assert ours.stdout == printed
    assert ours.stderr.endswith(shown)
    assert ("Traceback" in ours.stderr) == ("Traceback" in shown)
    assert "launcher.py" not in ours.stderr


# What makes TensorFlow log that something is deprecated; the last line is the program's own.
_DEPRECATED = """
import tensorflow as tf
from tensorflow.python.ops import work_queue

work_queue.WorkQueue(["a", "b"]).input_producer()
tf.staged(tf.data.make_one_shot_iterator(tf.data.Dataset.range(3)).get_next())
with tf.feature_column.group_embedding_column_scope(name="group"):
    ids = tf.feature_column.categorical_column_with_embedding("ids", dtype=tf.int64)
    columns = [tf.feature_column.embedding_column(ids, 2), tf.feature_column.numeric_column("number")]
features = {"ids": tf.constant([[5], [6]], tf.int64), "number": tf.constant([[0.5], [1.5]])}
loss = tf.reduce_sum(tf.feature_column.input_layer(features, columns))
tf.train.AdamAsyncOptimizer(0.1).minimize(loss, tf.train.get_or_create_global_step())
tf.train.QueueRunner(tf.FIFOQueue(1, [tf.int64]), [tf.no_op()])
"""


def test_no_notice_of_tensorflow_blames_the_library(tmp_path):
    """Notices name the line that used something deprecated; users can change only their own lines."""
    (tmp_path / "program.py").write_text(_DEPRECATED.lstrip())
    run = launch(tmp_path / "program.py")
    forked.succeeded(run)
    notices = [line for line in run.stderr.splitlines() if "deprecated" in line]
    assert any("program.py:12" in line for line in notices)
    assert not [line for line in notices if "sparse_operation_kit" in line]


def test_other_packages_get_tensorflow_as_it_is(tmp_path):
    """A package in a folder of `sys.path`, even one below the program's, does not get version 1's names."""
    site = tmp_path / "lib"
    site.mkdir()
    (site / "other.py").write_text("import tensorflow\nroot = tensorflow\n")
    (tmp_path / "program.py").write_text(
        "import sys\nimport tensorflow, other\n"
        "print(other.root is sys.modules['tensorflow'], tensorflow.placeholder is not None)\n"
        "exec('import tensorflow as again', {})\n"
    )
    assert forked.succeeded(launch(tmp_path / "program.py", packages=site)) == "True True\n"


def test_the_program_hears_that_tensorflow_is_deeprec(tmp_path):
    """Otherwise scripts of the model zoo stop. Other packages get the version that is installed."""
    site = tmp_path / "lib"
    site.mkdir()
    (site / "other.py").write_text("import pkg_resources\nwhole = pkg_resources\n")
    (tmp_path / "program.py").write_text(
        "import sys\nimport pkg_resources\nfrom pkg_resources import get_distribution\n"
        "import other\nimport tensorflow as tf\n"
        "assert other.whole is sys.modules['pkg_resources'] is not pkg_resources\n"
        "assert get_distribution is pkg_resources.get_distribution\n"
        "assert get_distribution('numpy').version == other.whole.get_distribution('numpy').version\n"
        "print(get_distribution('Tensorflow').version == tf.__version__ + '+deeprec')\n"
    )
    assert forked.succeeded(launch(tmp_path / "program.py", packages=site)) == "True\n"


def test_an_absent_name_says_what_to_use_instead(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import tensorflow as tf\n\ntf.CheckpointOption()\n")
    run = launch(program)
    assert run.returncode == 1
    assert "sok.init_from_checkpoint loads rows from a checkpoint" in run.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        ((), 2, "usage: python -m sparse_operation_kit.deeprec"),
        (("-m", "module"), 2, "usage: "),
        (("--help",), 0, "usage: "),
        (("absent.py",), 2, "absent.py': [Errno 2] No such file or directory"),
    ],
)
def test_what_the_launcher_says_of_its_arguments(capsys, arguments, status, text):
    from sparse_operation_kit.deeprec import launcher

    with pytest.raises(SystemExit) as exited:
        launcher.main(arguments)
    shown = capsys.readouterr()
    assert exited.value.code == status
    assert text in (shown.err if status else shown.out)
