#include "cc/group/group_lookup.h"

#include <vector>

#include "cc/group/parallel_parts.h"
#include "cc/group/table_locks.h"
#include "cc/group/table_rows.h"

namespace sok {
namespace {

// Outputs of a group that are larger than this together are not in the caches any more when they are read.
constexpr int64_t kStreamedBytes = int64_t{16} << 20;

OutputStores StoresFor(const LookupPlan& plan, Span<Table* const> tables) {
  int64_t floats = 0;
  for (const Lookup& lookup : plan.lookups) floats += lookup.num_bags() * tables[lookup.table]->options().dim;
  const int64_t bytes = floats * static_cast<int64_t>(sizeof(float));
  return bytes > kStreamedBytes ? OutputStores::kStreamed : OutputStores::kCached;
}

}  // namespace

Status GroupForward(Executor& executor, Span<Table* const> tables, Span<const Span<const int64_t>> ids,
                    LookupPlan* plan, Span<const OutputRows> outputs, GroupScratch* scratch) {
  plan->parts.resize(tables.size());
  std::vector<std::vector<int64_t>> lookups_of(tables.size());
  for (size_t l = 0; l < plan->lookups.size(); ++l) {
    lookups_of[plan->lookups[l].table].push_back(static_cast<int64_t>(l));
  }
  const OutputStores stores = StoresFor(*plan, tables);
  // Taken here, on the caller's thread: a thread of the executor that waited for a lock could keep the holder
  // from getting threads.
  const TableLocks locks(tables);
  // All passes over a table's ids follow one another, while these are in the cache.
  return ForEachPart(executor, tables.size(), [&](Executor& inner, int64_t t) {
    Table* const table = tables[t];
    TablePart& part = plan->parts[t];
    part.inverse.resize(ids[t].size());
    SOK_RETURN_IF_ERROR(
        scratch->deduplicators.Take()->Run(inner, ids[t], &part.unique, Span<int32_t>(part.inverse)));
    SOK_RETURN_IF_ERROR(ResolveRows(inner, table, plan->training, {}, &part));
    if (plan->training) LookupCounts::Add(table->lookup_counts()->ids, ids[t].size());
    const ObjectPool<RowPointers>::Lease pointers = scratch->pointers.Take();
    pointers->Fill(*table, part);
    return ForEachPart(inner, lookups_of[t].size(), [&](Executor& innermost, int64_t i) {
      const int64_t l = lookups_of[t][i];
      WriteOutput(innermost, plan->lookups[l], part, pointers->rows, table->options().dim, outputs[l],
                  stores);
      return OkStatus();
    });
  });
}

Status GroupBackward(Executor& executor, const LookupPlan& plan, Span<const int64_t> dims,
                     Span<const GradientRows> gradients, Span<float* const> grads_out,
                     GradientScratch* scratch) {
  return ForEachPart(executor, dims.size(), [&](Executor& inner, int64_t t) {
    const ObjectPool<PartGradients>::Lease part = scratch->parts.Take();
    part->Prepare(plan, static_cast<int>(t), gradients);
    part->Sum(inner, dims[t], grads_out[t]);
    return OkStatus();
  });
}

Status WeightBackward(Executor& executor, Table* table, const LookupPlan& plan, int l,
                      const GradientRows& gradient, Span<float> weight_grads) {
  const TablePart& part = plan.parts[plan.lookups[l].table];
  Table* const tables[] = {table};
  const TableLocks locks(Span<Table* const>(tables, 1));
  SOK_RETURN_IF_ERROR(table->CheckReferences(part.rows));
  for (size_t u = 0; u < part.rows.size(); ++u) {
    if (part.rows[u] == Table::kAbsent || table->IsCurrent(part.rows[u])) continue;
    return FailedPrecondition("Embedding variable '", table->options().name, "': the row of key ",
                              part.unique[u], " was evicted since the lookup, whose weights need it");
  }
  RowPointers pointers;
  pointers.Fill(*table, part);
  LookupWeightGradients(executor, plan, l, pointers.rows, table->options().dim, gradient, weight_grads);
  return OkStatus();
}

}  // namespace sok
