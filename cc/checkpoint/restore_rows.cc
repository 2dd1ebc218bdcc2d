#include "cc/checkpoint/restore_rows.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "cc/base/object_pool.h"
#include "cc/checkpoint/column_pieces.h"
#include "cc/checkpoint/foreign_tables.h"
#include "cc/checkpoint/row_columns.h"
#include "cc/table/bloom_filter.h"

namespace sok {
namespace {

// The range of numbers that a table can have. Those of other systems may be outside: they are then the
// nearest ones in it, and -1 stands for none.
struct CountRange {
  int64_t least = 0;
  int64_t most = INT64_MAX;
  bool is_foreign = false;
};

// Reads numbers that cannot be negative.
Status ReadCounts(ArrayReader* reader, const CountRange& range, Span<int64_t> values) {
  SOK_RETURN_IF_ERROR(reader->Read(values.data(), values.size() * static_cast<int64_t>(sizeof(int64_t))));
  for (int64_t& value : values) {
    if (value < (range.is_foreign ? -1 : 0)) {
      return DataLoss("'", reader->path(), "' has the negative number ", value);
    }
    if (range.is_foreign) value = std::min(std::max(value, range.least), range.most);
  }
  return OkStatus();
}

// The wanted ones of the ids that wait for admission.
struct PieceOfWaiting {
  std::vector<int64_t> ids;
  std::vector<int64_t> counts;
  std::vector<int64_t> last_steps;

  // Reads and checks the next `count` ids of a shard.
  Status Read(int64_t count, ArrayReader* ids_reader, ArrayReader* counts_reader, ArrayReader* steps_reader,
              const Manifest& manifest, const KeyFilter& filter) {
    for (std::vector<int64_t>* column : {&ids, &counts, &last_steps})
      column->resize(static_cast<size_t>(count));
    SOK_RETURN_IF_ERROR(ids_reader->Read(ids.data(), count * static_cast<int64_t>(sizeof(int64_t))));
    for (const int64_t id : ids) SOK_RETURN_IF_ERROR(filter.Check(id, ids_reader->path()));
    const bool is_foreign = manifest.is_foreign();
    SOK_RETURN_IF_ERROR(ReadCounts(counts_reader, {0, INT64_MAX, is_foreign}, Span<int64_t>(counts)));
    SOK_RETURN_IF_ERROR(ReadCounts(steps_reader, {0, manifest.steps, is_foreign}, Span<int64_t>(last_steps)));
    size_t kept = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (!filter.Wants(ids[i])) continue;
      ids[kept] = ids[i];
      counts[kept] = counts[i];
      last_steps[kept++] = last_steps[i];
    }
    for (std::vector<int64_t>* column : {&ids, &counts, &last_steps}) column->resize(kept);
    return OkStatus();
  }
};

// Memory for a block. Its bytes are not zeroed.
struct BlockBuffer {
  const std::unique_ptr<char[]> bytes{new char[static_cast<size_t>(kBlockBytes)]};
};

// Reads the rows of one shard.
class RowReader {
 public:
  RowReader(Executor& executor, const ShardSource& source, const RowsToRestore& what, HeldTable* table)
      : executor_(executor),
        source_(source),
        what_(what),
        table_(*table),
        filter_(table->options(), source) {}

  Status Run(int64_t* restored) {
    SOK_ASSIGN_OR_RETURN(auto keys, source_.Open("keys"));
    SOK_ASSIGN_OR_RETURN(const auto mapped, MapWeights());
    SOK_RETURN_IF_ERROR(AddColumns(mapped));
    // All files have been found to be as long as the number of rows needs.
    SOK_RETURN_IF_ERROR(table_.MakeRoom(std::min(what_.new_rows, source_.saved().rows)));
    const int64_t at_once = std::min(kPieceItems, table_.max_rows_to_fill());
    int64_t left = source_.saved().rows;
    const auto read_keys = [&](PieceOfKeys* piece) {
      const int64_t count = std::min(at_once, left);
      left -= count;
      return piece->Read(keys.get(), filter_, count, what_.checked ? nullptr : &checker_);
    };
    if (left > 0) SOK_RETURN_IF_ERROR(read_keys(&keys_));
    while (!keys_.all.empty()) {
      next_keys_.all.clear();
      const bool has_next = left > 0;
      SOK_RETURN_IF_ERROR(table_.FillRows(keys_.own, parts_, [&](const RowsToFill& rows) {
        return Fill(rows, has_next, [&] { return read_keys(&next_keys_); });
      }));
      *restored += static_cast<int64_t>(keys_.own.size());
      std::swap(keys_, next_keys_);
    }
    return OkStatus();
  }

 private:
  // Fills one part of all rows of a piece. Columns share no data, so threads can fill them at the same time.
  using Column = std::function<Status(const RowsToFill& rows)>;
  // An array beside the keys.
  using Reader = std::shared_ptr<ArrayReader>;
  struct Floats {
    Reader reader;
    int64_t first;  // the position in a row's record
    int64_t width;

    int64_t bytes() const { return width * static_cast<int64_t>(sizeof(float)); }
  };

  // Fills all columns, and calls read_next() if there is a next piece, on all threads.
  template <typename ReadNext>
  Status Fill(const RowsToFill& rows, bool has_next, const ReadNext& read_next) {
    const Span<float* const> records = RecordsOfAll(rows);
    // The longest tasks that cannot be divided come first. Blocks are in the order of the rows, so that no
    // two threads touch the same new page of memory: both would zero it.
    std::vector<std::pair<FloatColumn*, int64_t>> blocks;
    for (const auto& column : floats_) {
      SOK_RETURN_IF_ERROR(column->BeginPiece(keys_));
      for (int64_t block = 0; block < column->blocks(); ++block) blocks.emplace_back(column.get(), block);
    }
    const int64_t others = (has_next ? 1 : 0) + static_cast<int64_t>(columns_.size());
    const int64_t tasks = others + static_cast<int64_t>(blocks.size());
    SOK_RETURN_IF_ERROR(
        ForEachColumn(executor_, tasks, static_cast<int64_t>(keys_.all.size()), [&](int64_t task) -> Status {
          if (task == 0 && has_next) return read_next();
          if (task < others) return columns_[static_cast<size_t>(others - 1 - task)](rows);
          const auto& [column, block] = blocks[static_cast<size_t>(task - others)];
          return column->Read(block, keys_, records, buffers_.Take()->bytes.get());
        }));
    for (const auto& column : floats_) SOK_RETURN_IF_ERROR(column->EndPiece());
    return OkStatus();
  }

  // The records of all keys of the piece; null for keys that are not wanted.
  Span<float* const> RecordsOfAll(const RowsToFill& rows) {
    if (rows.records.size() == static_cast<int64_t>(keys_.all.size())) return rows.records;
    records_.assign(keys_.all.size(), nullptr);
    int64_t next = 0;
    for (size_t i = 0; i < records_.size(); ++i) {
      if (keys_.wanted[i]) records_[i] = rows.records[next++];
    }
    return records_;
  }

  StatusOr<Reader> OpenColumn(const std::string& name) {
    SOK_ASSIGN_OR_RETURN(auto reader, source_.Open(name));
    return Reader(std::move(reader));
  }

  // Whether the rows that are inserted next have the array of weights as their memory. The i-th key then gets
  // its i-th row, if no key occurs twice, which the caller finds by the number of rows.
  StatusOr<bool> MapWeights() {
    const PlacedArray& values = *source_.Find("values");
    const ArrayType wanted{"<f4", {source_.saved().rows, table_.options().dim}};
    if (!what_.maps_weights || !values.has_file() || values.array.type != wanted || !values.stored_as.empty())
      return false;
    SOK_ASSIGN_OR_RETURN(const auto file, source_.checkpoint.Data(values.shard));
    file->KeepCached();
    SOK_ASSIGN_OR_RETURN(const auto reader, source_.Open("values"));
    const auto placed = table_.PlaceRows(source_.saved().rows, [&](int64_t at, char* to, int64_t bytes) {
      return file->MapAt(values.offset + at, to, bytes);
    });
    if (placed.ok() && placed.value() && !what_.checked) {
      SOK_RETURN_IF_ERROR(reader->Skip(values.array.bytes()));
    }
    return placed;
  }

  Status AddColumns(bool mapped) {
    if (mapped) return AddUsage();
    switch (what_.contents) {
      case RowContents::kWeights:
      case RowContents::kWeightsAndSlots:
        SOK_RETURN_IF_ERROR(AddRecords());
        break;
      case RowContents::kWeightsCaughtUp:
        SOK_RETURN_IF_ERROR(AddCaughtUp());
        break;
    }
    return AddUsage();
  }

  Status AddRecords() {
    const auto add = [this](StatusOr<std::unique_ptr<FloatColumn>> column) {
      if (column.ok()) floats_.push_back(std::move(column.value()));
      return column.status();
    };
    SOK_RETURN_IF_ERROR(add(FloatColumn::Open(source_, "values", 0, table_.options().dim)));
    if (what_.contents == RowContents::kWeights) return OkStatus();
    int64_t first = table_.options().dim;
    for (const SavedOptimizer::Slot& slot : source_.manifest.optimizer->slots) {
      const bool is_table = source_.Find(SlotKeys(slot.name)) != nullptr;
      SOK_RETURN_IF_ERROR(add(is_table ? SlotTableColumn::Open(source_, slot, first)
                                       : FloatColumn::Open(source_, "slot-" + slot.name, first, slot.width)));
      first += slot.width;
    }
    parts_.slots = !source_.manifest.optimizer->slots.empty();
    parts_.last_current = table_.state().parts.last_current;
    return AddSteps();
  }

  // Fills the step at which each row was last current.
  Status AddSteps() {
    if (source_.Find("adam_step") == nullptr) {
      columns_.push_back([this](const RowsToFill& rows) {
        std::fill(rows.last_current.begin(), rows.last_current.end(), what_.first_step);
        return OkStatus();
      });
      return OkStatus();
    }
    SOK_ASSIGN_OR_RETURN(const Reader reader, OpenColumn("adam_step"));
    columns_.push_back([this, reader](const RowsToFill& rows) {
      int64_t step = 0;
      return ForEachItem(
          [&](int64_t i) {
            SOK_RETURN_IF_ERROR(ReadStep(reader.get(), &step));
            if (!rows.last_current.empty()) rows.last_current[i] = step;
            return OkStatus();
          },
          [&] { return reader->Skip(sizeof(uint32_t)); });
    });
    return OkStatus();
  }

  Status ReadStep(ArrayReader* reader, int64_t* step) const {
    const SavedOptimizer& optimizer = *source_.manifest.optimizer;
    uint32_t read;
    SOK_RETURN_IF_ERROR(reader->Read(&read, sizeof(read)));
    *step = read;
    const int64_t first = optimizer.history->first_step;
    if (first <= *step && *step <= optimizer.steps) return OkStatus();
    return DataLoss("'", reader->path(), "' has the step ", read, ", which is not in [", first, ", ",
                    optimizer.steps, "]");
  }

  // Opens the arrays of weights and slots.
  Status OpenFloats(std::vector<Floats>* floats) {
    int64_t first = 0;
    const auto open = [&](const std::string& name, int64_t width) -> Status {
      SOK_ASSIGN_OR_RETURN(auto reader, OpenColumn(name));
      floats->push_back(Floats{reader, first, width});
      first += width;
      return OkStatus();
    };
    SOK_RETURN_IF_ERROR(open("values", table_.options().dim));
    for (const SavedOptimizer::Slot& slot : source_.manifest.optimizer->slots)
      SOK_RETURN_IF_ERROR(open("slot-" + slot.name, slot.width));
    return OkStatus();
  }

  // Reads records row by row, and catches up each of them before its weights go into the table.
  Status AddCaughtUp() {
    std::vector<Floats> floats;
    SOK_RETURN_IF_ERROR(OpenFloats(&floats));
    Reader steps;
    if (source_.Find("adam_step") != nullptr) {
      SOK_ASSIGN_OR_RETURN(auto reader, OpenColumn("adam_step"));
      steps = reader;
    }
    columns_.push_back([this, floats, steps](const RowsToFill& rows) {
      float* const record = what_.catch_up->record();
      const auto read = [&](int64_t i) {
        int64_t step = what_.first_step;
        for (const Floats& one : floats)
          SOK_RETURN_IF_ERROR(one.reader->Read(record + one.first, one.bytes()));
        if (steps != nullptr) SOK_RETURN_IF_ERROR(ReadStep(steps.get(), &step));
        what_.catch_up->Run(step);
        std::copy_n(record, table_.options().dim, rows.records[i]);
        return OkStatus();
      };
      const auto skip = [&] {
        for (const Floats& one : floats) SOK_RETURN_IF_ERROR(one.reader->Skip(one.bytes()));
        return steps != nullptr ? steps->Skip(sizeof(uint32_t)) : OkStatus();
      };
      return ForEachItem(read, skip);
    });
    return OkStatus();
  }

  Status AddUsage() {
    const RowParts kept = table_.state().parts;
    const Admission& admission = table_.options().admission;
    const bool is_foreign = source_.manifest.is_foreign();
    SOK_RETURN_IF_ERROR(AddCounts("frequency", kept.frequency, &RowParts::frequency, &RowsToFill::frequency,
                                  {admission.filter_freq, INT64_MAX, is_foreign}));
    SOK_RETURN_IF_ERROR(AddCounts("last_step", kept.last_step, &RowParts::last_step, &RowsToFill::last_step,
                                  {0, source_.manifest.steps, is_foreign}));
    SOK_RETURN_IF_ERROR(AddCounts("last_used", kept.last_used, &RowParts::last_used, &RowsToFill::last_used,
                                  {0, INT64_MAX, is_foreign}));
    if (parts_.frequency || admission.kind == Admission::Kind::kNone) return OkStatus();
    // A row without a count was admitted, so it occurred at least filter_freq times.
    parts_.frequency = true;
    columns_.push_back([count = admission.filter_freq](const RowsToFill& rows) {
      std::fill(rows.frequency.begin(), rows.frequency.end(), count);
      return OkStatus();
    });
    return OkStatus();
  }

  Status AddCounts(const std::string& name, bool kept, bool RowParts::* part,
                   Span<int64_t> RowsToFill::* column, const CountRange& range) {
    if (!kept || !what_.counts || source_.Find(name) == nullptr) return OkStatus();
    SOK_ASSIGN_OR_RETURN(const Reader reader, OpenColumn(name));
    parts_.*part = true;
    columns_.push_back([this, column, range, reader](const RowsToFill& rows) {
      const Span<int64_t> counts = rows.*column;
      if (counts.size() == static_cast<int64_t>(keys_.all.size()))
        return ReadCounts(reader.get(), range, counts);
      return ForEachItem([&](int64_t i) { return ReadCounts(reader.get(), range, counts.subspan(i, 1)); },
                         [&] { return reader->Skip(sizeof(int64_t)); });
    });
    return OkStatus();
  }

  // Goes through an array in the order of the keys: read(i) reads the item of the i-th wanted key, skip()
  // skips the item of another key.
  template <typename Read, typename Skip>
  Status ForEachItem(const Read& read, const Skip& skip) const {
    int64_t next = 0;
    for (const bool wanted : keys_.wanted) SOK_RETURN_IF_ERROR(wanted ? read(next++) : skip());
    return OkStatus();
  }

  Executor& executor_;
  const ShardSource& source_;
  const RowsToRestore& what_;
  HeldTable& table_;
  const KeyFilter filter_;
  RowParts parts_;
  std::vector<std::unique_ptr<FloatColumn>> floats_;
  std::vector<Column> columns_;
  KeyChecker checker_;
  PieceOfKeys keys_;
  PieceOfKeys next_keys_;
  std::vector<float*> records_;
  ObjectPool<BlockBuffer> buffers_;
};

// Reads counters that are saved in full.
Status RestoreAllCounters(const ShardSource& source, HeldTable* table) {
  SOK_ASSIGN_OR_RETURN(auto reader, source.Open("bloom_counters"));
  std::vector<char> piece;
  const int64_t bytes = DataBytes(source.Find("bloom_counters")->array.type);
  constexpr int64_t kPieceBytes = 1024 * kBloomBlockBytes;
  for (int64_t first = 0; first < bytes; first += kPieceBytes) {
    const int64_t count = std::min(kPieceBytes, bytes - first);
    // Whole blocks, the last one filled up with zeros.
    piece.assign(static_cast<size_t>((count - 1) / kBloomBlockBytes + 1) * kBloomBlockBytes, 0);
    SOK_RETURN_IF_ERROR(reader->Read(piece.data(), count));
    SOK_RETURN_IF_ERROR(VisitNonZeroBlocks(first / kBloomBlockBytes, piece,
                                           [&](Span<const int64_t> blocks, Span<const char> counters) {
                                             return table->MergeBloom(blocks, counters);
                                           }));
  }
  return OkStatus();
}

// Checks a piece of blocks, which come after the block `before`.
Status CheckBlocks(const std::string& path, Span<const int64_t> blocks, int64_t before, int64_t limit) {
  for (const int64_t block : blocks) {
    if (block < 0 || block >= limit) {
      return DataLoss("'", path, "' has the block ", block, " of a filter of ", limit, " blocks");
    }
    if (block <= before) {
      return DataLoss("'", path, "' has the block ", block, " after the block ", before,
                      ": blocks must increase");
    }
    before = block;
  }
  return OkStatus();
}

Status RestoreCounterBlocks(const ShardSource& source, HeldTable* table) {
  auto numbers = source.Open("bloom_blocks");
  auto counters = source.Open("bloom_counters");
  for (const auto* reader : {&numbers, &counters}) SOK_RETURN_IF_ERROR(reader->status());
  const int64_t limit = BloomShape::BlocksOf(source.manifest.table.counters,
                                             source.manifest.table.options.admission.counter_bits);
  const int64_t count = source.Find("bloom_blocks")->array.type.shape[0];
  std::vector<int64_t> blocks;
  std::vector<char> piece;
  int64_t before = -1;
  for (int64_t first = 0; first < count; first += kPieceItems) {
    blocks.resize(static_cast<size_t>(std::min(kPieceItems, count - first)));
    piece.resize(blocks.size() * kBloomBlockBytes);
    SOK_RETURN_IF_ERROR(
        numbers.value()->Read(blocks.data(), static_cast<int64_t>(blocks.size() * sizeof(int64_t))));
    SOK_RETURN_IF_ERROR(CheckBlocks(numbers.value()->path(), blocks, before, limit));
    before = blocks.back();
    SOK_RETURN_IF_ERROR(counters.value()->Read(piece.data(), static_cast<int64_t>(piece.size())));
    SOK_RETURN_IF_ERROR(table->MergeBloom(blocks, piece));
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<SavedRowCatchUp>> SavedRowCatchUp::Create(std::unique_ptr<Optimizer> optimizer,
                                                                   int64_t dim, Span<const float> hyper) {
  std::unique_ptr<SavedRowCatchUp> catch_up(new SavedRowCatchUp(std::move(optimizer), dim));
  SOK_RETURN_IF_ERROR(catch_up->store_.Reserve(1));
  SOK_RETURN_IF_ERROR(catch_up->store_.SetSlots(catch_up->optimizer_->Slots(dim, hyper)));
  SOK_RETURN_IF_ERROR(catch_up->optimizer_->Reserve(catch_up->store_.rows()));
  catch_up->optimizer_->OnNewRow(0);
  return catch_up;
}

void SavedRowCatchUp::Run(int64_t last_current) {
  constexpr int64_t kRow = 0;
  InlineExecutor executor;
  optimizer_->SetLastCurrent(kRow, last_current);
  optimizer_->CatchUp(executor, Span<const int64_t>(&kRow, 1), &store_);
}

Status RestoreRows(Executor& executor, const ShardSource& source, const RowsToRestore& what, HeldTable* table,
                   int64_t* rows) {
  return RowReader(executor, source, what, table).Run(rows);
}

Status RestoreWaiting(const ShardSource& source, HeldTable* table) {
  if (source.Find("waiting_keys") == nullptr) return OkStatus();
  if (table->options().admission.kind == Admission::Kind::kNone) return OkStatus();
  auto ids = source.Open("waiting_keys");
  auto counts = source.Open("waiting_counts");
  auto last_steps = source.Open("waiting_last_step");
  for (const auto* reader : {&ids, &counts, &last_steps}) SOK_RETURN_IF_ERROR(reader->status());
  const KeyFilter filter(table->options(), source);
  const int64_t waiting = source.Find("waiting_keys")->array.type.shape[0];
  PieceOfWaiting piece;
  for (int64_t first = 0; first < waiting; first += kPieceItems) {
    const int64_t count = std::min(kPieceItems, waiting - first);
    SOK_RETURN_IF_ERROR(piece.Read(count, ids.value().get(), counts.value().get(), last_steps.value().get(),
                                   source.manifest, filter));
    SOK_RETURN_IF_ERROR(table->SetWaiting(WaitingPiece{piece.ids, piece.counts, piece.last_steps}));
  }
  return OkStatus();
}

Status RestoreBloom(const ShardSource& source, HeldTable* table) {
  const Admission& admission = table->options().admission;
  const SavedTable& saved = source.manifest.table;
  if (admission.kind != Admission::Kind::kBloom || source.Find("bloom_counters") == nullptr)
    return OkStatus();
  const BloomShape shape = BloomShape::Of(admission.max_element_size, admission.false_positive_probability);
  if (shape.hashes != saved.hashes || shape.counters != saved.counters ||
      admission.counter_bits != saved.options.admission.counter_bits) {
    return OkStatus();
  }
  return saved.counters_in_blocks ? RestoreCounterBlocks(source, table) : RestoreAllCounters(source, table);
}

}  // namespace sok
