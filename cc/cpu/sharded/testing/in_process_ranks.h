// Exchanges between ranks that are objects of one process.
#ifndef SOK_CC_CPU_SHARDED_TESTING_IN_PROCESS_RANKS_H_
#define SOK_CC_CPU_SHARDED_TESTING_IN_PROCESS_RANKS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "cc/base/span.h"
#include "cc/messages/message.h"

namespace sok {

// One rank's messages to all ranks, and where an AllocateWords puts them.
struct Outbox {
  std::vector<int64_t> words;
  std::vector<int64_t> sizes;

  int64_t* Allocate(Span<const int64_t> wanted) {
    sizes.assign(wanted.begin(), wanted.end());
    int64_t total = 0;
    for (const int64_t size : sizes) total += size;
    // Never null, even without words. Words that are not written are recognizable garbage.
    words.assign(total + 1, 0x7ff8dead7ff8dead);
    return words.data();
  }
};

// The messages to one rank, and the inbox that points into them. The inbox stays valid when this is moved,
// but not when it is copied.
struct Arrived {
  std::vector<std::vector<int64_t>> words;  // by sender
  Inbox inbox;

  Arrived() = default;
  explicit Arrived(std::vector<std::vector<int64_t>> messages) : words(std::move(messages)) {
    inbox.assign(words.begin(), words.end());
  }
};

// Delivers every message to its rank.
inline std::vector<Arrived> Exchange(std::vector<Outbox> outboxes) {
  const int ranks = static_cast<int>(outboxes.size());
  std::vector<Arrived> arrived;
  for (int to = 0; to < ranks; ++to) {
    std::vector<std::vector<int64_t>> messages;
    for (int from = 0; from < ranks; ++from) {
      Outbox& outbox = outboxes[from];
      const int64_t* start = MessageStarts(from, outbox.sizes, outbox.words.data())[to];
      messages.emplace_back(start, start + outbox.sizes[to]);
    }
    arrived.emplace_back(std::move(messages));
  }
  return arrived;
}

}  // namespace sok

#endif  // SOK_CC_CPU_SHARDED_TESTING_IN_PROCESS_RANKS_H_
