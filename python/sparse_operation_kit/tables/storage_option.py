"""DeepRec's storage options of embedding variables: where rows are."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any

import tensorflow as tf


class StorageType(enum.IntEnum):
    """DeepRec's tiers of storage. `StorageOption` says which of them are supported."""

    INVALID = 0
    DEFAULT = 1
    DRAM = 11
    PMEM_MEMKIND = 12
    PMEM_LIBPMEM = 13
    SSDHASH = 14
    LEVELDB = 15
    HBM = 16
    DRAM_PMEM = 101
    DRAM_SSDHASH = 102
    HBM_DRAM = 103
    DRAM_LEVELDB = 104
    DRAM_PMEM_SSDHASH = 1001
    HBM_DRAM_SSDHASH = 1002


class CacheStrategy(enum.IntEnum):
    """Which rows DeepRec keeps in the faster of two tiers."""

    LRU = 0
    LFU = 1


_INSTEAD = (
    "rows are in memory; sok.EmbeddingVariable bounds a table with capacity= and on_full='evict_lru' or "
    "'evict_lfu'"
)


@dataclasses.dataclass(frozen=True)
class StorageOption:
    """Where the rows of an embedding variable are, with DeepRec's names and order.

    Attributes:
      storage_type: None or `DEFAULT`: in the memory of the table's device. `DRAM`: in host memory, also if
        the table is on a GPU. `HBM`: in the GPU's memory. Other tiers are a ValueError.
      storage_path: Not used: these tiers have no files.
      storage_size: DeepRec's bytes for each tier, a list or tuple of numbers. Not used: memory grows as keys
        arrive.
      cache_strategy: Not used: there is one tier.
      layout: Not used.
    """

    storage_type: StorageType | int | None = None
    storage_path: str | None = None
    storage_size: Sequence[int] = (1024**3,)
    cache_strategy: CacheStrategy | int = CacheStrategy.LFU
    layout: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.storage_size, (list, tuple)):
            raise ValueError(f"StorageOption: storage_size must be a list, not {self.storage_size!r}")
        if self.cache_strategy not in list(CacheStrategy):
            names = " or ".join(f"CacheStrategy.{one.name}" for one in CacheStrategy)
            raise ValueError(f"StorageOption: cache_strategy must be {names}, not {self.cache_strategy!r}")
        if self.storage_type is not None and self.storage_type not in list(StorageType):
            raise ValueError(f"StorageOption: storage_type must be a StorageType, not {self.storage_type!r}")
        if self.storage_path is not None and self.storage_type is None:
            raise ValueError(
                f"StorageOption: storage_path is {self.storage_path!r}, which needs a storage_type"
            )
        self._check_tier()

    def _check_tier(self) -> None:
        kind = None if self.storage_type is None else StorageType(self.storage_type)
        if kind not in (None, StorageType.DEFAULT, StorageType.DRAM, StorageType.HBM):
            raise ValueError(f"StorageOption: storage_type {kind.name} is not supported: {_INSTEAD}")
        if kind == StorageType.HBM and not tf.config.experimental.list_physical_devices("GPU"):
            raise ValueError("StorageOption: storage_type HBM needs a GPU, and TensorFlow finds none")


def memory_of(option: StorageOption | None) -> str:
    """Returns the argument `memory` of `EmbeddingVariable` for an option."""
    return "host" if option is not None and option.storage_type == StorageType.DRAM else "device"
