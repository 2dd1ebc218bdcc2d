"""Models that are written by one process, and served by another, as on a server: with a session of its own.

`python -m bench.serving_sides write NAME JOB FOLDER` writes a library's SavedModels of the job's tables.
`python -m bench.serving_sides serve NAME JOB FOLDER` is a program as in processes.py. "loaded 0" answers what
loading took, "ask BATCH,CLIENTS,MS" what requests took that so many threads made, and "check FILE" writes the
outputs of a fixed request.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import json
import pathlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bench import machine, processes
from bench.jobs import Job
from bench.session_sides import FeatureTensors, group_lookup

v1 = tf.compat.v1
STOCK, LIBRARY, TFRA = "stock", "library", "tfra"
_HIDDEN = (64, 1)
# Of lists, which are padded: TensorFlow Serving takes no SparseTensors.
_PADDING = -1
_CHECKED_BAGS = 64


def write(name: str, job: Job, folder: pathlib.Path) -> None:
    """Writes the models of a library: ours in both kinds, tfra's."""
    with tf.Graph().as_default(), v1.Session() as session:
        (_write_tfra if name == TFRA else _write_ours)(session, job, folder)


def _write_ours(session: v1.Session, job: Job, folder: pathlib.Path) -> None:
    import sparse_operation_kit as sok

    session.run(sok.Init(global_batch_size=1, seed=job.seed))
    tables = [
        sok.EmbeddingVariable(f"table_{feature}", job.dim, initializer=0.0) for feature in range(job.features)
    ]
    inputs, features = _requests(job)
    outputs = _network(job, group_lookup(tables, features, job.hotness, training=False))
    session.run(v1.global_variables_initializer())
    rows, saver = v1.placeholder(tf.float32, [job.rows, job.dim]), sok.Saver()
    for feature, table in enumerate(tables):
        session.run(saver.load_embedding_values(table, rows), {rows: job.row_values(feature)})
    sok.serving.export(session, folder / STOCK, inputs, outputs)
    v1.saved_model.simple_save(session, str(folder / LIBRARY), inputs, outputs)


def _write_tfra(session: v1.Session, job: Job, folder: pathlib.Path) -> None:
    from bench.tfra_side import de, look_up

    inputs, features = _requests(job)
    tables = [
        de.get_variable(
            f"table_{feature}", dim=job.dim, devices=["/CPU:0"], initializer=0.0, init_size=job.rows
        )
        for feature in range(job.features)
    ]
    outputs = _network(job, [look_up(job.hotness, *pair) for pair in zip(tables, features)])
    session.run(v1.global_variables_initializer())
    rows = v1.placeholder(tf.float32, [job.rows, job.dim])
    keys = tf.range(job.rows, dtype=tf.int64)
    for feature, table in enumerate(tables):
        session.run(table.upsert(keys, rows), {rows: job.row_values(feature)})
    v1.saved_model.simple_save(session, str(folder / TFRA), inputs, outputs)


def _requests(job: Job) -> tuple[dict[str, tf.Tensor], list[FeatureTensors]]:
    """The inputs, int64 [batch] or padded [batch, longest], and what is looked up."""
    shape = [None] if job.hotness == 1 else [None, None]
    inputs = {f"feature_{n}": v1.placeholder(tf.int64, shape, f"feature_{n}") for n in range(job.features)}
    return inputs, [_feature(ids) for ids in inputs.values()]


def _feature(ids: tf.Tensor) -> FeatureTensors:
    if ids.shape.rank == 1:
        return FeatureTensors(ids, None)
    places = tf.where(tf.not_equal(ids, _PADDING))
    values = tf.gather_nd(ids, places)
    return FeatureTensors(values, tf.SparseTensor(places, values, tf.shape(ids, out_type=tf.int64)))


def _network(job: Job, rows: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
    """Two dense layers on the features' rows, with the same weights everywhere."""
    outputs = tf.concat(list(rows), axis=1)
    size, rng = job.features * job.dim, np.random.default_rng(job.seed)
    for layer, units in enumerate(_HIDDEN):
        values = rng.standard_normal([size, units], np.float32) * np.float32(size**-0.5)
        kernel = v1.get_variable(
            f"kernel_{layer}", [size, units], initializer=v1.constant_initializer(values), use_resource=True
        )
        outputs = tf.matmul(tf.nn.relu(outputs) if layer else outputs, kernel)
        size = units
    return {"logits": outputs}


class Served:
    """A model in a session. Attributes: `loaded`, what loading took."""

    def __init__(self, name: str, job: Job, folder: pathlib.Path) -> None:
        if name == LIBRARY:
            import sparse_operation_kit  # noqa: F401
        elif name == TFRA:
            import bench.tfra_side  # noqa: F401
        before, start, cpu = machine.resident_bytes("VmRSS"), time.perf_counter(), time.process_time()
        config = v1.ConfigProto(
            intra_op_parallelism_threads=job.threads, inter_op_parallelism_threads=job.threads
        )
        session = v1.Session(graph=tf.Graph(), config=config)
        with session.graph.as_default():
            model = v1.saved_model.load(session, [tf.saved_model.SERVING], str(folder / name))
        self.loaded = {
            "s": time.perf_counter() - start,
            "cpu s": time.process_time() - cpu,
            "MB": (machine.resident_bytes("VmRSS") - before) / 1e6,
            "peak MB": (machine.resident_bytes("VmHWM") - before) / 1e6,
            "ops": _ops_of(session.graph, model.signature_def["serving_default"]),
        }
        signature = model.signature_def["serving_default"]
        names = [signature.inputs[f"feature_{feature}"].name for feature in range(job.features)]
        self._job = job
        self._call = session.make_callable(signature.outputs["logits"].name, feed_list=names)
        self._requests: dict[int, list] = {}

    def ask(self, batch: int, clients: int, milliseconds: float) -> dict[str, Any]:
        """Requests of threads, each with the next one as soon as it has an answer."""
        requests = self._of(batch)
        end = time.perf_counter() + milliseconds * 1e-3

        def client(number: int) -> list[float]:
            took = []
            for request in itertools.islice(itertools.cycle(requests), number, None):
                start = time.perf_counter()
                if start > end and took:
                    return took
                self._call(*request)
                took.append((time.perf_counter() - start) * 1e3)
            return took

        start, cpu = time.perf_counter(), time.process_time()
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            took = [one for of_client in pool.map(client, range(clients)) for one in of_client]
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        return {"took": took, "rate": len(took) / wall, "cpu": cpu * 1e3 / len(took)}

    def outputs(self) -> np.ndarray:
        """The logits of a request that is the same for all libraries."""
        return self._call(*self._of(_CHECKED_BAGS)[0])

    def _of(self, batch: int) -> list[list[np.ndarray]]:
        if batch not in self._requests:
            job = Job(**{**vars(self._job), "batch": batch})
            self._requests[batch] = [[_fed(bags, job) for bags in one] for one in job.make_batches()]
        return self._requests[batch]


def _fed(bags: Any, job: Job) -> np.ndarray:
    if job.hotness == 1:
        return bags.ids
    fed = np.full([len(bags.offsets) - 1, bags.longest()], _PADDING, np.int64)
    fed[tuple(bags.sparse_indices().T)] = bags.ids
    return fed


def _ops_of(graph: tf.Graph, signature: Any) -> int:
    """The ops of a request, without its inputs and constants."""
    outputs = [one.name.split(":")[0] for one in signature.outputs.values()]
    needed = v1.graph_util.extract_sub_graph(graph.as_graph_def(), outputs).node
    return sum(node.op not in ("Placeholder", "Const") for node in needed)


def _answers(name: str, job: Job, folder: pathlib.Path) -> Callable[[str, str], object]:
    served = Served(name, job, folder)

    def answer(what: str, argument: str) -> object:
        if what == "loaded":
            return json.dumps(served.loaded)
        if what == "check":
            np.save(argument, served.outputs())
            return argument
        batch, clients, milliseconds = argument.split(",")
        return json.dumps(served.ask(int(batch), int(clients), float(milliseconds)))

    return answer


if __name__ == "__main__":
    _, _what, _name, _job, _folder = sys.argv
    _arguments = _name, Job(**json.loads(_job)), pathlib.Path(_folder)
    v1.logging.set_verbosity(v1.logging.ERROR)
    if _what == "write":
        write(*_arguments)
    else:
        processes.answer_lines(lambda: _answers(*_arguments))
