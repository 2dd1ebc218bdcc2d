#include "cc/cpu/store/row_tiers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cc/base/prefetch.h"
#include "cc/disk/clock.h"

namespace sok {
namespace {

// Rows whose entries are on their way to the cache.
constexpr int64_t kAhead = 32;

}  // namespace

StatusOr<std::unique_ptr<RowTiers>> RowTiers::Create(const TierOptions& options, int64_t record_bytes) {
  SOK_ASSIGN_OR_RETURN(std::unique_ptr<RowFile> file, RowFile::Create(options.folder, record_bytes));
  const int64_t limit = std::max<int64_t>(options.memory_bytes / record_bytes, 1);
  return std::unique_ptr<RowTiers>(new RowTiers(std::move(file), limit, options.by_frequency));
}

RowTiers::RowTiers(std::unique_ptr<RowFile> file, int64_t limit, bool by_frequency)
    : file_(std::move(file)), limit_(limit), by_frequency_(by_frequency) {}

std::vector<int64_t> RowTiers::UsePresent(Span<const int64_t> rows, RowUse use) {
  std::vector<int64_t> missing;
  for (int64_t i = 0; i < rows.size(); ++i) {
    if (i + 2 * kAhead < rows.size() && rows[i + 2 * kAhead] >= 0) Prefetch(&where_[rows[i + 2 * kAhead]]);
    if (i + kAhead < rows.size() && rows[i + kAhead] >= 0) {
      const int64_t at = where_[rows[i + kAhead]];
      if (at > 0) Prefetch<true>(&frames_[at - 1]);
    }
    if (rows[i] < 0) continue;
    const int64_t at = where_[rows[i]];
    if (at > 0) {
      Use(&frames_[at - 1], use);
      ++counts_.hits;
    } else {
      missing.push_back(rows[i]);
    }
  }
  return missing;
}

Status RowTiers::BringUp(Executor& executor, Span<const int64_t> rows, RowUse use, Slabs* frames) {
  const std::vector<int64_t> missing = UsePresent(rows, use);
  const int64_t n = static_cast<int64_t>(missing.size());
  if (n == 0) return OkStatus();
  SOK_RETURN_IF_ERROR(FreeFrames(executor, n, frames));
  const std::vector<int64_t> taken(free_.end() - n, free_.end());
  const auto record = [&](int64_t i) { return frames->at(taken[i]); };

  std::vector<int64_t> from_file;
  std::vector<int64_t> places;
  std::vector<int64_t> positions;
  for (std::vector<int64_t>* column : {&from_file, &places, &positions}) column->reserve(n);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t place = CopyOf(missing[i]);
    if (place == kNone || use == RowUse::kNew) {
      std::memset(record(i), 0, frames->record_bytes());
      continue;
    }
    from_file.push_back(missing[i]);
    places.push_back(place);
    positions.push_back(i);
  }
  SOK_RETURN_IF_ERROR(
      file_->Read(executor, from_file, places, [&](int64_t i) { return record(positions[i]); }));
  counts_.misses += n;
  counts_.disk_rows += static_cast<int64_t>(places.size());
  counts_.bytes_up += static_cast<int64_t>(places.size()) * frames->record_bytes();

  free_.resize(free_.size() - n);
  for (int64_t i = 0; i < n; ++i) {
    if (where_[missing[i]] > 0) {  // the row was given twice
      free_.push_back(taken[i]);
      continue;
    }
    Frame* const frame = &frames_[taken[i]];
    frame->row = missing[i];
    frame->place = CopyOf(missing[i]);
    frame->call = call_;  // the first use is none of the row's that are counted
    frame->uses = by_frequency_ || use == RowUse::kScan ? 0 : 1;
    where_[missing[i]] = taken[i] + 1;
    Use(frame, use);
  }
  return OkStatus();
}

void RowTiers::AskAhead(Executor& executor, Span<const int64_t> rows) {
  std::vector<int64_t> places;
  for (const int64_t row : rows) {
    if (row >= 0 && where_[row] < 0) places.push_back(CopyOf(row));
  }
  file_->AskAhead(executor, places);
}

void RowTiers::Use(Frame* frame, RowUse use) {
  // By frequency a lookup and its step are one use.
  const bool counts = by_frequency_ ? use == RowUse::kRead && frame->call != call_ : use != RowUse::kScan;
  if (counts) frame->uses = by_frequency_ ? std::min<uint8_t>(frame->uses + 1, kMostFrameUses) : 1;
  frame->call = call_;
  if (use == RowUse::kWrite || use == RowUse::kNew) FreeCopy(frame);
}

int64_t RowTiers::CopyOf(int64_t row) const {
  const int64_t at = where_[row];
  return at > 0 ? frames_[at - 1].place : at < 0 ? -at - 1 : kNone;
}

void RowTiers::SetCopy(int64_t row, int64_t place) {
  const int64_t at = where_[row];
  (at > 0 ? frames_[at - 1].place : where_[row]) = at > 0 ? place : -(place + 1);
}

void RowTiers::FreeCopy(Frame* frame) {
  if (frame->place != kNone) file_->Free(std::exchange(frame->place, kNone));
}

void RowTiers::Forget(int64_t row) {
  const int64_t at = std::exchange(where_[row], kNowhere);
  if (at < 0) file_->Free(-at - 1);
  if (at <= 0) return;
  FreeCopy(&frames_[at - 1]);
  frames_[at - 1] = Frame();
  free_.push_back(at - 1);
}

Status RowTiers::FreeFrames(Executor& executor, int64_t n, Slabs* frames) {
  const int64_t free = static_cast<int64_t>(free_.size());
  const int64_t held = static_cast<int64_t>(frames_.size());
  const int64_t more = std::clamp<int64_t>(n - free, 0, std::max<int64_t>(limit_ - held, 0));
  if (free + more < n) {
    const std::vector<int64_t> victims = Victims(n - free - more);
    SOK_RETURN_IF_ERROR(SendDown(executor, victims, *frames));
  }
  const int64_t missing = n - static_cast<int64_t>(free_.size());
  if (missing <= 0) return OkStatus();
  free_.reserve(free_.size() + missing);
  SOK_RETURN_IF_ERROR(frames->Reserve(held + missing));
  frames_.resize(held + missing);
  for (int64_t frame = held; frame < held + missing; ++frame) free_.push_back(frame);
  return OkStatus();
}

std::vector<int64_t> RowTiers::Victims(int64_t n) {
  struct Clock {
    std::vector<Frame>& frames;
    int64_t call;

    int64_t size() const { return static_cast<int64_t>(frames.size()); }
    bool MayLeave(int64_t i) const { return frames[i].row != kNone && frames[i].call != call; }
    int uses(int64_t i) const { return frames[i].uses; }
    void set_uses(int64_t i, int uses) { frames[i].uses = static_cast<uint8_t>(uses); }
    void Choose(int64_t i) { frames[i].call = call; }
  };
  return ChooseVictims(Clock{frames_, call_}, n, &hand_);
}

Status RowTiers::SendDown(Executor& executor, Span<const int64_t> victims, const Slabs& frames) {
  const auto is_row = [this](int64_t row) { return row >= 0 && row < where_.rows(); };
  SOK_RETURN_IF_ERROR(file_->Compact(
      executor, [&](int64_t row) { return is_row(row) ? CopyOf(row) : kNone; },
      [&](int64_t row, int64_t place) { SetCopy(row, place); }));
  std::vector<int64_t> changed;
  std::vector<int64_t> rows;
  for (const int64_t victim : victims) {
    if (frames_[victim].place != kNone) continue;
    changed.push_back(victim);
    rows.push_back(frames_[victim].row);
  }
  std::vector<int64_t> places(rows.size());
  free_.reserve(free_.size() + victims.size());
  SOK_RETURN_IF_ERROR(
      file_->Append(executor, rows, [&](int64_t i) { return frames.at(changed[i]); }, Span<int64_t>(places)));
  for (size_t i = 0; i < changed.size(); ++i) frames_[changed[i]].place = places[i];
  for (int64_t i = 0; i < victims.size(); ++i) {
    if (i + kAhead < victims.size()) Prefetch<true>(&where_[frames_[victims[i + kAhead]].row]);
    const int64_t victim = victims[i];
    Frame* const frame = &frames_[victim];
    where_[frame->row] = -(frame->place + 1);
    *frame = Frame();
    free_.push_back(victim);
  }
  counts_.bytes_down += static_cast<int64_t>(rows.size()) * frames.record_bytes();
  return OkStatus();
}

TierCounts RowTiers::counts() const {
  TierCounts counts = counts_;
  counts.rows_in_memory = static_cast<int64_t>(frames_.size() - free_.size());
  counts.bytes_on_disk = file_->bytes();
  return counts;
}

}  // namespace sok
