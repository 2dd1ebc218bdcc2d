"""Answers TensorFlow Serving's Predict requests over gRPC, from the newest version of a SavedModel.

As of tensorflow_model_server, whose flags it has, `--model_base_path` has a folder for each version, named by
its number. When a newer one appears, it is loaded, and from then on requests are answered from it. Stock
exports need TensorFlow only, models with this library's ops `--library`.

    python server.py --model_base_path models --model_name items
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from concurrent import futures
from typing import Any

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

v1 = tf.compat.v1
# The numbers of TensorFlow's errors are those of gRPC's.
_STATUS = {code.value[0]: code for code in grpc.StatusCode}


class Model:
    """A version of a model in a session of its own, which ends with the last request that uses it.

    Attributes:
      version: The number that its folder is named by.
    """

    def __init__(self, folder: str, version: int) -> None:
        """Loads a SavedModel."""
        self.version = version
        self._session = v1.Session(graph=tf.Graph())
        with self._session.graph.as_default():
            model = v1.saved_model.load(self._session, [tf.saved_model.SERVING], folder)
        self._signatures = model.signature_def

    def predict(self, request: predict_pb2.PredictRequest) -> predict_pb2.PredictResponse:
        """Answers a request. Thread-safe.

        Raises:
          tf.errors.OpError: The request does not fit the model.
        """
        name = request.model_spec.signature_name or tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
        if name not in self._signatures:
            raise tf.errors.FailedPreconditionError(None, None, f"The model has no signature '{name}'")
        inputs, outputs = self._signatures[name].inputs, self._signatures[name].outputs
        wanted = list(request.output_filter) or list(outputs)
        if sorted(inputs) != sorted(request.inputs) or not set(wanted) <= set(outputs):
            raise tf.errors.InvalidArgumentError(
                None,
                None,
                f"The inputs are {sorted(request.inputs)} and the outputs {wanted}, but '{name}' has the "
                f"inputs {sorted(inputs)} and the outputs {sorted(outputs)}",
            )
        for alias, tensor in request.inputs.items():
            if tensor.dtype != inputs[alias].dtype:
                given, needed = (tf.as_dtype(one.dtype).name for one in (tensor, inputs[alias]))
                raise tf.errors.InvalidArgumentError(None, None, f"'{alias}' is {given}, not {needed}")
        values = self._run(
            {alias: outputs[alias].name for alias in wanted},
            {inputs[alias].name: tf.make_ndarray(tensor) for alias, tensor in request.inputs.items()},
        )
        response = predict_pb2.PredictResponse()
        response.model_spec.name = request.model_spec.name
        response.model_spec.signature_name = name
        response.model_spec.version.value = self.version
        for alias, value in values.items():
            response.outputs[alias].CopyFrom(tf.make_tensor_proto(value))
        return response

    def _run(self, fetches: dict[str, str], feeds: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._session.run(fetches, feeds)
        except ValueError as error:  # a shape that the graph does not take
            raise tf.errors.InvalidArgumentError(None, None, str(error)) from None


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """The newest version of one model."""

    def __init__(self, name: str, base_path: str) -> None:
        """Loads no version yet."""
        self._name, self._base_path = name, base_path
        self._model: Model | None = None

    def Predict(self, request: predict_pb2.PredictRequest, context: grpc.ServicerContext) -> Any:  # noqa: N802 - the protocol's name
        """Answers a request, from the version that is the newest when it comes."""
        model, spec = self._model, request.model_spec
        if spec.name != self._name or model is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"There is no model '{spec.name}'")
        if spec.HasField("version") and spec.version.value != model.version:
            context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"'{spec.name}' has the version {model.version}, not {spec.version.value}",
            )
        try:
            return model.predict(request)
        except tf.errors.OpError as error:
            context.abort(_STATUS[error.error_code], error.message)

    def watch(self, seconds: float) -> None:
        """Loads the newest version, and then each newer one; does not return."""
        never = threading.Event()
        while True:
            self._load_newest()
            never.wait(seconds)

    def _load_newest(self) -> None:
        names = os.listdir(self._base_path) if os.path.isdir(self._base_path) else []
        newest = max((int(name) for name in names if name.isdigit()), default=None)
        if newest is None or (self._model is not None and newest <= self._model.version):
            return
        # Versions may have leading zeros.
        (folder, *_) = (name for name in names if name.isdigit() and int(name) == newest)
        try:
            self._model = Model(os.path.join(self._base_path, folder), newest)
        except Exception as error:  # an incomplete folder, another TensorFlow's ops: the server goes on
            print(f"version {newest} cannot be loaded: {error}", file=sys.stderr, flush=True)
        else:
            print(f"serving version {newest}", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Serves until the process is ended."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model_base_path", required=True)
    parser.add_argument("--model_name", default="default")
    parser.add_argument("--port", type=int, default=8500, help="0: a free one, which is printed")
    parser.add_argument("--file_system_poll_wait_seconds", type=float, default=1.0)
    parser.add_argument("--library", action="store_true", help="load this library's ops")
    flags = parser.parse_args(arguments)
    if flags.library:
        import sparse_operation_kit  # noqa: F401
    service = PredictionService(flags.model_name, flags.model_base_path)
    # Of two servers with the same port the second must fail. Large batches exceed gRPC's limit, 4 MB.
    options = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)]
    server = grpc.server(futures.ThreadPoolExecutor(os.cpu_count()), options=options)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    port = server.add_insecure_port(f"127.0.0.1:{flags.port}")
    server.start()
    print(f"listening on 127.0.0.1:{port}", flush=True)
    service.watch(flags.file_system_poll_wait_seconds)


if __name__ == "__main__":
    main()
