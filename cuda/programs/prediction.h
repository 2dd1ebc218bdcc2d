// A model of how long the engine's kernels take on a device, from the bytes that they move (traffic.h), the
// speed of memory, and the number of threads that wait at the same time. Nothing here was measured on a
// device: the constants are from data sheets or are assumptions, which docs/performance-gpu.md explains.
#ifndef SOK_CUDA_PROGRAMS_PREDICTION_H_
#define SOK_CUDA_PROGRAMS_PREDICTION_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/programs/traffic.h"

namespace sok {

struct DeviceModel {
  const char* name;
  double multiprocessors;
  double bytes_per_second;  // of its memory, from the data sheet
  double cache_bytes;       // of the last cache
};
inline constexpr DeviceModel kA100 = {"A100 (40 GB)", 108, 1.555e12, 40e6};
inline constexpr DeviceModel kH100 = {"H100 (SXM)", 132, 3.35e12, 50e6};

// Assumptions. What is read or written in order reaches kOrderedShare of the data sheet's bandwidth, as
// copies do. Runs of r bytes at random places reach r / (r + kRunOverhead) of that: opening a page of memory
// costs as much as kRunOverhead bytes.
inline constexpr double kOrderedShare = 0.92;
inline constexpr double kRunOverhead = 16;
// Seconds from a load to its use: from busy memory, and from the last-level cache, where a batch's scratch
// is.
inline constexpr double kWait = 0.7e-6;
inline constexpr double kCacheWait = 0.25e-6;

// One kernel of an operation. Numbers are for each id of the batch unless they say otherwise.
struct KernelWork {
  const char* kernel;  // "FILE: NAME", the name as in cuda/resources/kernels.txt; null for several
  double warps;        // resident on a multiprocessor
  Traffic traffic;     // bytes
  double random = 0;   // the bytes at random places...
  double run = 32;     // ... in runs of this many bytes

  // An item is the unit of work of some threads, which wait for one load after another.
  double items = 1;
  double threads = 0;      // of an item
  double waits = 0;        // of an item, for memory
  double cache_waits = 0;  // of an item, for the cache
};

// Bytes divided by the achievable bandwidth.
inline double SecondsOfMemory(const KernelWork& work, const DeviceModel& device) {
  const double ordered = work.traffic.total() - work.random;
  const double slowed = work.random * (work.run + kRunOverhead) / work.run;
  return (ordered + slowed) / (kOrderedShare * device.bytes_per_second);
}

// Little's law: the total waiting time, divided by the number of items that can wait at the same time.
inline double SecondsOfWaiting(const KernelWork& work, const DeviceModel& device) {
  const double resident = device.multiprocessors * work.warps * 32;
  const double seconds = work.waits * kWait + work.cache_waits * kCacheWait;
  return seconds * work.threads * work.items / resident;
}

struct Operation {
  std::string name;
  int64_t dim = 0;
  std::vector<KernelWork> kernels;

  double bytes() const {
    double bytes = 0;
    for (const KernelWork& work : kernels) bytes += work.traffic.total();
    return bytes;
  }
};

struct Prediction {
  double ids_per_second = 0;
  double bytes_per_second = 0;
  double share = 0;          // of the data sheet's bandwidth
  double waiting_share = 0;  // share of the time in kernels that are bound by latency, not bandwidth
};

// Kernels run one after the other; each takes the longer one of its two times.
inline Prediction Predict(const Operation& operation, const DeviceModel& device) {
  double seconds = 0;
  double waiting = 0;
  for (const KernelWork& work : operation.kernels) {
    const double of_memory = SecondsOfMemory(work, device);
    const double of_waiting = SecondsOfWaiting(work, device);
    seconds += std::max(of_memory, of_waiting);
    if (of_waiting > of_memory) waiting += of_waiting;
  }
  Prediction prediction;
  prediction.ids_per_second = 1 / seconds;
  prediction.bytes_per_second = operation.bytes() / seconds;
  prediction.share = prediction.bytes_per_second / device.bytes_per_second;
  prediction.waiting_share = waiting / seconds;
  return prediction;
}

// The lanes that share a row of `dim` floats, four per lane (LanesLog2 of cuda/rows/part_launch.h).
inline double LanesOfRow(int64_t dim) {
  double lanes = 1;
  while (lanes < 32 && 4 * lanes < static_cast<double>(dim)) lanes *= 2;
  return lanes;
}
// The number of rounds in which the lanes cover all columns.
inline double RoundsOfRow(int64_t dim) { return std::ceil(static_cast<double>(dim) / (4 * LanesOfRow(dim))); }

// One thread per key: it waits for the key, the digests and the slot.
inline KernelWork FindWork(const BatchShape& batch) {
  KernelWork work = {"table/find_rows.cu: FindRowsKernel", 64, FindTraffic(batch.load, batch.absent)};
  work.random = work.traffic.total() - 2 * kKeyBytes;
  work.threads = 1;
  work.waits = 2;
  work.cache_waits = 1;
  return work;
}

inline Operation FindOperation(BatchShape batch) {
  batch.absent = 0;
  return {"find", 0, {FindWork(batch)}};
}

// New rows are consecutive, so only the index is written at random places.
inline Operation FindOrInsertOperation(const BatchShape& batch) {
  KernelWork insert = {"index/key_index_kernels.cu: InsertKernel<ManyIndexes>", 64, NewRowsTraffic(batch)};
  insert.random = batch.absent * (InsertTraffic(batch.load).total() - 2 * kKeyBytes);
  return {"find or insert", batch.dim, {FindWork(batch), insert}};
}

// Finds the rows of keys and copies them: other libraries call this find. A group of lanes copies four rows
// at a time: it waits for the numbers of ids, for those of rows, and for the rows.
inline Operation FindRowsOperation(BatchShape batch) {
  batch.absent = 0;
  KernelWork rows = {"pooling/pool.cu: WriteOutputs<4, false>", 40, GatherTraffic(batch)};
  rows.run = SectorsOf(4 * batch.dim, RecordStride(batch));
  rows.random = batch.unique * rows.run;
  rows.items = 1.0 / 4;
  rows.threads = LanesOfRow(batch.dim) * RoundsOfRow(batch.dim);
  rows.waits = 1;
  rows.cache_waits = 2;
  return {"find and copy rows", batch.dim, {FindWork(batch), rows}};
}

// A group of lanes per bag waits for the bag's begin, then, sixteen occurrences at a time, for the numbers of
// ids and those of rows, and, eight rows at a time, for the rows.
inline Operation PoolOperation(const BatchShape& batch) {
  KernelWork pool = {"pooling/pool.cu: WriteOutputs<4, false>", 40, PoolTraffic(batch)};
  pool.run = SectorsOf(4 * batch.dim, RecordStride(batch));
  pool.random = batch.unique * pool.run;
  pool.items = 1 / batch.hotness;
  pool.threads = LanesOfRow(batch.dim) * RoundsOfRow(batch.dim);
  pool.waits = std::ceil(batch.hotness / 8);
  pool.cache_waits = 1 + 2 * std::ceil(batch.hotness / 16);
  return {"pooled forward", batch.dim, {pool}};
}

// The radix sort writes runs of about two sectors.
inline KernelWork SegmentsWork(const BatchShape& batch) {
  KernelWork work = {nullptr, 64, SegmentsTraffic(batch)};
  work.random = 8 * SortPasses(batch);
  work.run = 64;
  return work;
}

// A warp takes sixteen distinct ids, or one for each group of lanes if there are more groups. It waits once
// for row numbers, segments, positions and descriptions of all of them, and for the first records. The others
// are prefetched, and in the cache when their turn comes. Beyond eight occurrences, a group of lanes waits
// again for positions, descriptions and gradients, eight at a time.
inline KernelWork UpdateWork(const BatchShape& batch, const char* kernel, double warps) {
  KernelWork work = {kernel, warps, UpdateTraffic(batch)};
  const double record = SectorsOf(RecordBytes(batch), RecordStride(batch));
  const double gradient = SectorsOf(4 * batch.dim, 4 * batch.dim);
  const double step = batch.catches_up ? kSectorBytes : 0;
  work.random = gradient / batch.hotness + 2 * batch.unique * (record + step);
  // The mean of the runs.
  const double runs = 1 / batch.hotness + 2 * batch.unique * (batch.catches_up ? 2 : 1);
  work.run = work.random / runs;
  const double rounds = RoundsOfRow(batch.dim);
  const double eights = std::ceil(1 / batch.unique / 8);
  const double groups = 32 / LanesOfRow(batch.dim);
  const double ids = std::max(16.0, groups);
  const double turns = ids / groups * rounds;
  work.items = batch.unique / ids;
  work.threads = 32;
  work.waits = 1 + turns * (eights - 1);
  work.cache_waits = 4 + turns * (1 + 2 * (eights - 1));
  return work;
}

struct RuleModel {
  const char* name;
  int64_t slots;
  bool catches_up;
  const char* kernel;
  double warps;
};
inline constexpr RuleModel kRules[] = {
    {"SGD", 0, false, "training/row_updates.cu: UpdateRows<Sgd, Sgd, 4>", 32},
    {"Adagrad", 1, false, "training/row_updates.cu: UpdateRows<Adagrad, Adagrad, 4>", 32},
    {"LazyAdam", 2, false, "training/row_updates.cu: UpdateRows<LazyAdam, LazyAdam, 4>", 32},
    {"Adam", 2, true, "training/row_updates.cu: UpdateRows<Adam, Adam, 4>", 32},
};

inline KernelWork GradientsWork(const BatchShape& batch) {
  return {"pooling/occurrence_gradients.cu: FindGradients", 64, OccurrenceGradientsTraffic(batch)};
}

inline Operation BackwardOperation(BatchShape batch, const RuleModel& rule) {
  batch.slots = rule.slots;
  batch.catches_up = rule.catches_up;
  return {std::string("backward, ") + rule.name,
          batch.dim,
          {SegmentsWork(batch), GradientsWork(batch), UpdateWork(batch, rule.kernel, rule.warps)}};
}

// The batch of the predictions: 2^20 ids in bags of ten, all distinct, one of 20 new. Repeated ids move fewer
// bytes.
inline BatchShape PredictedBatch(const DeviceModel& device, int64_t dim) {
  BatchShape batch;
  batch.dim = dim;
  batch.hotness = 10;
  batch.absent = 0.05;
  batch.cache_bytes = device.cache_bytes;
  return batch;
}

// A kernel, or a few that belong together, as docs/performance-gpu.md lists them.
struct NamedWork {
  std::string name;
  KernelWork work;
};
inline std::vector<NamedWork> KernelsOf(const DeviceModel& device, int64_t dim) {
  const BatchShape batch = PredictedBatch(device, dim);
  const Operation find_or_insert = FindOrInsertOperation(batch);
  std::vector<NamedWork> kernels = {
      {"distinct ids: `ClaimKernel`, `FlagTileKernel`, `NumberKernel`", {nullptr, 64, DedupTraffic(batch)}},
      {"rows of keys: `FindRowsKernel`", find_or_insert.kernels[0]},
      {"new rows, 5 %: `ListKernel` to `SpreadKernel`", find_or_insert.kernels[1]},
      {"rows copied: `WriteOutputs`", FindRowsOperation(batch).kernels[1]},
      {"rows pooled: `WriteOutputs`", PoolOperation(batch).kernels[0]},
      {"segments: radix sort, `BeginsKernel`", SegmentsWork(batch)},
      {"gradients of ids: `FindGradients`", GradientsWork(batch)}};
  for (const RuleModel& rule : kRules) {
    kernels.push_back({std::string("step, ") + rule.name + ": `UpdateRows`",
                       BackwardOperation(batch, rule).kernels.back()});
  }
  return kernels;
}

// The operations that are predicted: those of a lookup and a step, for several row lengths.
inline std::vector<Operation> OperationsOf(const DeviceModel& device) {
  std::vector<Operation> operations;
  for (const int64_t dim : {8, 16, 32, 64, 128, 256}) {
    const BatchShape batch = PredictedBatch(device, dim);
    if (operations.empty()) operations.push_back(FindOperation(batch));
    operations.push_back(FindOrInsertOperation(batch));
    operations.push_back(FindRowsOperation(batch));
    operations.push_back(PoolOperation(batch));
    for (const RuleModel& rule : kRules) operations.push_back(BackwardOperation(batch, rule));
  }
  return operations;
}

}  // namespace sok

#endif  // SOK_CUDA_PROGRAMS_PREDICTION_H_
