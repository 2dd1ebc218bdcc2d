#include "cc/placement/placement.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "cc/base/printable.h"

namespace sok {
namespace {

constexpr std::string_view kByKeyText = "by_key";
constexpr std::string_view kByKeyPrefix = "by_key:";
constexpr std::string_view kAllRanksText = "all_ranks";
constexpr std::string_view kOneRankPrefix = "one_rank:";
constexpr std::string_view kRangesPrefix = "ranges:";
// The most bytes of a text that an error quotes.
constexpr size_t kShownBytes = 200;

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

// Removes a decimal number without leading zeros from the front of *text. False if there is none, or if it is
// above `most`.
bool TakeNumber(std::string_view* text, int64_t most, int64_t* number) {
  size_t digits = 0;
  int64_t value = 0;
  for (; digits < text->size() && (*text)[digits] >= '0' && (*text)[digits] <= '9'; ++digits) {
    const int64_t digit = (*text)[digits] - '0';
    if (value > (most - digit) / 10) return false;
    value = 10 * value + digit;
  }
  if (digits == 0 || (digits > 1 && text->front() == '0')) return false;
  text->remove_prefix(digits);
  *number = value;
  return true;
}

// Reads numbers separated by commas. False if `text` is anything else.
bool ReadNumbers(std::string_view text, std::vector<int64_t>* numbers) {
  for (;;) {
    int64_t number = 0;
    if (!TakeNumber(&text, std::numeric_limits<int64_t>::max(), &number)) return false;
    numbers->push_back(number);
    if (text.empty()) return true;
    if (text.front() != ',') return false;
    text.remove_prefix(1);
  }
}

}  // namespace

Placement Placement::ByKey(int64_t keys) {
  Placement placement;
  placement.keys_ = keys;
  return placement;
}

Placement Placement::OneRank(int rank) {
  Placement placement;
  placement.kind_ = PlacementKind::kOneRank;
  placement.rank_ = rank;
  return placement;
}

Placement Placement::AllRanks() {
  Placement placement;
  placement.kind_ = PlacementKind::kAllRanks;
  return placement;
}

Placement Placement::Ranges(std::vector<int64_t> boundaries) {
  Placement placement;
  placement.kind_ = PlacementKind::kRanges;
  placement.boundaries_ = std::move(boundaries);
  return placement;
}

StatusOr<Placement> Placement::Parse(std::string_view text) {
  if (text == kByKeyText) return Placement();
  if (text == kAllRanksText) return AllRanks();
  if (StartsWith(text, kByKeyPrefix)) {
    std::string_view rest = text.substr(kByKeyPrefix.size());
    int64_t keys = 0;
    if (TakeNumber(&rest, std::numeric_limits<int64_t>::max(), &keys) && rest.empty() && keys > 0) {
      return ByKey(keys);
    }
  }
  if (StartsWith(text, kOneRankPrefix)) {
    std::string_view rest = text.substr(kOneRankPrefix.size());
    int64_t rank = 0;
    if (TakeNumber(&rest, std::numeric_limits<int32_t>::max(), &rank) && rest.empty()) {
      return OneRank(static_cast<int>(rank));
    }
  }
  if (StartsWith(text, kRangesPrefix)) {
    std::vector<int64_t> boundaries;
    if (ReadNumbers(text.substr(kRangesPrefix.size()), &boundaries)) return Ranges(std::move(boundaries));
  }
  return InvalidArgument("placement must be \"by_key\", \"by_key:<keys>\", \"one_rank:<rank>\", ",
                         "\"all_ranks\" or \"ranges:<boundary>,<boundary>,...\", not \"",
                         Printable(text.substr(0, kShownBytes)), "\"");
}

std::string Placement::Text() const {
  switch (kind_) {
    case PlacementKind::kByKey:
      return keys_ == 0 ? std::string(kByKeyText) : std::string(kByKeyPrefix) + std::to_string(keys_);
    case PlacementKind::kAllRanks:
      return std::string(kAllRanksText);
    case PlacementKind::kOneRank:
      return std::string(kOneRankPrefix) + std::to_string(rank_);
    case PlacementKind::kRanges:
      break;
  }
  std::string text(kRangesPrefix);
  for (size_t i = 0; i < boundaries_.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(boundaries_[i]);
  }
  return text;
}

Status Placement::Check(int ranks) const {
  if (kind_ == PlacementKind::kOneRank && (rank_ < 0 || rank_ >= ranks)) {
    return InvalidArgument("placement \"", Text(), "\" names a rank that is not one of the ", ranks,
                           " ranks");
  }
  if (kind_ != PlacementKind::kRanges) return OkStatus();
  const bool fits = boundaries_.size() == static_cast<size_t>(ranks) + 1 && boundaries_.front() == 0 &&
                    std::is_sorted(boundaries_.begin(), boundaries_.end());
  if (fits) return OkStatus();
  return InvalidArgument("placement \"", Text().substr(0, kShownBytes), "\" needs ranks + 1 = ", ranks + 1,
                         " boundaries that begin with 0 and do not decrease");
}

Status Placement::CheckStatic(int ranks, int64_t capacity) const {
  SOK_RETURN_IF_ERROR(Check(ranks));
  if (kind_ != PlacementKind::kRanges && keys_ == 0) return OkStatus();
  int64_t most = 0;
  for (int rank = 0; rank < ranks; ++rank) most = std::max(most, RowsOn(rank, ranks, capacity).count);
  if (capacity == most) return OkStatus();
  return InvalidArgument("capacity must be the most rows on a rank with placement \"",
                         Text().substr(0, kShownBytes), "\", ", most, ", not ", capacity);
}

StaticRows Placement::RowsOn(int rank, int ranks, int64_t capacity) const {
  switch (kind_) {
    case PlacementKind::kByKey:
      if (keys_ == 0) return {rank, ranks, capacity};
      return {rank, ranks, keys_ / ranks + (rank < keys_ % ranks ? 1 : 0)};
    case PlacementKind::kAllRanks:
      return {0, 1, capacity};
    case PlacementKind::kOneRank:
      return {0, 1, rank == rank_ ? capacity : 0};
    case PlacementKind::kRanges:
      break;
  }
  return {boundaries_[rank], 1, boundaries_[rank + 1] - boundaries_[rank]};
}

int64_t Placement::StaticKeys(int ranks, int64_t capacity) const {
  switch (kind_) {
    case PlacementKind::kByKey:
      return keys_ == 0 ? capacity * ranks : keys_;
    case PlacementKind::kOneRank:
    case PlacementKind::kAllRanks:
      return capacity;
    case PlacementKind::kRanges:
      break;
  }
  return boundaries_.back();
}

}  // namespace sok
