// Formulas for the bytes that the engine's kernels move between device memory and the chip. engine_benchmark
// divides them by the time, and docs/performance-gpu.md has a table of them.
//
// How bytes are counted:
// - The unit of memory is a sector of 32 bytes. Arrays that are read or written in order cost their bytes. An
//   access to another place costs all sectors that it touches.
// - What is written in place of something that was read before costs a read and a write.
// - Rows and slots of tables and the index are larger than the cache, and nothing of them is left there from
//   an earlier call. Within a call the cache holds what comes again: an id that occurs often costs its row
//   once. So these are the least bytes; a batch whose repetitions the cache loses moves more.
// - Scratch of a batch (hash table of dedup, descriptions of gradients) is visited at random. Where it is
//   smaller than BatchShape::cache_bytes, only its first write counts.
// - Arguments of kernels, counts of tiles and words for the host are left out: under 1 % from 10,000 ids on.
//
// Every function returns averages for one id of the batch, repetitions included, unless its comment names
// another unit. Plain C++, pure. `float` is 4 bytes, keys and rows are 8, positions and numbers in a batch 4.
#ifndef SOK_CUDA_PROGRAMS_TRAFFIC_H_
#define SOK_CUDA_PROGRAMS_TRAFFIC_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/table/record_layout.h"

namespace sok {

// How many buckets a search in the index reads, by the index's load.

// Averages over keys. The index (cuda/index/key_index_view.h) has buckets of 16 places; a key is in its home
// bucket or, if that was full, in one of the next.
struct IndexProbes {
  double found = 1;   // buckets read for a present key
  double absent = 1;  // buckets read for an absent key
};

// The model: hashing gives each bucket a number of keys with the distribution of Poisson(16 * load). A bucket
// keeps 16 of its own keys and of those that the buckets before could not keep, and passes on the rest:
//
//   passed' = max(0, passed + own - 16)
//
// In the stationary state of this chain,
// - the sum over all keys of the buckets between home and place is the number of keys passed on, so a key
//   that is there costs 1 + E(passed) / (16 * load) buckets;
// - a search for an absent key goes on while passed + own >= 16. The expected number of buckets after a
//   bucket that passed on p keys is cost(p) = 1 + sum over a with p + a >= 16 of P(a) * cost(p + a - 16).
//
// For 0 <= load < 1, most accurate up to 0.95. Erased places count as keys in `load` for searches of absent
// keys. Takes milliseconds up to 0.9 and a second at 0.97. Pure.
inline IndexProbes ProbesAtLoad(double load) {
  constexpr int kPlaces = 16;
  constexpr int kMostPassed = 1024;  // P(passed > 1024) is below 1e-9 at a load of 0.98
  constexpr int kMostOwn = 64;
  constexpr double kTolerance = 1e-10;
  const double mean = kPlaces * load;
  if (mean <= 0) return {};
  std::vector<double> own(kMostOwn + 1);
  own[0] = std::exp(-mean);
  for (int a = 1; a <= kMostOwn; ++a) own[a] = own[a - 1] * mean / a;

  // Starts from the values of buckets that pass on nothing, and iterates.
  std::vector<double> passed(kMostPassed + 1, 0.0);
  passed[0] = 1;
  int most = 0;  // the largest number with a probability that matters
  for (double change = 1; change > kTolerance;) {
    std::vector<double> next(kMostPassed + 1, 0.0);
    for (int p = 0; p <= most; ++p) {
      for (int a = 0; a <= kMostOwn; ++a) {
        next[std::min(std::max(0, p + a - kPlaces), kMostPassed)] += passed[p] * own[a];
      }
    }
    change = 0;
    for (size_t p = 0; p < next.size(); ++p) change = std::max(change, std::abs(next[p] - passed[p]));
    passed.swap(next);
    for (most = kMostPassed; most > 0 && passed[most] < 1e-15; --most) continue;
  }

  std::vector<double> cost(kMostPassed + 1, 1.0);
  for (double change = 1; change > 1e-6;) {
    change = 0;
    for (int p = most; p >= 0; --p) {
      double updated = 1;
      for (int a = std::max(0, kPlaces - p); a <= kMostOwn; ++a) {
        updated += own[a] * cost[std::min(p + a - kPlaces, most)];
      }
      change = std::max(change, std::abs(updated - cost[p]));
      cost[p] = updated;
    }
  }

  IndexProbes probes = {1, 0};
  for (int p = 0; p <= most; ++p) {
    probes.found += passed[p] * p / mean;
    probes.absent += passed[p] * cost[p];
  }
  return probes;
}

struct Traffic {
  double read = 0;     // bytes
  double written = 0;  // bytes

  double total() const { return read + written; }
};
inline Traffic operator+(const Traffic& a, const Traffic& b) {
  return {a.read + b.read, a.written + b.written};
}
inline Traffic operator*(double factor, const Traffic& a) { return {factor * a.read, factor * a.written}; }

constexpr double kSectorBytes = 32;
constexpr double kKeyBytes = 8;     // of a key, a row number, a reference
constexpr double kNumberBytes = 4;  // of a position in a batch, or the number of a distinct id

// A batch of ids of one table, or of several tables that are alike.
struct BatchShape {
  double ids = 1 << 20;     // in the batch
  double unique = 1;        // distinct ids for each id, in (0, 1]
  double hotness = 1;       // ids for each bag
  double absent = 0;        // distinct ids without a row, for each distinct id
  double load = 0.75;       // of the index: keys for each place, in [0, 1)
  int64_t dim = 64;         // weights of a row
  int64_t slots = 0;        // slots as wide as a row: LazyAdam and Adam 2, Adagrad 1, SGD 0
  int64_t row_slots = 0;    // slots of one number: row-wise Adagrad 1
  RecordFormat record;      // the types of weights and slots; slots of one number have 4 bytes
  bool catches_up = false;  // Adam: a step number for each row says when it was last current
  double cache_bytes = 0;   // of the device's last cache; 0: scratch counts in full
};

// Bytes of the sectors that hold `bytes` bytes which begin at multiples of `stride` bytes: the average over
// the places that occur, as 32 divides 8 * stride.
inline double SectorsOf(int64_t bytes, int64_t stride) {
  double sectors = 0;
  for (int64_t row = 0; row < 8; ++row) {
    const int64_t begin = row * stride % 32;
    sectors += static_cast<double>((begin + bytes + 31) / 32);
  }
  return bytes == 0 ? 0 : kSectorBytes * sectors / 8;
}

// A record has the weights, then the slots (RecordLayout), and begins at a multiple of 16 bytes
// (RowStoreView).
inline int64_t RecordBytes(const BatchShape& batch) {
  std::vector<SlotSpec> slots(static_cast<size_t>(batch.slots), {batch.dim, 0.0f});
  slots.resize(static_cast<size_t>(batch.slots + batch.row_slots), {1, 0.0f, /*one_per_row=*/true});
  return RecordLayout(batch.dim, batch.record, slots).bytes();
}
inline int64_t WeightBytes(const BatchShape& batch) { return batch.dim * BytesOf(batch.record.weights); }
inline int64_t RecordStride(const BatchShape& batch) { return (RecordBytes(batch) + 15) / 16 * 16; }

// A random access to scratch of `bytes` bytes: what it reads.
inline double ScratchSector(double bytes, const BatchShape& batch) {
  return bytes < batch.cache_bytes ? 0 : kSectorBytes;
}

// --- The index ---

// Sectors that a search reads, in bytes. A bucket has 16 bytes of digests, so two neighbours share a sector:
// the first bucket costs one, each further one half. A hit costs a sector of its slot. Another digest is
// equal by chance in 1 of 254: on the way a search compares all 16 * load digests of each bucket that it
// passes, and half of them in the bucket where it hits.
inline double SearchBytes(double buckets, double load, bool hits) {
  const double taken = 16 * load;
  const double compared = hits ? 16 * (buckets - 1) + taken / 2 : 16 * (buckets - 1) + taken;
  const double digests = 1 + (buckets - 1) / 2;
  return kSectorBytes * (digests + (hits ? 1 : 0) + compared / 254);
}

// FindKeys, for each key of which `unique` are distinct: the key and the result in order, and the search.
inline Traffic FindTraffic(double load, double absent, double unique = 1) {
  const IndexProbes probes = ProbesAtLoad(load);
  const double search =
      (1 - absent) * SearchBytes(probes.found, load, true) + absent * SearchBytes(probes.absent, load, false);
  return {kKeyBytes + unique * search, kKeyBytes};
}

// InsertKey, for each new key: the digests of buckets up to the first with a free place, as a search for an
// absent key reads them; the digest's word, changed in place; and the slot, half a sector, which the cache
// completes before it writes it back.
inline Traffic InsertTraffic(double load) {
  const double digests = 1 + (ProbesAtLoad(load).absent - 1) / 2;
  return {kSectorBytes * (digests + 1), kSectorBytes * 2};
}

// --- New rows ---

// What follows a search that found no row, for each distinct id. All of them: the list of those without a row
// reads the row numbers (flags of 8 bytes for 32 ids). Each new key: its number is listed (4); MakeRowsKernel
// reads number and key, writes the row's key, its state and the row number (neighbours, as new rows have
// consecutive numbers), and the row number in its place in the batch; it inserts the key, and writes the
// record.
inline Traffic NewRowsTraffic(const BatchShape& batch) {
  const Traffic list = {kKeyBytes + 8.0 / 32, 8.0 / 32};
  const Traffic listed = {0, kNumberBytes};
  const Traffic given = {kNumberBytes + kKeyBytes + 4, kKeyBytes + 4 + 2 * kKeyBytes};
  const Traffic record = {0, SectorsOf(RecordBytes(batch), RecordStride(batch))};
  return list + batch.absent * (listed + given + InsertTraffic(batch.load) + record);
}

// Find-or-insert of distinct ids, for each distinct id.
inline Traffic FindOrInsertTraffic(const BatchShape& batch) {
  return FindTraffic(batch.load, batch.absent) + NewRowsTraffic(batch);
}

// --- Bags and distinct ids ---

// How a lookup says which bag an id is in.
enum class BagsFrom {
  kNothing,  // there are no bags: an output row for each id
  kIndices,  // a pair of 8 bytes for each id (sparse)
  kSplits,   // 8 bytes for each bag (ragged)
};

// The pass over the inputs: the id and what says its bag are read; the key is written, and where each bag
// begins.
inline Traffic BagsTraffic(const BatchShape& batch, BagsFrom bags) {
  if (bags == BagsFrom::kNothing) return {kKeyBytes, kKeyBytes};
  const double place = bags == BagsFrom::kIndices ? 16 : 8 / batch.hotness;
  return {kKeyBytes + place, kKeyBytes + kNumberBytes / batch.hotness};
}

// Slots of the hash table of dedup: the power of two at or above twice the ids.
inline double DedupSlots(double ids) { return std::max(64.0, std::exp2(std::ceil(std::log2(2 * ids)))); }

// Dedup. The hash table is cleared: 4 bytes for each slot. Claim reads the key, visits a slot, which the
// first of its id changes, and at a slot that is taken compares the key of the occurrence there; it writes
// the slot's number. IsFirst reads that and the slot, and writes the first occurrence. Number reads that,
// writes the distinct id's number, and for each distinct id its position and its key, which it reads.
inline Traffic DedupTraffic(const BatchShape& batch) {
  const double slots = DedupSlots(batch.ids);
  const double slot = ScratchSector(slots * 4, batch);
  const double repeated = 1 - batch.unique;
  const Traffic clear = {0, 4 * slots / batch.ids};
  const Traffic claim = {kKeyBytes + slot + repeated * ScratchSector(8 * batch.ids, batch),
                         kNumberBytes + batch.unique * slot};
  const Traffic first = {kNumberBytes + slot, kNumberBytes + 8.0 / 32};
  const Traffic number = {kNumberBytes + 8.0 / 32 + batch.unique * kKeyBytes,
                          kNumberBytes + batch.unique * (kNumberBytes + kKeyBytes)};
  return clear + claim + first + number;
}

// --- Outputs ---

// WriteOutputs. For each id its distinct id's number, in order; for each distinct id its row number, which
// come almost in order, as distinct ids are numbered by first occurrence, and the weights of its record. For
// each bag where it begins, and the output row, in order.
inline Traffic PoolTraffic(const BatchShape& batch) {
  const double weights = SectorsOf(WeightBytes(batch), RecordStride(batch));
  const double bags = 1 / batch.hotness;
  return {kNumberBytes + batch.unique * (kKeyBytes + weights) + bags * kNumberBytes,
          bags * 4 * static_cast<double>(batch.dim)};
}

// The same without bags: an output row for each id.
inline Traffic GatherTraffic(const BatchShape& batch) {
  BatchShape single = batch;
  single.hotness = 1;
  Traffic traffic = PoolTraffic(single);
  traffic.read -= kNumberBytes;
  return traffic;
}

// GatherRows: the row number, and the weights of the rows of these numbers, copied.
inline Traffic RowsTraffic(const BatchShape& batch) {
  return {kKeyBytes + batch.unique * SectorsOf(WeightBytes(batch), RecordStride(batch)),
          4 * static_cast<double>(batch.dim)};
}

// --- The backward pass ---

// Passes of the radix sort, 8 bits each, over the bits of the distinct ids' numbers.
inline double SortPasses(const BatchShape& batch) {
  const double bits = std::max(1.0, std::ceil(std::log2(std::max(2.0, batch.unique * batch.ids))));
  return std::ceil(bits / 8);
}

// SortIntoSegments: positions are written; the sort reads its keys once to count digits, and in each pass
// reads and writes keys and positions, 8 bytes; then the sorted keys say where segments begin.
inline Traffic SegmentsTraffic(const BatchShape& batch) {
  const double passes = SortPasses(batch);
  return {kNumberBytes + 8 * passes + kNumberBytes, kNumberBytes + 8 * passes + batch.unique * kNumberBytes};
}

// FindGradients: writes 16 bytes for each occurrence, the address and the scale of its gradient. Where bags
// begin is read again and again, from the cache.
inline Traffic OccurrenceGradientsTraffic(const BatchShape& batch) {
  return {kNumberBytes / batch.hotness, 16};
}

// UpdateRows. For each occurrence its position in order, and in another order than that of the batch the
// description of its gradient. The gradient of each bag once. For each distinct id where its segment begins,
// its row number, and its record, read and written; where rows catch up, the step number, too. The pieces of
// long segments are left out: 16 * dim bytes for each 256 occurrences at most.
inline Traffic UpdateTraffic(const BatchShape& batch) {
  const double bags = 1 / batch.hotness;
  const double description = ScratchSector(16 * batch.ids, batch);
  const double gradient = bags * SectorsOf(4 * batch.dim, 4 * batch.dim);
  const double record = SectorsOf(RecordBytes(batch), RecordStride(batch));
  const double step = batch.catches_up ? kSectorBytes : 0;
  return {kNumberBytes + description + gradient + batch.unique * (kNumberBytes + kKeyBytes + record + step),
          batch.unique * (record + step)};
}

// The whole backward pass with the optimizer's step.
inline Traffic BackwardTraffic(const BatchShape& batch) {
  return SegmentsTraffic(batch) + OccurrenceGradientsTraffic(batch) + UpdateTraffic(batch);
}

// --- Whole calls ---

// Catching up before rows are read (Adam): for each distinct id its row number and step number. Rows that
// have missed steps, `behind` of the distinct ids, are read and written.
inline Traffic CatchUpTraffic(const BatchShape& batch, double behind) {
  const double record = SectorsOf(RecordBytes(batch), RecordStride(batch));
  return batch.unique * Traffic{kKeyBytes + kSectorBytes + behind * record, behind * (record + kSectorBytes)};
}

// Engine::Lookup in training. Adds CatchUpTraffic where rows catch up, all of them, as most rows were last
// current some steps ago.
inline Traffic LookupTraffic(const BatchShape& batch, BagsFrom bags) {
  const Traffic rows = batch.unique * FindOrInsertTraffic(batch);
  const Traffic outputs = bags == BagsFrom::kNothing ? GatherTraffic(batch) : PoolTraffic(batch);
  const Traffic catch_up = batch.catches_up ? CatchUpTraffic(batch, 1) : Traffic{};
  return BagsTraffic(batch, bags) + DedupTraffic(batch) + rows + catch_up + outputs;
}

// A lookup and the step that trains its rows.
inline Traffic StepTraffic(const BatchShape& batch, BagsFrom bags) {
  return LookupTraffic(batch, bags) + BackwardTraffic(batch);
}

}  // namespace sok

#endif  // SOK_CUDA_PROGRAMS_TRAFFIC_H_
