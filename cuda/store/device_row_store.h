// The rows of a table, in memory that kernels reach.
#ifndef SOK_CUDA_STORE_DEVICE_ROW_STORE_H_
#define SOK_CUDA_STORE_DEVICE_ROW_STORE_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/function_ref.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/initializers/initializer.h"
#include "cc/optimizers/rule_info.h"
#include "cc/table/record_layout.h"
#include "cc/table/tier_options.h"
#include "cuda/base/device_buffer.h"
#include "cuda/store/device_slabs.h"
#include "cuda/store/device_tiers.h"
#include "cuda/store/row_pieces.h"
#include "cuda/store/row_store_view.h"

namespace sok {

// One record per row, [weights | slot 0 | slot 1 ...], like RowStore on the CPU: of floats, or with some
// numbers in 16 bits (RecordLayout). The contents of a record are undefined until it is written: StartRows
// gives new rows their initial values.
//
// Records are in slabs from the first allocator: device memory, or pinned host memory, which kernels reach
// over the bus. With tiers, the first allocator is of host memory, and some records are in the device's.
// Order of work, thread safety and lifetimes are as for DeviceSlabs. Move-only.
class DeviceRowStore {
 public:
  // Rows of `dim` >= 1 weights and no slots, in slabs of at most `slab_bytes`, or one row.
  DeviceRowStore(int64_t dim, DeviceAllocator* rows, DeviceAllocator* device,
                 int64_t slab_bytes = DeviceSlabs::kSlabBytes, const RecordFormat& format = {},
                 const TierOptions& tiers = {});

  // Puts a disk below host memory, before any row is reserved, if the tiers have one. Errors are those of
  // TierDisk::Create.
  Status AddDisk() { return records_.tiers == nullptr ? OkStatus() : records_.tiers->AddDisk(); }

  // Makes rows [0, rows) addressable. Never shrinks. ResourceExhausted if memory runs out; the store is then
  // unchanged.
  Status Reserve(cudaStream_t stream, int64_t rows) { return records_.Reserve(stream, rows); }

  // Replaces the slots by these, filled with their `fill` in the rows [0, rows). The weights of these rows
  // stay bit for bit; the contents of other rows are lost. Rows need their keys anew (WriteStream of
  // record_numbers.h), for which write_keys(view, rows) is called on pieces of them. Needs memory for a
  // second table, and with a disk only disk. InvalidArgument for a width below 1; ResourceExhausted if memory
  // runs out; those of TierDisk. After an error the store is unchanged.
  using WriteKeys = FunctionRef<Status(const RowStoreView& view, const RowList& rows)>;
  Status SetSlots(cudaStream_t stream, Span<const SlotSpec> slots, int64_t rows, WriteKeys write_keys);
  // The same for rows without keys.
  Status SetSlots(cudaStream_t stream, Span<const SlotSpec> slots, int64_t rows) {
    return SetSlots(stream, slots, rows, [](const RowStoreView&, const RowList&) { return OkStatus(); });
  }

  // At most `rows`, or fewer: how many rows to bring from the disk at once.
  int64_t PieceOf(int64_t rows) const { return records_.PieceOf(rows); }
  // Calls visit(piece) on all rows [0, rows), so that kernels may use the records of a piece: at once or,
  // with a disk, `most` at a time. Each piece is a call of the disk.
  Status ForEachPiece(cudaStream_t stream, int64_t rows, int64_t most, DiskUse use,
                      FunctionRef<Status(const RowList& piece)> visit);

  RowStoreView view() const;

  int64_t dim() const { return dim_; }
  int num_slots() const { return static_cast<int>(slots_.size()); }
  const SlotSpec& slot_spec(int k) const { return slots_[k]; }
  // Where slot `k` starts among the numbers of a record.
  int64_t slot_offset(int k) const { return slot_offsets_[k]; }
  const RecordLayout& layout() const { return layout_; }
  int64_t width() const { return layout_.floats(); }  // numbers of weights and slots
  int64_t record_bytes() const { return records_.slabs.record_bytes(); }
  int64_t rows() const { return records_.size(); }  // addressable
  int64_t bytes() const { return records_.bytes() + fills_.bytes(); }
  // Null unless the table has tiers.
  DeviceTiers* tiers() const { return records_.tiers.get(); }
  // Null without a disk below them.
  TierDisk* disk() const { return records_.disk(); }

 private:
  // Of one layout: in slabs, or in tiers if there are some.
  struct Records {
    DeviceSlabs slabs;
    std::unique_ptr<DeviceTiers> tiers;

    Status Reserve(cudaStream_t stream, int64_t rows) {
      return tiers == nullptr ? slabs.Reserve(stream, rows) : tiers->Reserve(stream, rows);
    }
    TierDisk* disk() const { return tiers == nullptr ? nullptr : tiers->disk(); }
    int64_t PieceOf(int64_t rows) const;
    SlabsView view() const { return tiers == nullptr ? slabs.view() : tiers->records(); }
    int64_t size() const { return tiers == nullptr ? slabs.size() : tiers->rows(); }
    int64_t bytes() const { return tiers == nullptr ? slabs.bytes() : tiers->bytes(); }
    void set_stream(cudaStream_t stream) {
      tiers == nullptr ? slabs.set_stream(stream) : tiers->set_stream(stream);
    }
  };
  Records MakeRecords(const RecordLayout& layout) const;
  // SetSlots, of the rows of a piece.
  Status MoveRows(cudaStream_t stream, const RowStoreView& to, const RecordLayout& layout,
                  const RowList& piece) const;

  int64_t dim_;
  RecordLayout layout_;
  std::vector<SlotSpec> slots_;
  std::vector<int64_t> slot_offsets_;
  DeviceAllocator* row_allocator_;
  DeviceAllocator* device_allocator_;
  int64_t slab_bytes_;
  TierOptions tier_options_;
  Records records_;
  DeviceBuffer<float> fills_;  // of all slots, one after another
};

// Gives the records of n rows of a table their initial contents: the record of rows[i] gets the initial
// weights of keys[i], as FillRow does on the CPU, and its slots are filled. `seed` is that of the records'
// format. Rows are distinct; negative ones are skipped. One kernel; Internal if it cannot be launched.
Status StartRows(cudaStream_t stream, const RowStoreView& store, const Initializer& initializer,
                 uint64_t seed, const int64_t* keys, const int64_t* rows, int64_t n);

}  // namespace sok

#endif  // SOK_CUDA_STORE_DEVICE_ROW_STORE_H_
