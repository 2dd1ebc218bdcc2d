"""Every public name in DeepRec's documents on embedding, and what this library has for it.

The tables under "Every name" in docs/from-deeprec.md, what `installation` adds to TensorFlow, and the errors
for absent names are made from it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

ABSENT = "absent"


@dataclasses.dataclass(frozen=True)
class Row:
    """One or more names.

    Attributes:
      what: a full name or several, which begin with `tf.` or a module's or class's name; or, with backticks,
        Markdown about something that has no name.
      answer: "same", "same, but" and so on, or `ABSENT`.
      note: how it differs, or what to use instead, in Markdown.
    """

    what: str | tuple[str, ...]
    answer: str
    note: str = ""

    @property
    def names(self) -> Sequence[str]:
        """The full names; empty if `what` is Markdown."""
        if isinstance(self.what, tuple):
            return self.what
        return () if "`" in self.what else (self.what,)


# By title, in the order of the document.
NAMES: Mapping[str, Sequence[Row]] = {
    "tables": (
        Row(
            "tf.get_embedding_variable",
            "same, but",
            "`value_dtype` is float32. With a `partitioner`, iterating over the result gives one part, "
            "the table. `regularizer`, `custom_getter`, `constraint` and `init_data_source` raise a "
            "`ValueError` that says what to do instead. A list as `initializer` is the "
            "initial row of every key; it must have `embedding_dim` numbers. Every int64 is a valid key",
        ),
        Row(
            ("EmbeddingVariable.total_count", "EmbeddingVariable.get_dynamic_shape"),
            "same, but",
            "they count rows; DeepRec's count ids that wait for a `CounterFilter`, too. `size()` gives the "
            "number of rows as a scalar",
        ),
        Row(
            "EmbeddingVariable.export",
            "same, but",
            "keys, values, versions and freqs of the rows on this rank. Without `GlobalStepEvict` "
            "versions are empty, without a filter freqs are",
        ),
        Row(
            ("EmbeddingVariable.get_frequency", "EmbeddingVariable.get_version"),
            "same, but",
            "raise a `ValueError` for tables that do not keep them: versions need `GlobalStepEvict`, "
            "frequencies a filter. Frequencies count all occurrences; DeepRec's stop at `filter_freq`. "
            "`get_frequency` also returns the counts of ids that wait for a "
            "`CounterFilter`, and `get_version` the step before their last lookup, not the step of it. For "
            "other ids without a row on this rank, they return 0 and -1",
        ),
        Row(
            "the environment variables `TF_RECORD_FREQ=1`, `TF_RECORD_VERSION=1`",
            "same",
            "tables without a filter keep frequencies, and tables without eviction keep versions. They are "
            "read when a variable is created, if DeepRec's names are installed",
        ),
        Row(
            "the environment variable `TF_EV_SAVE_FILTERED_FEATURES`",
            "no effect",
            "checkpoints contain the counts of ids that wait. An export for serving leaves them out",
        ),
        Row(
            "the environment variable `INFERENCE_MODE=1`",
            "same",
            "lookups insert nothing. It is read when a lookup is built, if DeepRec's names are installed",
        ),
        Row(
            "tf.EmbeddingVariableOption",
            "same, but",
            "`ht_type` and `ht_partition_num` have no effect; `ckpt` raises a `ValueError`",
        ),
        Row(
            "tf.InitializerOption",
            "same",
            "`default_value_dim` must be below 2^32. See [Arithmetic](#arithmetic)",
        ),
        Row(
            "tf.CounterFilter",
            "same, and",
            "the rule of DeepRec's current sources; `before_lookup=True` is that of its releases until "
            "2023. A `filter_freq` of 0 filters nothing. Checkpoints contain the counts. See "
            "[which keys get rows](admission-and-eviction.md)",
        ),
        Row(
            "tf.CBFFilter",
            "same, but",
            "it has `before_lookup` too. A key may be admitted early, never late. Above 16 MiB, only "
            "counters in use take [memory](admission-and-eviction.md) and space in checkpoints. On a GPU "
            "all counters take memory: `max_element_size=2**30` at 0.01 with `tf.int64` is 87 GB per "
            "table",
        ),
        Row(
            "tf.GlobalStepEvict",
            "same",
            "when a checkpoint is saved, rows are evicted from the table, too. In a graph without a "
            "global step, the table counts its own steps",
        ),
        Row("tf.L2WeightEvict", "same"),
        Row(
            "tf.get_dynamic_dimension_embedding_variable",
            "same, and",
            "each block is a table, `name/block_0` and so on; one op looks up all blocks. "
            "`safe_embedding_lookup_sparse` takes no `blocknums`",
        ),
        Row(
            "tf.get_multihash_variable",
            "same, and",
            'consists of two ordinary variables, `name_0` and `name_1`. `operation` may be `"mult"` or '
            '`"mul"`. An id must be less than the square of `dims[0][0]`: see [multi-hash '
            "variables](deeprec-scripts.md#multi-hash-variables)",
        ),
        Row(
            (
                "tf.StorageOption",
                "tf.StorageType",
                "tf.CacheStrategy",
                "tensorflow.core.framework.embedding.config_pb2.StorageType",
                "tensorflow.core.framework.embedding.config_pb2.CacheStrategy",
            ),
            "same, but",
            "one tier only: `DRAM` is the host's memory, `HBM` the GPU's. Other tiers raise a "
            '`ValueError`: to bound a table, use `capacity=` and `on_full="evict_lru"` or `"evict_lfu"` '
            "of `sok.EmbeddingVariable`. Path, sizes and cache strategy have no effect",
        ),
        Row(
            "tf.GraphKeys.EMBEDDING_VARIABLES",
            "same",
            "the tables of `get_embedding_variable` and of columns",
        ),
        Row(
            ("tf.GraphKeys.EV_INIT_VAR_OPS", "tf.GraphKeys.EV_INIT_SLOT_OPS"),
            "same, but",
            "running them is optional, because the variables' initializers do the work. The first has an "
            "op for each table, which does not change a table that exists; the second is empty, because "
            "slots are in the rows",
        ),
        Row(
            (
                "tensorflow.python.ops.kv_variable_ops.EmbeddingVariable",
                "tensorflow.python.ops.kv_variable_ops.MultiHashVariable",
                "tensorflow.python.ops.kv_variable_ops.DynamicEmbeddingVariable",
            ),
            "same, but",
            "the classes, for `isinstance`: only the functions above make objects of them",
        ),
        Row(
            "tensorflow.python.ops.hash_table",
            "absent",
            "`tf.get_embedding_variable` makes tables, and `tf.CounterFilter` and `tf.CBFFilter` admit keys",
        ),
        Row(
            "tf.CheckpointOption",
            "absent",
            "`sok.init_from_checkpoint` loads rows from a checkpoint, "
            "[`assign_rows`](from-tensorflow.md#pretrained-rows) from arrays",
        ),
    ),
    "lookups and columns": (
        Row(
            "tf.nn.group_embedding_lookup_sparse",
            "same, and",
            "it also takes weights, `sqrtn`, RaggedTensors and ordinary variables; a table may occur in "
            "`params` twice. One op looks up all tables of a call, so `params_num_per_group` has no "
            "effect, and `partition_strategy` none on tables. Weights may be at the position of the older"
            " or of the newer releases",
        ),
        Row("tf.nn.group_embedding_lookup", "same"),
        Row(
            ("tf.nn.embedding_lookup", "tf.nn.embedding_lookup_sparse", "tf.nn.safe_embedding_lookup_sparse"),
            "TensorFlow's",
            "they accept tables. Each call is a separate op, with separate exchanges over ranks. Filters "
            "count all occurrences of an id, as in DeepRec. Samples without ids at the end of the batch get "
            "zeros",
        ),
        Row(
            ("tf.nn.fused_embedding_lookup_sparse", "tf.nn.fused_safe_embedding_lookup_sparse"),
            "same, and",
            "one op; results are those of TensorFlow's `embedding_lookup_sparse` and "
            "`safe_embedding_lookup_sparse`, also with weights and `max_norm`",
        ),
        Row(
            ("tf.nn.embedding_lookup_sparse_multi_dim", "tf.nn.safe_embedding_lookup_multi_dim"),
            "same, but",
            "ids may be in any order. In both, samples without ids at the end of the batch get zeros",
        ),
        Row(
            "tf.nn.adaptive_embedding_lookup_sparse",
            "same, but",
            "`tf.nn.embedding_lookup` takes `ev_init_value=` too. The table needs a constant initializer,"
            " because new rows are recognized by their value. Several ids of a sample are combined. Over "
            "ranks, each such lookup takes two more small exchanges",
        ),
        Row(
            "tf.feature_column.categorical_column_with_adaptive_embedding",
            "same, but",
            "`input_layer`, and the call of `tf.keras.layers.DenseFeatures`, take "
            "`adaptive_mask_tensors=`; a mask has one value for each sample, which applies to all of its "
            "ids. Such columns are not looked up in groups",
        ),
        Row(
            "tf.feature_column.categorical_column_with_multihash",
            "same, but",
            "such columns are not looked up in groups",
        ),
        Row("tf.feature_column.sequence_categorical_column_with_embedding", "same"),
        Row(
            "tf.feature_column.group_embedding_column_scope",
            "same, and",
            "features may be RaggedTensors, also for other columns; SparseTensors are as fast as "
            "RaggedTensors; scopes can be nested",
        ),
        Row(
            "tf.feature_column.categorical_column_with_embedding",
            "same, but",
            "`partition_num` has no effect. Strings have the same keys as in DeepRec, "
            "`tf.strings.to_hash_bucket_fast(x, 2**63 - 1)`",
        ),
        Row(
            "`embedding_column(max_norm=…)` over it",
            "absent",
            "raises a `ValueError`: TensorFlow would clip the result of the lookup, not the table",
        ),
        Row(
            "`do_fusion=` of `tf.feature_column.embedding_column`, `shared_embedding_columns`, "
            "`linear_model`",
            "no effect",
            "a lookup in a table is always one op",
        ),
        Row(
            (
                "tf.feature_column.input_layer",
                "tf.feature_column.make_parse_example_spec",
                "tf.feature_column.shared_embedding_columns",
                "tf.feature_column.weighted_categorical_column",
            ),
            "TensorFlow's",
            "they accept these columns",
        ),
        Row(
            (
                "tf.contrib.feature_column.sparse_column_with_embedding",
                "tf.contrib.layers.sparse_column_with_embedding",
            ),
            "absent",
            "use `tf.feature_column.categorical_column_with_embedding` and "
            "`tf.feature_column.embedding_column`",
        ),
        Row(
            "tf.contrib",
            "absent",
            "TensorFlow 2 has no `tf.contrib`: use `tf.feature_column`, `tf.nn` and `tf.layers`. "
            "TensorFlow 1.15 has it, without DeepRec's additions",
        ),
    ),
    "training": (
        Row(
            "tf.config.experimental.enable_distributed_strategy",
            "same, but",
            'it takes `"collective"` and `"localized"`; `"parameter_server"` raises a `ValueError`',
        ),
        Row(
            "tf.config.experimental.enable_group_embedding",
            "same",
            "the older name of `enable_distributed_strategy`",
        ),
        Row(
            "tensorflow.python.distribute.group_embedding_collective_strategy.CollectiveStrategy",
            "same",
            "`scope`, `embedding_scope`, `world_size`, `rank`, `estimator`, `export_saved_model`. The"
            " learning rate is never scaled",
        ),
        Row(
            "tensorflow.python.distribute.launch",
            "absent",
            "`mpirun -np N` or `horovodrun -np N` starts the ranks: [over ranks](#over-ranks)",
        ),
        Row(
            "the environment variable `COLLECTIVE_STRATEGY`",
            "no effect",
            "this library does what either value asks for",
        ),
        Row("tf.train.AdagradDecayOptimizer", "same"),
        Row(
            "tf.train.AdagradDecayOptimizerV2",
            "same",
            "the same class as `AdagradDecayOptimizer`: in DeepRec they differ only in the shape of a "
            "slot of ordinary variables",
        ),
        Row("tf.train.AdamAsyncOptimizer", "same"),
        Row(
            "tf.train.AdamWOptimizer",
            "same, but",
            "it has `decay_var_list` too. Rows that a step does not touch neither decay nor move. See "
            "[AdamW](optimizers.md#adamw)",
        ),
        Row(
            ("tf.train.AdamOptimizer", "tf.train.FtrlOptimizer"),
            "same",
            "on tables with DeepRec's [arithmetic](#arithmetic)",
        ),
        Row(
            (
                "tf.train.GradientDescentOptimizer",
                "tf.train.MomentumOptimizer",
                "tf.train.AdagradOptimizer",
                "tf.train.RMSPropOptimizer",
                "tf.train.AdadeltaOptimizer",
            ),
            "TensorFlow's",
            "they train tables; other optimizers raise a `TypeError` that lists these",
        ),
        Row(
            ("tf.clip_by_global_norm", "tf.clip_by_norm", "tf.clip_by_value"),
            "TensorFlow's",
            "over ranks, norms count the rows of all ranks",
        ),
        Row(
            "tf.estimator.Estimator",
            "TensorFlow's, up to 2.15",
            "in later versions use `MonitoredTrainingSession`",
        ),
        Row(
            "parameter servers, `tf.train.ClusterSpec`",
            "absent",
            "a table in a program with parameter servers raises a `ValueError`; ranks hold the tables: "
            "[over ranks](#over-ranks)",
        ),
        Row(
            (
                "tf.staged",
                "tf.make_prefetch_hook",
                "tf.train.mark_target_node",
                "tensorflow.python.ops.prefetch.staged",
                "tensorflow.python.ops.prefetch.make_prefetch_hook",
            ),
            "same, but",
            "one thread computes batches, so that they keep their order; lookups in tables stay in the "
            "step. See [batches ahead of the step](deeprec-scripts.md#batches-ahead-of-the-step)",
        ),
        Row(
            "tf.prefetch_join",
            "absent",
            "read several sources with `tf.data.Dataset.interleave`, and pass its batches to `tf.staged`",
        ),
        Row(
            "`tf.ConfigProto` with `do_op_fusion`, `do_smart_stage`, `stage_subgraph_on_cpu` and so on",
            "no effect",
            "the fields can be set, which is [logged once](deeprec-scripts.md#fields-of-tfconfigproto). "
            "`micro_batch_num` above 1 raises a `ValueError`",
        ),
        Row(
            "tf.stream",
            "absent",
            "TensorFlow chooses a GPU's streams: leave the scope out",
        ),
        Row(
            "tf.graph_optimizer",
            "absent",
            "instead of `enable_sample_awared_graph_compression`, compute once per user what depends only"
            " on the user, and repeat the result with `tf.repeat`",
        ),
        Row(
            "tensorflow.python.ops.work_queue.WorkQueue",
            "same, but",
            "each rank has a fixed share of the works. A queue can be saved and restored on any number of"
            " ranks. See [work queues](deeprec-scripts.md#work-queues)",
        ),
        Row("tf.variable_scope.keep_weights", "same", "[bfloat16](deeprec-scripts.md#bfloat16)"),
        Row(
            (
                "tf.data.experimental.ParquetDataset",
                "tf.data.experimental.DataFrame",
                "tensorflow.python.data.experimental.ops.parquet_dataset_ops.DataFrame",
                "tensorflow.python.data.experimental.ops.parquet_dataset_ops.ParquetDataset",
                "tensorflow.python.data.experimental.ops.parquet_dataset_ops.read_parquet",
                "tensorflow.python.data.experimental.ops.dataframe.DataFrame",
                "tensorflow.python.data.experimental.ops.dataframe.to_sparse",
                "tensorflow.python.data.experimental.ops.dataframe.unbatch_and_to_sparse",
            ),
            "same, and",
            "they use pyarrow, and take `filters`. See [Parquet files](deeprec-scripts.md#parquet-files)",
        ),
        Row(
            ("tf.data.KafkaDataset", "tf.data.KafkaGroupIODataset"),
            "absent",
            "the package tensorflow-io reads from Kafka",
        ),
        Row(
            "tf.TableRecordReader",
            "absent",
            "export the table to Parquet files, and read them with `tf.data.experimental.ParquetDataset`",
        ),
    ),
    "saving and serving": (
        Row(
            "`tf.train.Saver`, checkpoints of `MonitoredTrainingSession` and `Estimator`",
            "same, but",
            "tables have this library's [format](checkpoints.md), and are restored on any number of "
            "ranks. DeepRec's checkpoints cannot be read: export their rows, and load them with "
            "[`assign_rows`](from-tensorflow.md#pretrained-rows)",
        ),
        Row(
            "the tensors `NAME-keys`, `NAME-values` and so on in checkpoints",
            "absent",
            "[`python -m sparse_operation_kit.checkpoint export`](checkpoints.md) writes keys and "
            "rows; `EmbeddingVariable.export()` returns them",
        ),
        Row(
            "`save_incremental_checkpoint_secs` of `MonitoredTrainingSession`",
            "same, and",
            "`tf.estimator.RunConfig` takes it too. See [incremental checkpoints](#incremental-checkpoints)",
        ),
        Row("`tf.train.CheckpointSaverHook(incremental_save_secs=…)`", "same"),
        Row(
            "`tf.train.Saver(incremental_save_restore=True)`, "
            "`tf.train.Scaffold(incremental_save_restore=True)`",
            "same",
            "no effect: every Saver restores incremental checkpoints",
        ),
        Row(
            (
                "tf.train.IncrementalSaver",
                "tensorflow.python.training.incremental_saver.IncrementalSaver",
                "tensorflow.python.training.incremental_saver._get_incremental_saver",
            ),
            "same, but",
            "`recover_incr_checkpoints` is absent: `latest_checkpoint` finds incremental checkpoints",
        ),
        Row("`export_saved_model(save_incr_model=True)`", "absent", "export a full checkpoint"),
        Row(
            "Processor, `SessionGroup`",
            "absent",
            "export a SavedModel, which TensorFlow loads with this library's ops",
        ),
    ),
}


def names_that_exist() -> list[str]:
    """The full names that are not absent here."""
    return [name for rows in NAMES.values() for row in rows if row.answer != ABSENT for name in row.names]


def absent_names() -> dict[str, str]:
    """The errors for the names that are absent here, by full name."""
    return {
        name: f"{name} of DeepRec is absent here: {_plain(row.note)}"
        for rows in NAMES.values()
        for row in rows
        if row.answer == ABSENT
        for name in row.names
    }


def _plain(markdown: str) -> str:
    """The text without links and backticks."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown).replace("`", "")
