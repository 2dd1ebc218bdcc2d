#include "cc/checkpoint/restore_rows.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "cc/checkpoint/at_once.h"

namespace sok {
namespace {

// Checks a piece, in which no key may stand twice.
Status CheckRowsAtOnce(const KeyFilter& filter, const std::vector<int64_t>& keys, const std::string& path) {
  for (const int64_t key : keys) SOK_RETURN_IF_ERROR(filter.Check(key, path));
  std::vector<int64_t> sorted = keys;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) return DataLoss("'", path, "' has the key ", *twice, " twice");
  return OkStatus();
}

StatusOr<std::unique_ptr<ArrayReader>> OpenArray(const ShardSource& source, const std::string& array) {
  return ArrayReader::Open(source.files, source.folder, *source.Find(array));
}

// Reads numbers that cannot be negative.
Status ReadCount(ArrayReader* reader, int64_t* value) {
  SOK_RETURN_IF_ERROR(reader->Read(value, sizeof(*value)));
  return *value >= 0 ? OkStatus() : DataLoss("'", reader->path(), "' has the negative number ", *value);
}

// Reads the rows of one shard.
class RowReader {
 public:
  RowReader(Executor& executor, const ShardSource& source, const RowsToRestore& what, Table* table)
      : executor_(executor), source_(source), what_(what), table_(table), filter_(table->options(), source) {}

  Status Run(int64_t* restored) {
    auto keys = OpenArray(source_, "keys");
    SOK_RETURN_IF_ERROR(keys.status());
    SOK_RETURN_IF_ERROR(AddColumns());
    const int64_t rows = source_.saved().rows;
    for (int64_t first = 0; first < rows; first += kRowsAtOnce) {
      SOK_RETURN_IF_ERROR(ReadPiece(std::min(kRowsAtOnce, rows - first), keys.value().get(), restored));
    }
    return OkStatus();
  }

 private:
  // An array beside the keys. read(row, reader) takes the next item; row is kAbsent for one that is not
  // wanted.
  struct Column {
    std::unique_ptr<ArrayReader> reader;
    int64_t bytes;  // of an item
    std::function<Status(int64_t row, ArrayReader* reader)> read;
  };

  Status Add(const std::string& name, std::function<Status(int64_t row, ArrayReader* reader)> read) {
    auto reader = OpenArray(source_, name);
    SOK_RETURN_IF_ERROR(reader.status());
    const ArrayType& type = source_.Find(name)->type;
    const int64_t width = type.shape.size() == 2 ? type.shape[1] : 1;
    columns_.push_back(Column{std::move(reader.value()), width * ItemBytes(type.dtype), std::move(read)});
    return OkStatus();
  }

  // The `width` floats from `first` on of a row's record.
  Status AddFloats(const std::string& name, int64_t first, int64_t width) {
    const int64_t bytes = width * static_cast<int64_t>(sizeof(float));
    return Add(name, [this, first, bytes](int64_t row, ArrayReader* reader) {
      return reader->Read(RecordOf(row) + first, bytes);
    });
  }

  Status AddColumns() {
    const int64_t dim = table_->options().dim;
    SOK_RETURN_IF_ERROR(AddFloats("values", 0, dim));
    if (what_.contents != RowContents::kWeights) {
      int64_t first = dim;
      for (const SavedOptimizer::Slot& slot : source_.manifest.optimizer->slots) {
        SOK_RETURN_IF_ERROR(AddFloats("slot-" + slot.name, first, slot.width));
        first += slot.width;
      }
      SOK_RETURN_IF_ERROR(AddStep());
    }
    independent_ = static_cast<int64_t>(columns_.size());
    return AddUsage();
  }

  Status AddStep() {
    if (source_.Find("adam_step") == nullptr) return OkStatus();
    const SavedOptimizer& optimizer = *source_.manifest.optimizer;
    const int64_t first = optimizer.history->first_step;
    return Add("adam_step", [this, first, last = optimizer.steps](int64_t row, ArrayReader* reader) {
      uint32_t step;
      SOK_RETURN_IF_ERROR(reader->Read(&step, sizeof(step)));
      if (step < first || step > last) {
        return DataLoss("'", reader->path(), "' has the step ", step, ", which is not in [", first, ", ",
                        last, "]");
      }
      SetStep(row, step);
      return OkStatus();
    });
  }

  Status AddCounts(const std::string& name, bool has, std::function<void(int64_t row, int64_t value)> set) {
    if (!has || !what_.counts || source_.Find(name) == nullptr) return OkStatus();
    return Add(name, [set = std::move(set)](int64_t row, ArrayReader* reader) {
      int64_t value;
      SOK_RETURN_IF_ERROR(ReadCount(reader, &value));
      set(row, value);
      return OkStatus();
    });
  }

  Status AddUsage() {
    SOK_RETURN_IF_ERROR(AddCounts("frequency", table_->has_frequency(),
                                  [this](int64_t row, int64_t value) { table_->set_frequency(row, value); }));
    SOK_RETURN_IF_ERROR(AddCounts("last_step", table_->has_last_step(),
                                  [this](int64_t row, int64_t value) { table_->set_last_step(row, value); }));
    return AddCounts("last_used", table_->has_last_used(),
                     [this](int64_t row, int64_t value) { table_->set_last_used(row, value); });
  }

  float* RecordOf(int64_t row) {
    return what_.contents == RowContents::kWeightsCaughtUp ? what_.catch_up->record() : table_->weights(row);
  }
  void SetStep(int64_t row, int64_t step) {
    if (what_.contents == RowContents::kWeightsCaughtUp) {
      scratch_step_ = step;
    } else {
      table_->mutable_optimizer()->SetLastCurrent(row, step);
    }
  }

  Status ReadPiece(int64_t count, ArrayReader* keys, int64_t* restored) {
    keys_.resize(static_cast<size_t>(count));
    SOK_RETURN_IF_ERROR(keys->Read(keys_.data(), count * static_cast<int64_t>(sizeof(int64_t))));
    SOK_RETURN_IF_ERROR(CheckRowsAtOnce(filter_, keys_, keys->path()));
    own_.clear();
    for (const int64_t key : keys_) {
      if (filter_.Wants(key)) own_.push_back(key);
    }
    rows_.resize(own_.size());
    SOK_RETURN_IF_ERROR(table_->FindOrMake(executor_, own_, Span<int64_t>(rows_)));
    *restored += static_cast<int64_t>(own_.size());
    for (const int64_t row : rows_) SetDefaults(row);
    return what_.contents == RowContents::kWeightsCaughtUp ? ReadRowByRow() : ReadColumnByColumn();
  }

  // What a checkpoint without such columns says about its rows.
  void SetDefaults(int64_t row) {
    const Admission& admission = table_->options().admission;
    const bool unknown = !what_.counts || source_.Find("frequency") == nullptr;
    if (admission.kind != Admission::Kind::kNone && unknown)
      table_->set_frequency(row, admission.filter_freq);
    if (what_.contents == RowContents::kWeightsAndSlots) SetStep(row, what_.first_step);
  }

  Status ReadColumnByColumn() {
    const auto read = [this](int64_t i) { return ReadColumn(columns_[static_cast<size_t>(i)]); };
    SOK_RETURN_IF_ERROR(ForEachColumn(executor_, independent_, read));
    const int64_t columns = static_cast<int64_t>(columns_.size());
    for (int64_t i = independent_; i < columns; ++i) SOK_RETURN_IF_ERROR(read(i));
    return OkStatus();
  }
  Status ReadColumn(Column& column) {
    size_t next = 0;
    for (const int64_t key : keys_) {
      SOK_RETURN_IF_ERROR(filter_.Wants(key) ? column.read(rows_[next++], column.reader.get())
                                             : column.reader->Skip(column.bytes));
    }
    return OkStatus();
  }

  // Where the record is one for all rows.
  Status ReadRowByRow() {
    size_t next = 0;
    for (const int64_t key : keys_) {
      const bool wanted = filter_.Wants(key);
      scratch_step_ = what_.first_step;
      for (Column& column : columns_) {
        SOK_RETURN_IF_ERROR(wanted ? column.read(rows_[next], column.reader.get())
                                   : column.reader->Skip(column.bytes));
      }
      if (!wanted) continue;
      what_.catch_up->Run(scratch_step_);
      std::copy_n(what_.catch_up->record(), table_->options().dim, table_->weights(rows_[next++]));
    }
    return OkStatus();
  }

  Executor& executor_;
  const ShardSource& source_;
  const RowsToRestore& what_;
  Table* const table_;
  const KeyFilter filter_;
  std::vector<Column> columns_;
  int64_t independent_ = 0;  // the first of columns_, which change nothing in common
  std::vector<int64_t> keys_;
  std::vector<int64_t> own_;
  std::vector<int64_t> rows_;  // of own_
  int64_t scratch_step_ = 0;
};

}  // namespace

KeyFilter::KeyFilter(const TableOptions& options, const ShardSource& source)
    : options_(options),
      source_(source),
      owners_(options.placement.owners(options.ranks)),
      saved_owners_(source.manifest.table.options.placement.owners(source.manifest.table.options.ranks)) {}

Status KeyFilter::Check(int64_t key, const std::string& path) const {
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
  const int64_t own_keys = options_.placement.StaticKeys(options_.ranks, options_.capacity);
  if (key >= own_keys) {
    return ResourceExhausted("Embedding variable '", options_.name, "' has no row for the key ", key, " of '",
                             path, "': its keys end at ", own_keys);
  }
  return OkStatus();
}

Status ForEachKeyPiece(const ShardSource& source, const std::string& array, const KeyFilter& filter,
                       FunctionRef<Status(Span<const int64_t> keys)> visit) {
  auto reader = OpenArray(source, array);
  SOK_RETURN_IF_ERROR(reader.status());
  const int64_t rows = source.Find(array)->type.shape[0];
  std::vector<int64_t> keys;
  for (int64_t first = 0; first < rows; first += kRowsAtOnce) {
    keys.resize(static_cast<size_t>(std::min(kRowsAtOnce, rows - first)));
    SOK_RETURN_IF_ERROR(
        reader.value()->Read(keys.data(), static_cast<int64_t>(keys.size() * sizeof(int64_t))));
    SOK_RETURN_IF_ERROR(CheckRowsAtOnce(filter, keys, reader.value()->path()));
    keys.erase(std::remove_if(keys.begin(), keys.end(), [&](int64_t key) { return !filter.Wants(key); }),
               keys.end());
    SOK_RETURN_IF_ERROR(visit(keys));
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<RowCatchUp>> RowCatchUp::Create(std::unique_ptr<Optimizer> optimizer, int64_t dim,
                                                         Span<const float> hyper) {
  std::unique_ptr<RowCatchUp> catch_up(new RowCatchUp(std::move(optimizer), dim));
  SOK_RETURN_IF_ERROR(catch_up->store_.Reserve(1));
  SOK_RETURN_IF_ERROR(catch_up->store_.SetSlots(catch_up->optimizer_->Slots(dim, hyper)));
  SOK_RETURN_IF_ERROR(catch_up->optimizer_->Reserve(catch_up->store_.rows()));
  catch_up->optimizer_->OnNewRow(0);
  return catch_up;
}

void RowCatchUp::Run(int64_t last_current) {
  constexpr int64_t kRow = 0;
  InlineExecutor executor;
  optimizer_->SetLastCurrent(kRow, last_current);
  optimizer_->CatchUp(executor, Span<const int64_t>(&kRow, 1), &store_);
}

Status RestoreRows(Executor& executor, const ShardSource& source, const RowsToRestore& what, Table* table,
                   int64_t* rows) {
  return RowReader(executor, source, what, table).Run(rows);
}

Status RestoreWaiting(const ShardSource& source, Table* table) {
  if (source.Find("waiting_keys") == nullptr) return OkStatus();
  if (table->waiting() == nullptr && table->bloom() == nullptr) return OkStatus();
  auto keys = OpenArray(source, "waiting_keys");
  auto counts = OpenArray(source, "waiting_counts");
  auto last_steps = OpenArray(source, "waiting_last_step");
  for (const auto* reader : {&keys, &counts, &last_steps}) SOK_RETURN_IF_ERROR(reader->status());
  const KeyFilter filter(table->options(), source);
  const int64_t waiting = source.Find("waiting_keys")->type.shape[0];
  for (int64_t i = 0; i < waiting; ++i) {
    int64_t key;
    int64_t count;
    int64_t last_step;
    SOK_RETURN_IF_ERROR(keys.value()->Read(&key, sizeof(key)));
    SOK_RETURN_IF_ERROR(filter.Check(key, keys.value()->path()));
    SOK_RETURN_IF_ERROR(ReadCount(counts.value().get(), &count));
    SOK_RETURN_IF_ERROR(ReadCount(last_steps.value().get(), &last_step));
    if (!filter.Wants(key)) continue;
    if (table->waiting() != nullptr) {
      SOK_RETURN_IF_ERROR(table->waiting()->Set(key, count, last_step));
    } else {
      // A chain may tell the count of an id several times, always as a whole.
      table->bloom()->Add(key, std::max<int64_t>(0, count - table->bloom()->Count(key)));
    }
  }
  return OkStatus();
}

Status RestoreBloom(const ShardSource& source, Table* table) {
  BloomCounters* const bloom = table->bloom();
  const SavedTable& saved = source.manifest.table;
  if (bloom == nullptr || source.Find("bloom_counters") == nullptr || bloom->hashes() != saved.hashes ||
      bloom->counters() != saved.counters || bloom->counter_bits() != saved.options.admission.counter_bits) {
    return OkStatus();
  }
  auto reader = OpenArray(source, "bloom_counters");
  SOK_RETURN_IF_ERROR(reader.status());
  std::vector<char> piece;
  const int64_t width = bloom->counter_bits() / 8;
  constexpr int64_t kCounters = 1 << 13;
  for (int64_t first = 0; first < bloom->counters(); first += kCounters) {
    piece.resize(static_cast<size_t>(std::min(kCounters, bloom->counters() - first) * width));
    SOK_RETURN_IF_ERROR(reader.value()->Read(piece.data(), static_cast<int64_t>(piece.size())));
    SOK_RETURN_IF_ERROR(bloom->MergeMax(first, piece));
  }
  return OkStatus();
}

}  // namespace sok
