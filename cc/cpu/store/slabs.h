#ifndef SOK_CC_CPU_STORE_SLABS_H_
#define SOK_CC_CPU_STORE_SLABS_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "cc/base/function_ref.h"
#include "cc/base/huge_pages.h"
#include "cc/base/status.h"

namespace sok {

// Writes the bytes [at, at + bytes) of an array to `to`. May map a file over whole pages instead, whose
// contents changes to the memory do not reach.
using PlaceBytes = FunctionRef<Status(int64_t at, char* to, int64_t bytes)>;

// Zeroed records of a fixed size, numbered from 0, that never move as their number grows: slabs of 2^k
// records each. A slab is only address space until its records are used, so a table of a hundred rows takes a
// few pages and not a slab.
//
// Move-only. Not thread-safe; records are plain memory.
class Slabs {
 public:
  // Records of `record_bytes` > 0 bytes; slabs of 2^slab_bits records.
  Slabs(int64_t record_bytes, int slab_bits);

  // The largest k such that 2^k records of `record_bytes` fit into `slab_bytes`; 0 for larger records.
  static int BitsFor(int64_t record_bytes, int64_t slab_bytes);

  // Makes the records [0, n) addressable. Never shrinks. ResourceExhausted if memory runs out; records that
  // were addressable stay so.
  Status Reserve(int64_t n);

  // Reserve for an object without records, with the contents of an array of n records. After another error
  // than ResourceExhausted the contents are undefined.
  Status ReserveWith(int64_t n, PlaceBytes place);

  char* at(int64_t record) const {
    return static_cast<char*>(slabs_[record >> slab_bits_].data()) + (record & mask_) * record_bytes_;
  }

  int64_t size() const { return size_; }  // records that are addressable
  int64_t record_bytes() const { return record_bytes_; }
  int64_t bytes() const { return size_ * record_bytes_; }
  int64_t records_per_slab() const { return mask_ + 1; }
  int slab_bits() const { return slab_bits_; }
  // Frees the memory of one slab. Its records must not be used afterwards.
  void Release(int64_t slab) { slabs_[slab] = PageBuffer(); }

 private:
  int64_t record_bytes_;
  int slab_bits_;
  int64_t mask_;
  int64_t size_ = 0;
  std::vector<PageBuffer> slabs_;
};

// One T per row beside a RowStore, such as the step of a row's last update or its frequency. Zero until
// written. Values never move. Thread safety is as for RowStore.
template <typename T>
class RowColumn {
  static_assert(std::is_trivially_copyable_v<T>, "values start as zero bytes and are never destroyed");

 public:
  RowColumn() : slabs_(sizeof(T), Slabs::BitsFor(sizeof(T), kSlabBytes)) {}

  // Makes rows [0, rows) addressable; ResourceExhausted if memory runs out. Never shrinks.
  Status Reserve(int64_t rows) { return slabs_.Reserve(rows); }

  T& operator[](int64_t row) { return *reinterpret_cast<T*>(slabs_.at(row)); }
  const T& operator[](int64_t row) const { return *reinterpret_cast<const T*>(slabs_.at(row)); }

  int64_t rows() const { return slabs_.size(); }
  int64_t bytes() const { return slabs_.bytes(); }

 private:
  static constexpr int64_t kSlabBytes = int64_t{4} << 20;
  Slabs slabs_;
};

}  // namespace sok

#endif  // SOK_CC_CPU_STORE_SLABS_H_
