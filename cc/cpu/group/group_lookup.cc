#include "cc/cpu/group/group_lookup.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "cc/cpu/group/direct_lookup.h"
#include "cc/cpu/group/lookup_passes.h"
#include "cc/lookup/lookup_input.h"
#include "cc/table/table_errors.h"

namespace sok {
namespace {

// If the outputs of a group have more bytes than this together, they leave the caches before they are read.
constexpr int64_t kStreamedBytes = int64_t{16} << 20;

OutputStores StoresFor(const LookupPlan& plan, Span<Table* const> tables) {
  int64_t floats = 0;
  for (const LookupBags& lookup : plan.lookups)
    floats += lookup.num_bags() * tables[lookup.table]->options().dim;
  const int64_t bytes = floats * static_cast<int64_t>(sizeof(float));
  return bytes > kStreamedBytes ? OutputStores::kStreamed : OutputStores::kCached;
}

// Finds a group's rows and writes its outputs, table by table. The tables are locked.
class GroupReader {
 public:
  GroupReader(Span<Table* const> tables, LookupPlan* plan, Span<const OutputRows> outputs,
              GroupScratch* scratch)
      : tables_(tables),
        plan_(*plan),
        outputs_(outputs),
        scratch_(*scratch),
        lookups_of_(tables.size()),
        stores_(StoresFor(*plan, tables)) {
    for (size_t l = 0; l < plan_.lookups.size(); ++l) {
      lookups_of_[plan_.lookups[l].table].push_back(static_cast<int64_t>(l));
    }
  }

  Status Read(Executor& executor, int64_t t) {
    Table* const table = tables_[t];
    TablePart& part = plan_.parts[t];
    SOK_RETURN_IF_ERROR(ResolveRows(executor, table, plan_.training, {}, &part));
    if (plan_.training) LookupCounts::Add(table->shared_lookup_counts()->ids, part.inverse.size());
    const ObjectPool<RowPointers>::Lease pointers = scratch_.pointers.Take();
    pointers->Fill(*table, part.unique, part.rows_to_read());
    return ForEachPart(executor, lookups_of_[t].size(), [&](Executor& inner, int64_t i) {
      const int64_t l = lookups_of_[t][i];
      WriteOutput(inner, plan_.lookups[l], part, pointers->rows(), table->options().dim, outputs_[l],
                  stores_);
      return OkStatus();
    });
  }

  // Like Read, but id by id. `ids` are the table's. *gave_up as for sok::ReadDirectly.
  Status ReadDirectly(Executor& executor, int64_t t, Span<const int64_t> ids, std::atomic<bool>* gave_up) {
    plan_.parts[t].Clear();
    return ForEachPart(executor, lookups_of_[t].size(), [&](Executor& inner, int64_t i) {
      const int64_t l = lookups_of_[t][i];
      const LookupBags& lookup = plan_.lookups[l];
      return sok::ReadDirectly(inner, *tables_[t], lookup, ids.subspan(lookup.first, lookup.count),
                               outputs_[l], stores_, &scratch_.direct, gave_up);
    });
  }

 private:
  const Span<Table* const> tables_;
  LookupPlan& plan_;
  const Span<const OutputRows> outputs_;
  GroupScratch& scratch_;
  std::vector<std::vector<int64_t>> lookups_of_;  // by table
  const OutputStores stores_;
};

// Merges the duplicate ids of one table.
Status MergePart(Executor& executor, const Table& table, Span<const int64_t> ids, GroupScratch* scratch,
                 TablePart* part) {
  if (ids.size() > INT32_MAX) return TooManyIds(table.options().name, ids.size());
  part->inverse.resize(ids.size());
  return scratch->deduplicators.Take()->Run(executor, ids, &part->unique, Span<int32_t>(part->inverse));
}

// Lets disks begin to read the rows of a plan. Waits for locks here, as GroupForward does.
void AskAhead(Executor& executor, Span<Table* const> tables, const LookupPlan& plan) {
  for (int64_t t = 0; t < tables.size(); ++t) {
    if (!tables[t]->options().tiers.has_disk()) continue;
    const MutexLock lock(tables[t]->mutex());
    tables[t]->AskAhead(executor, plan.parts[t].unique);
  }
}

}  // namespace

Status GroupForward(Executor& executor, Span<Table* const> tables, Span<const Span<const int64_t>> ids,
                    LookupPlan* plan, Span<const OutputRows> outputs, GroupScratch* scratch) {
  plan->parts.resize(tables.size());
  GroupReader reader(tables, plan, outputs, scratch);
  // Locked here, on the caller's thread: if the executor's threads waited for locks, the calls that hold the
  // locks might get no threads.
  const TableLocks locks(tables);
  // Makes all passes over a table's ids before those of the next table, while the ids are in the cache.
  return ForEachPart(executor, tables.size(), [&](Executor& inner, int64_t t) {
    if (CanReadDirectly(*plan, static_cast<int>(t), *tables[t], ids[t].size())) {
      std::atomic<bool> gave_up{false};
      SOK_RETURN_IF_ERROR(reader.ReadDirectly(inner, t, ids[t], &gave_up));
      if (!gave_up) return OkStatus();
    }
    SOK_RETURN_IF_ERROR(MergePart(inner, *tables[t], ids[t], scratch, &plan->parts[t]));
    return reader.Read(inner, t);
  });
}

Status MergeGroup(Executor& executor, Span<Table* const> tables, Span<const Span<const int64_t>> ids,
                  LookupPlan* plan, GroupScratch* scratch) {
  plan->parts.resize(ids.size());
  SOK_RETURN_IF_ERROR(ForEachPart(executor, ids.size(), [&](Executor& inner, int64_t t) {
    return MergePart(inner, *tables[t], ids[t], scratch, &plan->parts[t]);
  }));
  AskAhead(executor, tables, *plan);
  return OkStatus();
}

Status ReadGroup(Executor& executor, Span<Table* const> tables, LookupPlan* plan,
                 Span<const OutputRows> outputs, GroupScratch* scratch) {
  GroupReader reader(tables, plan, outputs, scratch);
  const TableLocks locks(tables);
  return ForEachPart(executor, tables.size(),
                     [&](Executor& inner, int64_t t) { return reader.Read(inner, t); });
}

Status GroupBackward(Executor& executor, const LookupPlan& plan, Span<const int64_t> dims,
                     Span<const GradientRows> gradients, Span<float* const> grads_out,
                     GradientScratch* scratch) {
  return ForEachPart(executor, dims.size(), [&](Executor& inner, int64_t t) {
    if (grads_out[t] == nullptr) return OkStatus();
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
    return RowWasEvicted(table->options(), part.unique[u]);
  }
  std::vector<int64_t> rows(part.rows.size());
  std::transform(part.rows.begin(), part.rows.end(), rows.begin(),
                 [](int64_t reference) { return reference < 0 ? reference : RowOf(reference); });
  SOK_RETURN_IF_ERROR(table->BringUp(executor, rows, RowUse::kRead));
  RowPointers pointers;
  pointers.Fill(*table, part.unique, part.rows_to_read());
  LookupWeightGradients(executor, plan, l, pointers.rows(), table->options().dim, gradient, weight_grads);
  return OkStatus();
}

}  // namespace sok
