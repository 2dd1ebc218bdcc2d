#include "sok_ops/horovod/exchange_statistics.h"

#include <algorithm>
#include <numeric>

namespace sok {
namespace {

int64_t Bytes(Span<const int32_t> words) {
  return static_cast<int64_t>(sizeof(int64_t)) * std::accumulate(words.begin(), words.end(), int64_t{0});
}

}  // namespace

ExchangeStatistics& ExchangeStatistics::Global() {
  // Never destroyed: Horovod's thread may end an exchange while the process exits.
  static auto* const statistics = new ExchangeStatistics;
  return *statistics;
}

void ExchangeStatistics::Count(int rank, Span<const int32_t> sent, Span<const int32_t> received) {
  const int64_t own_sent = Bytes({&sent[rank], 1});
  const int64_t own_received = Bytes({&received[rank], 1});
  const int64_t amounts[kNumbers] = {1, Bytes(sent), Bytes(received), Bytes(sent) - own_sent,
                                     Bytes(received) - own_received};
  for (int i = 0; i < kNumbers; ++i) numbers_[i].fetch_add(amounts[i], std::memory_order_relaxed);
}

std::array<int64_t, ExchangeStatistics::kNumbers> ExchangeStatistics::Read() const {
  std::array<int64_t, kNumbers> read;
  std::transform(numbers_.begin(), numbers_.end(), read.begin(),
                 [](const std::atomic<int64_t>& number) { return number.load(std::memory_order_relaxed); });
  return read;
}

}  // namespace sok
