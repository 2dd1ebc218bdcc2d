#ifndef SOK_CC_STORE_ROW_STORE_H_
#define SOK_CC_STORE_ROW_STORE_H_

#include <cstdint>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/store/slabs.h"

namespace sok {

// An optimizer's numbers in a row's record: `width` floats, `fill` in a row that has not been trained.
struct SlotSpec {
  int64_t width;
  float fill;
};

// The rows of a table: one record of floats per row, [weights | slot 0 | slot 1 ...], the slots right behind
// the weights, so that a step of an optimizer touches one place in memory.
//
// Row numbers say where a row lies and stay valid for the store's life; pointers stay valid until SetSlots.
// Records are zero until they are written. Which rows are in use is the caller's business.
//
// Thread safety: const members and writes to different rows may run at the same time; Reserve and SetSlots
// need the store for themselves. Move-only.
class RowStore {
 public:
  // Rows of `dim` >= 1 weights and no slots.
  explicit RowStore(int64_t dim);

  // Makes rows [0, rows) addressable; new ones have zero weights and zero slots. ResourceExhausted where
  // memory does not suffice; the store is then as it was. Moves no row.
  Status Reserve(int64_t rows);

  // Gives every row these slots instead of those it has. Weights stay bit for bit; slots of all rows get
  // their fills. Needs memory for one slab beside the table. InvalidArgument for a width below 1;
  // ResourceExhausted where memory does not suffice; the store is then as it was. Invalidates pointers.
  Status SetSlots(Span<const SlotSpec> slots);

  // Writes the fills into the slots of a row, as for a row newly handed out.
  void FillSlots(int64_t row);

  // The dim() weights of a row; the slots of the row follow.
  float* weights(int64_t row) { return reinterpret_cast<float*>(slabs_.at(row)); }
  const float* weights(int64_t row) const { return reinterpret_cast<const float*>(slabs_.at(row)); }
  // The floats of slot `k` of a row.
  float* slot(int64_t row, int k) { return weights(row) + slot_offsets_[k]; }
  const float* slot(int64_t row, int k) const { return weights(row) + slot_offsets_[k]; }

  int64_t dim() const { return dim_; }
  int num_slots() const { return static_cast<int>(slots_.size()); }
  const SlotSpec& slot_spec(int k) const { return slots_[k]; }
  // Floats from one record to the next of the same slab.
  int64_t stride() const { return stride_; }
  // Rows that are addressable.
  int64_t rows() const { return slabs_.size(); }
  // Bytes of the addressable rows; those never touched take no memory yet.
  int64_t bytes() const { return slabs_.bytes(); }

 private:
  int64_t dim_;
  int64_t stride_;
  std::vector<SlotSpec> slots_;
  std::vector<int64_t> slot_offsets_;  // floats from the record's begin
  Slabs slabs_;
};

}  // namespace sok

#endif  // SOK_CC_STORE_ROW_STORE_H_
