// Pieces are copied and padded, and nothing else is written.
#include "cuda/sharded/copy_pieces.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "cuda/base/async_allocator.h"
#include "cuda/device_array.h"

namespace sok {
namespace {

constexpr int kUnwritten = -77;

// Pieces of these lengths plus `pad` elements of padding each, one element apart, in random order.
template <typename T>
void ExpectCopies(const std::vector<int64_t>& lengths, int64_t pad) {
  int64_t total = 1;
  for (const int64_t length : lengths) total += length + pad + 1;
  std::vector<T> from(static_cast<size_t>(total));
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<T>(3 * i + 1);
  std::vector<T> expected(from.size(), T{kUnwritten});
  DeviceArray<T> device_from(from);
  DeviceArray<T> device_to(expected);
  std::vector<CopiedPiece<T>> pieces;
  int64_t at = 1;
  for (const int64_t length : lengths) {
    // A position in the source that differs from that in the destination.
    const int64_t source = total - at - length;
    pieces.push_back({device_from.data() + source, device_to.data() + at, length, length + pad});
    for (int64_t i = 0; i < length + pad; ++i) expected[at + i] = i < length ? from[source + i] : T{0};
    at += length + pad + 1;
  }
  AsyncAllocator allocator;
  StagedUpload upload;
  ASSERT_TRUE(CopyPieces(nullptr, &allocator, &upload, Span<const CopiedPiece<T>>(pieces)).ok());
  ASSERT_EQ(device_to.Fetch(), expected);
}

template <typename T>
void ExpectCopiesOfAllSizes() {
  const std::vector<std::vector<int64_t>> sizes = {
      {}, {0}, {1}, {0, 0, 1, 0}, {4, 4, 8, 4}, {1023, 1024, 1025, 0, 2, 2048}, std::vector<int64_t>(300, 3)};
  for (const std::vector<int64_t>& lengths : sizes) {
    for (const int64_t pad : {0, 1}) ExpectCopies<T>(lengths, pad);
  }
}

TEST(CopyPiecesTest, Words) {
  if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  ExpectCopiesOfAllSizes<int64_t>();
}

TEST(CopyPiecesTest, Numbers) {
  if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  ExpectCopiesOfAllSizes<int32_t>();
}

}  // namespace
}  // namespace sok
