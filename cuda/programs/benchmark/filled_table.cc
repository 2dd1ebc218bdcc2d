#include "cuda/programs/benchmark/filled_table.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "cc/base/span.h"
#include "cuda/base/device_buffer.h"
#include "cuda/engine/gpu_table.h"
#include "cuda/group/gpu_call.h"
#include "cuda/group/group_merge.h"
#include "cuda/pooling/pool.h"
#include "cuda/programs/benchmark/cases.h"
#include "cuda/training/device_optimizer.h"

namespace sok {
namespace {

constexpr int64_t kKeysOfPiece = 1 << 20;

// Attaches the optimizer, and makes room so that `keys` keys fill the index to about `load`.
Status Prepare(BenchmarkDevice* device, DeviceTable* table, const std::string& optimizer, int64_t keys,
               double load) {
  DeviceTable* const tables[1] = {table};
  TablesAtWork at_work(device->stream, /*executor=*/nullptr, Span<DeviceTable* const>(tables, 1));
  SOK_RETURN_IF_ERROR(at_work.Enter());
  if (!optimizer.empty()) {
    const std::vector<float> hyper = HyperParametersOf(optimizer);
    SOK_RETURN_IF_ERROR(table->CheckStep(optimizer, hyper));
    SOK_RETURN_IF_ERROR(table->AttachOptimizer(device->stream, optimizer, hyper));
  }
  // The index of a table is at most 0.9 full.
  return table->Reserve(device->stream, static_cast<int64_t>(static_cast<double>(keys) * 0.9 / load));
}

}  // namespace

std::vector<float> HyperParametersOf(const std::string& optimizer) {
  if (optimizer == "sgd") return {0.001f};
  if (optimizer == "adagrad") return {0.001f, 0.1f, 0.0f};
  if (optimizer == "lazy_adam" || optimizer == "adam") return {0.001f, 0.9f, 0.999f, 1e-8f};
  if (optimizer == "rowwise_adam") return {0.001f, 0.9f, 0.999f, 1e-8f, 0.0f};
  return {};
}

StatusOr<FilledTable> FilledTable::Make(BenchmarkDevice* device, int64_t dim, const std::string& optimizer,
                                        int64_t keys, double load, double share) {
  TableOptions options;
  options.name = "table of dim " + std::to_string(dim);
  options.dim = dim;
  options.record = device->record;
  if (share < 1) {
    const auto bytes = static_cast<double>(RecordStride(RecordOf(*device, dim, optimizer)));
    options.tiers.memory_bytes = static_cast<int64_t>(share * static_cast<double>(keys) * bytes);
    options.tiers.by_frequency = true;
  }
  FilledTable filled;
  filled.keys_ = keys;
  SOK_ASSIGN_OR_RETURN(filled.table_, device->engine.MakeTable(device->context(), options));
  SOK_RETURN_IF_ERROR(Prepare(device, &filled.device_table(), optimizer, keys, load));
  std::vector<int64_t> piece(static_cast<size_t>(std::min(keys, kKeysOfPiece)));
  SOK_ASSIGN_OR_RETURN(auto rows, DeviceBuffer<int64_t>::Allocate(&device->memory, device->stream,
                                                                  static_cast<int64_t>(piece.size())));
  for (int64_t first = 0; first < keys; first += kKeysOfPiece) {
    piece.resize(static_cast<size_t>(std::min(keys - first, kKeysOfPiece)));
    std::iota(piece.begin(), piece.end(), first);
    SOK_ASSIGN_OR_RETURN(const DeviceBuffer<int64_t> on_device,
                         OnDevice(device->stream, &device->memory, piece));
    SOK_RETURN_IF_ERROR(filled.FindOrMake(device, on_device.data(), on_device.size(), rows.data()));
  }
  return StatusOr<FilledTable>(std::move(filled));
}

DeviceTable& FilledTable::device_table() const { return *DeviceTableOf(table_.get()); }

double FilledTable::load() const {
  const DeviceTable& table = device_table();
  const double places = static_cast<double>(table.finder().index.buckets) * KeyIndexView::kPlaces;
  return static_cast<double>(table.size()) / places;
}

Status FilledTable::FindOrMake(BenchmarkDevice* device, const int64_t* keys, int64_t n, int64_t* rows) const {
  DeviceTable* const tables[1] = {&device_table()};
  TablesAtWork at_work(device->stream, /*executor=*/nullptr, Span<DeviceTable* const>(tables, 1));
  SOK_RETURN_IF_ERROR(at_work.Enter());
  return tables[0]->FindOrMake(device->stream, &device->memory, keys, n, /*own=*/false, rows);
}

Status FilledTable::Erase(BenchmarkDevice* device, const int64_t* keys, int64_t n) const {
  int64_t erased = 0;
  return table_->Erase(device->context(), Span<const int64_t>(keys, n), &erased);
}

StatusOr<DeviceBuffer<int64_t>> OnDevice(cudaStream_t stream, DeviceAllocator* memory,
                                         const std::vector<int64_t>& values) {
  auto made = DeviceBuffer<int64_t>::Allocate(memory, stream, static_cast<int64_t>(values.size()));
  SOK_RETURN_IF_ERROR(made.status());
  SOK_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(made.value().data(), values.data(),
                                           values.size() * sizeof(int64_t), cudaMemcpyHostToDevice, stream),
                           "cannot copy to the device");
  SOK_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream), "cannot wait for a copy");
  return made;
}

StatusOr<LookupIds> LookupIds::Make(cudaStream_t stream, DeviceAllocator* memory,
                                    const std::vector<int64_t>& ids, double hotness, uint64_t seed) {
  LookupIds made;
  SOK_ASSIGN_OR_RETURN(made.ids_, OnDevice(stream, memory, ids));
  std::vector<int64_t> sorted = ids;
  std::sort(sorted.begin(), sorted.end());
  const auto distinct = std::unique(sorted.begin(), sorted.end()) - sorted.begin();
  made.unique_ = static_cast<double>(distinct) / static_cast<double>(std::max<size_t>(ids.size(), 1));
  if (hotness == 0) return StatusOr<LookupIds>(std::move(made));

  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int64_t> length(1, std::max<int64_t>(1, std::llround(2 * hotness - 1)));
  std::vector<int64_t> splits = {0};
  const auto n = static_cast<int64_t>(ids.size());
  while (splits.back() < n) splits.push_back(std::min(n, splits.back() + length(random)));
  made.bags_ = static_cast<int64_t>(splits.size()) - 1;
  SOK_ASSIGN_OR_RETURN(made.splits_, OnDevice(stream, memory, splits));
  return StatusOr<LookupIds>(std::move(made));
}

LookupSpec LookupIds::spec(int table) const {
  LookupSpec spec;
  spec.table = table;
  spec.layout = pooled() ? IdLayout::kRagged : IdLayout::kDense;
  spec.combiner = Combiner::kMean;
  return spec;
}

LookupInput LookupIds::input() const {
  LookupInput input;
  input.ids = ids_.data();
  input.num_ids = ids_.size();
  if (pooled()) {
    input.num_bags = bags_;
    input.row_splits = splits_.data();
  }
  return input;
}

StatusOr<std::unique_ptr<GroupCalls>> GroupCalls::Make(BenchmarkDevice* device,
                                                       std::vector<const FilledTable*> tables,
                                                       const std::vector<const LookupIds*>& ids) {
  std::unique_ptr<GroupCalls> calls(new GroupCalls(device));
  for (size_t l = 0; l < ids.size(); ++l) {
    const int64_t dim = tables[l]->get()->options().dim;
    calls->tables_.push_back(tables[l]->get());
    calls->specs_.push_back(ids[l]->spec(static_cast<int>(l)));
    calls->inputs_.push_back(ids[l]->input());
    SOK_ASSIGN_OR_RETURN(
        auto output, DeviceBuffer<float>::Allocate(&device->memory, device->stream, ids[l]->rows() * dim));
    calls->outputs_.push_back({output.data(), dim});
    calls->gradients_.push_back({output.data(), dim});
    calls->memory_.push_back(std::move(output));
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
  TablesAtWork at_work(device_->stream, /*executor=*/nullptr, Span<DeviceTable* const>(&table, 1));
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
