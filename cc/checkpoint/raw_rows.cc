#include "cc/checkpoint/raw_rows.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "cc/base/object_pool.h"
#include "cc/base/status.h"
#include "cc/checkpoint/array_file.h"
#include "cc/checkpoint/column_pieces.h"

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

// Reads rows into the table of a rank, piece by piece.
class RawRowsLoader {
 public:
  RawRowsLoader(Executor& executor, const RawFilesReader& reader, HeldTable* fresh)
      : executor_(executor), reader_(reader), fresh_(*fresh) {}

  // Reads the rows of `keys`, which are all of the files. Those that this rank holds go into the table;
  // *filled is their number.
  Status Run(Span<const int64_t> keys, int64_t* filled) {
    const Placement& placement = fresh_.options().placement;
    SOK_RETURN_IF_ERROR(
        fresh_.MakeRoom(placement.is_replicated() ? keys.size() : keys.size() / fresh_.options().ranks));
    const int64_t at_once = fresh_.max_rows_to_fill();
    for (int64_t first = 0; first < keys.size(); first += at_once) {
      SOK_RETURN_IF_ERROR(ReadPiece(first, keys.subspan(first, std::min(at_once, keys.size() - first))));
      *filled += static_cast<int64_t>(own_.size());
    }
    return OkStatus();
  }

 private:
  Status ReadPiece(int64_t first, Span<const int64_t> keys) {
    const TableOptions& options = fresh_.options();
    const KeyOwners owners = options.placement.owners(options.ranks);
    own_.clear();
    is_own_.clear();
    for (const int64_t key : keys) {
      is_own_.push_back(owners.Holds(options.rank, key));
      if (is_own_.back()) own_.push_back(key);
    }
    return fresh_.FillRows(own_, RowParts(), [&](const RowsToFill& rows) {
      int64_t next = 0;
      records_.clear();
      for (const bool mine : is_own_) records_.push_back(mine ? rows.records[next++] : nullptr);
      return ReadBlocks(first, records_);
    });
  }

  // Reads rows in blocks of about kBlockBytes, on all threads.
  Status ReadBlocks(int64_t first, Span<float* const> records) {
    const int64_t row_bytes = fresh_.options().dim * static_cast<int64_t>(sizeof(float));
    const int64_t rows = std::max<int64_t>(1, kBlockBytes / row_bytes);
    return ForEachColumn(executor_, (records.size() - 1) / rows + 1, records.size(), [&](int64_t block) {
      const int64_t begin = block * rows;
      const int64_t count = std::min(rows, records.size() - begin);
      reader_.ReadRowsAhead(first + records.size() + begin, count);
      return reader_.ReadRows(first + begin, records.subspan(begin, count), scratch_.Take().get());
    });
  }

  Executor& executor_;
  const RawFilesReader& reader_;
  HeldTable& fresh_;
  std::vector<int64_t> own_;
  std::vector<bool> is_own_;
  std::vector<float*> records_;
  ObjectPool<std::vector<float>> scratch_;
};

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
                                                   const RawFilesReader& reader) {
  auto made = engine->MakeTable(context, options);
  SOK_RETURN_IF_ERROR(made.status());
  const auto held = made.value()->Hold(context);
  SOK_RETURN_IF_ERROR(held.status());
  const Status status = WithinMemory([&]() -> Status {
    int64_t filled = 0;
    RawRowsLoader loader(context.executor, reader, held.value().get());
    SOK_RETURN_IF_ERROR(loader.Run(keys, &filled));
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
