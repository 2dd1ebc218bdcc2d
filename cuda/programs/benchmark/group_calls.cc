#include "cuda/programs/benchmark/group_calls.h"

#include <utility>

#include "cuda/engine/gpu_table.h"
#include "cuda/group/group_merge.h"
#include "cuda/group/tables_at_work.h"
#include "cuda/pooling/pool.h"
#include "cuda/training/device_optimizer.h"

namespace sok {

StatusOr<std::unique_ptr<GroupCalls>> GroupCalls::Make(BenchmarkDevice* device,
                                                       std::vector<const FilledTable*> tables,
                                                       const std::vector<const LookupIds*>& ids) {
  std::unique_ptr<GroupCalls> calls(new GroupCalls(device));
  for (size_t l = 0; l < ids.size(); ++l) {
    const int64_t dim = tables[l]->get()->options().dim;
    calls->tables_.push_back(tables[l]->get());
    calls->specs_.push_back(ids[l]->spec(static_cast<int>(l)));
    calls->inputs_.push_back(ids[l]->input());
    StatusOr<DeviceBuffer<float>> output =
        DeviceBuffer<float>::Allocate(&device->memory, device->stream, ids[l]->rows() * dim);
    SOK_RETURN_IF_ERROR(output.status());
    calls->outputs_.push_back({output.value().data(), dim});
    calls->gradients_.push_back({output.value().data(), dim});
    calls->memory_.push_back(std::move(output.value()));
  }
  calls->plan_ = device->engine.NewPlan();
  calls->scratch_ = device->engine.NewScratch();
  return StatusOr<std::unique_ptr<GroupCalls>>(std::move(calls));
}

Status GroupCalls::Lookup(bool training) {
  return device_->engine.Lookup(device_->context(), {tables_, specs_, inputs_, training}, plan_.get(),
                                outputs_, scratch_.get());
}

Status GroupCalls::Train(const std::string& optimizer) {
  const std::vector<float> hyper = HyperParametersOf(optimizer);
  std::vector<EngineStep> steps;
  for (size_t t = 0; t < tables_.size(); ++t) {
    steps.push_back({static_cast<int>(t), tables_[t], Span<const float>(hyper)});
  }
  return device_->engine.Train(device_->context(), *plan_, gradients_, optimizer, steps, scratch_.get());
}

Status GroupCalls::WriteOutputs() {
  const auto& plan = static_cast<const GpuGroupPlan&>(*plan_);
  std::vector<LookupOutput> work;
  for (size_t l = 0; l < outputs_.size(); ++l) {
    // Lookup l is the only one in table l.
    const DeviceTable& table = *DeviceTableOf(tables_[l]);
    work.push_back({OccurrenceRowsOf(plan, static_cast<int>(l), table, plan.bags.keys()),
                    BagsViewOf(plan.bags, l), outputs_[l]});
  }
  return EnqueueOutputs(device_->stream, work);
}

Status GroupCalls::PrepareUpdate() {
  plan_gradients_ = std::make_unique<MergedGradients>();
  const auto& plan = static_cast<const GpuGroupPlan&>(*plan_);
  return plan_gradients_->Enqueue(device_->stream, &device_->memory, plan,
                                  GradientsOfLookups(plan, gradients_));
}

Status GroupCalls::Update(const std::string& optimizer) {
  DeviceTable* const table = DeviceTableOf(tables_[0]);
  const std::vector<float> hyper = HyperParametersOf(optimizer);
  TablesAtWork at_work(device_->stream, Span<DeviceTable* const>(&table, 1));
  SOK_RETURN_IF_ERROR(at_work.Enter());
  const auto& plan = static_cast<const GpuGroupPlan&>(*plan_);
  RowUpdate update;
  update.table = table->rows();
  update.rows = plan.rows.data();
  update.gradients = plan_gradients_->table(0, plan.tables[0].trained);
  update.count = update.gradients.unique;
  update.rows_are_current = true;  // since the lookup
  const DeviceStep step = {table->optimizer(), Span<const float>(hyper), update};
  return EnqueueSteps(device_->stream, &device_->memory, plan_gradients_->group(),
                      Span<const DeviceStep>(&step, 1));
}

}  // namespace sok
