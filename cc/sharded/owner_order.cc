#include "cc/sharded/owner_order.h"

namespace sok {
namespace {

// The owner of each id. Branches on the kind of placement once, not for each id.
std::vector<int32_t> OwnersOf(Span<const int64_t> ids, const KeyOwners& owners) {
  std::vector<int32_t> result(ids.size());
  if (owners.kind == PlacementKind::kByKey) {
    const int ranks = owners.ranks;
    for (int64_t i = 0; i < ids.size(); ++i) result[i] = OwnerByKey(ids[i], ranks);
  } else {
    for (int64_t i = 0; i < ids.size(); ++i) result[i] = owners.OwnerOf(ids[i]);
  }
  return result;
}

}  // namespace

void SortByOwner(Span<const int64_t> ids, const KeyOwners& owners, OwnerOrder* order) {
  const int ranks = owners.ranks;
  std::vector<int32_t>& position = order->position;
  position.resize(ids.size());
  std::vector<int64_t> counts(ranks, 0);
  // First each id's position among the ids of its owner; then the begin of that owner is added.
  const std::vector<int32_t> owner_of = OwnersOf(ids, owners);
  for (int64_t i = 0; i < ids.size(); ++i) position[i] = static_cast<int32_t>(counts[owner_of[i]]++);
  order->begin.assign(ranks + 1, 0);
  for (int r = 0; r < ranks; ++r) order->begin[r + 1] = order->begin[r] + counts[r];
  for (int64_t i = 0; i < ids.size(); ++i) position[i] += static_cast<int32_t>(order->begin[owner_of[i]]);
}

}  // namespace sok
