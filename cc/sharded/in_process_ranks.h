// Exchanges between ranks that are objects of one process.
#ifndef SOK_CC_SHARDED_IN_PROCESS_RANKS_H_
#define SOK_CC_SHARDED_IN_PROCESS_RANKS_H_

#include <cstdint>
#include <vector>

#include "cc/base/span.h"
#include "cc/sharded/message.h"

namespace sok {

// One rank's messages to all ranks, and where an AllocateWords puts them.
struct Outbox {
  std::vector<int64_t> words;
  std::vector<int64_t> sizes;

  int64_t* Allocate(Span<const int64_t> wanted) {
    sizes.assign(wanted.begin(), wanted.end());
    int64_t total = 0;
    for (const int64_t size : sizes) total += size;
    // Never null, also for no words at all; what is not written shows as garbage.
    words.assign(total + 1, 0x7ff8dead7ff8dead);
    return words.data();
  }
};

// What one rank gets, and the inbox that points into it.
struct Arrived {
  std::vector<int64_t> words;
  Inbox inbox;
};

// Brings every message to its rank.
inline std::vector<Arrived> Exchange(const std::vector<Outbox>& outboxes) {
  const size_t ranks = outboxes.size();
  std::vector<Arrived> arrived(ranks);
  for (size_t to = 0; to < ranks; ++to) {
    arrived[to].inbox.begin.push_back(0);
    for (const Outbox& from : outboxes) {
      int64_t first = 0;
      for (size_t r = 0; r < to; ++r) first += from.sizes[r];
      arrived[to].words.insert(arrived[to].words.end(), from.words.begin() + first,
                               from.words.begin() + first + from.sizes[to]);
      arrived[to].inbox.begin.push_back(static_cast<int64_t>(arrived[to].words.size()));
    }
    arrived[to].inbox.words = arrived[to].words.data();
  }
  return arrived;
}

}  // namespace sok

#endif  // SOK_CC_SHARDED_IN_PROCESS_RANKS_H_
