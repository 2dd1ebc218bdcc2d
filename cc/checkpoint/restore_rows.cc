#include "cc/checkpoint/restore_rows.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "cc/checkpoint/column_pieces.h"
#include "cc/checkpoint/foreign_slots.h"
#include "cc/cpu/dedup/dedup.h"
#include "cc/table/bloom_filter.h"

namespace sok {
namespace {

// Checks the keys of pieces, which must be distinct in each piece.
class KeyChecker {
 public:
  Status Check(const KeyFilter& filter, const std::vector<int64_t>& keys, const std::string& path) {
    for (const int64_t key : keys) SOK_RETURN_IF_ERROR(filter.Check(key, path));
    InlineExecutor executor;
    firsts_.resize(keys.size());
    SOK_RETURN_IF_ERROR(deduplicator_.Run(executor, keys, &distinct_, Span<int32_t>(firsts_)));
    if (distinct_.size() == keys.size()) return OkStatus();
    size_t twice = 0;
    while (firsts_[twice] == static_cast<int32_t>(twice)) ++twice;
    return DataLoss("'", path, "' has the key ", keys[twice], " twice");
  }

 private:
  Deduplicator deduplicator_;
  std::vector<int64_t> distinct_;
  std::vector<int32_t> firsts_;
};

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

// The keys of a piece of a shard.
struct PieceOfKeys {
  std::vector<int64_t> all;
  std::vector<bool> wanted;  // by index in `all`
  std::vector<int64_t> own;  // the wanted ones of `all`
  KeyChecker checker;

  // Reads the next `count` keys, and checks them unless they are `checked`.
  Status Read(ArrayReader* reader, const KeyFilter& filter, int64_t count, bool checked) {
    all.resize(static_cast<size_t>(count));
    SOK_RETURN_IF_ERROR(reader->Read(all.data(), count * static_cast<int64_t>(sizeof(int64_t))));
    if (!checked) SOK_RETURN_IF_ERROR(checker.Check(filter, all, reader->path()));
    wanted.resize(all.size());
    own.clear();
    for (size_t i = 0; i < all.size(); ++i) {
      wanted[i] = filter.Wants(all[i]);
      if (wanted[i]) own.push_back(all[i]);
    }
    return OkStatus();
  }
};

// Reads a slot that another system saved as a table of its own, row after row of a shard. Its keys are
// usually those of the rows, in the same order. From the first piece on where they are not, rows are found by
// their keys, with 16 bytes of memory for each key of the slot.
class SlotTableReader {
 public:
  static StatusOr<std::shared_ptr<SlotTableReader>> Open(const ShardSource& source,
                                                         const SavedOptimizer::Slot& slot, int64_t first) {
    std::shared_ptr<SlotTableReader> reader(new SlotTableReader(source, slot, first));
    SOK_RETURN_IF_ERROR(reader->Restart());
    return reader;
  }

  // Fills the slot of the wanted rows of a piece.
  Status Read(const PieceOfKeys& piece, Span<float* const> records) {
    if (!by_key_) SOK_RETURN_IF_ERROR(CompareKeys(piece.all));
    if (!by_key_ && records.size() == static_cast<int64_t>(piece.all.size())) {
      return values_->ReadIntoEach(records, first_, slot_.width);
    }
    int64_t next = 0;
    for (size_t i = 0; i < piece.all.size(); ++i) {
      float* const to = piece.wanted[i] ? records[next++] + first_ : nullptr;
      if (!by_key_) {
        SOK_RETURN_IF_ERROR(values_->Read(to, row_bytes()));
      } else if (to != nullptr) {
        SOK_RETURN_IF_ERROR(ReadByKey(piece.all[i], to));
      }
    }
    return OkStatus();
  }

 private:
  SlotTableReader(const ShardSource& source, const SavedOptimizer::Slot& slot, int64_t first)
      : source_(source),
        slot_(slot),
        first_(first),
        left_(source.Find(SlotKeys(slot.name))->array.type.shape[0]) {}
  int64_t row_bytes() const { return slot_.width * static_cast<int64_t>(sizeof(float)); }

  Status Restart() {
    auto keys = source_.Open(SlotKeys(slot_.name));
    SOK_RETURN_IF_ERROR(keys.status());
    auto values = source_.Open("slot-" + slot_.name);
    SOK_RETURN_IF_ERROR(values.status());
    keys_ = std::move(keys.value());
    values_ = std::move(values.value());
    return OkStatus();
  }

  // Whether the next keys of the slot are these; if not, makes the index of all keys.
  Status CompareKeys(const std::vector<int64_t>& keys) {
    if (static_cast<int64_t>(keys.size()) <= left_) {
      left_ -= static_cast<int64_t>(keys.size());
      piece_.resize(keys.size());
      SOK_RETURN_IF_ERROR(keys_->Read(piece_.data(), static_cast<int64_t>(keys.size() * sizeof(int64_t))));
      if (piece_ == keys) return OkStatus();
    }
    by_key_ = true;
    SOK_RETURN_IF_ERROR(Restart());
    // Verifies the values, which are read in another order.
    SOK_RETURN_IF_ERROR(values_->Skip(source_.Find("slot-" + slot_.name)->array.bytes()));
    const int64_t rows = source_.Find(SlotKeys(slot_.name))->array.type.shape[0];
    index_.reserve(static_cast<size_t>(rows));
    for (int64_t row = 0; row < rows; row += static_cast<int64_t>(piece_.size())) {
      piece_.resize(static_cast<size_t>(std::min(kPieceItems, rows - row)));
      SOK_RETURN_IF_ERROR(keys_->Read(piece_.data(), static_cast<int64_t>(piece_.size() * sizeof(int64_t))));
      for (size_t i = 0; i < piece_.size(); ++i)
        index_.emplace_back(piece_[i], row + static_cast<int64_t>(i));
    }
    std::sort(index_.begin(), index_.end());
    for (size_t i = 1; i < index_.size(); ++i) {
      if (index_[i].first == index_[i - 1].first) {
        return DataLoss("'", keys_->path(), "' has the key ", index_[i].first, " twice");
      }
    }
    return OkStatus();
  }

  Status ReadByKey(int64_t key, float* to) {
    const auto found = std::lower_bound(index_.begin(), index_.end(), std::pair(key, int64_t{0}));
    if (found == index_.end() || found->first != key) {
      std::fill_n(to, slot_.width, slot_.fill);
      return OkStatus();
    }
    const PlacedArray& placed = *source_.Find("slot-" + slot_.name);
    const auto file = source_.checkpoint.Data(placed.shard);
    SOK_RETURN_IF_ERROR(file.status());
    return file.value()->ReadAt(placed.offset + found->second * row_bytes(), to, row_bytes());
  }

  const ShardSource& source_;
  const SavedOptimizer::Slot& slot_;
  const int64_t first_;  // the position in a row's record
  int64_t left_;         // keys that were not compared
  std::unique_ptr<ArrayReader> keys_;
  std::unique_ptr<ArrayReader> values_;
  bool by_key_ = false;
  std::vector<int64_t> piece_;
  std::vector<std::pair<int64_t, int64_t>> index_;  // keys and their rows
};

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
    auto keys = source_.Open("keys");
    SOK_RETURN_IF_ERROR(keys.status());
    const auto mapped = MapWeights();
    SOK_RETURN_IF_ERROR(mapped.status());
    SOK_RETURN_IF_ERROR(AddColumns(mapped.value()));
    const auto fill = [this](const RowsToFill& rows) {
      return ForEachColumn(executor_, static_cast<int64_t>(columns_.size()), rows.records.size(),
                           [&](int64_t i) { return columns_[static_cast<size_t>(i)](rows); });
    };
    const int64_t rows = source_.saved().rows;
    const int64_t at_once = std::min(kPieceItems, table_.max_rows_to_fill());
    for (int64_t first = 0; first < rows; first += at_once) {
      SOK_RETURN_IF_ERROR(
          keys_.Read(keys.value().get(), filter_, std::min(at_once, rows - first), what_.checked));
      SOK_RETURN_IF_ERROR(table_.FillRows(keys_.own, parts_, fill));
      *restored += static_cast<int64_t>(keys_.own.size());
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

  StatusOr<Reader> OpenColumn(const std::string& name) {
    auto reader = source_.Open(name);
    SOK_RETURN_IF_ERROR(reader.status());
    return Reader(std::move(reader.value()));
  }

  // Whether the rows that are inserted next have the array of weights as their memory. The i-th key then gets
  // its i-th row, if no key occurs twice, which the caller finds by the number of rows.
  StatusOr<bool> MapWeights() {
    const PlacedArray& values = *source_.Find("values");
    const ArrayType wanted{"<f4", {source_.saved().rows, table_.options().dim}};
    if (!what_.maps_weights || !values.has_file() || values.array.type != wanted) return false;
    const auto file = source_.checkpoint.Data(values.shard);
    SOK_RETURN_IF_ERROR(file.status());
    file.value()->KeepCached();
    const auto reader = source_.Open("values");
    SOK_RETURN_IF_ERROR(reader.status());
    const auto placed = table_.PlaceRows(source_.saved().rows, [&](int64_t at, char* to, int64_t bytes) {
      return file.value()->MapAt(values.offset + at, to, bytes);
    });
    if (placed.ok() && placed.value() && !what_.checked) {
      SOK_RETURN_IF_ERROR(reader.value()->Skip(values.array.bytes()));
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

  // Opens the array of weights, and except for kWeights, those of slots.
  Status OpenFloats(std::vector<Floats>* floats) {
    int64_t first = 0;
    const auto open = [&](const std::string& name, int64_t width) -> Status {
      auto reader = OpenColumn(name);
      SOK_RETURN_IF_ERROR(reader.status());
      floats->push_back(Floats{reader.value(), first, width});
      first += width;
      return OkStatus();
    };
    SOK_RETURN_IF_ERROR(open("values", table_.options().dim));
    if (what_.contents == RowContents::kWeights) return OkStatus();
    for (const SavedOptimizer::Slot& slot : source_.manifest.optimizer->slots) {
      if (source_.Find(SlotKeys(slot.name)) == nullptr) {
        SOK_RETURN_IF_ERROR(open("slot-" + slot.name, slot.width));
      } else {
        SOK_RETURN_IF_ERROR(AddSlotTable(slot, first));
        first += slot.width;
      }
    }
    return OkStatus();
  }

  Status AddSlotTable(const SavedOptimizer::Slot& slot, int64_t first) {
    auto reader = SlotTableReader::Open(source_, slot, first);
    SOK_RETURN_IF_ERROR(reader.status());
    columns_.push_back([this, reader = reader.value()](const RowsToFill& rows) {
      return reader->Read(keys_, rows.records);
    });
    return OkStatus();
  }

  Status AddRecords() {
    std::vector<Floats> floats;
    SOK_RETURN_IF_ERROR(OpenFloats(&floats));
    for (const Floats& one : floats) {
      columns_.push_back([this, one](const RowsToFill& rows) {
        if (rows.records.size() == static_cast<int64_t>(keys_.all.size())) {
          return one.reader->ReadIntoEach(rows.records, one.first, one.width);
        }
        return ForEachItem(
            [&](int64_t i) { return one.reader->Read(rows.records[i] + one.first, one.bytes()); },
            [&] { return one.reader->Skip(one.bytes()); });
      });
    }
    if (what_.contents == RowContents::kWeights) return OkStatus();
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
    auto reader = OpenColumn("adam_step");
    SOK_RETURN_IF_ERROR(reader.status());
    columns_.push_back([this, reader = reader.value()](const RowsToFill& rows) {
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

  // Reads records row by row, and catches up each of them before its weights go into the table.
  Status AddCaughtUp() {
    std::vector<Floats> floats;
    SOK_RETURN_IF_ERROR(OpenFloats(&floats));
    Reader steps;
    if (source_.Find("adam_step") != nullptr) {
      auto reader = OpenColumn("adam_step");
      SOK_RETURN_IF_ERROR(reader.status());
      steps = reader.value();
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
    auto reader = OpenColumn(name);
    SOK_RETURN_IF_ERROR(reader.status());
    parts_.*part = true;
    columns_.push_back([this, column, range, reader = reader.value()](const RowsToFill& rows) {
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
  std::vector<Column> columns_;
  PieceOfKeys keys_;
};

// Reads counters that are saved in full.
Status RestoreAllCounters(const ShardSource& source, HeldTable* table) {
  auto reader = source.Open("bloom_counters");
  SOK_RETURN_IF_ERROR(reader.status());
  std::vector<char> piece;
  const int64_t bytes = DataBytes(source.Find("bloom_counters")->array.type);
  constexpr int64_t kPieceBytes = 1024 * kBloomBlockBytes;
  for (int64_t first = 0; first < bytes; first += kPieceBytes) {
    const int64_t count = std::min(kPieceBytes, bytes - first);
    // Whole blocks, the last one filled up with zeros.
    piece.assign(static_cast<size_t>((count - 1) / kBloomBlockBytes + 1) * kBloomBlockBytes, 0);
    SOK_RETURN_IF_ERROR(reader.value()->Read(piece.data(), count));
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

StatusOr<std::unique_ptr<ArrayReader>> ShardSource::Open(const std::string& array) const {
  const PlacedArray& placed = *Find(array);
  auto file = checkpoint.Data(placed.shard);
  SOK_RETURN_IF_ERROR(file.status());
  return ArrayReader::Open(std::move(file.value()), checkpoint.DataFile(placed.shard), placed);
}

KeyFilter::KeyFilter(const TableOptions& options, const ShardSource& source)
    : options_(options),
      source_(source),
      owners_(options.placement.owners(options.ranks)),
      saved_owners_(source.manifest.table.options.placement.owners(source.manifest.table.options.ranks)),
      least_(options.key_dtype == "int64"   ? INT64_MIN
             : options.key_dtype == "int32" ? INT32_MIN
                                            : 0),
      most_(options.key_dtype == "int64"   ? INT64_MAX
            : options.key_dtype == "int32" ? INT32_MAX
                                           : int64_t{UINT32_MAX}) {}

Status KeyFilter::Check(int64_t key, const std::string& path) const {
  if (source_.manifest.is_foreign()) return CheckForeign(key, path);
  const int shard = saved_owners_.OwnerOf(key);
  if (shard != source_.shard) {
    return DataLoss("'", path, "' has the key ", key, ", which belongs to shard ", shard);
  }
  const TableOptions& saved = source_.manifest.table.options;
  if (saved.use_hashtable) return OkStatus();
  const int64_t saved_keys = saved.placement.StaticKeys(saved.ranks, saved.capacity);
  if (static_cast<uint64_t>(key) >= static_cast<uint64_t>(saved_keys)) {
    return DataLoss("'", path, "' has the key ", key, " of a table whose keys end at ", saved_keys);
  }
  return CheckStatic(key, path);
}

Status KeyFilter::CheckForeign(int64_t key, const std::string& path) const {
  if (key < least_ || key > most_) {
    return InvalidArgument("Embedding variable '", options_.name, "' has keys of ", options_.key_dtype,
                           ", but '", path, "' has the key ", key);
  }
  return options_.use_hashtable ? OkStatus() : CheckStatic(key, path);
}

Status KeyFilter::CheckStatic(int64_t key, const std::string& path) const {
  const int64_t own_keys = options_.placement.StaticKeys(options_.ranks, options_.capacity);
  if (key >= own_keys) {
    return ResourceExhausted("Embedding variable '", options_.name, "' has no row for the key ", key, " of '",
                             path, "': its keys end at ", own_keys);
  }
  return OkStatus();
}

namespace {

// ForEachKeyPiece, without checks if `checker` is null.
Status VisitKeys(const ShardSource& source, const std::string& array, const KeyFilter& filter,
                 KeyChecker* checker, FunctionRef<Status(Span<const int64_t> keys)> visit) {
  auto reader = source.Open(array);
  SOK_RETURN_IF_ERROR(reader.status());
  const int64_t rows = source.Find(array)->array.type.shape[0];
  std::vector<int64_t> keys;
  for (int64_t first = 0; first < rows; first += kPieceItems) {
    keys.resize(static_cast<size_t>(std::min(kPieceItems, rows - first)));
    SOK_RETURN_IF_ERROR(
        reader.value()->Read(keys.data(), static_cast<int64_t>(keys.size() * sizeof(int64_t))));
    if (checker != nullptr) SOK_RETURN_IF_ERROR(checker->Check(filter, keys, reader.value()->path()));
    keys.erase(std::remove_if(keys.begin(), keys.end(), [&](int64_t key) { return !filter.Wants(key); }),
               keys.end());
    SOK_RETURN_IF_ERROR(visit(keys));
  }
  return OkStatus();
}

}  // namespace

Status ForEachKeyPiece(const ShardSource& source, const std::string& array, const KeyFilter& filter,
                       FunctionRef<Status(Span<const int64_t> keys)> visit) {
  KeyChecker checker;
  return VisitKeys(source, array, filter, &checker, visit);
}

namespace {

// Calls visit(array, keys) on the selected keys of all shards, with rows and waiting.
Status ForEachKey(Span<const ShardSource> sources, const TableOptions& options,
                  FunctionRef<void(const PlacedArray& array, Span<const int64_t> keys)> visit) {
  for (const ShardSource& source : sources) {
    const KeyFilter filter(options, source);
    for (const char* name : {"keys", "waiting_keys"}) {
      if (source.Find(name) == nullptr) continue;
      SOK_RETURN_IF_ERROR(VisitKeys(source, name, filter, nullptr, [&](Span<const int64_t> keys) {
        visit(*source.Find(name), keys);
        return OkStatus();
      }));
    }
  }
  return OkStatus();
}

Status HasTwice(Span<const ShardSource> sources, const TableOptions& options, int64_t key) {
  std::vector<std::string> found;
  SOK_RETURN_IF_ERROR(ForEachKey(sources, options, [&](const PlacedArray& array, Span<const int64_t> keys) {
    found.insert(found.end(), static_cast<size_t>(std::count(keys.begin(), keys.end(), key)), array.name);
  }));
  if (found.size() < 2) return Internal("the key ", key, " was not found again");
  return DataLoss("'", sources[0].checkpoint.index_path(), "' has the key ", key, " twice: in '", found[0],
                  "' and in '", found[1], "'");
}

}  // namespace

Status CheckDistinct(Span<const ShardSource> sources, const TableOptions& options) {
  constexpr int64_t kAtOnce = int64_t{1} << 22;
  int64_t total = 0;
  for (const ShardSource& source : sources) {
    for (const char* name : {"keys", "waiting_keys"}) {
      const PlacedArray* const array = source.Find(name);
      if (array != nullptr) total += array->array.type.shape[0];
    }
  }
  const auto passes = static_cast<uint64_t>(total / options.ranks / kAtOnce + 1);
  std::vector<int64_t> chosen;
  for (uint64_t pass = 0; pass < passes; ++pass) {
    chosen.clear();
    SOK_RETURN_IF_ERROR(ForEachKey(sources, options, [&](const PlacedArray&, Span<const int64_t> keys) {
      for (const int64_t key : keys) {
        const uint64_t mixed = static_cast<uint64_t>(key) * 0x9E3779B97F4A7C15u >> 32;
        if (mixed * passes >> 32 == pass) chosen.push_back(key);
      }
    }));
    std::sort(chosen.begin(), chosen.end());
    const auto twice = std::adjacent_find(chosen.begin(), chosen.end());
    if (twice != chosen.end()) return HasTwice(sources, options, *twice);
  }
  return OkStatus();
}

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
