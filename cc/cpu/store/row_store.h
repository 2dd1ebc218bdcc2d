#ifndef SOK_CC_CPU_STORE_ROW_STORE_H_
#define SOK_CC_CPU_STORE_ROW_STORE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/executor.h"
#include "cc/base/function_ref.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/cpu/store/row_tiers.h"
#include "cc/cpu/store/slabs.h"
#include "cc/optimizers/rule_info.h"
#include "cc/table/record_layout.h"
#include "cc/table/tier_options.h"

namespace sok {

// The rows of a table: one record per row, [weights | slot 0 | slot 1 ...]. The slots follow the weights
// directly, so that an optimizer step touches one place in memory. Records are floats, or keep some numbers
// in 16 bits: see RecordLayout.
//
// A row number stays valid for the store's lifetime; a pointer to a row stays valid until SetSlots. Records
// are zero until they are written. The caller keeps track of which rows are in use.
//
// With a disk below memory (TierOptions), a row is accessible and its pointer valid only from a BringUp of
// the row until the next BeginCall. Without, these do nothing.
//
// Thread safety: const members and writes to different rows may run at the same time; Reserve, SetSlots,
// BeginCall, BringUp, AskAhead and Forget need exclusive access. Move-only.
class RowStore {
 public:
  // Rows of `dim` >= 1 weights and no slots.
  explicit RowStore(int64_t dim, const RecordFormat& format = {});

  // Puts a disk below memory, before any row is reserved. Errors are those of RowTiers::Create.
  Status AddDisk(const TierOptions& options);
  const RowTiers* tiers() const { return tiers_.get(); }
  void BeginCall() {
    if (tiers_ != nullptr) tiers_->BeginCall();
  }
  // Makes rows accessible; negative numbers are no rows. Errors are those of RowTiers::BringUp.
  Status BringUp(Executor& executor, Span<const int64_t> rows, RowUse use) {
    return tiers_ == nullptr ? OkStatus() : tiers_->BringUp(executor, rows, use, &slabs_);
  }
  // Asks for rows that a BringUp will need soon: RowTiers::AskAhead.
  void AskAhead(Executor& executor, Span<const int64_t> rows) {
    if (tiers_ != nullptr) tiers_->AskAhead(executor, rows);
  }
  // Makes the next BringUp of `rows` new rows unable to fail.
  Status MakeRoom(Executor& executor, int64_t rows) {
    return tiers_ == nullptr ? OkStatus() : tiers_->FreeFrames(executor, rows, &slabs_);
  }
  // A row is no longer in use.
  void Forget(int64_t row) {
    if (tiers_ != nullptr) tiers_->Forget(row);
  }
  // At most `rows`, or fewer: how many rows to bring up at once.
  int64_t PieceOf(int64_t rows) const { return tiers_ == nullptr ? rows : std::min(rows, tiers_->limit()); }

  // Makes rows [0, rows) addressable; new ones have zero weights and zero slots. Moves no row.
  // ResourceExhausted if memory runs out; the store is then unchanged.
  Status Reserve(int64_t rows);

  // Makes the rows [0, rows) of a store without rows and slots addressable, with the weights of an array
  // float32 [rows, dim]. For records of floats only. Errors are those of Slabs::ReserveWith.
  Status ReserveWith(int64_t rows, PlaceBytes place);

  // Replaces the slots of every row by these, filled with their `fill`. Weights stay bit for bit. key(row) is
  // the row's key, for SetKey. Needs memory for one slab in addition to the table, and with a disk memory
  // and disk for all rows. InvalidArgument for a width below 1; ResourceExhausted if memory runs out; the
  // store is then unchanged. Invalidates pointers.
  Status SetSlots(Span<const SlotSpec> slots, Executor& executor, FunctionRef<int64_t(int64_t row)> key);
  // The same for rows whose records have no keys.
  Status SetSlots(Span<const SlotSpec> slots) {
    InlineExecutor executor;
    return SetSlots(slots, executor, [](int64_t /*row*/) { return int64_t{0}; });
  }

  // Writes the fills into the slots of a row, as for a new row.
  void FillSlots(int64_t row);

  // Tells a row its key, from which stochastic rounding takes its random bits.
  void SetKey(int64_t row, int64_t key) { layout_.SetKey(key, record(row)); }

  // The number of the step that is being taken: see RecordLayout::WriteStep.
  void BeginStep(int64_t step) { step_ = step; }
  int64_t step() const { return step_; }

  const RecordLayout& layout() const { return layout_; }
  // A record: to be read and written as layout() says.
  char* record(int64_t row) { return slabs_.at(NumberOf(row)); }
  const char* record(int64_t row) const { return slabs_.at(NumberOf(row)); }

  // For records of floats: the dim() weights of a row; its slots follow.
  float* weights(int64_t row) { return reinterpret_cast<float*>(record(row)); }
  const float* weights(int64_t row) const { return reinterpret_cast<const float*>(record(row)); }
  // The floats of slot `k` of a row.
  float* slot(int64_t row, int k) { return weights(row) + slot_offsets_[k]; }
  const float* slot(int64_t row, int k) const { return weights(row) + slot_offsets_[k]; }

  int64_t dim() const { return dim_; }
  int num_slots() const { return static_cast<int>(slots_.size()); }
  const SlotSpec& slot_spec(int k) const { return slots_[k]; }
  // From one record to the next in a slab, in units of a float.
  int64_t stride() const { return stride_; }
  // Addressable rows.
  int64_t rows() const { return tiers_ == nullptr ? slabs_.size() : tiers_->rows(); }
  // Bytes of memory of the addressable rows; rows that were never touched take no physical memory yet.
  int64_t bytes() const { return slabs_.bytes() + (tiers_ == nullptr ? 0 : tiers_->bytes()); }

 private:
  // The number of a row's record in slabs_.
  int64_t NumberOf(int64_t row) const { return tiers_ == nullptr ? row : tiers_->frame(row); }
  // Moves all rows to the slabs or tiers of a store with other slots.
  Status MoveRows(Executor& executor, FunctionRef<int64_t(int64_t row)> key, RowStore* to);

  int64_t dim_;
  RecordLayout layout_;
  int64_t step_ = 0;
  int64_t stride_;
  std::vector<SlotSpec> slots_;
  std::vector<int64_t> slot_offsets_;  // in floats, from the start of the record
  Slabs slabs_;                        // records of all rows, or with tiers_ the frames
  TierOptions tier_options_;
  std::unique_ptr<RowTiers> tiers_;  // null without a disk
};

}  // namespace sok

#endif  // SOK_CC_CPU_STORE_ROW_STORE_H_
