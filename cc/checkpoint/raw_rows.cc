#include "cc/checkpoint/raw_rows.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "cc/base/status.h"

namespace sok {
namespace {

Status WriteRows(int64_t first, int64_t count, const RawFilesWriter& writer, HeldTable* table) {
  RowsToRead what;
  what.up_to_date = true;
  what.limit = count;
  SOK_RETURN_IF_ERROR(table->ReadRows(what, [&](const RowPiece& piece) {
    SOK_RETURN_IF_ERROR(writer.Write(first, piece.keys, piece.records));
    first += piece.keys.size();
    return OkStatus();
  }));
  return writer.Sync();
}

// Reads the rows of `keys`, in their order. Those that this rank holds go into the table; *filled grows by
// their number.
Status ReadPiece(Span<const int64_t> keys, RawFilesReader* reader, HeldTable* fresh, int64_t* filled) {
  const TableOptions& options = fresh->options();
  const KeyOwners owners = options.placement.owners(options.ranks);
  std::vector<int64_t> own;
  std::vector<bool> is_own;
  for (const int64_t key : keys) {
    is_own.push_back(owners.Holds(options.rank, key));
    if (is_own.back()) own.push_back(key);
  }
  *filled += static_cast<int64_t>(own.size());
  std::vector<float> passed_over(static_cast<size_t>(options.dim));
  return fresh->FillRows(own, RowParts(), [&](const RowsToFill& rows) {
    int64_t next = 0;
    for (const bool mine : is_own) {
      float* const row = mine ? rows.records[next++] : passed_over.data();
      SOK_RETURN_IF_ERROR(reader->ReadValues(Span<float>(row, options.dim)));
    }
    return OkStatus();
  });
}

}  // namespace

Status WriteRawRows(const EngineContext& context, EngineTable* table, Span<const int64_t> row_counts,
                    const RawFilesWriter& writer) {
  const TableOptions& options = table->options();
  const auto held = table->Hold(context);
  SOK_RETURN_IF_ERROR(held.status());
  const int64_t own = row_counts[options.rank];
  const int64_t rows = held.value()->state().rows;
  if (rows < own) {
    return FailedPrecondition("Embedding variable '", options.name, "' has ", rows, " rows, fewer than the ",
                              own, " counted before: its table was replaced while it was written");
  }
  const int64_t first = std::accumulate(row_counts.begin(), row_counts.begin() + options.rank, int64_t{0});
  const Status status = WriteRows(first, own, writer, held.value().get());
  if (status.code() != StatusCode::kNotFound || options.rank == 0) return status;
  return NotFound(status.message(), " (all ranks must see the directory in which rank 0 made the file)");
}

StatusOr<std::shared_ptr<EngineTable>> LoadRawRows(const EngineContext& context, Engine* engine,
                                                   const TableOptions& options, Span<const int64_t> keys,
                                                   RawFilesReader* reader) {
  auto made = engine->MakeTable(context, options);
  SOK_RETURN_IF_ERROR(made.status());
  const auto held = made.value()->Hold(context);
  SOK_RETURN_IF_ERROR(held.status());
  const int64_t at_once = held.value()->max_rows_to_fill();
  const Status status = WithinMemory([&]() -> Status {
    int64_t filled = 0;
    for (int64_t first = 0; first < keys.size(); first += at_once) {
      const int64_t count = std::min(at_once, keys.size() - first);
      SOK_RETURN_IF_ERROR(ReadPiece(keys.subspan(first, count), reader, held.value().get(), &filled));
    }
    const int64_t rows = held.value()->state().rows;
    if (filled == rows) return OkStatus();
    // The keys are distinct, so this is a table without hashing.
    return InvalidArgument("Embedding variable '", options.name, "' has ", rows, " rows on rank ",
                           options.rank, ", but the files have only ", filled, " of their keys");
  });
  if (!status.ok()) return status;
  return made;
}

}  // namespace sok
