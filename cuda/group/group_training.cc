#include "cuda/group/group_training.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/table/table_errors.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/transfers.h"
#include "cuda/dedup/dedup.h"
#include "cuda/group/gpu_call.h"
#include "cuda/group/group_gradients.h"
#include "cuda/group/group_merge.h"
#include "cuda/pooling/lookup_gradients.h"
#include "cuda/table/device_table.h"
#include "cuda/table/directory_rows.h"
#include "cuda/training/device_optimizer.h"

namespace sok {

// The rows of references to one table, in scratch that lives as long as this object.
class CheckedReferences {
 public:
  // Enqueues work on the stream that writes rows(): kAbsentRow for a row that was freed since, and for
  // references that are kAbsentRow. `may_be_absent`: Check accepts the latter.
  Status Enqueue(cudaStream_t stream, DeviceAllocator* scratch, const DeviceTable& table,
                 Span<const int64_t> references, bool may_be_absent);
  // InvalidArgument for the first reference to a row that the table never had. Waits.
  Status Check(cudaStream_t stream, const DeviceTable& table, RoundTrip* round_trip);

  const int64_t* rows() const { return rows_.data(); }
  // After Check: the position of the first reference whose row was freed since; the number of references if
  // there is none.
  int64_t first_stale() const { return first_stale_; }

 private:
  Span<const int64_t> references_;
  DeviceBuffer<int64_t> rows_;
  DeviceBuffer<uint64_t> firsts_;
  int64_t first_stale_ = 0;
};

Status CheckedReferences::Enqueue(cudaStream_t stream, DeviceAllocator* scratch, const DeviceTable& table,
                                  Span<const int64_t> references, bool may_be_absent) {
  references_ = references;
  SOK_ASSIGN_OR_RETURN(rows_,
                       table.Named(DeviceBuffer<int64_t>::Allocate(scratch, stream, references.size())));
  SOK_ASSIGN_OR_RETURN(firsts_, table.Named(DeviceBuffer<uint64_t>::Allocate(scratch, stream, 2)));
  SOK_RETURN_IF_CUDA_ERROR(
      cudaMemsetAsync(firsts_.data(), 0xff, static_cast<size_t>(firsts_.bytes()), stream),
      "cannot clear two words on the device");
  ReferencedRows referenced;
  referenced.references = references.data();
  referenced.n = references.size();
  referenced.row_limit = table.row_limit();
  referenced.states = table.states();
  referenced.rows = rows_.data();
  referenced.first_unknown = firsts_.data();
  referenced.first_stale = firsts_.data() + 1;
  referenced.may_be_absent = may_be_absent;
  return table.Named(ResolveReferences(stream, referenced));
}

Status CheckedReferences::Check(cudaStream_t stream, const DeviceTable& table, RoundTrip* round_trip) {
  SOK_ASSIGN_OR_RETURN(const uint64_t* const firsts,
                       table.Named(round_trip->Fetch(stream, firsts_.data(), 2)));
  const uint64_t unknown = firsts[0];
  const auto n = static_cast<uint64_t>(references_.size());
  first_stale_ = static_cast<int64_t>(std::min(firsts[1], n));
  if (unknown >= n) return OkStatus();
  SOK_ASSIGN_OR_RETURN(const int64_t* const reference,
                       table.Named(round_trip->Fetch(stream, references_.data() + unknown, 1)));
  const int64_t value = *reference;
  return table.NoRowNumber(!table.states().is_null() && value >= 0 ? RowOf(value) : value);
}

namespace {

Span<const int64_t> TrainedReferences(const MergedGroup& group, int t) {
  const TableOfPlan& table = group.tables[static_cast<size_t>(t)];
  return {group.rows.data() + table.first, table.trained};
}

// A step of one table, with rows instead of references.
struct RowsOfStep {
  CheckedReferences resolved;
  const int64_t* rows = nullptr;
};

Status ResolveRows(GpuCall* call, const MergedGroup& group, const DeviceTableStep& step, RowsOfStep* rows) {
  const TableOfPlan& table = group.tables[static_cast<size_t>(step.position)];
  const Span<const int64_t> references = TrainedReferences(group, step.position);
  rows->rows = references.data();
  const bool is_same = table.serial == step.table->serial();
  // In this case references are row numbers.
  if (is_same && step.table->states().is_null()) return OkStatus();
  SOK_RETURN_IF_ERROR(rows->resolved.Enqueue(call->stream(), call->scratch(), *step.table, references,
                                             /*may_be_absent=*/false));
  rows->rows = rows->resolved.rows();
  return is_same ? OkStatus() : rows->resolved.Check(call->stream(), *step.table, &step.table->round_trip());
}

// Whether the rows have missed no step since the group's lookup.
bool AreCurrent(const TableOfPlan& of_plan, const DeviceTable& table) {
  return of_plan.serial == table.serial() && of_plan.current_at == table.optimizer()->version();
}

// Brings the rows of a step up that went down to a disk since the group's lookup.
Status BringUpRowsOf(GpuCall* call, const MergedGroup& group, Span<const DeviceTableStep> steps,
                     const std::vector<RowsOfStep>& rows) {
  std::vector<DeviceTable*> tables;
  std::vector<RowList> lists;
  for (int64_t i = 0; i < steps.size(); ++i) {
    DeviceTable* const table = steps[i].table;
    const TableOfPlan& of_plan = group.tables[static_cast<size_t>(steps[i].position)];
    SOK_RETURN_IF_ERROR(table->PrepareStep(call->stream(), steps[i].hyper));
    if (!table->MayBeOnDisk(of_plan.disk_version)) continue;
    tables.push_back(table);
    lists.push_back({rows[i].rows, 0, of_plan.trained});
  }
  return BringFromDisk(call->stream(), call->scratch(), tables, lists, /*spare=*/{}, DiskUse::kStep);
}

Status TakeSteps(GpuCall* call, const MergedGroup& group, const MergedGradients& gradients,
                 std::string_view optimizer, Span<const DeviceTableStep> steps,
                 const std::vector<RowsOfStep>& rows) {
  for (const DeviceTableStep& step : steps) {
    if (step.table->optimizer() != nullptr) continue;
    SOK_RETURN_IF_ERROR(step.table->AttachOptimizer(call->stream(), optimizer, step.hyper));
  }
  SOK_RETURN_IF_ERROR(BringUpRowsOf(call, group, steps, rows));
  std::vector<DeviceStep> work;
  for (int64_t i = 0; i < steps.size(); ++i) {
    const DeviceTableStep& step = steps[i];
    const int64_t trained = group.tables[static_cast<size_t>(step.position)].trained;
    RowUpdate update = RowUpdateOf(*step.table, rows[i].rows, trained, step.hyper);
    update.rows_are_current = AreCurrent(group.tables[static_cast<size_t>(step.position)], *step.table);
    update.gradients = gradients.table(step.position, trained);
    work.push_back({step.table->optimizer(), step.hyper, update});
  }
  SOK_RETURN_IF_ERROR(EnqueueSteps(call->stream(), call->scratch(), gradients.group(), work));
  for (int64_t i = 0; i < steps.size(); ++i) {
    SOK_RETURN_IF_ERROR(steps[i].table->FinishStep(call->stream(), rows[i].rows, work[i].update.count));
  }
  return OkStatus();
}

}  // namespace

RowUpdate RowUpdateOf(const DeviceTable& table, const int64_t* rows, int64_t count, Span<const float> hyper) {
  RowUpdate update;
  update.table = table.rows();
  update.rows = rows;
  update.count = count;
  update.hyper = hyper.data();
  return update;
}

Status SumMerged(GpuCall* call, const MergedGroup& group, const std::vector<GradientOfTable>& gradients,
                 Span<float* const> grads_out) {
  MergedGradients merged;
  SOK_RETURN_IF_ERROR(merged.Enqueue(call->stream(), call->scratch(), group, gradients));
  std::vector<TableGradients> tables;
  std::vector<SumsOutput> outputs;
  for (int t = 0; t < group.num_tables(); ++t) {
    if (grads_out[t] == nullptr) continue;
    const int64_t trained = group.tables[static_cast<size_t>(t)].trained;
    outputs.push_back({static_cast<int64_t>(tables.size()), nullptr, trained, grads_out[t]});
    tables.push_back(merged.table(t, trained));
  }
  return EnqueueGradientSums(call->stream(), call->scratch(), merged.group(), tables, outputs);
}

Status TrainMerged(GpuCall* call, const MergedGroup& group, const std::vector<GradientOfTable>& gradients,
                   float divisor, std::string_view optimizer, Span<const DeviceTableStep> steps) {
  std::vector<DeviceTable*> tables;
  for (const DeviceTableStep& step : steps) tables.push_back(step.table);
  TablesAtWork at_work(call->stream(), &call->executor(), tables);
  SOK_RETURN_IF_ERROR(at_work.Enter());
  for (const DeviceTableStep& step : steps) {
    SOK_RETURN_IF_ERROR(step.table->CheckStep(optimizer, step.hyper));
  }
  std::vector<RowsOfStep> rows(static_cast<size_t>(steps.size()));
  for (int64_t i = 0; i < steps.size(); ++i) {
    SOK_RETURN_IF_ERROR(ResolveRows(call, group, steps[i], &rows[i]));
  }
  MergedGradients merged;
  SOK_RETURN_IF_ERROR(merged.Enqueue(call->stream(), call->scratch(), group, gradients, divisor));
  return TakeSteps(call, group, merged, optimizer, steps, rows);
}

namespace {

// FailedPrecondition if a row of the plan was erased from its table, InvalidArgument if the table never had
// it. Brings the others up if they may be on disk.
Status CheckRowsAreThere(GpuCall* call, const GpuGroupPlan& plan, int t, DeviceTable* table) {
  const TableOfPlan& of_plan = plan.tables[static_cast<size_t>(t)];
  const bool may_be_on_disk = table->MayBeOnDisk(of_plan.disk_version);
  if (of_plan.serial == table->serial() && of_plan.num_erased == table->num_erased() && !may_be_on_disk) {
    return OkStatus();
  }
  CheckedReferences checked;
  SOK_RETURN_IF_ERROR(checked.Enqueue(call->stream(), call->scratch(), *table,
                                      {plan.rows.data() + of_plan.first, of_plan.unique},
                                      /*may_be_absent=*/true));
  SOK_RETURN_IF_ERROR(checked.Check(call->stream(), *table, &table->round_trip()));
  if (checked.first_stale() == of_plan.unique) {
    return table->BringFromDisk(call->stream(), call->scratch(), {checked.rows(), 0, of_plan.unique},
                                DiskUse::kStep);
  }
  SOK_ASSIGN_OR_RETURN(const int64_t* const key,
                       table->Named(table->round_trip().Fetch(
                           call->stream(), plan.ids().keys + of_plan.first + checked.first_stale(), 1)));
  return RowWasEvicted(table->options(), *key);
}

// The distinct rows among some that may repeat.
struct DistinctRows {
  DeviceBuffer<int64_t> words;    // begin[2] of the rows, begin[2] of the distinct ones
  DeviceBuffer<int64_t> rows;     // [n]
  DeviceBuffer<int32_t> numbers;  // inverse[n], positions[n]
  int64_t count = 0;

  Status Enqueue(GpuCall* call, DeviceTable* table, const int64_t* repeated, int64_t n) {
    SOK_ASSIGN_OR_RETURN(words, DeviceBuffer<int64_t>::Allocate(call->scratch(), call->stream(), 4));
    SOK_ASSIGN_OR_RETURN(rows, DeviceBuffer<int64_t>::Allocate(call->scratch(), call->stream(), n));
    SOK_ASSIGN_OR_RETURN(numbers, DeviceBuffer<int32_t>::Allocate(call->scratch(), call->stream(), 2 * n));
    const int64_t begin[2] = {0, n};
    SOK_RETURN_IF_ERROR(table->upload().Copy(call->stream(), begin, sizeof(begin), words.data()));
    UniqueIds unique;
    unique.begin = words.data() + 2;
    unique.inverse = numbers.data();
    unique.position = numbers.data() + n;
    unique.keys = rows.data();
    return Dedup(call->stream(), call->scratch(), {repeated, words.data(), 1, n}, unique);
  }
  Status Fetch(GpuCall* call, DeviceTable* table) {
    SOK_ASSIGN_OR_RETURN(const int64_t* const begin,
                         table->round_trip().Fetch(call->stream(), words.data() + 2, 2));
    count = begin[1];
    return OkStatus();
  }
};

Status StepOf(GpuCall* call, DeviceTable* table, Span<const float> hyper, const RowUpdate& update,
              const OccurrenceSegments& group) {
  const DeviceStep step = {table->optimizer(), hyper, update};
  SOK_RETURN_IF_ERROR(table->PrepareStep(call->stream(), hyper));
  SOK_RETURN_IF_ERROR(
      table->BringFromDisk(call->stream(), call->scratch(), {update.rows, 0, update.count}, DiskUse::kStep));
  SOK_RETURN_IF_ERROR(
      table->Named(EnqueueSteps(call->stream(), call->scratch(), group, Span<const DeviceStep>(&step, 1))));
  return table->FinishStep(call->stream(), update.rows, update.count);
}

}  // namespace

Status GroupBackward(GpuCall* call, const GpuGroupPlan& plan, Span<const GradientRows> gradients,
                     Span<float* const> grads_out) {
  return SumMerged(call, plan, GradientsOfLookups(plan, gradients), grads_out);
}

Status GroupTrain(GpuCall* call, const GpuGroupPlan& plan, Span<const GradientRows> gradients,
                  std::string_view optimizer, Span<const DeviceTableStep> steps) {
  return TrainMerged(call, plan, GradientsOfLookups(plan, gradients), /*divisor=*/1.0f, optimizer, steps);
}

Status GroupWeightGradients(GpuCall* call, Span<DeviceTable* const> tables, const GpuGroupPlan& plan,
                            Span<const GradientRows> gradients, Span<float* const> weight_grads) {
  TablesAtWork at_work(call->stream(), &call->executor(), tables);
  SOK_RETURN_IF_ERROR(at_work.Enter());
  std::vector<LookupWeightGradient> work;
  std::vector<uint8_t> is_checked(tables.size(), 0);
  for (int64_t l = 0; l < weight_grads.size(); ++l) {
    if (weight_grads[l] == nullptr) continue;
    const BagsOfLookup& lookup = plan.bags.lookups()[l];
    DeviceTable* const table = tables[lookup.table];
    if (!std::exchange(is_checked[lookup.table], uint8_t{1})) {
      SOK_RETURN_IF_ERROR(CheckRowsAreThere(call, plan, lookup.table, table));
    }
    LookupWeightGradient gradient;
    gradient.ids = OccurrenceRowsOf(plan, lookup.table, *table, plan.bags.keys());
    gradient.bags = BagsViewOf(plan.bags, static_cast<size_t>(l));
    gradient.gradient = gradients[l];
    if (lookup.has_order) gradient.order = plan.bags.order();
    gradient.given = lookup.given;
    gradient.occurrences = lookup.end - lookup.begin;
    gradient.out = weight_grads[l];
    work.push_back(gradient);
  }
  return EnqueueWeightGradients(call->stream(), work);
}

Status ApplyGradientsTo(GpuCall* call, DeviceTable* table, std::string_view optimizer,
                        Span<const float> hyper, Span<const int64_t> references, const float* grads,
                        bool distinct) {
  const int64_t n = references.size();
  const int64_t dim = table->options().dim;
  SOK_RETURN_IF_ERROR(table->CheckStep(optimizer, hyper));
  CheckedReferences checked;
  SOK_RETURN_IF_ERROR(
      checked.Enqueue(call->stream(), call->scratch(), *table, references, /*may_be_absent=*/false));
  if (n > 0) SOK_RETURN_IF_ERROR(checked.Check(call->stream(), *table, &table->round_trip()));
  // If rows repeat, their gradients are summed first.
  DistinctRows unique;
  if (!distinct) {
    SOK_RETURN_IF_ERROR(table->Named(unique.Enqueue(call, table, checked.rows(), n)));
    SOK_RETURN_IF_ERROR(table->Named(unique.Fetch(call, table)));
  }
  RepeatedGradients repeated;
  const bool sums = !distinct && unique.count < n;
  if (sums) {
    SOK_RETURN_IF_ERROR(table->Named(repeated.Enqueue(call->stream(), call->scratch(), unique.numbers.data(),
                                                      n, unique.count, grads, dim)));
  }
  if (table->optimizer() == nullptr) {
    SOK_RETURN_IF_ERROR(table->AttachOptimizer(call->stream(), optimizer, hyper));
  }
  if (!sums) {
    RowUpdate update = RowUpdateOf(*table, checked.rows(), n, hyper);
    update.stored = grads;
    return StepOf(call, table, hyper, update, {});
  }
  RowUpdate update = RowUpdateOf(*table, unique.rows.data(), unique.count, hyper);
  update.gradients = repeated.table();
  return StepOf(call, table, hyper, update, repeated.group());
}

}  // namespace sok
