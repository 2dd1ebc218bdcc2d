#include "cuda/programs/benchmark/filled_table.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "cc/base/span.h"
#include "cuda/engine/gpu_table.h"
#include "cuda/group/tables_at_work.h"
#include "cuda/programs/benchmark/batches.h"

namespace sok {
namespace {

constexpr int64_t kKeysOfPiece = 1 << 20;

// Attaches the optimizer, and makes room so that `keys` keys fill the index to about `load`.
Status Prepare(BenchmarkDevice* device, DeviceTable* table, const std::string& optimizer, int64_t keys,
               double load) {
  DeviceTable* const tables[1] = {table};
  TablesAtWork at_work(device->stream, Span<DeviceTable* const>(tables, 1));
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
                                        int64_t keys, double load) {
  TableOptions options;
  options.name = "table of dim " + std::to_string(dim);
  options.dim = dim;
  options.record = device->record;
  FilledTable filled;
  filled.keys_ = keys;
  auto made = device->engine.MakeTable(device->context(), options);
  SOK_RETURN_IF_ERROR(made.status());
  filled.table_ = std::move(made.value());
  SOK_RETURN_IF_ERROR(Prepare(device, &filled.device_table(), optimizer, keys, load));
  std::vector<int64_t> piece(static_cast<size_t>(std::min(keys, kKeysOfPiece)));
  StatusOr<DeviceBuffer<int64_t>> rows =
      DeviceBuffer<int64_t>::Allocate(&device->memory, device->stream, static_cast<int64_t>(piece.size()));
  SOK_RETURN_IF_ERROR(rows.status());
  for (int64_t first = 0; first < keys; first += kKeysOfPiece) {
    piece.resize(static_cast<size_t>(std::min(keys - first, kKeysOfPiece)));
    std::iota(piece.begin(), piece.end(), first);
    const StatusOr<DeviceBuffer<int64_t>> on_device = OnDevice(device->stream, &device->memory, piece);
    SOK_RETURN_IF_ERROR(on_device.status());
    SOK_RETURN_IF_ERROR(
        filled.FindOrMake(device, on_device.value().data(), on_device.value().size(), rows.value().data()));
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
  TablesAtWork at_work(device->stream, Span<DeviceTable* const>(tables, 1));
  SOK_RETURN_IF_ERROR(at_work.Enter());
  return tables[0]->FindOrMake(device->stream, &device->memory, keys, n, /*own=*/false, rows);
}

Status FilledTable::Erase(BenchmarkDevice* device, const int64_t* keys, int64_t n) const {
  int64_t erased = 0;
  return table_->Erase(device->context(), Span<const int64_t>(keys, n), &erased);
}

}  // namespace sok
