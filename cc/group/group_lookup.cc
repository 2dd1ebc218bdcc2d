#include "cc/group/group_lookup.h"

#include <algorithm>
#include <iterator>

#include "cc/dedup/segments.h"
#include "cc/group/parallel_parts.h"
#include "cc/group/table_locks.h"
#include "cc/pooling/pool.h"
#include "cc/pooling/segment_sum.h"

namespace sok {
namespace {

// Pointers to the weights of a part's distinct ids. Ids without a row point into `initial`, which holds the
// values that an insertion would give them.
struct RowPointers {
  std::vector<const float*> rows;
  std::vector<float> initial;

  void Fill(const Table& table, const TablePart& part) {
    const int64_t dim = table.options().dim;
    const int64_t absent = std::count(part.rows.begin(), part.rows.end(), Table::kAbsent);
    initial.resize(absent * dim);
    rows.resize(part.rows.size());
    float* next = initial.data();
    for (size_t u = 0; u < rows.size(); ++u) {
      if (part.rows[u] != Table::kAbsent) {
        rows[u] = table.weights(part.rows[u]);
        continue;
      }
      table.InitialRow(part.unique[u], Span<float>(next, dim));
      rows[u] = next;
      next += dim;
    }
  }
};

// Finds the rows of a part's distinct ids and makes them current.
Status ResolveRows(Executor& executor, Table* table, bool training, TablePart* part) {
  part->rows.resize(part->unique.size());
  if (training) {
    SOK_RETURN_IF_ERROR(table->FindOrInsert(executor, part->unique, Span<int64_t>(part->rows)));
    table->BringUpToDate(executor, part->rows);
    return OkStatus();
  }
  SOK_RETURN_IF_ERROR(table->Find(executor, part->unique, Span<int64_t>(part->rows)));
  std::vector<int64_t> present;
  std::copy_if(part->rows.begin(), part->rows.end(), std::back_inserter(present),
               [](int64_t row) { return row != Table::kAbsent; });
  table->BringUpToDate(executor, present);
  return OkStatus();
}

Span<const int32_t> InverseOf(const TablePart& part, const Lookup& lookup) {
  return Span<const int32_t>(part.inverse).subspan(lookup.first, lookup.count);
}

void WriteOutput(Executor& executor, const Lookup& lookup, const TablePart& part, const RowPointers& pointers,
                 int64_t dim, const OutputRows& output) {
  const Span<const int32_t> inverse = InverseOf(part, lookup);
  if (lookup.pooled) {
    PoolForward(executor, pointers.rows, inverse, lookup.offsets, lookup.weights, lookup.combiner, dim,
                output.data, output.stride);
  } else {
    GatherForward(executor, pointers.rows, inverse, dim, output.data, output.stride);
  }
}

// The gradients of part `t`'s distinct ids.
void PartBackward(Executor& executor, const LookupPlan& plan, int t, int64_t dim,
                  Span<const GradientRows> gradients, float* grads_out) {
  const TablePart& part = plan.parts[t];
  std::vector<const float*> grad_rows(part.inverse.size());
  std::vector<float> scales;
  const bool scaled = std::any_of(plan.lookups.begin(), plan.lookups.end(), [t](const Lookup& lookup) {
    return lookup.table == t && lookup.pooled &&
           (lookup.combiner != Combiner::kSum || !lookup.weights.empty());
  });
  if (scaled) scales.assign(part.inverse.size(), 1.0f);

  for (size_t l = 0; l < plan.lookups.size(); ++l) {
    const Lookup& lookup = plan.lookups[l];
    if (lookup.table != t) continue;
    const float* gradient = gradients[l].data;
    const float** out = grad_rows.data() + lookup.first;
    for (int64_t bag = 0; bag < lookup.num_bags(); ++bag, gradient += gradients[l].stride) {
      const int64_t end = lookup.pooled ? lookup.offsets[bag + 1] : bag + 1;
      for (int64_t i = lookup.pooled ? lookup.offsets[bag] : bag; i < end; ++i) out[i] = gradient;
    }
    if (scaled && lookup.pooled) {
      BagScales(lookup.combiner, lookup.offsets, lookup.weights,
                Span<float>(scales).subspan(lookup.first, lookup.count));
    }
  }
  Segments segments;
  BuildSegments(part.inverse, static_cast<int64_t>(part.unique.size()), &segments);
  SegmentSum(executor, segments, grad_rows, scales, dim, grads_out);
}

}  // namespace

Status GroupForward(Executor& executor, Span<Table* const> tables, Span<const Span<const int64_t>> ids,
                    LookupPlan* plan, Span<const OutputRows> outputs, GroupScratch* scratch) {
  std::vector<TablePart>& parts = plan->parts;
  parts.resize(tables.size());
  while (scratch->deduplicators.size() < parts.size()) scratch->deduplicators.emplace_back();
  SOK_RETURN_IF_ERROR(ForEachPart(executor, parts.size(), [&](Executor& inner, int64_t t) {
    parts[t].inverse.resize(ids[t].size());
    return scratch->deduplicators[t].Run(inner, ids[t], &parts[t].unique, Span<int32_t>(parts[t].inverse));
  }));

  const TableLocks locks(tables);
  std::vector<RowPointers> pointers(parts.size());
  SOK_RETURN_IF_ERROR(ForEachPart(executor, parts.size(), [&](Executor& inner, int64_t t) {
    SOK_RETURN_IF_ERROR(ResolveRows(inner, tables[t], plan->training, &parts[t]));
    pointers[t].Fill(*tables[t], parts[t]);
    return OkStatus();
  }));
  return ForEachPart(executor, plan->lookups.size(), [&](Executor& inner, int64_t l) {
    const Lookup& lookup = plan->lookups[l];
    const int t = lookup.table;
    WriteOutput(inner, lookup, parts[t], pointers[t], tables[t]->options().dim, outputs[l]);
    return OkStatus();
  });
}

Status GroupBackward(Executor& executor, const LookupPlan& plan, Span<const int64_t> dims,
                     Span<const GradientRows> gradients, Span<float* const> grads_out) {
  return ForEachPart(executor, dims.size(), [&](Executor& inner, int64_t t) {
    PartBackward(inner, plan, static_cast<int>(t), dims[t], gradients, grads_out[t]);
    return OkStatus();
  });
}

Status WeightBackward(Executor& executor, Table* table, const LookupPlan& plan, int l,
                      const GradientRows& gradient, Span<float> weight_grads) {
  const Lookup& lookup = plan.lookups[l];
  const TablePart& part = plan.parts[lookup.table];
  Table* const tables[] = {table};
  const TableLocks locks(Span<Table* const>(tables, 1));
  for (int64_t row : part.rows) {
    if (row < table->size()) continue;
    return InvalidArgument("Embedding variable '", table->options().name, "' has no row number ", row,
                           ": it holds ", table->size(), " rows, and was made anew since the lookup");
  }
  RowPointers pointers;
  pointers.Fill(*table, part);
  std::vector<float> in_bag_order(lookup.order.empty() ? 0 : lookup.count);
  const Span<float> out = lookup.order.empty() ? weight_grads : Span<float>(in_bag_order);
  WeightGradients(executor, lookup.combiner, pointers.rows, InverseOf(part, lookup), lookup.offsets,
                  lookup.weights, gradient.data, gradient.stride, table->options().dim, out);
  for (size_t i = 0; i < in_bag_order.size(); ++i) weight_grads[lookup.order[i]] = in_bag_order[i];
  return OkStatus();
}

}  // namespace sok
