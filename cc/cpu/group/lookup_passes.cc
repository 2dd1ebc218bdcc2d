#include "cc/cpu/group/lookup_passes.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "cc/cpu/pooling/segment_sum.h"

namespace sok {
namespace {

// How often each distinct id was looked up.
std::vector<int64_t> CountOccurrences(const TablePart& part, Span<const int32_t> occurrences) {
  std::vector<int64_t> counts(part.unique.size(), 0);
  for (size_t i = 0; i < part.inverse.size(); ++i) {
    counts[part.inverse[i]] += occurrences.empty() ? 1 : occurrences[i];
  }
  return counts;
}

// Notes that the ids at some positions do not read their rows in this lookup.
void ReadDefaultAt(Span<const int64_t> positions, TablePart* part) {
  part->read_rows.clear();
  if (positions.empty()) return;
  part->read_rows = part->rows;
  for (const int64_t u : positions) part->read_rows[u] = Table::kAbsent;
}

// Moves the distinct ids that have rows to the front, otherwise in the same order. Returns their number.
int64_t PutRowsFirst(TablePart* part) {
  const int64_t ids = static_cast<int64_t>(part->rows.size());
  const int64_t absent = std::count(part->rows.begin(), part->rows.end(), Table::kAbsent);
  if (absent == 0) return ids;
  std::vector<int64_t> unique(ids);
  std::vector<int64_t> rows(ids);
  std::vector<int64_t> read_rows(part->read_rows.size());
  std::vector<int32_t> position(ids);
  int64_t next_with_row = 0;
  int64_t next_without = ids - absent;
  for (int64_t u = 0; u < ids; ++u) {
    int64_t& next = part->rows[u] == Table::kAbsent ? next_without : next_with_row;
    unique[next] = part->unique[u];
    rows[next] = part->rows[u];
    if (!read_rows.empty()) read_rows[next] = part->read_rows[u];
    position[u] = static_cast<int32_t>(next++);
  }
  part->unique = std::move(unique);
  part->rows = std::move(rows);
  part->read_rows = std::move(read_rows);
  for (int32_t& at : part->inverse) at = position[at];
  return ids - absent;
}

Status InsertAndFindRows(Executor& executor, Table* table, Span<const int32_t> occurrences, TablePart* part) {
  std::vector<int64_t> counts;
  if (table->counts_lookups()) counts = CountOccurrences(*part, occurrences);
  std::vector<int64_t> read_default;
  SOK_RETURN_IF_ERROR(
      table->FindForTraining(executor, part->unique, counts, Span<int64_t>(part->rows), &read_default));
  ReadDefaultAt(read_default, part);
  part->trained = PutRowsFirst(part);
  return table->MakeCurrent(executor, Span<const int64_t>(part->rows).subspan(0, part->trained));
}

Status FindPresentRows(Executor& executor, Table* table, TablePart* part) {
  SOK_RETURN_IF_ERROR(table->Find(executor, part->unique, Span<int64_t>(part->rows)));
  part->trained = 0;
  std::vector<int64_t> present;
  std::copy_if(part->rows.begin(), part->rows.end(), std::back_inserter(present),
               [](int64_t row) { return row != Table::kAbsent; });
  return table->BringUpToDate(executor, present);
}

}  // namespace

Status ResolveRows(Executor& executor, Table* table, bool training, Span<const int32_t> occurrences,
                   TablePart* part) {
  part->rows.resize(part->unique.size());
  part->read_rows.clear();
  SOK_RETURN_IF_ERROR(training ? InsertAndFindRows(executor, table, occurrences, part)
                               : FindPresentRows(executor, table, part));
  table->MakeReferences(Span<int64_t>(part->rows));
  table->MakeReferences(Span<int64_t>(part->read_rows));
  return OkStatus();
}

void RowPointers::Fill(const Table& table, Span<const int64_t> ids, Span<const int64_t> numbers) {
  const int64_t absent = PointToRows(table, numbers);
  if (absent > 0) MakeInitialRows(table, ids, absent);
}

namespace {

// Points to the rows of `numbers`; null for those that are absent, whose number is returned.
template <typename Element>
int64_t PointTo(const Table& table, Span<const int64_t> numbers, std::vector<const Element*>* rows) {
  rows->resize(numbers.size());
  int64_t absent = 0;
  for (int64_t i = 0; i < numbers.size(); ++i) {
    const bool is_absent = numbers[i] == Table::kAbsent;
    absent += is_absent ? 1 : 0;
    // RowOf returns row numbers unchanged.
    (*rows)[i] = is_absent ? nullptr : reinterpret_cast<const Element*>(table.record(RowOf(numbers[i])));
  }
  return absent;
}

// Points the null ones of `rows` to rows of `dim` elements in `initial`: to one for all, or to those that
// make(i, row) writes.
template <typename Element, typename Make>
void PointToInitialRows(int64_t dim, bool one_for_all, const Make& make, std::vector<Element>* initial,
                        std::vector<const Element*>* rows) {
  Element* next = initial->data();
  for (size_t i = 0; i < rows->size(); ++i) {
    if ((*rows)[i] != nullptr) continue;
    (*rows)[i] = next;
    if (one_for_all) continue;
    make(i, next);
    next += dim;
  }
}

}  // namespace

int64_t RowPointers::PointToRows(const Table& table, Span<const int64_t> numbers) {
  list_.type = table.options().record.weights;
  return list_.type == FloatType::kFloat32 ? PointTo(table, numbers, &list_.floats)
                                           : PointTo(table, numbers, &list_.halves);
}

void RowPointers::MakeInitialRows(const Table& table, Span<const int64_t> ids, int64_t absent) {
  const int64_t dim = table.options().dim;
  const bool is_default = table.options().admission.filters();
  const int64_t rows = is_default ? 1 : absent;
  if (list_.type == FloatType::kFloat32) {
    initial_.resize(rows * dim);
    if (is_default) std::fill_n(initial_.begin(), dim, table.options().admission.default_value);
    return PointToInitialRows(
        dim, is_default, [&](size_t i, float* row) { table.InitialRow(ids[i], Span<float>(row, dim)); },
        &initial_, &list_.floats);
  }
  initial_.assign(dim, table.options().admission.default_value);
  initial_halves_.resize(rows * dim);
  const auto write = [&](uint16_t* row) {
    table.layout().WriteWeights(initial_.data(), reinterpret_cast<char*>(row));
  };
  if (is_default) write(initial_halves_.data());
  PointToInitialRows(
      dim, is_default,
      [&](size_t i, uint16_t* row) {
        table.InitialRow(ids[i], Span<float>(initial_.data(), dim));
        write(row);
      },
      &initial_halves_, &list_.halves);
}

namespace {

Span<const int32_t> InverseOf(const TablePart& part, const LookupBags& lookup) {
  if (lookup.count == 0) return {};  // `inverse` is empty if no ids were merged
  return Span<const int32_t>(part.inverse).subspan(lookup.first, lookup.count);
}

bool IsScaled(const LookupBags& lookup) {
  return lookup.pooled && (lookup.combiner != Combiner::kSum || !lookup.weights.empty());
}

}  // namespace

void WriteOutput(Executor& executor, const LookupBags& lookup, const TablePart& part, const RowsInPlace& rows,
                 int64_t dim, const OutputRows& output, OutputStores stores) {
  const Span<const int32_t> inverse = InverseOf(part, lookup);
  if (lookup.pooled) {
    PoolForward(executor, rows, inverse, lookup.offsets, lookup.weights, lookup.combiner, dim, output.data,
                output.stride);
  } else {
    GatherForward(executor, rows, inverse, dim, output.data, output.stride, stores);
  }
}

void GradientsOfOccurrences(const LookupPlan& plan, int t, Span<const GradientRows> gradients,
                            OccurrenceGradients* result) {
  const size_t occurrences = plan.parts[t].inverse.size();
  result->rows.resize(occurrences);
  result->scales.clear();
  const bool scaled = std::any_of(plan.lookups.begin(), plan.lookups.end(), [t](const LookupBags& lookup) {
    return lookup.table == t && IsScaled(lookup);
  });
  if (scaled) result->scales.assign(occurrences, 1.0f);

  for (size_t l = 0; l < plan.lookups.size(); ++l) {
    const LookupBags& lookup = plan.lookups[l];
    if (lookup.table != t) continue;
    const float* gradient = gradients[l].data;
    const float** out = result->rows.data() + lookup.first;
    const int64_t stride = gradients[l].stride;
    if (!lookup.pooled) {
      for (int64_t i = 0; i < lookup.count; ++i) out[i] = gradient + i * stride;
      continue;
    }
    for (int64_t bag = 0; bag < lookup.num_bags(); ++bag, gradient += stride) {
      std::fill(out + lookup.offsets[bag], out + lookup.offsets[bag + 1], gradient);
    }
    if (scaled) {
      BagScales(lookup.combiner, lookup.offsets, lookup.weights,
                Span<float>(result->scales).subspan(lookup.first, lookup.count));
    }
  }
}

void LookupWeightGradients(Executor& executor, const LookupPlan& plan, int l, const RowsInPlace& rows,
                           int64_t dim, const GradientRows& gradient, Span<float> weight_grads) {
  const LookupBags& lookup = plan.lookups[l];
  if (weight_grads.size() > lookup.count) std::fill(weight_grads.begin(), weight_grads.end(), 0.0f);
  std::vector<float> in_bag_order(lookup.order.empty() ? 0 : lookup.count);
  const Span<float> out = lookup.order.empty() ? weight_grads : Span<float>(in_bag_order);
  WeightGradients(executor, lookup.combiner, rows, InverseOf(plan.parts[lookup.table], lookup),
                  lookup.offsets, lookup.weights, gradient.data, gradient.stride, dim, out);
  for (size_t i = 0; i < in_bag_order.size(); ++i) weight_grads[lookup.order[i]] = in_bag_order[i];
}

}  // namespace sok
