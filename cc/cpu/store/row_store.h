#ifndef SOK_CC_CPU_STORE_ROW_STORE_H_
#define SOK_CC_CPU_STORE_ROW_STORE_H_

#include <cstdint>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/cpu/store/slabs.h"
#include "cc/optimizers/rule_info.h"
#include "cc/table/record_layout.h"

namespace sok {

// The rows of a table: one record per row, [weights | slot 0 | slot 1 ...]. The slots follow the weights
// directly, so that an optimizer step touches one place in memory. Records are floats, or keep some numbers
// in 16 bits: see RecordLayout.
//
// A row number stays valid for the store's lifetime; a pointer to a row stays valid until SetSlots. Records
// are zero until they are written. The caller keeps track of which rows are in use.
//
// Thread safety: const members and writes to different rows may run at the same time; Reserve and SetSlots
// need exclusive access. Move-only.
class RowStore {
 public:
  // Rows of `dim` >= 1 weights and no slots.
  explicit RowStore(int64_t dim, const RecordFormat& format = {});

  // Makes rows [0, rows) addressable; new ones have zero weights and zero slots. Moves no row.
  // ResourceExhausted if memory runs out; the store is then unchanged.
  Status Reserve(int64_t rows);

  // Makes the rows [0, rows) of a store without rows and slots addressable, with the weights of an array
  // float32 [rows, dim]. For records of floats only. Errors are those of Slabs::ReserveWith.
  Status ReserveWith(int64_t rows, PlaceBytes place);

  // Replaces the slots of every row by these, filled with their `fill`. Weights stay bit for bit. Rows need
  // their keys anew: SetKey. Needs
  // memory for one slab in addition to the table. InvalidArgument for a width below 1; ResourceExhausted if
  // memory runs out; the store is then unchanged. Invalidates pointers.
  Status SetSlots(Span<const SlotSpec> slots);

  // Writes the fills into the slots of a row, as for a new row.
  void FillSlots(int64_t row);

  // Tells a row its key, from which stochastic rounding takes its random bits.
  void SetKey(int64_t row, int64_t key) { layout_.SetKey(key, record(row)); }

  // The number of the step that is being taken: see RecordLayout::WriteStep.
  void BeginStep(int64_t step) { step_ = step; }
  int64_t step() const { return step_; }

  const RecordLayout& layout() const { return layout_; }
  // A record: to be read and written as layout() says.
  char* record(int64_t row) { return slabs_.at(row); }
  const char* record(int64_t row) const { return slabs_.at(row); }

  // For records of floats: the dim() weights of a row; its slots follow.
  float* weights(int64_t row) { return reinterpret_cast<float*>(slabs_.at(row)); }
  const float* weights(int64_t row) const { return reinterpret_cast<const float*>(slabs_.at(row)); }
  // The floats of slot `k` of a row.
  float* slot(int64_t row, int k) { return weights(row) + slot_offsets_[k]; }
  const float* slot(int64_t row, int k) const { return weights(row) + slot_offsets_[k]; }

  int64_t dim() const { return dim_; }
  int num_slots() const { return static_cast<int>(slots_.size()); }
  const SlotSpec& slot_spec(int k) const { return slots_[k]; }
  // From one record to the next in a slab, in units of a float.
  int64_t stride() const { return stride_; }
  // Addressable rows.
  int64_t rows() const { return slabs_.size(); }
  // Bytes of the addressable rows; rows that were never touched take no physical memory yet.
  int64_t bytes() const { return slabs_.bytes(); }

 private:
  int64_t dim_;
  RecordLayout layout_;
  int64_t step_ = 0;
  int64_t stride_;
  std::vector<SlotSpec> slots_;
  std::vector<int64_t> slot_offsets_;  // in floats, from the start of the record
  Slabs slabs_;
};

}  // namespace sok

#endif  // SOK_CC_CPU_STORE_ROW_STORE_H_
