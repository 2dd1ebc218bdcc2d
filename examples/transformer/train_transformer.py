"""Translates numbers into words with a Transformer whose vocabulary table is sliced by columns over ranks.

    python train_transformer.py
    mpirun -np 2 python train_transformer.py --output_dir two
    python train_transformer.py --table whole     # the table on every rank
    python train_transformer.py --table hashed    # a hash table of 64-bit ids

All ranks draw the same batches, and each takes its share.
"""

from __future__ import annotations

import argparse
import json
import os

import horovod.tensorflow as hvd
import number_words
import numpy as np
import tensorflow as tf
import transformer_model
from vocabulary_tables import KINDS, VocabularyTable, bytes_of

import sparse_operation_kit as sok
import sparse_operation_kit.dist_model_parallel as dmp

v1 = tf.compat.v1
_PAD, _START, _END = (
    number_words.NUMBER_OF[token] for token in (number_words.PAD, number_words.START, number_words.END)
)


def parse_flags() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--table", choices=KINDS, default="cut", help="where the vocabulary table is")
    parser.add_argument("--digits", type=int, default=4, choices=range(1, 7), help="of the largest number")
    parser.add_argument("--rows", type=int, default=4096, help="rows of a table that is not hashed")
    parser.add_argument("--columns", type=int, default=256, help="columns of the table")
    parser.add_argument("--width", type=int, default=64, help="floats of a token within the network")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=1, help="of the encoder, and of the decoder")
    parser.add_argument("--global_batch_size", type=int, default=120, help="numbers a step, over all ranks")
    parser.add_argument("--learning_rate", type=float, default=0.003, help="at its highest")
    parser.add_argument("--warmup_steps", type=int, default=50, help="until the rate is highest")
    parser.add_argument("--train_steps", type=int, default=600)
    parser.add_argument("--evaluated", type=int, default=300, help="held-out numbers that are translated")
    parser.add_argument("--seed", type=int, default=1, help="of the order of numbers")
    parser.add_argument("--output_dir", help="for results.json")
    flags = parser.parse_args()
    if flags.rows < len(number_words.VOCABULARY):
        parser.error(f"--rows must be at least {len(number_words.VOCABULARY)}, not {flags.rows}")
    if flags.width % flags.heads:
        parser.error(f"--width must be a multiple of --heads, which is {flags.heads}, not {flags.width}")
    if flags.global_batch_size % hvd.size():
        parser.error(
            f"--global_batch_size must be a multiple of the {hvd.size()} ranks, not {flags.global_batch_size}"
        )
    return flags


class Translator:
    """The graph: a training step, and the next token of translations.

    Attributes:
      source, target: placeholders of tokens, int64 [batch, s] and [batch, t].
      step: an op that trains on the ranks' batches.
      loss: mean over the tokens of all ranks' batches, without padding.
      best: int64 [batch, t], the likeliest token after each of `target`, which begins with START.
    """

    def __init__(self, flags: argparse.Namespace, table: VocabularyTable, longest: int) -> None:
        self.source = v1.placeholder(tf.int64, [None, flags.digits])
        self.target = v1.placeholder(tf.int64, [None, longest])
        before = tf.concat([tf.fill([tf.shape(self.target)[0], 1], np.int64(_START)), self.target[:, :-1]], 1)
        before = tf.ensure_shape(before, [None, longest])
        source_rows, target_rows = table.look_up(self.source, before)
        logits = transformer_model.translate(
            tf.ensure_shape(source_rows, [None, flags.digits, flags.columns]),
            transformer_model.bias_of(tf.not_equal(self.source, _PAD)),
            tf.ensure_shape(target_rows, [None, longest, flags.columns]),
            width=flags.width,
            heads=flags.heads,
            layers=flags.layers,
            vocabulary=len(number_words.VOCABULARY),
        )
        self.best = tf.argmax(logits, axis=-1)

        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=self.target, logits=logits)
        is_token = tf.cast(tf.not_equal(self.target, _PAD), tf.float32)
        total, tokens = tf.reduce_sum(losses * is_token), tf.reduce_sum(is_token)
        of_all = hvd.allreduce(tf.stack([total, tokens]), op=hvd.Sum, name="loss_and_tokens")
        self.loss = of_all[0] / of_all[1]
        # The average of the ranks' gradients is that of the mean over all tokens.
        loss = total / of_all[1] * hvd.size()

        step = v1.train.get_or_create_global_step()
        # Rises linearly, then falls with the square root of the step.
        done = (tf.cast(step, tf.float32) + 1) / flags.warmup_steps
        rate = flags.learning_rate * tf.minimum(done, tf.math.rsqrt(done))
        optimizer = v1.train.AdamOptimizer(rate, beta2=0.98)
        self.step = dmp.DistributedOptimizer(optimizer).minimize(loss, global_step=step)

    def translations(self, session: v1.Session, source: np.ndarray) -> np.ndarray:
        """The likeliest words, one after another. All ranks call it, each with numbers of its own."""
        tokens = np.full([len(source), self.target.shape[1]], _PAD, np.int64)
        for place in range(tokens.shape[1]):
            best = session.run(self.best, {self.source: source, self.target: tokens})
            ended = (tokens == _END).any(axis=1)
            tokens[:, place] = np.where(ended, _PAD, best[:, place])
        return tokens


def train(
    session: v1.Session, translator: Translator, batches: number_words.Batches, flags: argparse.Namespace
) -> list[float]:
    """Trains; returns the loss of each step."""
    losses = []
    for number in range(1, flags.train_steps + 1):
        share = np.array_split(batches.draw(flags.global_batch_size), hvd.size())[hvd.rank()]
        feed = {translator.source: batches.sources(share), translator.target: batches.targets(share)}
        loss, _ = session.run([translator.loss, translator.step], feed)
        losses.append(float(loss))
        if hvd.rank() == 0 and (number % 100 == 0 or number == flags.train_steps):
            print(f"ranks {hvd.size()}, table {flags.table}, step {number}, loss {loss:.6f}", flush=True)
    return losses


def evaluate(
    session: v1.Session, translator: Translator, batches: number_words.Batches, count: int
) -> tuple[int, list]:
    """How many of this rank's held-out numbers are translated without an error, and some translations."""
    numbers = np.random.default_rng(0).permutation(batches.held_out)[:count][hvd.rank() :: hvd.size()]
    tokens = translator.translations(session, batches.sources(numbers))
    is_right = (tokens == batches.targets(numbers)).all(axis=1)
    words = [[number_words.VOCABULARY[token] for token in row if token not in (_PAD, _END)] for row in tokens]
    return int(is_right.sum()), [(int(n), " ".join(text)) for n, text in zip(numbers[:5], words[:5])]


def main() -> None:
    """Trains, translates held-out numbers and prints the share of exact translations."""
    # In TensorFlow 1.15: resource variables, and shapes of integers.
    v1.enable_v2_behavior()
    v1.disable_eager_execution()
    hvd.init()
    flags = parse_flags()
    sok_init = sok.Init(global_batch_size=flags.global_batch_size, seed=1)
    batches = number_words.Batches(flags.digits, flags.seed)
    table = VocabularyTable(flags.table, flags.rows, flags.columns)
    translator = Translator(flags, table, batches.longest)
    own = table.own_variables()
    own_names = {variable.name for variable in own}
    others = [
        variable
        for variable in sok.split_embedding_variable_from_others(v1.global_variables())[1]
        if variable.name not in own_names
    ]
    initialize = v1.global_variables_initializer()
    numbers = v1.placeholder(tf.int64, [3])
    of_ranks = hvd.allgather(numbers[tf.newaxis], name="results")

    with v1.Session() as session:
        session.run(sok_init)
        session.run(initialize)
        table.start(session)
        losses = train(session, translator, batches, flags)
        right, examples = evaluate(session, translator, batches, flags.evaluated)
        told = session.run(of_ranks, {numbers: [right, table.bytes(session, own), bytes_of(others)]})
    if hvd.rank() == 0:
        accuracy = told[:, 0].sum() / min(flags.evaluated, len(batches.held_out))
        for number, words in examples:
            print(f"{number}: {words}")
        print(
            f"ranks {hvd.size()}, table {flags.table}, loss {losses[-1]:.6f}, "
            f"held-out accuracy {accuracy:.4f}"
        )
        if flags.output_dir:
            results = {
                "flags": vars(flags),
                "ranks": hvd.size(),
                "losses": losses,
                "accuracy": accuracy,
                "table_bytes": told[:, 1].tolist(),
                "other_bytes": told[:, 2].tolist(),
            }
            os.makedirs(flags.output_dir, exist_ok=True)
            with open(os.path.join(flags.output_dir, "results.json"), "w", encoding="utf-8") as file:
                json.dump(results, file)


if __name__ == "__main__":
    main()
