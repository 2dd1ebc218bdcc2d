#ifndef SOK_SOK_OPS_HOROVOD_EXCHANGE_STATISTICS_H_
#define SOK_SOK_OPS_HOROVOD_EXCHANGE_STATISTICS_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "cc/base/span.h"

namespace sok {

// Counts what this process has exchanged. Thread-safe. Each number is exact, but an exchange that ends during
// a read may be counted in some numbers and not yet in others.
class ExchangeStatistics {
 public:
  static ExchangeStatistics& Global();

  // Counts one exchange of int64 words by rank `rank`, given its numbers of words to and from each rank.
  void Count(int rank, Span<const int32_t> sent, Span<const int32_t> received);

  // Exchanges, bytes sent, bytes received, bytes sent to other ranks, bytes received from other ranks.
  static constexpr int kNumbers = 5;
  std::array<int64_t, kNumbers> Read() const;

 private:
  std::array<std::atomic<int64_t>, kNumbers> numbers_{};
};

}  // namespace sok

#endif  // SOK_SOK_OPS_HOROVOD_EXCHANGE_STATISTICS_H_
