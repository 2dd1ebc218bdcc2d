"""The names of NVIDIA's distributed-embeddings, at its paths: `sparse_operation_kit.dist_model_parallel`."""

import sys
import types

from sparse_operation_kit import dist_model_parallel
from sparse_operation_kit.dist_model_parallel import *  # noqa: F403
from sparse_operation_kit.dist_model_parallel import __all__ as _names

__all__ = [*_names, "dist_model_parallel"]

python = types.ModuleType(f"{__name__}.python", __doc__)
python.layers = types.ModuleType(f"{__name__}.python.layers", __doc__)  # type: ignore[attr-defined]
python.ops = types.ModuleType(f"{__name__}.python.ops", __doc__)  # type: ignore[attr-defined]
sys.modules[f"{__name__}.dist_model_parallel"] = dist_model_parallel
sys.modules[python.__name__] = python
for _folder, _modules in (
    ("layers", ("dist_model_parallel", "embedding")),
    ("ops", ("embedding_lookup_ops",)),
):
    _package = getattr(python, _folder)
    sys.modules[_package.__name__] = _package
    for _module in _modules:
        setattr(_package, _module, dist_model_parallel)
        sys.modules[f"{_package.__name__}.{_module}"] = dist_model_parallel
