// Tables larger than device memory: which records are there, and which in the host's memory.
#ifndef SOK_CUDA_STORE_DEVICE_TIERS_H_
#define SOK_CUDA_STORE_DEVICE_TIERS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/table/tier_options.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/growing_array.h"
#include "cuda/base/transfers.h"
#include "cuda/store/device_slabs.h"
#include "cuda/store/row_pieces.h"
#include "cuda/store/tier_disk.h"

namespace sok {

// What is counted on the device, and where the clock's hand is: see BringUp.
enum TierWord { kHandOfEvenCalls, kHandOfOddCalls, kTierHits, kTierMisses, kBytesMoved, kNumTierWords };

struct RowsOnDisk;

// Pointers to device memory, for kernels that are enqueued on the stream before the next Reserve.
struct TiersView {
  char** addresses = nullptr;       // [rows]: of the rows' records; null: it is on disk
  int32_t* frame_of_row = nullptr;  // [rows]; negative: the record is in host memory
  int64_t* row_of_frame = nullptr;  // [frames]
  uint32_t* uses = nullptr;         // [frames]: call << kUseBits | uses
  int64_t* words = nullptr;         // [kNumTierWords]
  int64_t frames = 0;
  int64_t record_bytes = 0;
  bool by_frequency = false;
  uint32_t disk_call = 0;  // of TierDisk; 0: there is no disk
};

// Records of a fixed size, numbered by row from 0, the content of fresh ones undefined. The first ones are in
// frames of device memory, as many as it has room for, and the others in pinned host memory, which kernels
// reach over the bus. So kernels find every record by its address, and which records are on the device
// changes how long they wait but nothing else: BringUp exchanges records, and what it leaves in host memory
// is read there.
//
// With a disk, host memory has a limit too, and the other records are in a file. Kernels must not touch these
// before a BringFromDisk.
//
// A row takes 12 to 18 bytes of device memory beside its record, a frame as many again. Memory of records
// comes from two allocators, all else from the device's. All work is in the order of one stream, or of
// streams that wait for each other. One thread at a time. Not copyable.
class DeviceTiers {
 public:
  // `record_bytes` is a multiple of 16. Frames take at most options.memory_bytes, but there is at least one.
  DeviceTiers(const TierOptions& options, int64_t record_bytes, DeviceAllocator* device,
              DeviceAllocator* host, int64_t slab_bytes);

  // Puts a disk below host memory, before any row is reserved, if the options have one. Errors are those of
  // TierDisk::Create.
  Status AddDisk();
  // Null without a disk.
  TierDisk* disk() const { return disk_.get(); }
  // How many of `new_rows` new rows may have no place in memory, if all rows are below `rows` then.
  int64_t SpareFor(int64_t new_rows, int64_t rows) const {
    if (disk_ == nullptr) return 0;
    return rows > limit_ + disk_->limit() || disk_->has_sent_down() ? new_rows : 0;
  }

  // Makes the records of the rows [0, rows) addressable. Never shrinks. ResourceExhausted if memory runs out;
  // what the columns have grown by then stays.
  Status Reserve(cudaStream_t stream, int64_t rows);

  // Counts on from where another object of the same table stopped, which then must not be used.
  void TakeCounts(DeviceTiers* other);
  // Hits, misses and bytes since the table was made. Waits for the work in the stream.
  Status FetchCounts(cudaStream_t stream, RoundTrip* round_trip, TierCounts* counts) const;

  // Sets the stream on which the memory will be freed. Every use must come before later work on that stream.
  void set_stream(cudaStream_t stream);

  TiersView view() const;
  // Each record as a slab of its own: kernels find it by its address.
  SlabsView records() const { return {addresses_.data(), /*mask=*/0, record_bytes_, /*bits=*/0}; }
  // The number of the next call, in as many bits as a frame's use has.
  uint32_t BeginCall();

  int64_t rows() const { return rows_; }  // addressable
  int64_t frames() const { return rows_ < limit_ ? rows_ : limit_; }
  int64_t record_bytes() const { return record_bytes_; }
  int64_t bytes() const;  // allocated

 private:
  friend Status BringFromDisk(cudaStream_t stream, DeviceAllocator* scratch, Span<const RowsOnDisk> tables,
                              DiskUse use, int64_t* failed);

  // From one record in host memory to the next.
  int64_t host_stride() const { return disk_ == nullptr ? record_bytes_ : disk_->frame_bytes(); }
  // Of records of as many rows from `first` on as fit into a slab and are in the same memory.
  StatusOr<DeviceBuffer<char>> AllocateSlab(cudaStream_t stream, int64_t first, int64_t rows);
  int64_t StrideAt(int64_t row) const { return row < limit_ ? record_bytes_ : host_stride(); }
  // The rows of a slab, from `first` on.
  Status AddRecords(cudaStream_t stream, char* slab, int64_t first, int64_t n);
  // Adds frames without rows to host memory.
  Status AddFrames(cudaStream_t stream, int64_t n);

  const TierOptions options_;
  int64_t record_bytes_;
  int64_t limit_;  // of frames
  int64_t slab_bytes_;
  DeviceAllocator* device_;
  DeviceAllocator* host_;
  int64_t rows_ = 0;
  uint32_t call_ = 0;
  std::unique_ptr<TierDisk> disk_;
  std::vector<DeviceBuffer<char>> slabs_;
  GrowingArray<char*> addresses_;
  GrowingArray<int32_t> frame_of_row_;
  GrowingArray<int64_t> row_of_frame_;
  GrowingArray<uint32_t> uses_;
  GrowingArray<int64_t> words_;
};

// Rows of a table that may be on disk, and that a call needs; negative ones are none.
struct RowsOnDisk {
  DeviceTiers* tiers = nullptr;
  RowList rows;
  // For how many new rows there must be room too or, with kNew, how many of the rows may have no place in
  // memory yet: DeviceTiers::SpareFor.
  int64_t spare = 0;
};

// Brings rows to host memory that are on disk, for kernels that are enqueued on the stream before the tables'
// next BeginCall. Tables without a disk are skipped. Waits, for the work on the stream; twice if some row is
// on disk; never for new rows that all have places. Errors are those of TierDisk::BringUp, for table number
// *failed, and ResourceExhausted if `scratch` runs out of memory.
Status BringFromDisk(cudaStream_t stream, DeviceAllocator* scratch, Span<const RowsOnDisk> tables,
                     DiskUse use, int64_t* failed);

// The rows of a table that a call needs: rows[n] on the device, distinct; negative ones are none.
struct NeededRows {
  DeviceTiers* tiers = nullptr;
  const int64_t* rows = nullptr;
  int64_t n = 0;
};

// Counts uses of these rows, and brings those up that are in host memory: each exchanges its record with that
// of a frame whose row this call does not need. If a table occurs again, that is another call.
//
// A clock chooses the frames: it passes them in order from its hand on, takes those without uses, and counts
// the uses of the others down by one at each pass. It may pass 8 places for each row of the call, or 8192,
// but no frame more than 16 times. If it finds too few, the last of the rows stay in host memory. Rows that
// are used count as used once, or by frequency once for each call but the first, and at most 15 times.
//
// Waits for nothing. ResourceExhausted if `scratch` runs out of memory; no record was moved then.
Status BringUp(cudaStream_t stream, DeviceAllocator* scratch, StagedUpload* upload,
               Span<const NeededRows> tables);

}  // namespace sok

#endif  // SOK_CUDA_STORE_DEVICE_TIERS_H_
