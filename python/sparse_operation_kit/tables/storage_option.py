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
_NEED_GPU = (StorageType.HBM, StorageType.HBM_DRAM)
_WITH_SIZES = (StorageType.DRAM_SSDHASH, StorageType.HBM_DRAM)
_KINDS = (None, StorageType.DEFAULT, StorageType.DRAM, *_WITH_SIZES, StorageType.HBM)
_INSTEAD = (
    "use DRAM_SSDHASH for a table larger than memory, or HBM_DRAM on a GPU; or bound it with capacity= and "
    "on_full='evict_lru' or 'evict_lfu' of sok.EmbeddingVariable"
)


@dataclasses.dataclass(frozen=True)
class StorageOption:
    """Where the rows of an embedding variable are, with DeepRec's names and order.

    Attributes:
      storage_type: None or `DEFAULT`: in the memory of the table's device. `DRAM`: in host memory, also if
        the table is on a GPU. `HBM`: in the GPU's memory. `HBM_DRAM`: rows and slots are in the GPU's memory
        up to a size, and the others in host memory; the table is on a GPU. `DRAM_SSDHASH`: they are in host
        memory up to a size, and the others in a file; the table is on a CPU. Other tiers are a ValueError.
      storage_path: With `DRAM_SSDHASH`, the folder of the file, on the process that has the rows. It is made
        if it is missing; the folder above it must be there. The file has no name, so it ends with the
        process. Not used with other tiers.
      storage_size: DeepRec's bytes for each tier, a list or tuple of numbers. With `HBM_DRAM` and
        `DRAM_SSDHASH` the first is the memory of rows and slots in each process, except that with
        `DRAM_SSDHASH` the rows of one step always fit. A second number, of the tier below, is not used. Nor
        are any with other tiers.
      cache_strategy: With two tiers, which rows stay in the upper one: those that were used most recently,
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
        kind = None if self.storage_type is None else StorageType(self.storage_type)
        if kind not in _KINDS:
            raise ValueError(f"StorageOption: storage_type {kind.name} is not supported: {_INSTEAD}")
        if kind in _NEED_GPU and not tf.config.experimental.list_physical_devices("GPU"):
            raise ValueError(
                f"StorageOption: storage_type {kind.name} needs a GPU, and TensorFlow finds none"
            )
        if kind not in _WITH_SIZES:
            return
        has_folder = isinstance(self.storage_path, str) and self.storage_path
        if kind == StorageType.DRAM_SSDHASH and not has_folder:
            raise ValueError(
                f"StorageOption: DRAM_SSDHASH needs a folder as storage_path, not {self.storage_path!r}"
            )
        size = self.storage_size[0] if self.storage_size else None
        if not isinstance(size, int) or not 0 < size < 2**63:
            raise ValueError(
                f"StorageOption: {kind.name} needs the bytes of memory as the first number of storage_size, "
                f"not {size!r}"
            )
        if kind == StorageType.HBM_DRAM and len(self.storage_size) > 2:
            raise ValueError(
                f"StorageOption: HBM_DRAM has two tiers, but storage_size is {list(self.storage_size)}"
            )


def memory_attributes(who: str, memory: str | StorageOption) -> dict[str, Any]:
    """Returns the attributes of a table's op for the argument `memory` of `EmbeddingVariable`.

    Raises:
      ValueError: `memory` is something else. The message begins with `who`.
    """
    attributes = dict(memory="device", tier_bytes=0, tier_folder="", tier_by_frequency=False)
    if isinstance(memory, StorageOption):
        if memory.storage_type == StorageType.DRAM:
            attributes.update(memory="host")
        if memory.storage_type in _WITH_SIZES:
            on_disk = memory.storage_type == StorageType.DRAM_SSDHASH
            attributes.update(
                tier_bytes=int(memory.storage_size[0]),
                tier_folder=memory.storage_path if on_disk else "",
                tier_by_frequency=memory.cache_strategy == CacheStrategy.LFU,
            )
    elif memory in ("device", "host"):
        attributes.update(memory=memory)
    else:
        raise ValueError(f"{who}: memory must be 'device', 'host' or a StorageOption, not {memory!r}")
    return attributes
