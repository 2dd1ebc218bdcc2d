#include "cc/sharded/owner_order.h"

#include "cc/base/hash.h"

namespace sok {

void SortByOwner(Span<const int64_t> ids, int ranks, OwnerOrder* order) {
  std::vector<int32_t>& position = order->position;
  position.resize(ids.size());
  std::vector<int64_t> counts(ranks, 0);
  // First the id's place among those of its owner, then the owner's begin is added.
  std::vector<int32_t> owners(ids.size());
  for (int64_t i = 0; i < ids.size(); ++i) owners[i] = OwnerOf(ids[i], ranks);
  for (int64_t i = 0; i < ids.size(); ++i) position[i] = static_cast<int32_t>(counts[owners[i]]++);
  order->begin.assign(ranks + 1, 0);
  for (int r = 0; r < ranks; ++r) order->begin[r + 1] = order->begin[r] + counts[r];
  for (int64_t i = 0; i < ids.size(); ++i) position[i] += static_cast<int32_t>(order->begin[owners[i]]);
}

}  // namespace sok
