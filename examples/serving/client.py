"""Asks a server of TensorFlow Serving's protocol: this folder's server.py or tensorflow_model_server.

python client.py --model_name items ids='[[5, -6]]'
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


class Client:
    """Requests to one model of a server. Thread-safe."""

    def __init__(self, server: str, model: str) -> None:
        """Connects when the first request is made.

        Args:
          server: "host:port".
          model: The model's name there.
        """
        self._model = model
        # Large batches exceed gRPC's limit, 4 MB.
        sizes = [(f"grpc.max_{way}_message_length", -1) for way in ("send", "receive")]
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(
            grpc.insecure_channel(server, options=sizes)
        )

    def predict(
        self, inputs: Mapping[str, Any], version: int | None = None, timeout: float = 10.0
    ) -> tuple[dict[str, np.ndarray], int]:
        """Returns the outputs for arrays by the names of inputs, and the version that they are from.

        Raises:
          grpc.RpcError: There is no such model, or `inputs` do not fit it; or no answer came in `timeout`
            seconds.
        """
        request = predict_pb2.PredictRequest()
        request.model_spec.name = self._model
        if version is not None:
            request.model_spec.version.value = version
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        response = self._stub.Predict(request, timeout)
        outputs = {name: tf.make_ndarray(tensor) for name, tensor in response.outputs.items()}
        return outputs, response.model_spec.version.value


def array_of(text: str) -> np.ndarray:
    """The array of a JSON list: int64, float32 or strings."""
    values = np.array(json.loads(text))
    return values.astype({"i": np.int64, "f": np.float32}.get(values.dtype.kind, object))


def main(arguments: list[str] | None = None) -> None:
    """Asks once and prints the answer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", default="127.0.0.1:8500")
    parser.add_argument("--model_name", default="default")
    parser.add_argument("--model_version", type=int, help="without it, the newest")
    parser.add_argument("inputs", nargs="*", metavar="NAME=JSON", help="ids='[[5, -6]]'")
    flags = parser.parse_args(arguments)
    inputs = {name: array_of(text) for name, text in (one.split("=", 1) for one in flags.inputs)}
    outputs, version = Client(flags.server, flags.model_name).predict(inputs, flags.model_version)
    print(f"version {version}")
    for name, value in outputs.items():
        print(f"{name} {value.tolist()}")


if __name__ == "__main__":
    main()
