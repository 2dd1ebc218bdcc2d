#include "cc/table/counter_blocks.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

namespace sok {
namespace {

constexpr int64_t kSlabBytes = int64_t{16} << 20;
// The number of blocks in a piece that a visitor gets.
constexpr int64_t kPieceBlocks = 1024;

// Collects blocks into pieces.
class Pieces {
 public:
  explicit Pieces(VisitBlocks visit) : visit_(visit) {
    blocks_.reserve(kPieceBlocks);
    bytes_.reserve(kPieceBlocks * kBloomBlockBytes);
  }

  Status Add(int64_t block, const char* bytes) {
    blocks_.push_back(block);
    bytes_.insert(bytes_.end(), bytes, bytes + kBloomBlockBytes);
    return static_cast<int64_t>(blocks_.size()) < kPieceBlocks ? OkStatus() : Flush();
  }
  Status Flush() {
    if (blocks_.empty()) return OkStatus();
    const Status status = visit_(blocks_, bytes_);
    blocks_.clear();
    bytes_.clear();
    return status;
  }

 private:
  const VisitBlocks visit_;
  std::vector<int64_t> blocks_;
  std::vector<char> bytes_;
};

}  // namespace

bool IsZeroBlock(const char* block) {
  static constexpr char kZeros[kBloomBlockBytes] = {};
  return std::memcmp(block, kZeros, kBloomBlockBytes) == 0;
}

Status VisitNonZeroBlocks(int64_t first, Span<const char> bytes, VisitBlocks visit) {
  Pieces pieces(visit);
  for (int64_t i = 0; i < bytes.size() / kBloomBlockBytes; ++i) {
    const char* const block = bytes.data() + i * kBloomBlockBytes;
    if (!IsZeroBlock(block)) SOK_RETURN_IF_ERROR(pieces.Add(first + i, block));
  }
  return pieces.Flush();
}

CounterBlocks::CounterBlocks() : records_(kBloomBlockBytes, Slabs::BitsFor(kBloomBlockBytes, kSlabBytes)) {}

Status CounterBlocks::Reserve(Span<const int64_t> blocks) {
  std::vector<int64_t> missing(blocks.begin(), blocks.end());
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  std::vector<int64_t> rows(missing.size());
  index_.Find(missing, Span<int64_t>(rows));
  size_t kept = 0;
  for (size_t i = 0; i < missing.size(); ++i) {
    if (rows[i] == IdIndex::kAbsent) missing[kept++] = missing[i];
  }
  missing.resize(kept);
  rows.resize(kept);
  if (missing.empty()) return OkStatus();
  std::iota(rows.begin(), rows.end(), used_);
  const int64_t wanted = used_ + static_cast<int64_t>(kept);
  // Whole slabs of address space: records take memory when they are written.
  const int64_t slabs = (wanted + records_.records_per_slab() - 1) / records_.records_per_slab();
  Status status = records_.Reserve(slabs * records_.records_per_slab());
  if (status.ok()) status = index_.Insert(missing, rows);
  if (!status.ok()) {
    return ResourceExhausted(wanted * kBloomBlockBytes,
                             " bytes of counters and their index: ", status.message());
  }
  used_ = wanted;
  return OkStatus();
}

void CounterBlocks::Find(Span<const int64_t> blocks, Span<char*> addresses) const {
  constexpr int64_t kAtOnce = 64;
  int64_t rows[kAtOnce];
  for (int64_t first = 0; first < blocks.size(); first += kAtOnce) {
    const int64_t n = std::min(kAtOnce, blocks.size() - first);
    index_.Find(blocks.subspan(first, n), Span<int64_t>(rows, n));
    for (int64_t i = 0; i < n; ++i) {
      addresses[first + i] = rows[i] == IdIndex::kAbsent ? nullptr : records_.at(rows[i]);
    }
  }
}

Status CounterBlocks::ForEachNonZero(VisitBlocks visit, int64_t at_a_time) const {
  Pieces pieces(visit);
  int64_t end = 0;  // of all numbers
  index_.ForEach([&](int64_t block, int64_t) { end = std::max(end, block + 1); });
  const int64_t parts = std::max<int64_t>(1, (used_ + at_a_time - 1) / at_a_time);
  const int64_t length = (end + parts - 1) / parts;
  std::vector<std::pair<int64_t, int64_t>> sorted;
  for (int64_t first = 0; first < end; first += length) {
    sorted.clear();
    index_.ForEach([&](int64_t block, int64_t row) {
      if (block >= first && block - first < length) sorted.emplace_back(block, row);
    });
    std::sort(sorted.begin(), sorted.end());
    for (const auto& [block, row] : sorted) {
      if (!IsZeroBlock(records_.at(row))) SOK_RETURN_IF_ERROR(pieces.Add(block, records_.at(row)));
    }
  }
  return pieces.Flush();
}

}  // namespace sok
