#include "cc/checkpoint/shard_writer.h"

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "cc/checkpoint/at_once.h"

namespace sok {
namespace {

using RowWriter = std::function<Status(int64_t row, ArrayWriter* array)>;

// Writes arrays side by side, in one pass over the rows.
class Columns {
 public:
  Columns(Executor& executor, Files& files, std::string folder, int shard)
      : executor_(executor), files_(files), folder_(std::move(folder)), shard_(shard) {}

  Status Add(const std::string& name, const ArrayType& type, RowWriter write) {
    auto array = ArrayWriter::Create(files_, folder_, ArrayPath(shard_, name), type);
    SOK_RETURN_IF_ERROR(array.status());
    columns_.push_back(Column{name, std::move(array.value()), std::move(write)});
    return OkStatus();
  }
  Status AddNumbers(const std::string& name, int64_t rows, std::function<int64_t(int64_t row)> number) {
    return Add(name, ArrayType{"<i8", {rows}}, [number = std::move(number)](int64_t row, ArrayWriter* array) {
      const int64_t value = number(row);
      return array->Write(&value, sizeof(value));
    });
  }
  // Writes the rows below `limit` for which wanted(row), completes the arrays, and tells their facts.
  template <typename Wanted>
  Status Write(int64_t limit, const Wanted& wanted, std::map<std::string, ArrayFile>* facts) {
    std::vector<int64_t> rows;
    rows.reserve(kRowsAtOnce);
    for (int64_t row = 0; row < limit; ++row) {
      if (wanted(row)) rows.push_back(row);
      if (static_cast<int64_t>(rows.size()) == kRowsAtOnce) SOK_RETURN_IF_ERROR(WritePiece(&rows));
    }
    SOK_RETURN_IF_ERROR(WritePiece(&rows));
    SOK_RETURN_IF_ERROR(ForEach([](Column& column) { return column.array->Finish(); }));
    for (Column& column : columns_) (*facts)[column.name] = column.array->array();
    return OkStatus();
  }

 private:
  struct Column {
    std::string name;
    std::unique_ptr<ArrayWriter> array;
    RowWriter write;
  };

  template <typename Work>
  Status ForEach(const Work& work) {
    return ForEachColumn(executor_, static_cast<int64_t>(columns_.size()),
                         [&](int64_t i) { return work(columns_[static_cast<size_t>(i)]); });
  }
  // Writes the rows, and leaves none.
  Status WritePiece(std::vector<int64_t>* rows) {
    SOK_RETURN_IF_ERROR(ForEach([rows](Column& column) {
      for (const int64_t row : *rows) SOK_RETURN_IF_ERROR(column.write(row, column.array.get()));
      return OkStatus();
    }));
    rows->clear();
    return OkStatus();
  }

  Executor& executor_;
  Files& files_;
  const std::string folder_;
  const int shard_;
  std::vector<Column> columns_;
};

class ShardWriter {
 public:
  ShardWriter(Executor& executor, Files& files, const std::string& folder, const Table& table, bool delta)
      : executor_(executor),
        files_(files),
        folder_(folder),
        table_(table),
        delta_(delta),
        rank_(table.options().rank),
        has_rows_(table.represents_rows()) {}

  StatusOr<SavedShard> Run() {
    const std::string own = folder_ + "/" + ShardFolder(rank_);
    SOK_RETURN_IF_ERROR(files_.MakeFolder(own));
    shard_.table_rows = has_rows_ ? table_.size() : 0;
    shard_.rows = CountRows();
    SOK_RETURN_IF_ERROR(WriteRows());
    if (table_.waiting() != nullptr) SOK_RETURN_IF_ERROR(WriteWaiting(*table_.waiting()));
    if (table_.bloom() != nullptr) SOK_RETURN_IF_ERROR(WriteBloom(*table_.bloom()));
    if (delta_) SOK_RETURN_IF_ERROR(WriteErased("deleted", table_.erased_keys()));
    if (Lags() && rank_ == 0) SOK_RETURN_IF_ERROR(WriteAlphas());
    SOK_RETURN_IF_ERROR(files_.SyncFolder(own));
    return std::move(shard_);
  }

 private:
  bool Written(int64_t row) const {
    return has_rows_ && table_.in_use(row) && (!delta_ || table_.changed(row));
  }
  bool Lags() const { return delta_ && table_.optimizer() != nullptr && table_.optimizer()->can_save_lag(); }

  int64_t CountRows() const {
    if (!delta_) return shard_.table_rows;
    int64_t rows = 0;
    for (int64_t row = 0; row < table_.row_limit(); ++row) rows += Written(row) ? 1 : 0;
    return rows;
  }

  Status WriteRows() {
    Columns columns(executor_, files_, folder_, rank_);
    SOK_RETURN_IF_ERROR(AddFloats(&columns));
    SOK_RETURN_IF_ERROR(AddUsage(&columns));
    return columns.Write(table_.row_limit(), [this](int64_t row) { return Written(row); }, &shard_.arrays);
  }

  Status AddFloats(Columns* columns) {
    SOK_RETURN_IF_ERROR(
        columns->AddNumbers("keys", shard_.rows, [this](int64_t row) { return table_.key(row); }));
    SOK_RETURN_IF_ERROR(AddSlot(columns, "values", 0, table_.options().dim));
    if (table_.optimizer() == nullptr) return OkStatus();
    int64_t first = table_.options().dim;
    const std::optional<SavedOptimizer> optimizer = OptimizerOf(table_, false);
    for (const SavedOptimizer::Slot& slot : optimizer->slots) {
      SOK_RETURN_IF_ERROR(AddSlot(columns, "slot-" + slot.name, first, slot.width));
      first += slot.width;
    }
    return OkStatus();
  }
  // The `width` floats from `first` on of each row's record.
  Status AddSlot(Columns* columns, const std::string& name, int64_t first, int64_t width) {
    return columns->Add(
        name, ArrayType{"<f4", {shard_.rows, width}}, [this, first, width](int64_t row, ArrayWriter* array) {
          return array->Write(table_.weights(row) + first, width * static_cast<int64_t>(sizeof(float)));
        });
  }

  Status AddUsage(Columns* columns) {
    const int64_t rows = shard_.rows;
    if (table_.has_frequency()) {
      SOK_RETURN_IF_ERROR(
          columns->AddNumbers("frequency", rows, [this](int64_t row) { return table_.frequency(row); }));
    }
    if (table_.has_last_step()) {
      SOK_RETURN_IF_ERROR(
          columns->AddNumbers("last_step", rows, [this](int64_t row) { return table_.last_step(row); }));
    }
    if (table_.has_last_used()) {
      SOK_RETURN_IF_ERROR(
          columns->AddNumbers("last_used", rows, [this](int64_t row) { return table_.last_used(row); }));
    }
    if (!Lags()) return OkStatus();
    return columns->Add("adam_step", ArrayType{"<u4", {rows}}, [this](int64_t row, ArrayWriter* array) {
      const uint32_t step = static_cast<uint32_t>(table_.optimizer()->last_current(row));
      return array->Write(&step, sizeof(step));
    });
  }

  Status WriteWaiting(const WaitingIds& waiting) {
    const auto written = [&](int64_t place) {
      return has_rows_ && waiting.in_use(place) && (!delta_ || waiting.changed(place));
    };
    int64_t count = 0;
    for (int64_t place = 0; place < waiting.limit(); ++place) count += written(place) ? 1 : 0;
    Columns columns(executor_, files_, folder_, rank_);
    SOK_RETURN_IF_ERROR(
        columns.AddNumbers("waiting_keys", count, [&](int64_t place) { return waiting.id(place); }));
    SOK_RETURN_IF_ERROR(
        columns.AddNumbers("waiting_counts", count, [&](int64_t place) { return waiting.count(place); }));
    SOK_RETURN_IF_ERROR(columns.AddNumbers("waiting_last_step", count,
                                           [&](int64_t place) { return waiting.last_step(place); }));
    SOK_RETURN_IF_ERROR(columns.Write(waiting.limit(), written, &shard_.arrays));
    return delta_ ? WriteErased("waiting_deleted", waiting.erased_ids()) : OkStatus();
  }

  Status WriteBytes(const std::string& name, const ArrayType& type, const void* data) {
    auto array = ArrayWriter::Create(files_, folder_, ArrayPath(rank_, name), type);
    SOK_RETURN_IF_ERROR(array.status());
    SOK_RETURN_IF_ERROR(array.value()->Write(data, DataBytes(type)));
    SOK_RETURN_IF_ERROR(array.value()->Finish());
    shard_.arrays[name] = array.value()->array();
    return OkStatus();
  }
  Status WriteErased(const std::string& name, const std::vector<int64_t>& ids) {
    const int64_t count = has_rows_ ? static_cast<int64_t>(ids.size()) : 0;
    return WriteBytes(name, ArrayType{"<i8", {count}}, ids.data());
  }
  Status WriteBloom(const BloomCounters& bloom) {
    const int bits = bloom.counter_bits();
    return WriteBytes("bloom_counters",
                      ArrayType{StrCat(bits == 8 ? "|u" : "<u", bits / 8), {bloom.counters()}},
                      bloom.bytes().data());
  }
  Status WriteAlphas() {
    const std::vector<float> alphas = table_.optimizer()->past_steps().alphas;
    return WriteBytes("alphas", ArrayType{"<f4", {static_cast<int64_t>(alphas.size())}}, alphas.data());
  }

  Executor& executor_;
  Files& files_;
  const std::string& folder_;
  const Table& table_;
  const bool delta_;
  const int rank_;
  const bool has_rows_;  // false for the replicas of other ranks than the first, whose arrays are empty
  SavedShard shard_;
};

}  // namespace

std::optional<SavedOptimizer> OptimizerOf(const Table& table, bool history) {
  const Optimizer* optimizer = table.optimizer();
  if (optimizer == nullptr) return std::nullopt;
  SavedOptimizer saved;
  saved.name = optimizer->name();
  saved.steps = optimizer->steps();
  const std::vector<std::string> hyper = optimizer->hyper_parameters();
  for (size_t i = 0; i < hyper.size(); ++i) {
    saved.hyper.emplace_back(hyper[i], table.first_hyper()[static_cast<int64_t>(i)]);
  }
  const std::vector<std::string> names = optimizer->slot_names();
  const std::vector<SlotSpec> slots = optimizer->Slots(table.options().dim, table.first_hyper());
  for (size_t i = 0; i < slots.size(); ++i) {
    saved.slots.push_back(SavedOptimizer::Slot{names[i], slots[i].width, slots[i].fill});
  }
  if (history && optimizer->can_save_lag()) {
    const PastSteps past = optimizer->past_steps();
    saved.history = SavedOptimizer::History{past.beta1, past.beta2, past.epsilon, past.first_step};
  }
  return saved;
}

StatusOr<SavedShard> WriteShard(Executor& executor, Files& files, const std::string& folder,
                                const Table& table, bool delta) {
  return ShardWriter(executor, files, folder, table, delta).Run();
}

}  // namespace sok
