#include "cuda/store/tier_disk.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <utility>

namespace sok {

StatusOr<std::unique_ptr<TierDisk>> TierDisk::Create(const TierOptions& options, int64_t record_bytes) {
  SOK_ASSIGN_OR_RETURN(std::unique_ptr<RowFile> file, RowFile::Create(options.folder, record_bytes));
  return std::unique_ptr<TierDisk>(new TierDisk(std::move(file), options, record_bytes));
}

TierDisk::TierDisk(std::unique_ptr<RowFile> file, const TierOptions& options, int64_t record_bytes)
    : file_(std::move(file)),
      record_bytes_(record_bytes),
      limit_(std::max<int64_t>(options.host_bytes / (record_bytes + static_cast<int64_t>(sizeof(HostFrame))),
                               1)),
      by_frequency_(options.by_frequency) {}

int64_t TierDisk::NewVersion() {
  static std::atomic<int64_t> last = 0;
  return ++last;
}

void TierDisk::AddFrames(char* memory, int64_t first, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    auto* const frame = new (memory + i * frame_bytes()) HostFrame;
    if (first >= 0) {
      frame->row = first + i;
    } else {
      free_.push_back(frames());
    }
    records_.push_back(reinterpret_cast<char*>(frame + 1));
  }
}

int64_t TierDisk::PlaceOf(int64_t row) const {
  return row < static_cast<int64_t>(places_.size()) ? places_[row] : kNowhere;
}

void TierDisk::SetPlace(int64_t row, int64_t place) {
  if (row >= static_cast<int64_t>(places_.size())) {
    if (place == kNowhere) return;
    places_.resize(row + 1, kNowhere);
  }
  places_[row] = place;
}

Status TierDisk::BringUp(std::vector<int64_t> rows, DiskUse use, int64_t spare,
                         FunctionRef<Status(int64_t n)> add_frames, std::vector<Moved>* moved) {
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  const auto n = static_cast<int64_t>(rows.size());
  SOK_RETURN_IF_ERROR(FreeFrames(n + spare, add_frames, moved));
  const std::vector<int64_t> taken(free_.end() - n, free_.end());

  std::vector<int64_t> from_file;
  std::vector<int64_t> places;
  std::vector<char*> records;
  for (int64_t i = 0; i < n; ++i) {
    char* const record = records_[taken[i]];
    const int64_t place = PlaceOf(rows[i]);
    if (place == kNowhere || use == DiskUse::kNew) {
      std::memset(record, 0, static_cast<size_t>(record_bytes_));
      continue;
    }
    from_file.push_back(rows[i]);
    places.push_back(place);
    records.push_back(record);
  }
  SOK_RETURN_IF_ERROR(file_->Read(threads(), from_file, places, [&](int64_t i) { return records[i]; }));
  rows_read_ += static_cast<int64_t>(places.size());

  free_.resize(free_.size() - n);
  for (int64_t i = 0; i < n; ++i) {
    HostFrame* const frame = FrameOf(records_[taken[i]]);
    // By frequency, the first use is none that counts.
    *frame = {rows[i], call_ << kUseBits | (by_frequency_ || use == DiskUse::kStep ? 0 : 1), 1};
    if (PlaceOf(rows[i]) != kNowhere) file_->Free(PlaceOf(rows[i]));
    SetPlace(rows[i], kNowhere);
    moved->push_back({rows[i], records_[taken[i]]});
  }
  return OkStatus();
}

void TierDisk::AskAhead(Span<const int64_t> rows) {
  std::vector<int64_t> places;
  for (const int64_t row : rows) {
    if (PlaceOf(row) != kNowhere) places.push_back(PlaceOf(row));
  }
  file_->AskAhead(threads(), places);
}

Status TierDisk::FreeFrames(int64_t n, FunctionRef<Status(int64_t n)> add_frames, std::vector<Moved>* moved) {
  struct Clock {
    const std::vector<char*>& records;
    uint32_t call;

    HostFrame* frame(int64_t i) const { return FrameOf(records[i]); }
    int64_t size() const { return static_cast<int64_t>(records.size()); }
    bool MayLeave(int64_t i) const { return frame(i)->row >= 0 && frame(i)->use >> kUseBits != call; }
    int uses(int64_t i) const { return static_cast<int>(frame(i)->use & kMostUses); }
    void set_uses(int64_t i, int uses) {
      frame(i)->use = (frame(i)->use & ~kMostUses) | static_cast<uint32_t>(uses);
    }
    void Choose(int64_t i) { frame(i)->use = call << kUseBits; }
  };
  const int64_t missing = n - static_cast<int64_t>(free_.size());
  if (missing > 0) {
    SOK_RETURN_IF_ERROR(SendDown(ChooseVictims(Clock{records_, call_}, missing, &hand_), moved));
  }
  const int64_t left = n - static_cast<int64_t>(free_.size());
  return left > 0 ? add_frames(left) : OkStatus();
}

Status TierDisk::SendDown(Span<const int64_t> victims, std::vector<Moved>* moved) {
  if (victims.empty()) return OkStatus();
  SOK_RETURN_IF_ERROR(file_->Compact(
      threads(), [this](int64_t row) { return row < 0 ? kNowhere : PlaceOf(row); },
      [this](int64_t row, int64_t place) { SetPlace(row, place); }));
  std::vector<int64_t> rows;
  std::vector<const char*> records;
  for (const int64_t victim : victims) {
    if (FrameOf(records_[victim])->has_content == 0) continue;
    rows.push_back(FrameOf(records_[victim])->row);
    records.push_back(records_[victim]);
  }
  std::vector<int64_t> places(rows.size());
  SOK_RETURN_IF_ERROR(
      file_->Append(threads(), rows, [&](int64_t i) { return records[i]; }, Span<int64_t>(places)));
  for (size_t i = 0; i < rows.size(); ++i) SetPlace(rows[i], places[i]);
  for (const int64_t victim : victims) {
    HostFrame* const frame = FrameOf(records_[victim]);
    moved->push_back({frame->row, nullptr});
    *frame = HostFrame();
    free_.push_back(victim);
  }
  has_sent_down_ = true;
  version_ = NewVersion();
  return OkStatus();
}

}  // namespace sok
