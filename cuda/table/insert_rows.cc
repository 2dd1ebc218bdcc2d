#include "cuda/table/insert_rows.h"

#include <algorithm>
#include <vector>

#include "cuda/table/make_rows.h"

namespace sok {
namespace {

// The tables as they are once the evicted rows are erased.
std::vector<RowMaker> MakersOf(Span<DeviceTable* const> tables, Span<const EvictedRows> evicted) {
  std::vector<RowMaker> makers;
  for (int64_t t = 0; t < tables.size(); ++t) {
    const DeviceTable& table = *tables[t];
    makers.push_back({table.source(evicted.empty() ? 0 : evicted[t].n), table.rows(), table.initializer(),
                      table.rounding_seed()});
  }
  return makers;
}

}  // namespace

Status InsertRows(cudaStream_t stream, DeviceAllocator* scratch, StagedUpload* upload,
                  Span<DeviceTable* const> tables, const IdsOfGroup& ids, const SomeIds& some,
                  Span<const int64_t> begin, Span<const EvictedRows> evicted, int64_t* rows) {
  const int64_t count = begin[tables.size()];
  if (count == 0) return OkStatus();
  StatusOr<DeviceBuffer<int64_t>> made = DeviceBuffer<int64_t>::Allocate(scratch, stream, count);
  SOK_RETURN_IF_ERROR(made.status());
  const std::vector<RowMaker> makers = MakersOf(tables, evicted);
  RowsToMake work;
  work.tables = static_cast<int>(tables.size());
  work.keys = ids.keys;
  work.some = some;
  work.count = count;
  for (const RowMaker& maker : makers) work.max_width = std::max(work.max_width, maker.store.width);
  work.made = made.value().data();
  work.rows = rows;
  upload->Add(Span<const RowMaker>(makers), &work.makers);
  const StatusOr<DeviceBuffer<char>> uploaded = upload->Send(stream, scratch);
  SOK_RETURN_IF_ERROR(uploaded.status());

  // From here on nothing needs memory.
  for (int64_t t = 0; t < evicted.size(); ++t) {
    SOK_RETURN_IF_ERROR(
        tables[t]->EraseRowsOf(stream, evicted[t].rows.data(), evicted[t].n, evicted[t].keys.data()));
  }
  SOK_RETURN_IF_ERROR(MakeRows(stream, work));
  for (int64_t t = 0; t < tables.size(); ++t) {
    SOK_RETURN_IF_ERROR(tables[t]->StartUse(stream, work.made + begin[t], begin[t + 1] - begin[t]));
  }
  return OkStatus();
}

}  // namespace sok
