"""IntegerLookup: 64-bit keys to rows of a table, as in NVIDIA's distributed-embeddings."""

from __future__ import annotations

from typing import Any, Union

import numpy as np
import tensorflow as tf

from sparse_operation_kit import native
from sparse_operation_kit.arguments import whole_number
from sparse_operation_kit.compat.tensors import with_values
from sparse_operation_kit.dist_model_parallel.keras import Layer, keras, keras_session
from sparse_operation_kit.graphs import graph_ops
from sparse_operation_kit.ranks import exchange_names
from sparse_operation_kit.ranks.communicator import communicator

Keys = Union[tf.Tensor, tf.RaggedTensor, tf.SparseTensor]

# The limit of the engine (cc/vocabulary).
_MOST_TOKENS = 2**30 - 1
# The kernel is for CPUs, and updates the variables in place.
_DEVICE = "/device:CPU:0"


class IntegerLookup(Layer):
    """A Keras layer that numbers keys 1, 2, 3, … in the order of their first occurrence.

    Every integer except -1 is a key; -1 means no key, and its number is 0. Once `max_tokens` keys have
    numbers, the number of every other key is 0. So numbers are ids for a table of `max_tokens + 1` rows.

    `layer(inputs, training=True)` takes a Tensor of any shape, a RaggedTensor or a SparseTensor, of any
    integer dtype, and returns the same with int64 numbers. With `training=False`, a Python bool or a scalar
    tensor, new keys are 0, and nothing is counted.

    All ranks have the same numbers, as if one process got the ranks' inputs one after another. For this, each
    rank sends its distinct keys to the others in every call with `training=True`, which all ranks must run.

    The state is in ordinary variables, so Savers, `save_weights` and broadcasts include it. Calls from
    several threads run one after the other if they add keys.
    """

    def __init__(self, max_tokens: int, use_gpu: bool = True, **kwargs: Any) -> None:
        """Creates the layer and its variables, of 16 bytes and 8 to 16 more for each token.

        Args:
          max_tokens: the most keys with numbers, at least 1.
          use_gpu: has no effect; keys are numbered on the CPU.
          **kwargs: arguments of every Keras layer, such as `name`.

        Raises:
          TypeError, ValueError: `max_tokens` is not an int, or out of range.
        """
        super().__init__(autocast=False, **{"dtype": "int64", **kwargs})
        self.max_tokens = whole_number(max_tokens, f"IntegerLookup layer '{self.name}': max_tokens")
        if self.max_tokens > _MOST_TOKENS:
            raise ValueError(
                f"IntegerLookup layer '{self.name}': max_tokens must be at most {_MOST_TOKENS}, "
                f"not {max_tokens}"
            )
        self.use_gpu = use_gpu
        slots = 2 ** (2 * self.max_tokens - 1).bit_length()
        with tf.device(_DEVICE):
            self._keys = self._state("keys", [self.max_tokens + 1], tf.int64, -1)
            self._counts = self._state("counts", [self.max_tokens + 1], tf.int64)
            self._slots = self._state("slots", [slots], tf.int32)
            self._size = self._state("size", [], tf.int64)

    def call(self, inputs: Keys, training: Union[bool, tf.Tensor, None] = True) -> Keys:
        """The numbers of keys. `training=None` is True.

        Raises:
          TypeError: the keys are not integers, or do not fit into int64.
        """
        training = True if training is None else training
        if isinstance(inputs, (tf.RaggedTensor, tf.SparseTensor)):
            return with_values(inputs, self.call(inputs.values, training))
        return self._numbers(tf.convert_to_tensor(inputs), training)

    def get_vocabulary(self, session: tf.compat.v1.Session | None = None) -> list[int]:
        """The keys by number: -1 for number 0, then the first key and so on.

        Args:
          session: in a graph, the one with the layer's variables; None for the default session, or Keras'.
        """
        keys, size = self._read([self._keys, self._size], session)
        return keys[: size + 1].tolist()

    def get_counts(self, session: tf.compat.v1.Session | None = None) -> np.ndarray:
        """How often each number occurred in training, in the order of `get_vocabulary`; int64."""
        counts, size = self._read([self._counts, self._size], session)
        return counts[: size + 1]

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """The shape of the numbers of keys of shape `input_shape`."""
        return tf.TensorShape(input_shape)

    def get_config(self) -> dict[str, Any]:
        """The layer's arguments, for `from_config`."""
        return {**super().get_config(), "max_tokens": self.max_tokens, "use_gpu": self.use_gpu}

    def _state(self, name: str, shape: list[int], dtype: tf.DType, value: int = 0) -> tf.Variable:
        initializer = keras.initializers.Constant(value)
        return self.add_weight(
            name=name,
            shape=shape,
            dtype=dtype,
            initializer=initializer,
            trainable=False,
            use_resource=True,
        )

    @tf.autograph.experimental.do_not_convert
    def _numbers(self, keys: tf.Tensor, training: Union[bool, tf.Tensor]) -> tf.Tensor:
        if not keys.dtype.is_integer or keys.dtype == tf.uint64:
            raise TypeError(
                f"IntegerLookup layer '{self.name}': keys are {keys.dtype.name}, not of an integer dtype "
                "that int64 holds"
            )
        keys = tf.cast(keys, tf.int64)
        none = tf.zeros([0], tf.int64)
        with tf.device(_DEVICE):
            if training is False or communicator().size == 1:
                return self._lookup(keys, none, training)
            distinct, places, occurrences = tf.unique_with_counts(tf.reshape(keys, [-1]), out_idx=tf.int64)
            added = self._lookup(*self._of_all_ranks(distinct, occurrences, training), training)
            with tf.control_dependencies([added]):
                numbers = tf.gather(self._lookup(distinct, none, False), places)
            return tf.reshape(numbers, tf.shape(keys))

    def _of_all_ranks(
        self, distinct: tf.Tensor, occurrences: tf.Tensor, training: Union[bool, tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The distinct keys of the ranks, and how often each occurs there, one rank after the other."""
        words = tf.reshape(tf.stack([distinct, occurrences], axis=1), [-1])
        # All ranks run the exchange, also if `training` is a tensor that is false.
        words = words[: tf.size(words) * tf.cast(training, tf.int32)]
        name = exchange_names.unique_name(f"keys of IntegerLookup '{self.name}'")
        received, _ = communicator().send_to_all(words, name)
        pairs = tf.reshape(received, [-1, 2])
        return pairs[:, 0], pairs[:, 1]

    def _lookup(self, keys: tf.Tensor, occurrences: tf.Tensor, add: Union[bool, tf.Tensor]) -> tf.Tensor:
        return native.ops.sok_vocabulary_lookup(
            keys=self._keys.handle,
            counts=self._counts.handle,
            slots=self._slots.handle,
            size=self._size.handle,
            ids=keys,
            occurrences=occurrences,
            add=add,
            layer=self.name,
        )

    @staticmethod
    def _read(variables: list[tf.Variable], session: tf.compat.v1.Session | None) -> list[Any]:
        if session is None and tf.executing_eagerly():
            return [variable.numpy() for variable in variables]
        session = session or tf.compat.v1.get_default_session() or keras_session()
        return session.run(variables)


tf.no_gradient(graph_ops.VOCABULARY_LOOKUP)
