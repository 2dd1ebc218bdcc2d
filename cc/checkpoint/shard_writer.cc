#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "cc/checkpoint/column_pieces.h"
#include "cc/checkpoint/written_tables.h"
#include "cc/cpu/optimizers/optimizer.h"
#include "cc/table/bloom_filter.h"

namespace sok {
namespace {

// Writes several arrays together, piece by piece. `Piece` is RowPiece or WaitingPiece.
template <typename Piece>
class Columns {
 public:
  // Arrays of `items` items of the shard whose entry is `shard`.
  Columns(Executor& executor, PartWriter* part, std::string shard, int64_t items)
      : executor_(executor), part_(*part), shard_(std::move(shard)), items_(items) {}

  void AddNumbers(const std::string& name, Span<const int64_t> Piece::* numbers) {
    Add(name, ArrayType{"<i8", {items_}}, [numbers](const Piece& piece, ArrayWriter* array) {
      const Span<const int64_t> values = piece.*numbers;
      return array->Write(values.data(), values.size() * static_cast<int64_t>(sizeof(int64_t)));
    });
  }
  // The same as uint32.
  void AddSmallNumbers(const std::string& name, Span<const int64_t> Piece::* numbers) {
    Add(name, ArrayType{"<u4", {items_}}, [numbers](const Piece& piece, ArrayWriter* array) {
      const Span<const int64_t> values = piece.*numbers;
      const std::vector<uint32_t> small(values.begin(), values.end());
      return array->Write(small.data(), static_cast<int64_t>(small.size() * sizeof(uint32_t)));
    });
  }
  // The `width` floats from `first` on of each row's record, as numbers of `type`.
  void AddFloats(const std::string& name, FloatType type, int64_t first, int64_t width) {
    Add(name, ArrayType{DtypeOf(type), {items_, width}},
        [first, width](const Piece& piece, ArrayWriter* array) {
          return array->WriteFromEach(piece.records, first, width);
        });
  }

  Status Write(const Piece& piece) {
    // What earlier tables left is written beside the work for this one.
    return ForEachColumn(executor_, 1 + static_cast<int64_t>(columns_.size()), ItemsOf(piece),
                         [&](int64_t i) {
                           if (i == 0) return part_.WriteComplete();
                           Column& column = columns_[static_cast<size_t>(i - 1)];
                           return column.write(piece, column.array.get());
                         });
  }
  // Completes the arrays, and adds them to *arrays.
  Status Finish(std::map<std::string, PlacedArray>* arrays) {
    for (Column& column : columns_) {
      SOK_RETURN_IF_ERROR(column.array->Finish());
      (*arrays)[column.name].array = column.array->array();
    }
    return OkStatus();
  }

 private:
  using PieceWriter = std::function<Status(const Piece& piece, ArrayWriter* array)>;
  struct Column {
    std::string name;
    std::unique_ptr<ArrayWriter> array;
    PieceWriter write;
  };

  void Add(const std::string& name, const ArrayType& type, PieceWriter write) {
    columns_.push_back(Column{name, part_.NewArray(shard_ + "/" + name, type), std::move(write)});
  }
  static int64_t ItemsOf(const RowPiece& piece) { return piece.keys.size(); }
  static int64_t ItemsOf(const WaitingPiece& piece) { return piece.ids.size(); }

  Executor& executor_;
  PartWriter& part_;
  const std::string shard_;
  const int64_t items_;
  std::vector<Column> columns_;
};

class ShardWriter {
 public:
  ShardWriter(Executor& executor, PartWriter* part, const std::string& name, HeldTable* table, bool delta,
              bool apart)
      : executor_(executor),
        part_(*part),
        name_(ShardEntry(name, table->options().rank)),
        table_(*table),
        state_(table->state()),
        delta_(delta),
        apart_(apart),
        rank_(table->options().rank),
        has_rows_(table->options().placement.represents(rank_)) {}

  StatusOr<SavedShard> Run() {
    shard_.steps = state_.clock.steps;
    if (apart_) SOK_RETURN_IF_ERROR(AddOwnState());
    SOK_RETURN_IF_ERROR(WriteRows());
    SOK_RETURN_IF_ERROR(WriteAdmission());
    if (delta_) SOK_RETURN_IF_ERROR(WriteErased());
    if (Lags() && rank_ == 0) SOK_RETURN_IF_ERROR(WriteAlphas());
    if (!delta_ && rank_ == 0) SOK_RETURN_IF_ERROR(WriteInitialRows());
    return std::move(shard_);
  }

 private:
  RowSet Written() const { return delta_ ? RowSet::kChanged : RowSet::kAll; }
  bool Lags() const { return delta_ && !apart_ && state_.parts.last_current; }

  // What ranks have in common unless they are apart.
  Status AddOwnState() {
    shard_.uses = state_.clock.uses;
    SOK_ASSIGN_OR_RETURN(shard_.optimizer, SavedOptimizerOf(&table_, /*history=*/false));
    return OkStatus();
  }

  Status WriteRows() {
    if (has_rows_) {
      SOK_ASSIGN_OR_RETURN(shard_.rows, table_.CountRows(Written()));
      shard_.table_rows = state_.rows;
    }
    Columns<RowPiece> columns(executor_, &part_, name_, shard_.rows);
    columns.AddNumbers("keys", &RowPiece::keys);
    SOK_RETURN_IF_ERROR(AddFloats(&columns));
    AddUsage(&columns);
    RowsToRead what;
    what.set = Written();
    what.parts = state_.parts;
    what.parts.last_current = Lags();
    if (has_rows_) {
      SOK_RETURN_IF_ERROR(table_.ReadRows(what, [&](const RowPiece& piece) { return columns.Write(piece); }));
    }
    return columns.Finish(&shard_.arrays);
  }

  Status AddFloats(Columns<RowPiece>* columns) {
    int64_t first = table_.options().dim;
    columns->AddFloats("values", table_.options().record.weights, 0, first);
    SOK_ASSIGN_OR_RETURN(const auto optimizer, SavedOptimizerOf(&table_, /*history=*/false));
    if (!optimizer.has_value()) return OkStatus();
    for (const SavedOptimizer::Slot& slot : optimizer->slots) {
      columns->AddFloats("slot-" + slot.name, slot.type, first, slot.width);
      first += slot.width;
    }
    return OkStatus();
  }

  void AddUsage(Columns<RowPiece>* columns) {
    const RowParts& kept = state_.parts;
    if (kept.frequency) columns->AddNumbers("frequency", &RowPiece::frequency);
    if (kept.last_step) columns->AddNumbers("last_step", &RowPiece::last_step);
    if (kept.last_used) columns->AddNumbers("last_used", &RowPiece::last_used);
    if (Lags()) columns->AddSmallNumbers("adam_step", &RowPiece::last_current);
  }

  Status WriteAdmission() {
    switch (table_.options().admission.kind) {
      case Admission::Kind::kNone:
        return OkStatus();
      case Admission::Kind::kCounter:
        return WriteWaiting();
      case Admission::Kind::kBloom:
        return WriteBloom();
    }
    return OkStatus();
  }

  Status WriteWaiting() {
    SOK_ASSIGN_OR_RETURN(const int64_t count,
                         has_rows_ ? table_.CountWaiting(Written()) : StatusOr<int64_t>(0));
    Columns<WaitingPiece> columns(executor_, &part_, name_, count);
    columns.AddNumbers("waiting_keys", &WaitingPiece::ids);
    columns.AddNumbers("waiting_counts", &WaitingPiece::counts);
    columns.AddNumbers("waiting_last_step", &WaitingPiece::last_steps);
    if (has_rows_) {
      SOK_RETURN_IF_ERROR(
          table_.ReadWaiting(Written(), [&](const WaitingPiece& piece) { return columns.Write(piece); }));
    }
    SOK_RETURN_IF_ERROR(columns.Finish(&shard_.arrays));
    if (!delta_) return OkStatus();
    std::vector<int64_t> erased;
    if (has_rows_) SOK_RETURN_IF_ERROR(table_.ErasedWaiting(&erased));
    return WriteWhole("waiting_deleted", "<i8", erased);
  }

  Status WriteBloom() {
    const Admission& admission = table_.options().admission;
    const BloomShape shape = BloomShape::Of(admission.max_element_size, admission.false_positive_probability);
    const int bits = admission.counter_bits;
    return BloomShape::IsInBlocks(shape, bits) ? WriteCounterBlocks(bits)
                                               : WriteAllCounters(shape.counters, bits);
  }
  Status WriteAllCounters(int64_t counters, int bits) {
    std::vector<char> all(static_cast<size_t>(BloomShape::BlocksOf(counters, bits) * kBloomBlockBytes));
    SOK_RETURN_IF_ERROR(table_.ReadBloom([&](Span<const int64_t> blocks, Span<const char> bytes) {
      for (int64_t i = 0; i < blocks.size(); ++i) {
        std::copy_n(bytes.data() + i * kBloomBlockBytes, kBloomBlockBytes,
                    all.begin() + blocks[i] * kBloomBlockBytes);
      }
      return OkStatus();
    }));
    const ArrayType type{CounterDtype(bits), {counters}};
    return WriteArray("bloom_counters", type,
                      [&](ArrayWriter* array) { return array->Write(all.data(), DataBytes(type)); });
  }
  // The table is read twice: an array's length is written before its contents.
  Status WriteCounterBlocks(int bits) {
    int64_t count = 0;
    SOK_RETURN_IF_ERROR(table_.ReadBloom([&](Span<const int64_t> blocks, Span<const char>) {
      count += blocks.size();
      return OkStatus();
    }));
    const ArrayType numbers{"<i8", {count}};
    const ArrayType counters{CounterDtype(bits), {count, BloomShape::CountersPerBlock(bits)}};
    return WriteArray("bloom_blocks", numbers, [&](ArrayWriter* to_numbers) {
      return WriteArray("bloom_counters", counters, [&](ArrayWriter* to_counters) {
        return table_.ReadBloom([&](Span<const int64_t> blocks, Span<const char> bytes) {
          SOK_RETURN_IF_ERROR(
              to_numbers->Write(blocks.data(), blocks.size() * static_cast<int64_t>(sizeof(int64_t))));
          return to_counters->Write(bytes.data(), bytes.size());
        });
      });
    });
  }
  Status WriteErased() {
    std::vector<int64_t> erased;
    if (has_rows_) SOK_RETURN_IF_ERROR(table_.ErasedKeys(&erased));
    return WriteWhole("deleted", "<i8", erased);
  }
  Status WriteAlphas() {
    PastSteps past;
    SOK_RETURN_IF_ERROR(table_.ReadPastSteps(&past));
    return WriteWhole("alphas", "<f4", past.alphas);
  }

  Status WriteInitialRows() {
    const TableOptions& options = table_.options();
    if (options.initializer.kind != InitializerKind::kGiven) return OkStatus();
    const ArrayType type{DtypeOf(options.record.weights),
                         {static_cast<int64_t>(options.initializer.rows), options.dim}};
    return WriteArray("initial_rows", type, [&](ArrayWriter* array) {
      const float* row = options.initial_rows.data();
      for (int64_t left = type.shape[0]; left > 0; --left, row += options.dim) {
        SOK_RETURN_IF_ERROR(array->WriteFromEach({&row, 1}, 0, options.dim));
      }
      return OkStatus();
    });
  }

  template <typename T>
  Status WriteWhole(const std::string& name, const char* dtype, const std::vector<T>& values) {
    const ArrayType type{dtype, {static_cast<int64_t>(values.size())}};
    return WriteArray(name, type,
                      [&](ArrayWriter* array) { return array->Write(values.data(), DataBytes(type)); });
  }
  // An array that write(array) fills.
  template <typename Write>
  Status WriteArray(const std::string& name, const ArrayType& type, const Write& write) {
    const auto array = part_.NewArray(name_ + "/" + name, type);
    SOK_RETURN_IF_ERROR(write(array.get()));
    SOK_RETURN_IF_ERROR(array->Finish());
    shard_.arrays[name].array = array->array();
    return OkStatus();
  }

  Executor& executor_;
  PartWriter& part_;
  const std::string name_;  // the shard's entry
  HeldTable& table_;
  const HeldState state_;
  const bool delta_;
  const bool apart_;
  const int rank_;
  const bool has_rows_;  // false for replicas on ranks other than 0, whose arrays are empty
  SavedShard shard_;
};

}  // namespace

StatusOr<std::optional<SavedOptimizer>> SavedOptimizerOf(HeldTable* table, bool history) {
  const HeldState state = table->state();
  if (!state.optimizer.has_value()) return std::optional<SavedOptimizer>();
  const std::vector<float>& first_hyper = state.optimizer->first_hyper;
  SOK_ASSIGN_OR_RETURN(const auto made, MakeOptimizer(state.optimizer->name));
  const Optimizer& optimizer = *made;
  SavedOptimizer saved;
  saved.name = state.optimizer->name;
  saved.steps = state.optimizer->steps;
  const std::vector<std::string> hyper = optimizer.hyper_parameters();
  for (size_t i = 0; i < hyper.size(); ++i) saved.hyper.emplace_back(hyper[i], first_hyper[i]);
  const std::vector<std::string> names = optimizer.slot_names();
  const std::vector<SlotSpec> slots = optimizer.Slots(table->options().dim, first_hyper);
  for (size_t i = 0; i < slots.size(); ++i) {
    const FloatType type = slots[i].one_per_row ? FloatType::kFloat32 : table->options().record.slots;
    saved.slots.push_back(SavedOptimizer::Slot{names[i], slots[i].width, slots[i].fill, type});
  }
  if (history && optimizer.can_save_lag()) {
    PastSteps past;
    SOK_RETURN_IF_ERROR(table->ReadPastSteps(&past));
    saved.history = SavedOptimizer::History{past.beta1, past.beta2, past.epsilon, past.first_step};
  }
  return std::optional<SavedOptimizer>(std::move(saved));
}

StatusOr<SavedShard> WriteShard(Executor& executor, PartWriter* part, const std::string& name,
                                HeldTable* table, bool delta, bool apart) {
  return ShardWriter(executor, part, name, table, delta, apart).Run();
}

}  // namespace sok
