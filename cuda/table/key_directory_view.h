// A kernel's view of a table's keys and rows.
#ifndef SOK_CUDA_TABLE_KEY_DIRECTORY_VIEW_H_
#define SOK_CUDA_TABLE_KEY_DIRECTORY_VIEW_H_

#include <cstdint>

#include "cc/base/host_device.h"
#include "cc/table/row_reference.h"
#include "cuda/index/key_index_view.h"

namespace sok {

// The state of a row: whether a key has it, and how often it has been freed (its generation).
constexpr uint32_t kRowInUse = uint32_t{1} << 31;
constexpr uint32_t kGenerationMask = (uint32_t{1} << 23) - 1;

SOK_HOST_DEVICE bool IsInUse(uint32_t state) { return (state & kRowInUse) != 0; }
// The state of a freed row, from its state before.
SOK_HOST_DEVICE uint32_t FreedState(uint32_t state) { return NextGeneration(state & kGenerationMask); }
// The reference that a lookup passes to its gradient: cc/table/row_reference.h.
SOK_HOST_DEVICE int64_t ReferenceTo(int64_t row, uint32_t state) {
  return MakeRowReference(row, state & kGenerationMask);
}
// Whether the row of `reference`, which has this state, still belongs to the key that it had.
SOK_HOST_DEVICE bool IsCurrentReference(int64_t reference, uint32_t state) {
  return IsInUse(state) && ReferenceTo(RowOf(reference), state) == reference;
}

// Pointers to device memory, valid until the directory next makes room.
struct KeyDirectoryView {
  KeyIndexView index;
  int64_t* keys = nullptr;       // [rows]: the key of a row in use
  uint32_t* states = nullptr;    // [rows]
  int64_t* free_rows = nullptr;  // a stack, its top at the end
};

}  // namespace sok

#endif  // SOK_CUDA_TABLE_KEY_DIRECTORY_VIEW_H_
