#ifndef SOK_CC_SHARDED_OWNER_ORDER_H_
#define SOK_CC_SHARDED_OWNER_ORDER_H_

#include <cstdint>
#include <vector>

#include "cc/base/span.h"
#include "cc/placement/key_owners.h"

namespace sok {

// A stable sort of ids by the rank that owns them.
struct OwnerOrder {
  std::vector<int32_t> position;  // of each id among the sorted ones
  std::vector<int64_t> begin;     // ranks + 1: rank r's ids are sorted[begin[r] .. begin[r + 1])
};

// ids.size() < 2^31.
void SortByOwner(Span<const int64_t> ids, const KeyOwners& owners, OwnerOrder* order);

// Puts `values` in the order: value i goes to order.position[i].
template <typename T>
std::vector<T> InOwnerOrder(const OwnerOrder& order, Span<const T> values) {
  std::vector<T> sorted(values.size());
  for (int64_t i = 0; i < values.size(); ++i) sorted[order.position[i]] = values[i];
  return sorted;
}

}  // namespace sok

#endif  // SOK_CC_SHARDED_OWNER_ORDER_H_
