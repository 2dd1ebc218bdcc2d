#include "cuda/table/bring_up_to_date.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cuda/training/device_optimizer.h"

namespace sok {
namespace {

// Tables whose rows catch up in one launch. Each occurs at most once: a row that is in two parts would take
// its steps twice.
struct SharedLaunch {
  std::vector<DeviceTable*> tables;
  std::vector<RowList> rows;

  bool Takes(const DeviceTable& table) const {
    return tables[0]->optimizer()->name() == table.optimizer()->name() &&
           std::find(tables.begin(), tables.end(), &table) == tables.end();
  }
};

Status Enqueue(cudaStream_t stream, const SharedLaunch& launch) {
  std::vector<DeviceCatchUp> catch_ups;
  for (size_t i = 0; i < launch.tables.size(); ++i) {
    DeviceTable* const table = launch.tables[i];
    catch_ups.push_back({table->optimizer(), table->rows(), launch.rows[i]});
  }
  SOK_RETURN_IF_ERROR(launch.tables[0]->Named(EnqueueCatchUps(stream, catch_ups)));
  for (size_t i = 0; i < launch.tables.size(); ++i) {
    DeviceTable* const table = launch.tables[i];
    const RowList& rows = launch.rows[i];
    if (rows.rows == nullptr) continue;
    SOK_RETURN_IF_ERROR(table->Named(table->changes().MarkChanged(stream, rows.rows, rows.n)));
  }
  return OkStatus();
}

}  // namespace

Status BringUpToDate(cudaStream_t stream, Span<DeviceTable* const> tables, Span<const RowList> rows) {
  std::vector<SharedLaunch> launches;
  for (int64_t i = 0; i < tables.size(); ++i) {
    if (tables[i]->is_up_to_date() || rows[i].n == 0) continue;
    auto launch = std::find_if(launches.begin(), launches.end(),
                               [&](const SharedLaunch& other) { return other.Takes(*tables[i]); });
    if (launch == launches.end()) launch = launches.insert(launches.end(), SharedLaunch());
    launch->tables.push_back(tables[i]);
    launch->rows.push_back(rows[i]);
  }
  for (const SharedLaunch& launch : launches) SOK_RETURN_IF_ERROR(Enqueue(stream, launch));
  return OkStatus();
}

}  // namespace sok
