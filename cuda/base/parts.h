// Consecutive parts of a range, such as the occurrences of each table of a group.
#ifndef SOK_CUDA_BASE_PARTS_H_
#define SOK_CUDA_BASE_PARTS_H_

#include <cstdint>

#include "cc/base/host_device.h"

namespace sok {

// The part that `i` is in: part k is [begin[k], begin[k + 1]), and parts may be empty. The parts + 1 values
// of `begin` do not decrease, and begin[0] <= i < begin[parts].
template <typename Index>
SOK_HOST_DEVICE int PartOf(const Index* begin, int parts, Index i) {
  int low = 0;
  int high = parts;  // the part is in [low, high)
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    if (begin[middle] <= i) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace sok

#endif  // SOK_CUDA_BASE_PARTS_H_
