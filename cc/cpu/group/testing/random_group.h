// Groups of random lookups, for tests.
#ifndef SOK_CC_CPU_GROUP_TESTING_RANDOM_GROUP_H_
#define SOK_CC_CPU_GROUP_TESTING_RANDOM_GROUP_H_

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/cpu/group/group_lookup.h"
#include "cc/cpu/table/table.h"
#include "cc/lookup/testing/lookup_arrays.h"

namespace sok {

inline std::unique_ptr<Table> MakeTable(const std::string& name, int64_t dim, int64_t capacity = 0) {
  TableOptions options;
  options.name = name;
  options.dim = dim;
  options.capacity = capacity;
  options.initializer = {InitializerKind::kUniform, -1.0f, 1.0f, static_cast<uint64_t>(dim)};
  InlineExecutor executor;
  return std::move(Table::Create(executor, options).value());
}

// A group over some tables, with its bags written out for the reference.
struct Group {
  std::vector<std::unique_ptr<Table>> tables;
  std::vector<std::vector<int64_t>> ids;  // by table
  LookupPlan plan;
  std::vector<std::vector<ReferenceBag>> bags;  // by lookup
  std::vector<std::vector<float>> outputs;
  std::vector<OutputRows> output_rows;

  std::vector<Table*> table_pointers() const {
    std::vector<Table*> pointers;
    for (const auto& table : tables) pointers.push_back(table.get());
    return pointers;
  }

  void AddTable(int64_t dim, int64_t capacity = 0) {
    tables.push_back(MakeTable("table" + std::to_string(tables.size()), dim, capacity));
    ids.emplace_back();
  }

  void AddLookup(int t, const std::vector<ReferenceBag>& lookup_bags, Combiner combiner, bool weighted) {
    LookupBags lookup;
    lookup.table = t;
    lookup.pooled = true;
    lookup.combiner = combiner;
    lookup.offsets = {0};
    std::vector<int64_t>& table_ids = ids[t];
    lookup.first = static_cast<int64_t>(table_ids.size());
    for (const ReferenceBag& bag : lookup_bags) {
      table_ids.insert(table_ids.end(), bag.ids.begin(), bag.ids.end());
      lookup.count += static_cast<int64_t>(bag.ids.size());
      lookup.offsets.push_back(lookup.count);
      if (weighted) lookup.weights.insert(lookup.weights.end(), bag.weights.begin(), bag.weights.end());
    }
    plan.lookups.push_back(lookup);
    bags.push_back(lookup_bags);
  }

  Status Forward(Executor& executor) {
    MakeOutputs();
    GroupScratch scratch;
    return GroupForward(executor, table_pointers(), IdViews(), &plan, output_rows, &scratch);
  }

  // The forward pass in two calls, which share a scratch.
  Status Merge(Executor& executor, GroupScratch* scratch) {
    return MergeGroup(executor, table_pointers(), IdViews(), &plan, scratch);
  }
  Status Read(Executor& executor, GroupScratch* scratch) {
    MakeOutputs();
    return ReadGroup(executor, table_pointers(), &plan, output_rows, scratch);
  }

  std::vector<Span<const int64_t>> IdViews() const { return {ids.begin(), ids.end()}; }

  void MakeOutputs() {
    outputs.clear();
    output_rows.clear();
    for (const LookupBags& lookup : plan.lookups) {
      const int64_t dim = tables[lookup.table]->options().dim;
      outputs.emplace_back(lookup.num_bags() * dim, std::nanf(""));
      output_rows.push_back({outputs.back().data(), dim});
    }
  }

  ReferenceRows Rows(int t) const {
    ReferenceRows rows;
    for (int64_t id : ids[t]) {
      std::vector<float> row(tables[t]->options().dim);
      tables[t]->InitialRow(id, Span<float>(row));
      rows[id].assign(row.begin(), row.end());
    }
    return rows;
  }
};

// Bags of up to `hotness` ids, drawn from a small skewed set that contains hostile ids.
inline std::vector<ReferenceBag> RandomBags(std::mt19937* random, int bags, int hotness, bool weighted) {
  const std::vector<int64_t> hostile = {0, -1, (int64_t{1} << 32) + 1, INT64_MAX, INT64_MIN};
  std::vector<ReferenceBag> result(bags);
  for (ReferenceBag& bag : result) {
    const int count = static_cast<int>((*random)() % (hotness + 1));
    for (int i = 0; i < count; ++i) {
      const uint32_t draw = (*random)();
      bag.ids.push_back(draw % 7 == 0 ? hostile[draw % hostile.size()]
                                      : static_cast<int64_t>(draw % (1 + draw % 97)));
      bag.weights.push_back(weighted ? static_cast<double>(static_cast<float>(draw % 1000) / 500.0f) : 1.0);
    }
  }
  return result;
}

}  // namespace sok

#endif  // SOK_CC_CPU_GROUP_TESTING_RANDOM_GROUP_H_
