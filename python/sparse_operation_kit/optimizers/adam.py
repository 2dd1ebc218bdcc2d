"""Adam that updates every row in every step, with Keras' arguments."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from sparse_operation_kit.graphs.graph_keys import GraphKeys
from sparse_operation_kit.optimizers import v1_rules
from sparse_operation_kit.optimizers.known_optimizer import of_v1
from sparse_operation_kit.optimizers.scalar_state import CountsIterations


class Adam(CountsIterations, tf.compat.v1.train.AdamOptimizer):
    """`tf.compat.v1.train.AdamOptimizer` with Keras' argument names, for embedding and ordinary variables.

    On an embedding variable a step does what AdamOptimizer does on a dense variable with the same rows: the
    moments of every row decay and every row moves, whether it is in the batch or not. Rows outside the batch
    are brought up to date when they are next read, updated or saved, so a step costs only the rows of the
    batch.

    Its methods are those of tf.compat.v1.train.Optimizer. It adds itself to the collection
    `sok.GraphKeys.SparseOperationKitOptimizer` of the default graph.

    Args:
      learning_rate: a number, a scalar tensor, a function without arguments that returns one, or a Keras
        LearningRateSchedule (any function of one argument), which is called with `iterations`.
      beta_1: decay of the first moment, a number or a scalar tensor.
      beta_2: decay of the second moment, a number or a scalar tensor.
      epsilon: added to the square root of the second moment ("epsilon hat" of Kingma and Ba's paper).
      amsgrad: must be False.
      name: prefix of the names of ops and variables.

    Raises:
      ValueError: if `amsgrad` is true.
    """

    def __init__(
        self,
        learning_rate: float | tf.Tensor | Callable = 0.001,
        beta_1: float | tf.Tensor = 0.9,
        beta_2: float | tf.Tensor = 0.999,
        epsilon: float | tf.Tensor = 1e-7,
        amsgrad: bool = False,
        name: str = "Adam",
    ):
        if amsgrad:
            raise ValueError("amsgrad=True is not supported: tables keep no maximum of the second moment")
        self._learning_rate = learning_rate
        super().__init__(lambda: self._current(learning_rate), beta_1, beta_2, epsilon, name=name)
        if not tf.executing_eagerly():
            tf.compat.v1.add_to_collection(GraphKeys.SparseOperationKitOptimizer, self)

    @property
    def learning_rate(self) -> float | tf.Tensor | Callable:
        """The `learning_rate` argument."""
        return self._learning_rate


ENTRY = of_v1(
    "sok.optimizers.Adam",
    Adam,
    v1_rules.adam,
    {"adam": {}},
    create_shared_state=v1_rules.create_beta_powers,
)
