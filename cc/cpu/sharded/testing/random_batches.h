// Tables of several kinds, and random batches of all ranks with gradients of their outputs, for tests.
#ifndef SOK_CC_CPU_SHARDED_TESTING_RANDOM_BATCHES_H_
#define SOK_CC_CPU_SHARDED_TESTING_RANDOM_BATCHES_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/cpu/sharded/testing/sharded_step.h"

namespace sok {

inline constexpr int64_t kDims[] = {1, 3, 8, 17, 64};
inline constexpr int64_t kStaticKeys = 600;

inline TableOptions OptionsOf(int t, int rank, int ranks) {
  TableOptions options;
  options.name = "table" + std::to_string(t);
  options.dim = kDims[t % 5];
  options.rank = rank;
  options.ranks = ranks;
  options.initializer = {InitializerKind::kUniform, -1.0f, 1.0f, static_cast<uint64_t>(t)};
  // The capacity of a table without hashing is that of one rank.
  options.use_hashtable = t % 3 != 2;
  if (!options.use_hashtable) options.capacity = kStaticKeys / ranks;
  return options;
}

inline std::unique_ptr<Table> MakeTable(int t, int rank, int ranks) {
  InlineExecutor executor;
  return std::move(Table::Create(executor, OptionsOf(t, rank, ranks)).value());
}

// Ids that few or many ranks look up, of both signs and also large; in [0, kStaticKeys) for tables without
// hashing.
inline int64_t RandomId(std::mt19937_64& random, int t) {
  const int64_t id = static_cast<int64_t>(random() % (random() % 2 ? 20 : kStaticKeys));
  if (t % 3 == 2) return id;
  switch (random() % 4) {
    case 0:
      return -id;
    case 1:
      return id << 33;
    case 2:
      return INT64_MIN + id;
    default:
      return id;
  }
}

struct Shape {
  int tables = 1;
  int lookups = 1;
  int64_t bags = 20;
  bool weighted = false;
};

inline Batch RandomBatch(std::mt19937_64& random, const Shape& shape,
                         const std::vector<ExchangeMode>& modes) {
  Batch batch;
  batch.ids.resize(shape.tables);
  for (int l = 0; l < shape.lookups; ++l) {
    const int t = l % shape.tables;
    const bool pooled = modes[t] == ExchangeMode::kSums || random() % 3 != 0;
    const auto combiner = static_cast<Combiner>(random() % 3);
    std::vector<int64_t> ids;
    std::vector<int64_t> offsets = {0};
    for (int64_t bag = 0; bag < shape.bags; ++bag) {
      const int64_t length = random() % 5 == 0 ? 0 : static_cast<int64_t>(random() % 7);
      for (int64_t i = 0; i < length; ++i) ids.push_back(RandomId(random, t));
      offsets.push_back(static_cast<int64_t>(ids.size()));
    }
    std::vector<float> weights;
    if (pooled && shape.weighted && modes[t] == ExchangeMode::kRows) {
      for (size_t i = 0; i < ids.size(); ++i) weights.push_back(1.0f + static_cast<float>(random() % 8) / 4);
    }
    if (!pooled) offsets.clear();
    batch.Add(t, ids, offsets, combiner, weights);
  }
  return batch;
}

inline std::vector<Batch> RandomBatches(uint64_t seed, int ranks, const Shape& shape,
                                        const std::vector<ExchangeMode>& modes) {
  std::vector<Batch> batches;
  for (int r = 0; r < ranks; ++r) {
    Shape own = shape;
    own.bags = r == 1 ? 0 : shape.bags + 3 * r;  // uneven, and one rank without bags
    std::mt19937_64 random(seed * 31 + r);
    Batch batch = RandomBatch(random, own, modes);
    batches.push_back(std::move(batch));
  }
  return batches;
}

inline std::vector<std::vector<std::vector<float>>> RandomGradients(uint64_t seed,
                                                                    const std::vector<Batch>& batches) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<std::vector<float>>> gradients(batches.size());
  for (size_t r = 0; r < batches.size(); ++r) {
    for (const LookupBags& lookup : batches[r].lookups) {
      std::vector<float> gradient(lookup.num_bags() * kDims[lookup.table % 5]);
      for (float& value : gradient) value = static_cast<float>(static_cast<int>(random() % 17) - 8) / 4;
      gradients[r].push_back(std::move(gradient));
    }
  }
  return gradients;
}

}  // namespace sok

#endif  // SOK_CC_CPU_SHARDED_TESTING_RANDOM_BATCHES_H_
