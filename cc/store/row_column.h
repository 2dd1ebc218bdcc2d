#ifndef SOK_CC_STORE_ROW_COLUMN_H_
#define SOK_CC_STORE_ROW_COLUMN_H_

#include <cstdint>
#include <type_traits>

#include "cc/base/status.h"
#include "cc/store/slabs.h"

namespace sok {

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

#endif  // SOK_CC_STORE_ROW_COLUMN_H_
