#include "cc/table/bloom_filter.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace sok {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 40;
constexpr double kMinProbability = 1e-15;
// The number of blocks in a piece that a visitor gets.
constexpr int64_t kPieceBlocks = 1024;

}  // namespace

Status BloomShape::Check(int64_t max_elements, double p, int counter_bits) {
  if (max_elements < 1 || max_elements > kMaxElements) {
    return InvalidArgument("max_element_size must be in [1, 2^40], not ", max_elements);
  }
  if (!(p >= kMinProbability && p < 1.0)) {
    return InvalidArgument("false_positive_probability must be in [1e-15, 1), not ", p);
  }
  if (counter_bits != 8 && counter_bits != 16 && counter_bits != 32 && counter_bits != 64) {
    return InvalidArgument("counters must have 8, 16, 32 or 64 bits, not ", counter_bits);
  }
  return OkStatus();
}

BloomShape BloomShape::Of(int64_t max_elements, double p) {
  const int hashes = std::max(1, static_cast<int>(std::ceil(std::log2(1.0 / p))));
  return {hashes,
          static_cast<int64_t>(std::ceil(hashes * static_cast<double>(max_elements) / std::log(2.0)))};
}

Status CheckBloomBlocks(Span<const int64_t> blocks, int64_t bytes, int64_t counters, int counter_bits) {
  if (bytes != blocks.size() * kBloomBlockBytes) {
    return InvalidArgument(bytes, " bytes are not ", blocks.size(), " blocks of counters");
  }
  const int64_t limit = BloomShape::BlocksOf(counters, counter_bits);
  for (const int64_t block : blocks) {
    if (block < 0 || block >= limit) {
      return InvalidArgument("block ", block, " is not in a filter of ", counters, " counters of ",
                             counter_bits, " bits, which has ", limit, " blocks");
    }
  }
  return OkStatus();
}

bool IsZeroBlock(const char* block) {
  static constexpr char kZeros[kBloomBlockBytes] = {};
  return std::memcmp(block, kZeros, kBloomBlockBytes) == 0;
}

BlockPieces::BlockPieces(VisitBlocks visit) : visit_(visit) {
  blocks_.reserve(kPieceBlocks);
  bytes_.reserve(kPieceBlocks * kBloomBlockBytes);
}

Status BlockPieces::Add(int64_t block, const char* bytes) {
  blocks_.push_back(block);
  bytes_.insert(bytes_.end(), bytes, bytes + kBloomBlockBytes);
  return static_cast<int64_t>(blocks_.size()) < kPieceBlocks ? OkStatus() : Flush();
}

Status BlockPieces::Flush() {
  if (blocks_.empty()) return OkStatus();
  const Status status = visit_(blocks_, bytes_);
  blocks_.clear();
  bytes_.clear();
  return status;
}

Status VisitNonZeroBlocks(int64_t first, Span<const char> bytes, VisitBlocks visit) {
  BlockPieces pieces(visit);
  for (int64_t i = 0; i < bytes.size() / kBloomBlockBytes; ++i) {
    const char* const block = bytes.data() + i * kBloomBlockBytes;
    if (!IsZeroBlock(block)) SOK_RETURN_IF_ERROR(pieces.Add(first + i, block));
  }
  return pieces.Flush();
}

}  // namespace sok
