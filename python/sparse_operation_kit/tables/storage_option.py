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


# The tiers that rows can be in.
_NEED_GPU = (StorageType.HBM, StorageType.HBM_DRAM, StorageType.HBM_DRAM_SSDHASH)
# How many sizes they need. Below the last one there is room for all rows.
_SIZES = {StorageType.DRAM_SSDHASH: 1, StorageType.HBM_DRAM: 1, StorageType.HBM_DRAM_SSDHASH: 2}
_ON_DISK = (StorageType.DRAM_SSDHASH, StorageType.HBM_DRAM_SSDHASH)
_KINDS = (StorageType.DEFAULT, StorageType.DRAM, *_SIZES, StorageType.HBM)
_INSTEAD = (
    "use DRAM_SSDHASH for a table larger than memory, or HBM_DRAM or HBM_DRAM_SSDHASH on a GPU; or bound it "
    "with capacity= and on_full='evict_lru' or 'evict_lfu' of sok.EmbeddingVariable"
)


@dataclasses.dataclass(frozen=True)
class StorageOption:
    """Where the rows of an embedding variable are, with DeepRec's names and order.

    Attributes:
      storage_type: None or `DEFAULT`: in the memory of the table's device. `DRAM`: in host memory, also if
        the table is on a GPU. `HBM`: in the GPU's memory. `HBM_DRAM`: rows and slots are in the GPU's memory
        up to a size, and the others in host memory; the table is on a GPU. `DRAM_SSDHASH`: they are in host
        memory up to a size, and the others in a file; the table is on a CPU. `HBM_DRAM_SSDHASH`: in the GPU's
        memory, in host memory, or in a file. Other tiers are a ValueError.
      storage_path: With a tier `SSDHASH`, the folder of the file, on the process that has the rows. It is
        made if it is missing; the folder above it must be there. The file has no name, so it ends with the
        process. Not used with other tiers.
      storage_size: DeepRec's bytes for each tier, a list or tuple of numbers, for the rows and slots in each
        process. A lower tier has room for all, so the last number may be missing, and is not used. Host
        memory above a file always has room for the rows of one step. Not used with other types.
      cache_strategy: With several tiers, which rows stay in an upper one: those that were used most recently,
        or most often.
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
        if self.storage_type is None:
            return
        kind = StorageType(self.storage_type)
        if kind not in _KINDS:
            raise ValueError(f"StorageOption: storage_type {kind.name} is not supported: {_INSTEAD}")
        if kind in _NEED_GPU and not tf.config.experimental.list_physical_devices("GPU"):
            raise ValueError(
                f"StorageOption: storage_type {kind.name} needs a GPU, and TensorFlow finds none"
            )
        if kind not in _SIZES:
            return
        if kind in _ON_DISK and not (isinstance(self.storage_path, str) and self.storage_path):
            raise ValueError(
                f"StorageOption: {kind.name} needs a folder as storage_path, not {self.storage_path!r}"
            )
        wanted = "the first number" if _SIZES[kind] == 1 else "the first two numbers"
        sizes = list(self.storage_size[: _SIZES[kind]])
        if len(sizes) < _SIZES[kind] or not all(isinstance(size, int) and 0 < size < 2**63 for size in sizes):
            raise ValueError(
                f"StorageOption: {kind.name} needs the bytes of memory as {wanted} of storage_size, "
                f"not {sizes}"
            )
        tiers = kind.name.count("_") + 1
        if kind in _NEED_GPU and len(self.storage_size) > tiers:
            raise ValueError(
                f"StorageOption: {kind.name} has {tiers} tiers, but storage_size is {list(self.storage_size)}"
            )


def memory_attributes(who: str, memory: str | StorageOption) -> dict[str, Any]:
    """Returns the attributes of a table's op for the argument `memory` of `EmbeddingVariable`.

    Raises:
      ValueError: `memory` is something else. The message begins with `who`.
    """
    attributes = dict(
        memory="device", tier_bytes=0, tier_folder="", tier_host_bytes=0, tier_by_frequency=False
    )
    if isinstance(memory, StorageOption):
        if memory.storage_type == StorageType.DRAM:
            attributes.update(memory="host")
        kind = StorageType(memory.storage_type or StorageType.DEFAULT)
        if kind in _SIZES:
            attributes.update(
                tier_bytes=int(memory.storage_size[0]),
                tier_folder=memory.storage_path if kind in _ON_DISK else "",
                tier_host_bytes=int(memory.storage_size[1]) if _SIZES[kind] == 2 else 0,
                tier_by_frequency=memory.cache_strategy == CacheStrategy.LFU,
            )
    elif memory in ("device", "host"):
        attributes.update(memory=memory)
    else:
        raise ValueError(f"{who}: memory must be 'device', 'host' or a StorageOption, not {memory!r}")
    return attributes
