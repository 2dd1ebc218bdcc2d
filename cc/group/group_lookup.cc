#include "cc/group/group_lookup.h"

#include "cc/group/parallel_parts.h"
#include "cc/group/table_locks.h"
#include "cc/group/table_rows.h"

namespace sok {
Status GroupForward(Executor& executor, Span<Table* const> tables, Span<const Span<const int64_t>> ids,
                    LookupPlan* plan, Span<const OutputRows> outputs, GroupScratch* scratch) {
  std::vector<TablePart>& parts = plan->parts;
  parts.resize(tables.size());
  SOK_RETURN_IF_ERROR(ForEachPart(executor, parts.size(), [&](Executor& inner, int64_t t) {
    parts[t].inverse.resize(ids[t].size());
    return scratch->deduplicators.Take()->Run(inner, ids[t], &parts[t].unique,
                                              Span<int32_t>(parts[t].inverse));
  }));

  const TableLocks locks(tables);
  std::vector<RowPointers> pointers(parts.size());
  SOK_RETURN_IF_ERROR(ForEachPart(executor, parts.size(), [&](Executor& inner, int64_t t) {
    SOK_RETURN_IF_ERROR(ResolveRows(inner, tables[t], plan->training, {}, &parts[t]));
    if (plan->training) LookupCounts::Add(tables[t]->lookup_counts()->ids, ids[t].size());
    pointers[t].Fill(*tables[t], parts[t]);
    return OkStatus();
  }));
  return ForEachPart(executor, plan->lookups.size(), [&](Executor& inner, int64_t l) {
    const Lookup& lookup = plan->lookups[l];
    const int t = lookup.table;
    WriteOutput(inner, lookup, parts[t], pointers[t].rows, tables[t]->options().dim, outputs[l]);
    return OkStatus();
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
