#include "cc/engine/contract/sharded_tables.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>

namespace sok {
namespace {

// Uneven ranges of the keys, of which one is empty if there are four ranks.
std::vector<int64_t> Boundaries(int ranks) {
  std::vector<int64_t> boundaries = {0};
  for (int r = 1; r < ranks; ++r) boundaries.push_back(r == 3 ? boundaries.back() : 7 * r);
  boundaries.push_back(kShardedKeys);
  return boundaries;
}

TableOptions WithoutHashing(TableOptions options, int ranks) {
  options.use_hashtable = false;
  options.capacity = kShardedKeys;
  int64_t most = 0;
  for (int r = 0; r < ranks; ++r) {
    most = std::max(most, options.placement.RowsOn(r, ranks, kShardedKeys).count);
  }
  options.capacity = most;
  return options;
}

// Ids that many ranks look up, and hostile ones if the table allows them.
int64_t RandomKey(const TableOptions& options, std::mt19937_64& random) {
  const auto key = static_cast<int64_t>(random() % (random() % 2 == 0 ? 5 : kShardedKeys));
  if (!options.use_hashtable) return key;
  switch (random() % 8) {
    case 0:
      return INT64_MIN + key % 3;
    case 1:
      return INT64_MAX - key % 3;
    case 2:
      return -1 - key;
    default:
      return key;
  }
}

ContractLookup RandomLookup(const ShardedTables& tables, size_t t, int64_t bags, std::mt19937_64& random) {
  ContractLookup lookup;
  const bool sums = tables.modes[t] == ExchangeMode::kSums;
  lookup.spec.table = static_cast<int>(t);
  lookup.spec.keeps_bags = sums;
  lookup.spec.combiner = static_cast<Combiner>(random() % 3);
  lookup.spec.layout = sums || random() % 3 != 0 ? IdLayout::kSparse : IdLayout::kDense;
  const bool pooled = lookup.spec.layout == IdLayout::kSparse;
  lookup.spec.weighted = pooled && !sums && random() % 2 == 0;
  lookup.shuffle_seed = pooled && random() % 2 == 0 ? 1 + static_cast<uint32_t>(random() % 100) : 0;
  for (int64_t b = 0; b < bags; ++b) {
    ReferenceBag bag;
    const int64_t length = pooled ? static_cast<int64_t>(random() % 5 * (random() % 7)) : 1;
    for (int64_t i = 0; i < length; ++i) {
      bag.ids.push_back(RandomKey(tables.options[t], random));
      bag.weights.push_back(lookup.spec.weighted ? 0.5 + 0.25 * static_cast<double>(random() % 8) : 1.0);
    }
    lookup.bags.push_back(bag);
  }
  return lookup;
}

}  // namespace

void ShardedTables::Add(TableOptions table, ExchangeMode mode) {
  table.name = "table" + std::to_string(options.size());
  options.push_back(std::move(table));
  modes.push_back(mode);
}

TableOptions PlacedOptions(int64_t dim, const Placement& placement) {
  TableOptions options = ContractOptions("", dim);
  options.placement = placement;
  return options;
}

ShardedTables TablesOfAllPlacements(int ranks) {
  const Placement ranges = Placement::Ranges(Boundaries(ranks));
  ShardedTables tables;
  tables.Add(PlacedOptions(3), ExchangeMode::kSums);
  tables.Add(PlacedOptions(4, Placement::OneRank(ranks - 1)));
  tables.Add(PlacedOptions(8, Placement::AllRanks()));
  tables.Add(PlacedOptions(1, ranges));
  tables.Add(WithoutHashing(PlacedOptions(5, Placement::ByKey(kShardedKeys)), ranks), ExchangeMode::kSums);
  tables.Add(PlacedOptions(2, Placement::AllRanks()), ExchangeMode::kSums);
  tables.Add(WithoutHashing(PlacedOptions(2, Placement::OneRank(ranks / 2)), ranks), ExchangeMode::kSums);
  tables.Add(WithoutHashing(PlacedOptions(3, ranges), ranks), ExchangeMode::kSums);
  tables.Add(WithoutHashing(PlacedOptions(1, Placement::AllRanks()), ranks));
  return tables;
}

ShardedTables TablesOfAllPolicies() {
  TableOptions lru = PlacedOptions(4);
  lru.capacity = 60;
  lru.on_full = OnFull::kEvictLru;
  lru.initializer.rows = 7;
  TableOptions counter = PlacedOptions(3);
  counter.admission.kind = Admission::Kind::kCounter;
  counter.admission.filter_freq = 3;
  counter.admission.default_value = 0.25f;
  counter.admission.before_lookup = true;
  TableOptions lfu = counter;
  lfu.admission.before_lookup = false;
  lfu.capacity = 40;
  lfu.on_full = OnFull::kEvictLfu;
  TableOptions replicated = lfu;
  replicated.placement = Placement::AllRanks();
  replicated.capacity = 60;
  TableOptions bloom = PlacedOptions(1);
  bloom.admission.kind = Admission::Kind::kBloom;
  bloom.admission.filter_freq = 2;
  bloom.admission.max_element_size = 500;
  bloom.admission.false_positive_probability = 1e-9;
  bloom.admission.counter_bits = 8;
  ShardedTables tables;
  tables.Add(lru);
  tables.Add(counter);
  tables.Add(lfu, ExchangeMode::kSums);
  tables.Add(bloom);
  tables.Add(replicated);
  tables.Add(counter, ExchangeMode::kSums);
  return tables;
}

bool EvictsOfItsOwnRows(const TableOptions& options) {
  return options.on_full != OnFull::kError && !options.placement.is_replicated();
}

TableOptions InOneProcess(const TableOptions& options, int ranks) {
  TableOptions one = options;
  if (!one.use_hashtable) one.capacity = one.placement.StaticKeys(ranks, one.capacity);
  if (EvictsOfItsOwnRows(options)) {
    one.on_full = OnFull::kError;
    one.capacity = 0;
  }
  one.placement = Placement();
  return one;
}

std::vector<ContractBatch> RandomBatches(const ShardedTables& tables, int ranks, uint32_t seed,
                                         int64_t bags) {
  std::vector<ContractBatch> batches;
  std::mt19937_64 random(seed);
  for (int r = 0; r < ranks; ++r) {
    ContractBatch batch;
    const bool none = seed % 4 == 3 || (seed % 3 == 1 && r == 0);
    const int64_t bags_of_rank = none ? 0 : bags + 3 * r;
    for (size_t t = 0; t < tables.options.size(); ++t) {
      batch.push_back(RandomLookup(tables, t, bags_of_rank, random));
      if (tables.modes[t] == ExchangeMode::kRows && random() % 2 == 0) {
        batch.push_back(RandomLookup(tables, t, none ? 0 : bags_of_rank + 1, random));
      }
    }
    batches.push_back(std::move(batch));
  }
  return batches;
}

std::vector<OutputValues> RandomGradients(const ShardedTables& tables,
                                          const std::vector<ContractBatch>& batches, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<OutputValues> gradients;
  for (const ContractBatch& batch : batches) {
    gradients.emplace_back();
    for (const ContractLookup& lookup : batch) {
      gradients.back().emplace_back(lookup.bags.size() *
                                    static_cast<size_t>(tables.options[lookup.spec.table].dim));
      for (float& g : gradients.back().back())
        g = static_cast<float>(static_cast<int>(random() % 17) - 8) / 8;
    }
  }
  return gradients;
}

}  // namespace sok
