"""What the programs do: the command line, training and evaluation, in a session or with an Estimator."""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow.compat.v1 as tf
import zoo_cluster
import zoo_data
import zoo_layers
from tensorflow.python.data.experimental.ops import dataframe, parquet_dataset_ops
from tensorflow.python.ops.work_queue import WorkQueue

import sparse_operation_kit as sok
from sparse_operation_kit.deeprec import CollectiveStrategy  # the import gives tf DeepRec's names

# What a model returns for features, labels and flags: its loss, and the probability of each label.
Model = collections.namedtuple("Model", ("loss", "probabilities"))


def boolean(text: str) -> bool:
    """The value of a flag such as `--smartstaged False`."""
    values = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"True or False, not {text!r}")
    return values[text.lower()]


def parse(description: str | None, arguments: list[str] | None, **defaults: Any) -> argparse.Namespace:
    """The flags of a program. Their names are those of the scripts of DeepRec's model zoo.

    Args:
      description: What --help prints.
      arguments: The command line; None for that of the process.
      **defaults: Values that differ from the defaults below.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--data_location", help="folder of the published files; without it, samples are generated")
    add("--samples", type=int, help="the most samples to read, or the number to generate")
    add("--steps", type=int, default=300, help="global step to stop at")
    add("--batch_size", type=int, default=512, help="samples of a step on each rank")
    add("--checkpoint", help="folder of checkpoints, the same on all ranks; a run continues from it")
    add("--save_steps", type=int, default=100, help="steps between two checkpoints")
    add("--incremental_ckpt", type=int, default=0, help="seconds between incremental checkpoints; 0: none")
    add("--keep_checkpoint_max", type=int, default=2)
    add("--export", help="folder to write the trained model to, for TensorFlow Serving as it is")
    add("--export_library", help="the same, with this library's ops")
    add("--seed", type=int, default=2021)
    add("--optimizer", choices=("adam", "adamasync", "adagrad", "adagraddecay", "ftrl"), default="adamasync")
    add("--learning_rate", type=float, default=0.01)
    add("--embedding_dim", type=int, default=16)
    add("--bf16", action="store_true", help="dense layers compute in bfloat16, with weights in float32")
    add("--smartstaged", type=boolean, default=True, help="batches are computed ahead of the steps")
    add("--emb_fusion", type=boolean, default=True, help="do_fusion of columns")
    add("--op_fusion", type=boolean, default=True, help="do_op_fusion of the session")
    add("--micro_batch", type=int, default=0)
    add("--workqueue", action="store_true", help="files are given out by a WorkQueue")
    add("--group_embedding", choices=("collective", "localized"), default="collective")
    add("--ev_filter", choices=("counter", "cbf"), help="rare ids get no rows")
    add("--ev_elimination", choices=("gstep", "l2"), help="old or small rows are evicted when saving")
    add("--adaptive_emb", type=boolean, default=False, help="films that are rare so far share rows")
    add("--dense_layer_partitioner", type=int, default=16, help="least kilobytes of a part of a variable")
    add("--inter", type=int, default=0, help="threads between ops; 0: one for each core")
    add("--intra", type=int, default=0, help="threads in an op; 0: one for each core")
    parser.set_defaults(**defaults)
    return parser.parse_args(arguments)


def run(
    data: str,
    build: Callable[..., Model],
    flags: argparse.Namespace,
    with_estimator: bool = False,
    minimize: Callable[..., tf.Operation] | None = None,
) -> dict[str, Any]:
    """Trains a model on all ranks, evaluates it on the held-out samples, and prints the results.

    With parameter servers in `TF_CONFIG` the process is the task that it names, and the chief evaluates.

    Args:
      data: A key of `zoo_data.LABELS`.
      build: `build(features, labels, flags)` returns a `Model`. It is called in a graph for training and in
        one for evaluation.
      flags: Those of `parse`.
      with_estimator: Whether an Estimator trains, or a MonitoredTrainingSession.
      minimize: `minimize(loss, flags, global_step)` returns the training op; None for `--optimizer` on all
        variables.

    Returns:
      "ranks"; "step"; "losses" of this rank's steps; "loss", the mean of their last tenth; "auc", by label;
      "samples_per_second" over all ranks; "checkpoint", the path of the last one; with `--export` or
      `--export_library` "served", the inputs and outputs of a request for held-out samples.
    """
    tf.disable_eager_execution()
    cluster = zoo_cluster.Cluster()
    tf.config.experimental.enable_distributed_strategy(
        "parameter_server" if cluster.servers else flags.group_embedding
    )
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as nowhere:
        # Estimator starts the server by itself.
        target = "" if with_estimator else cluster.start()
        task = _Task(data, build, flags, folder, minimize or _minimize, cluster, target)
        if not flags.checkpoint and (task.strategy.world_size > 1 or cluster.servers):
            raise SystemExit("Several processes need --checkpoint, a folder that all of them use.")
        checkpoints = flags.checkpoint or nowhere
        results = (task.train_with_estimator if with_estimator else task.train_in_session)(checkpoints)
        results["checkpoint"] = tf.train.latest_checkpoint(checkpoints)
        if (flags.export or flags.export_library) and cluster.is_chief:
            results["served"] = task.export(results["checkpoint"])
    if task.strategy.rank == 0 and cluster.is_chief:
        aucs = ", ".join(f"AUC of {label} {auc:.4f}" for label, auc in results["auc"].items())
        print(
            f"ranks {results['ranks']}, step {results['step']}, loss {results['loss']:.4f}, "
            f"{results['samples_per_second']:.0f} samples/s, held-out {aucs}"
        )
    return results


def _minimize(loss: tf.Tensor, flags: argparse.Namespace, global_step: tf.Variable) -> tf.Operation:
    return zoo_layers.optimizer(flags, global_step).minimize(loss, global_step=global_step)


def session_config(flags: argparse.Namespace) -> tf.ConfigProto:
    """The configuration with DeepRec's fields."""
    config = tf.ConfigProto(
        inter_op_parallelism_threads=flags.inter, intra_op_parallelism_threads=flags.intra
    )
    config.graph_options.optimizer_options.do_op_fusion = flags.op_fusion
    config.graph_options.optimizer_options.do_smart_stage = flags.smartstaged
    config.graph_options.optimizer_options.micro_batch_num = flags.micro_batch
    return config


class _Task:
    """A model, its data, and how it is trained."""

    def __init__(
        self,
        data: str,
        build: Callable,
        flags: argparse.Namespace,
        folder: str,
        minimize: Callable,
        cluster: zoo_cluster.Cluster,
        target: str,
    ):
        self.strategy = CollectiveStrategy()
        self._cluster, self._target = cluster, target
        self._labels, self._build, self._flags, self._minimize = zoo_data.LABELS[data], build, flags, minimize
        written = zoo_data.write_parquet(data, flags.data_location, flags.samples, folder)
        self._training, self._held_out = (
            _for_all_tasks(written, flags.checkpoint) if cluster.servers else written
        )

    def _training_batches(self) -> tf.data.Dataset:
        """This rank's batches, without end."""
        batch_size = self._flags.batch_size
        if self._flags.workqueue:
            works = WorkQueue(self._training, num_epochs=1000, seed=self._flags.seed)
            fields = parquet_dataset_ops.ParquetDataset.read_schema(self._training[0])
            dataset = works.input_dataset().apply(parquet_dataset_ops.read_parquet(batch_size, fields))
        else:
            ranks = {"partition_count": self.strategy.world_size, "partition_index": self.strategy.rank}
            if self._cluster.servers:
                ranks = {"partition_count": self._cluster.workers, "partition_index": self._cluster.worker}
            dataset = parquet_dataset_ops.ParquetDataset(self._training, batch_size, **ranks)
            dataset = dataset.shuffle(20, seed=self._flags.seed).repeat()
        return self._split(dataset)

    def _held_out_batches(self) -> tf.data.Dataset:
        """All ranks read all held-out samples, because each lookup needs all ranks."""
        return self._split(parquet_dataset_ops.ParquetDataset(self._held_out, self._flags.batch_size))

    def _split(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Pairs (features, labels); lists are sparse tensors."""
        labels = self._labels

        def split(columns: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            return {name: value for name, value in columns.items() if name not in labels}, {
                name: columns[name] for name in labels
            }

        split = tf.autograph.experimental.do_not_convert(split)
        return dataset.apply(dataframe.to_sparse()).map(split).prefetch(2)

    def train_in_session(self, checkpoints: str) -> dict[str, Any]:
        """Trains in a MonitoredTrainingSession and evaluates the last checkpoint."""
        flags = self._flags
        with tf.Graph().as_default(), self._cluster.scope():
            tf.set_random_seed(flags.seed)
            global_step = tf.train.create_global_step()
            iterator = tf.data.make_initializable_iterator(self._training_batches())
            batch = iterator.get_next()
            hooks = [tf.train.StopAtStepHook(last_step=flags.steps)]
            if flags.smartstaged:
                batch = tf.staged(batch, num_threads=4, capacity=40)
                hooks.append(tf.make_prefetch_hook())
            loss = self._build(*batch, flags).loss
            step = self._minimize(loss, flags, global_step)
            scaffold = tf.train.Scaffold(
                local_init_op=tf.group(tf.local_variables_initializer(), iterator.initializer),
                saver=tf.train.Saver(max_to_keep=flags.keep_checkpoint_max, sharded=True),
            )
            losses = []
            with tf.train.MonitoredTrainingSession(
                self._target,
                is_chief=self._cluster.is_chief,
                scaffold=scaffold,
                checkpoint_dir=checkpoints,
                save_checkpoint_steps=flags.save_steps,
                save_incremental_checkpoint_secs=flags.incremental_ckpt or None,
                save_summaries_steps=None,
                hooks=hooks,
                config=self._cluster.configure(session_config(flags)),
            ) as session:
                started = time.time()
                try:  # the session ends with the works of a queue, too
                    while not session.should_stop():
                        losses.append(session.run([loss, step])[0])
                finally:
                    seconds = time.time() - started
        return self._results(losses, seconds, self._evaluate(checkpoints) if self._cluster.is_chief else {})

    @contextlib.contextmanager
    def _restored(self, checkpoint: str, batch: Callable[[], tuple]) -> Iterator[tuple]:
        """A context with (session, features, labels, model) of a checkpoint, for `batch()` in a new graph."""
        with tf.Graph().as_default():
            tf.train.create_global_step()
            features, labels = batch()
            model = self._build(features, labels, self._flags)
            saver = tf.train.Saver(sharded=True)
            with tf.Session(config=session_config(self._flags)) as session:
                saver.restore(session, checkpoint)
                yield session, features, labels, model

    def _held_out_batch(self) -> tuple:
        return tf.data.make_one_shot_iterator(self._held_out_batches()).get_next()

    def _evaluate(self, checkpoints: str) -> dict[str, float]:
        """The AUC of each label on the held-out samples."""
        checkpoint = tf.train.latest_checkpoint(checkpoints)
        with self._restored(checkpoint, self._held_out_batch) as (session, _, labels, model):
            metrics = _aucs(labels, model)
            updates = [update for _, update in metrics.values()]
            session.run(tf.local_variables_initializer())
            while True:
                try:
                    session.run(updates)
                except tf.errors.OutOfRangeError:
                    break
            return {name: float(session.run(value)) for name, (value, _) in metrics.items()}

    def export(self, checkpoint: str) -> dict[str, Any]:
        """Writes the models of `--export`, named by the step, and of `--export_library`, named by the time.

        Returns:
          "inputs" and "outputs", arrays by name: held-out samples and what the model predicts for them.
        """
        flags, step = self._flags, checkpoint.rsplit("-", 1)[1]
        with self._restored(checkpoint, self._held_out_batch) as (session, features, _, model):
            samples = {
                name: zoo_layers.padded(value) if isinstance(value, tf.SparseTensor) else value
                for name, value in features.items()
            }
            inputs, outputs = session.run([samples, model.probabilities])
        with self._restored(checkpoint, self._request) as (session, _, _, model):
            taken = _inputs(model)
            if flags.export:
                folder = os.path.join(flags.export, step)
                sok.serving.export(session, folder, taken, model.probabilities)
        if flags.export_library:

            def signature() -> Any:
                model = self._build(*self._request(), flags)
                return tf.saved_model.predict_signature_def(_inputs(model), model.probabilities)

            self.strategy.export_saved_model(flags.export_library, checkpoint, signature)
        return {"inputs": {name: inputs[name] for name in taken}, "outputs": outputs}

    def _request(self) -> tuple:
        """Placeholders of features, and of labels, which no prediction needs. Lists are padded."""
        with tf.Graph().as_default():
            batches = self._held_out_batches()
        types, classes = tf.data.get_output_types(batches), tf.data.get_output_classes(batches)
        features, labels = (
            {
                name: tf.placeholder(dtype, [None, None] if kinds[name] is tf.SparseTensor else [None], name)
                for name, dtype in dtypes.items()
            }
            for dtypes, kinds in zip(types, classes)
        )
        return {
            name: zoo_layers.without_padding(value) if value.shape.rank == 2 else value
            for name, value in features.items()
        }, labels

    def train_with_estimator(self, checkpoints: str) -> dict[str, Any]:
        """Trains and evaluates an Estimator."""
        flags, losses = self._flags, []

        class Losses(tf.train.SessionRunHook):
            def before_run(self, run_context: Any) -> tf.train.SessionRunArgs:
                return tf.train.SessionRunArgs("loss:0")

            def after_run(self, run_context: Any, run_values: Any) -> None:
                losses.append(run_values.results)

        config = tf.estimator.RunConfig(
            tf_random_seed=flags.seed,
            save_checkpoints_steps=flags.save_steps,
            save_incremental_checkpoint_secs=flags.incremental_ckpt or None,
            keep_checkpoint_max=flags.keep_checkpoint_max,
            session_config=self._cluster.configure(session_config(flags)),
            log_step_count_steps=None,
        )
        estimator = self.strategy.estimator(self._model_fn, model_dir=checkpoints, config=config)
        started = time.time()
        if self._cluster.servers:
            training = tf.estimator.TrainSpec(self._training_batches, max_steps=flags.steps, hooks=[Losses()])
            evaluation = tf.estimator.EvalSpec(self._held_out_batches, steps=None)
            tf.estimator.train_and_evaluate(estimator, training, evaluation)
        else:
            estimator.train(self._training_batches, hooks=[Losses()], max_steps=flags.steps)
        seconds = time.time() - started
        metrics = estimator.evaluate(self._held_out_batches) if self._cluster.is_chief else {}
        return self._results(
            losses, seconds, {label: float(metrics[label]) for label in self._labels if label in metrics}
        )

    def _model_fn(self, features: Any, labels: Any, mode: str) -> tf.estimator.EstimatorSpec:
        model = self._build(features, labels, self._flags)
        loss = tf.identity(model.loss, name="loss")
        if mode == tf.estimator.ModeKeys.EVAL:
            return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=_aucs(labels, model))
        step = self._minimize(loss, self._flags, tf.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)

    def _results(self, losses: list[float], seconds: float, auc: dict[str, float]) -> dict[str, Any]:
        ranks = int(self.strategy.world_size)
        tail = losses[-max(1, len(losses) // 10) :]
        return {
            "ranks": ranks,
            "step": self._flags.steps,
            "losses": losses,
            "loss": sum(tail) / max(1, len(tail)),
            "auc": auc,
            "samples_per_second": len(losses) * self._flags.batch_size * ranks / seconds,
        }


def _inputs(model: Model) -> dict[str, tf.Tensor]:
    """The placeholders that a model's predictions need, by name; servers take no SparseTensors."""
    graph = tf.get_default_graph()
    outputs = [one.op.name for one in model.probabilities.values()]
    needed = {node.name for node in tf.graph_util.extract_sub_graph(graph.as_graph_def(), outputs).node}
    found = [op for op in graph.get_operations() if op.type == "Placeholder" and op.name in needed]
    return {op.name: op.outputs[0] for op in found}


def _for_all_tasks(written: tuple, checkpoints: str) -> tuple:
    """Returns the paths of the same files in a folder that all tasks use, as the works of a queue."""
    folder = os.path.join(checkpoints, "samples")
    os.makedirs(folder, exist_ok=True)

    def moved(path: str) -> str:
        # Each task writes the same files. None reads a file that another is writing.
        own = tempfile.mkdtemp(dir=folder)
        shutil.copy(path, own)
        target = os.path.join(folder, os.path.basename(path))
        os.replace(os.path.join(own, os.path.basename(path)), target)
        os.rmdir(own)
        return target

    training, held_out = written
    return [moved(path) for path in training], moved(held_out)


def _aucs(labels: dict[str, tf.Tensor], model: Model) -> dict[str, tuple[tf.Tensor, tf.Operation]]:
    """(value, update) of each label's AUC."""
    return {
        name: tf.metrics.auc(
            tf.reshape(labels[name], [-1]), tf.reshape(probability, [-1]), num_thresholds=1000
        )
        for name, probability in model.probabilities.items()
    }
