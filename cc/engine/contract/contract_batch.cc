#include "cc/engine/contract/contract_batch.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace sok {
namespace {

// A random order of the ids, counted bag by bag, that keeps those of each bag in order.
std::vector<int64_t> ShuffledOrder(const std::vector<ReferenceBag>& bags, uint32_t seed) {
  std::vector<size_t> bag_of;
  std::vector<int64_t> next;
  for (size_t b = 0; b < bags.size(); ++b) {
    next.push_back(static_cast<int64_t>(bag_of.size()));
    bag_of.insert(bag_of.end(), bags[b].ids.size(), b);
  }
  std::shuffle(bag_of.begin(), bag_of.end(), std::mt19937(seed));
  std::vector<int64_t> order;
  for (const size_t b : bag_of) order.push_back(next[b]++);
  return order;
}

// Converts an id to the key type; keeps only the low bits of an id outside its range.
int64_t AsKey(KeyType type, int64_t id) {
  if (type == KeyType::kInt32) return static_cast<int32_t>(id);
  if (type == KeyType::kUint32) return static_cast<uint32_t>(id);
  return id;
}

}  // namespace

int64_t ContractLookup::num_ids() const {
  int64_t count = 0;
  for (const ReferenceBag& bag : bags) count += static_cast<int64_t>(bag.ids.size());
  return count;
}

BatchArrays::BatchArrays(EngineMemory& memory, const ContractBatch& batch) {
  for (const ContractLookup& lookup : batch) Add(memory, lookup);
}

void BatchArrays::Add(EngineMemory& memory, const ContractLookup& lookup) {
  std::vector<int64_t> ids;
  std::vector<float> weights;
  std::vector<int64_t> bag_of;
  std::vector<int64_t> splits = {0};
  for (size_t b = 0; b < lookup.bags.size(); ++b) {
    for (size_t i = 0; i < lookup.bags[b].ids.size(); ++i) {
      ids.push_back(lookup.bags[b].ids[i]);
      weights.push_back(static_cast<float>(lookup.bags[b].weights[i]));
      bag_of.push_back(static_cast<int64_t>(b));
    }
    splits.push_back(static_cast<int64_t>(ids.size()));
  }
  std::vector<int64_t> order(ids.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  if (lookup.shuffle_seed != 0) order = ShuffledOrder(lookup.bags, lookup.shuffle_seed);

  LookupInput input;
  input.key_type = lookup.key_type;
  input.num_ids = static_cast<int64_t>(ids.size());
  std::vector<int64_t> given_ids;
  std::vector<float> given_weights;
  std::vector<int64_t> indices;
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t from = static_cast<size_t>(order[i]);
    given_ids.push_back(ids[from]);
    given_weights.push_back(weights[from]);
    indices.push_back(bag_of[from]);
    indices.push_back(static_cast<int64_t>(i));
  }
  if (lookup.key_type == KeyType::kInt64) {
    words_.emplace_back(memory, given_ids);
    input.ids = words_.back().data();
  } else {
    keys32_.emplace_back(memory, std::vector<int32_t>(given_ids.begin(), given_ids.end()));
    input.ids = keys32_.back().data();
  }
  if (lookup.spec.pooled()) input.num_bags = static_cast<int64_t>(lookup.bags.size());
  if (lookup.spec.layout == IdLayout::kSparse) {
    words_.emplace_back(memory, indices);
    input.indices = words_.back().data();
  } else if (lookup.spec.layout == IdLayout::kRagged) {
    words_.emplace_back(memory, splits);
    input.row_splits = words_.back().data();
  }
  if (lookup.spec.weighted) {
    floats_.emplace_back(memory, given_weights);
    input.weights = floats_.back().data();
  }
  specs_.push_back(lookup.spec);
  inputs_.push_back(input);
  given_order_.push_back(std::move(order));
}

ContractBatch RandomBatch(uint32_t seed, int64_t bags, const std::vector<int64_t>& dims) {
  std::mt19937 random(seed);
  const std::vector<int64_t> hostile = {0, -1, (int64_t{1} << 32) + 1, INT64_MAX, INT64_MIN, INT32_MIN};
  const IdLayout layouts[] = {IdLayout::kSparse, IdLayout::kRagged, IdLayout::kDense};
  const Combiner combiners[] = {Combiner::kSum, Combiner::kMean, Combiner::kSqrtN};
  ContractBatch batch;
  for (int l = 0; l < 12; ++l) {
    ContractLookup lookup;
    lookup.spec.table = static_cast<int>(static_cast<size_t>(l) % dims.size());
    lookup.spec.layout = layouts[(l + l / 3) % 3];
    lookup.spec.combiner = combiners[(l + l / 4) % 3];
    lookup.spec.weighted = lookup.spec.pooled() && l % 2 == 1;
    lookup.spec.positive_weights_only = lookup.spec.weighted && l % 4 == 1;
    // In an op, all lookups in a table have the same key type. The engine accepts any.
    lookup.key_type = l % 5 == 3 ? KeyType::kInt32 : l % 5 == 4 ? KeyType::kUint32 : KeyType::kInt64;
    if (lookup.spec.layout == IdLayout::kSparse && l % 4 != 3) lookup.shuffle_seed = seed + 1;
    // Some lookups have one id in every bag, which engines may treat specially.
    const bool one_each = !lookup.spec.pooled() || l == 6;
    for (int64_t b = 0; b < bags; ++b) {
      ReferenceBag bag;
      const int count = one_each ? 1 : static_cast<int>(random() % static_cast<unsigned>(2 + l));
      for (int i = 0; i < count; ++i) {
        const uint32_t draw = random();
        const int64_t id =
            draw % 7 == 0 ? hostile[draw % hostile.size()] : static_cast<int64_t>(draw % (1 + draw % 97)) - 5;
        bag.ids.push_back(AsKey(lookup.key_type, id));
        bag.weights.push_back(
            lookup.spec.weighted ? static_cast<double>(static_cast<float>(random() % 1000) / 500.0f) : 1.0);
        if (lookup.spec.weighted && random() % 8 == 0) bag.weights.back() = 0.0;
      }
      lookup.bags.push_back(std::move(bag));
    }
    batch.push_back(std::move(lookup));
  }
  return batch;
}

ContractLookup SumOf(int table, std::vector<std::vector<int64_t>> bags) {
  ContractLookup lookup;
  lookup.spec.table = table;
  lookup.spec.layout = IdLayout::kSparse;
  for (std::vector<int64_t>& ids : bags) {
    ReferenceBag bag;
    bag.weights.assign(ids.size(), 1.0);
    bag.ids = std::move(ids);
    lookup.bags.push_back(std::move(bag));
  }
  return lookup;
}

}  // namespace sok
