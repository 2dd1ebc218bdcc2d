#include "cuda/table/insert_rows.h"

#include <algorithm>
#include <vector>

#include "cuda/store/device_row_store.h"

namespace sok {
namespace {

// What kernels need to know about the tables, by table.
struct TableArrays {
  std::vector<RowSource> sources;
  std::vector<KeyIndexView> indexes;
  std::vector<RowStoreView> stores;
  std::vector<Initializer> initializers;
  int64_t max_width = 0;

  // As they are once the evicted rows are erased.
  TableArrays(Span<DeviceTable* const> tables, Span<const EvictedRows> evicted) {
    for (int64_t t = 0; t < tables.size(); ++t) {
      const DeviceTable& table = *tables[t];
      sources.push_back(table.source(evicted.empty() ? 0 : evicted[t].n));
      indexes.push_back(sources.back().directory.index);
      stores.push_back(table.rows());
      initializers.push_back(table.initializer());
      max_width = std::max(max_width, stores.back().width);
    }
  }
};

}  // namespace

Status InsertRows(cudaStream_t stream, DeviceAllocator* scratch, StagedUpload* upload,
                  Span<DeviceTable* const> tables, const IdsOfGroup& ids, const SomeIds& some,
                  Span<const int64_t> begin, Span<const EvictedRows> evicted, int64_t* rows) {
  const int64_t count = begin[tables.size()];
  if (count == 0) return OkStatus();
  StatusOr<DeviceBuffer<int64_t>> keys_and_rows = DeviceBuffer<int64_t>::Allocate(scratch, stream, 2 * count);
  SOK_RETURN_IF_ERROR(keys_and_rows.status());
  const TableArrays arrays(tables, evicted);
  NewRows new_rows;
  new_rows.tables = static_cast<int>(tables.size());
  new_rows.begin = some.begin;
  new_rows.count = count;
  new_rows.keys = keys_and_rows.value().data();
  new_rows.rows = new_rows.keys + count;
  GroupRows started;
  upload->Add(Span<const RowSource>(arrays.sources), &new_rows.sources);
  upload->Add(Span<const KeyIndexView>(arrays.indexes), &new_rows.indexes);
  upload->Add(Span<const RowStoreView>(arrays.stores), &started.stores);
  upload->Add(Span<const Initializer>(arrays.initializers), &started.initializers);
  const StatusOr<DeviceBuffer<char>> uploaded = upload->Send(stream, scratch);
  SOK_RETURN_IF_ERROR(uploaded.status());

  // From here on nothing needs memory.
  for (int64_t t = 0; t < evicted.size(); ++t) {
    SOK_RETURN_IF_ERROR(
        tables[t]->EraseRowsOf(stream, evicted[t].rows.data(), evicted[t].n, evicted[t].keys.data()));
  }
  SOK_RETURN_IF_ERROR(CollectKeys(stream, ids, some.which, new_rows));
  SOK_RETURN_IF_ERROR(GiveRows(stream, new_rows));
  started.tables = new_rows.tables;
  started.begin = some.begin;
  started.max_rows = count;
  started.max_width = arrays.max_width;
  started.keys = new_rows.keys;
  started.rows = new_rows.rows;
  SOK_RETURN_IF_ERROR(StartRows(stream, started));
  SOK_RETURN_IF_ERROR(SpreadRows(stream, new_rows, some.which, rows));
  for (int64_t t = 0; t < tables.size(); ++t) {
    SOK_RETURN_IF_ERROR(tables[t]->StartUse(stream, new_rows.rows + begin[t], begin[t + 1] - begin[t]));
  }
  return OkStatus();
}

}  // namespace sok
