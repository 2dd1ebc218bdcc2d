#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "cuda/base/launch.h"
#include "cuda/base/part_launch.h"
#include "cuda/base/parts.h"
#include "cuda/scan/flag_ranks.h"
#include "cuda/store/device_tiers.h"

namespace sok {
namespace {

// The clock passes this many places for each row of a call, and at least so many in all.
constexpr int64_t kPlacesOfRow = 8;
constexpr int64_t kFewestPlaces = 8192;

// Fresh records of the rows [first, first + n): one every `stride` bytes from `record` on or, if that is
// null, on disk.
__global__ void __launch_bounds__(kThreadsPerBlock)
    AddRecordsKernel(TiersView tiers, char* record, int64_t stride, int64_t first, int64_t n,
                     bool on_device) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    const int64_t row = first + i;
    tiers.addresses[row] = record == nullptr ? nullptr : record + i * stride;
    tiers.frame_of_row[row] = on_device ? static_cast<int32_t>(row) : -1;
    if (on_device) tiers.row_of_frame[row] = row;
  }
}

// A table in a call of BringUp.
struct TierPart {
  TiersView tiers;
  const int64_t* rows = nullptr;
  uint32_t call = 0;

  __device__ int64_t hand() const { return tiers.words[call % 2]; }
};

// A call's rows, and the places that the clocks of its tables may pass, both numbered over all tables.
struct TierCall {
  int parts = 0;
  const TierPart* part = nullptr;         // [parts]
  const int64_t* row_begin = nullptr;     // [parts + 1]
  const int64_t* places_begin = nullptr;  // [parts + 1]
  int64_t rows = 0;
  int64_t places = 0;
};

// A row of the call.
struct RowOfCall {
  const TierPart& part;
  int64_t row;

  __device__ bool is_needed() const { return row >= 0; }
  __device__ int32_t frame() const { return part.tiers.frame_of_row[row]; }
};
__device__ __forceinline__ RowOfCall RowAt(const TierCall& call, int64_t i) {
  const int t = PartOf(call.row_begin, call.parts, i);
  return {call.part[t], call.part[t].rows[i - call.row_begin[t]]};
}

// A place of a clock: a frame, and how often the clock has passed it before.
struct PlaceOfClock {
  int64_t frame;
  int64_t passes;
};
__device__ __forceinline__ PlaceOfClock PlaceAt(const TierPart& part, int64_t offset) {
  return {(part.hand() + offset) % part.tiers.frames, offset / part.tiers.frames};
}

__device__ __forceinline__ uint32_t UsedBy(const TierPart& part, uint32_t use) {
  const uint32_t uses = use & kMostUses;
  const uint32_t more = !part.tiers.by_frequency ? 1 : uses < kMostUses ? uses + 1 : kMostUses;
  return part.call << kUseBits | more;
}

__global__ void __launch_bounds__(kThreadsPerBlock) UseFramesKernel(TierCall call) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < call.rows; i += ThreadsOfGrid()) {
    const RowOfCall row = RowAt(call, i);
    if (!row.is_needed() || row.frame() < 0) continue;
    uint32_t* const use = row.part.tiers.uses + row.frame();
    *use = UsedBy(row.part, *use);
    atomicAdd(reinterpret_cast<unsigned long long*>(row.part.tiers.words + kTierHits), 1ull);
  }
}

struct IsMissing {
  TierCall call;
  __device__ bool operator()(int64_t i) const {
    const RowOfCall row = RowAt(call, i);
    return row.is_needed() && row.frame() < 0;
  }
};

struct IsVictim {
  TierCall call;
  __device__ bool operator()(int64_t place) const {
    const int t = PartOf(call.places_begin, call.parts, place);
    const TierPart& part = call.part[t];
    const PlaceOfClock at = PlaceAt(part, place - call.places_begin[t]);
    const uint32_t use = part.tiers.uses[at.frame];
    return use >> kUseBits != part.call && (use & kMostUses) == at.passes;
  }
};

// The records to exchange: the first missing rows of each table, and as many victims.
struct Exchanges {
  TierCall call;
  FlagRanks missing;
  FlagRanks victims;
  // Of the tables' exchanges, numbered from call.row_begin on.
  int64_t* rows = nullptr;    // that come up
  int64_t* frames = nullptr;  // where to
  int64_t* ends = nullptr;    // [parts]: the places that the clock passes

  __device__ int64_t NumMissing(int t) const {
    return missing.Before(call.row_begin[t + 1]) - missing.Before(call.row_begin[t]);
  }
  __device__ int64_t NumVictims(int t) const {
    return victims.Before(call.places_begin[t + 1]) - victims.Before(call.places_begin[t]);
  }
  __device__ int64_t Count(int t) const {
    const int64_t missing_rows = NumMissing(t);
    const int64_t frames_found = NumVictims(t);
    return missing_rows < frames_found ? missing_rows : frames_found;
  }
  // How many places the clock of table `t` passes: to the last victim, or all if there are too few.
  __device__ int64_t PlacesPassed(int t) const {
    const int64_t missing_rows = NumMissing(t);
    if (missing_rows == 0) return 0;
    return missing_rows <= NumVictims(t) ? ends[t] : call.places_begin[t + 1] - call.places_begin[t];
  }
};

__global__ void __launch_bounds__(kThreadsPerBlock) ListExchangesKernel(Exchanges work) {
  AwaitPreviousKernels();
  const TierCall& call = work.call;
  for (int64_t i = ThreadOfGrid(); i < call.rows; i += ThreadsOfGrid()) {
    if (!work.missing.IsFlagged(i)) continue;
    const int t = PartOf(call.row_begin, call.parts, i);
    const int64_t k = work.missing.Before(i) - work.missing.Before(call.row_begin[t]);
    work.rows[call.row_begin[t] + k] = call.part[t].rows[i - call.row_begin[t]];
  }
  for (int64_t place = ThreadOfGrid(); place < call.places; place += ThreadsOfGrid()) {
    if (!work.victims.IsFlagged(place)) continue;
    const int t = PartOf(call.places_begin, call.parts, place);
    const TierPart& part = call.part[t];
    const int64_t k = work.victims.Before(place) - work.victims.Before(call.places_begin[t]);
    if (k >= work.NumMissing(t)) continue;
    const int64_t offset = place - call.places_begin[t];
    const int64_t frame = PlaceAt(part, offset).frame;
    work.frames[call.row_begin[t] + k] = frame;
    // By frequency, the first use is none that counts.
    part.tiers.uses[frame] = part.call << kUseBits | (part.tiers.by_frequency ? 0 : 1);
    if (k + 1 == work.NumMissing(t)) work.ends[t] = offset + 1;
  }
}

// Exchanges the records of a row in host memory and of the one in `frame`, by some lanes of a warp.
__device__ __forceinline__ void Exchange(const TiersView& tiers, const LaneGroup& group, int64_t row,
                                         int64_t frame) {
  const int64_t victim = tiers.row_of_frame[frame];
  char* const below = tiers.addresses[row];
  char* const above = tiers.addresses[victim];
  for (int64_t at = int64_t{16} * group.lane(); at < tiers.record_bytes; at += int64_t{16} * group.lanes()) {
    auto* const one = reinterpret_cast<uint4*>(below + at);
    auto* const other = reinterpret_cast<uint4*>(above + at);
    const uint4 up = *one;
    const uint4 down = *other;
    *other = up;
    *one = down;
  }
  // All lanes have read the addresses.
  group.Sync();
  if (group.lane() > 0) return;
  tiers.addresses[row] = above;
  tiers.addresses[victim] = below;
  tiers.frame_of_row[row] = static_cast<int32_t>(frame);
  tiers.frame_of_row[victim] = -1;
  tiers.row_of_frame[frame] = row;
  if (tiers.disk_call == 0) return;
  *FrameOf(below) = {victim, tiers.disk_call << kUseBits | (tiers.by_frequency ? 0 : 1), 1};
}

// Counts the uses of a frame down that the clock has passed, except those that this call needs.
__device__ __forceinline__ void CountDown(const TierPart& part, int64_t offset, int64_t passed) {
  if (offset >= passed || offset >= part.tiers.frames) return;
  uint32_t* const use = part.tiers.uses + PlaceAt(part, offset).frame;
  if (*use >> kUseBits == part.call) return;
  const auto passes = static_cast<uint32_t>((passed - offset + part.tiers.frames - 1) / part.tiers.frames);
  const uint32_t uses = *use & kMostUses;
  *use -= uses < passes ? uses : passes;
}

__global__ void __launch_bounds__(kThreadsPerBlock) ExchangeKernel(Exchanges work, int lanes_log2) {
  AwaitPreviousKernels();
  const TierCall& call = work.call;
  const LaneGroup group(PartPlace{0, call.rows, lanes_log2});
  for (int64_t i = group.item(); i < call.rows; i += ThreadsOfGrid() >> lanes_log2) {
    const int t = PartOf(call.row_begin, call.parts, i);
    if (i - call.row_begin[t] < work.Count(t)) {
      Exchange(call.part[t].tiers, group, work.rows[i], work.frames[i]);
    }
  }
  for (int64_t place = ThreadOfGrid(); place < call.places; place += ThreadsOfGrid()) {
    const int t = PartOf(call.places_begin, call.parts, place);
    CountDown(call.part[t], place - call.places_begin[t], work.PlacesPassed(t));
  }
  for (int64_t t = ThreadOfGrid(); t < call.parts; t += ThreadsOfGrid()) {
    const TierPart& part = call.part[t];
    const int table = static_cast<int>(t);
    // Other threads still read the hand of this call.
    part.tiers.words[(part.call + 1) % 2] = PlaceAt(part, work.PlacesPassed(table)).frame;
    part.tiers.words[kTierMisses] += work.NumMissing(table);
    part.tiers.words[kBytesMoved] += work.Count(table) * part.tiers.record_bytes;
  }
}

}  // namespace

DeviceTiers::DeviceTiers(const TierOptions& options, int64_t record_bytes, DeviceAllocator* device,
                         DeviceAllocator* host, int64_t slab_bytes)
    : options_(options),
      record_bytes_(record_bytes),
      limit_(
          std::clamp<int64_t>(options.memory_bytes / record_bytes, 1, std::numeric_limits<int32_t>::max())),
      slab_bytes_(slab_bytes),
      device_(device),
      host_(host),
      addresses_(device),
      frame_of_row_(device),
      row_of_frame_(device),
      uses_(device),
      words_(device) {}

Status DeviceTiers::AddDisk() {
  if (!options_.has_disk()) return OkStatus();
  SOK_ASSIGN_OR_RETURN(disk_, TierDisk::Create(options_, record_bytes_));
  return OkStatus();
}

StatusOr<DeviceBuffer<char>> DeviceTiers::AllocateSlab(cudaStream_t stream, int64_t first, int64_t rows) {
  const bool on_device = first < limit_;
  const int64_t end = on_device ? std::min(rows, limit_) : rows;
  const int64_t n = std::min(end - first, std::max<int64_t>(slab_bytes_ / StrideAt(first), 1));
  StatusOr<DeviceBuffer<char>> slab =
      DeviceBuffer<char>::Allocate(on_device ? device_ : host_, stream, n * StrideAt(first));
  if (!slab.ok() || !on_device) return slab;
  // A record may go down before it was written, and device memory must not be read before.
  SOK_RETURN_IF_CUDA_ERROR(
      cudaMemsetAsync(slab.value().data(), 0, static_cast<size_t>(slab.value().bytes()), stream),
      "cannot clear ", slab.value().bytes(), " bytes of the device");
  return slab;
}

Status DeviceTiers::AddRecords(cudaStream_t stream, char* slab, int64_t first, int64_t n) {
  const bool on_device = first < limit_;
  char* record = slab;
  if (!on_device && disk_ != nullptr && slab != nullptr) {
    disk_->AddFrames(slab, first, n);
    record += sizeof(HostFrame);
  }
  return Launch("AddRecords", stream, ShapeFor(n), AddRecordsKernel, view(), record, StrideAt(first), first,
                n, on_device);
}

Status DeviceTiers::AddFrames(cudaStream_t stream, int64_t n) {
  // Some more, so that it happens seldom.
  const int64_t frames = std::max(n, disk_->frames() / 8);
  SOK_ASSIGN_OR_RETURN(auto slab, DeviceBuffer<char>::Allocate(host_, stream, frames * disk_->frame_bytes()));
  disk_->AddFrames(slab.data(), /*first=*/-1, frames);
  slabs_.push_back(std::move(slab));
  return OkStatus();
}

Status DeviceTiers::Reserve(cudaStream_t stream, int64_t rows) {
  if (rows <= rows_) return OkStatus();
  if (rows > std::numeric_limits<int64_t>::max() / record_bytes_) {
    return ResourceExhausted("cannot make room for ", rows, " records of ", record_bytes_, " bytes");
  }
  const int64_t frames = std::min(rows, limit_);
  SOK_RETURN_IF_ERROR(words_.Reserve(stream, kNumTierWords));
  SOK_RETURN_IF_ERROR(addresses_.Reserve(stream, rows));
  SOK_RETURN_IF_ERROR(frame_of_row_.Reserve(stream, rows));
  SOK_RETURN_IF_ERROR(row_of_frame_.Reserve(stream, frames));
  SOK_RETURN_IF_ERROR(uses_.Reserve(stream, frames));
  const int64_t in_memory = disk_ == nullptr ? rows : std::min(rows, limit_ + disk_->limit());
  std::vector<DeviceBuffer<char>> added;
  for (int64_t first = rows_; first < in_memory; first += added.back().size() / StrideAt(first)) {
    SOK_ASSIGN_OR_RETURN(DeviceBuffer<char> slab, AllocateSlab(stream, first, in_memory));
    added.push_back(std::move(slab));
  }
  int64_t first = rows_;
  for (DeviceBuffer<char>& slab : added) {
    const int64_t n = slab.size() / StrideAt(first);
    SOK_RETURN_IF_ERROR(AddRecords(stream, slab.data(), first, n));
    slabs_.push_back(std::move(slab));
    first += n;
  }
  if (first < rows) SOK_RETURN_IF_ERROR(AddRecords(stream, nullptr, first, rows - first));
  set_stream(stream);
  rows_ = rows;
  return OkStatus();
}

void DeviceTiers::TakeCounts(DeviceTiers* other) {
  call_ = other->call_;
  std::swap(words_, other->words_);
  if (disk_ != nullptr) disk_->CountOnFrom(*other->disk_);
}

Status DeviceTiers::FetchCounts(cudaStream_t stream, RoundTrip* round_trip, TierCounts* counts) const {
  if (rows_ == 0) return OkStatus();
  SOK_ASSIGN_OR_RETURN(const int64_t* const words, round_trip->Fetch(stream, words_.data(), kNumTierWords));
  counts->hits = words[kTierHits];
  counts->misses = words[kTierMisses];
  counts->bytes_up = counts->bytes_down = words[kBytesMoved];
  if (disk_ == nullptr) return OkStatus();
  counts->disk_rows = disk_->rows_read();
  counts->bytes_on_disk = disk_->file().bytes();
  return OkStatus();
}

void DeviceTiers::set_stream(cudaStream_t stream) {
  for (DeviceBuffer<char>& slab : slabs_) slab.set_stream(stream);
  addresses_.set_stream(stream);
  frame_of_row_.set_stream(stream);
  row_of_frame_.set_stream(stream);
  uses_.set_stream(stream);
  words_.set_stream(stream);
}

TiersView DeviceTiers::view() const {
  TiersView view;
  view.addresses = addresses_.data();
  view.frame_of_row = frame_of_row_.data();
  view.row_of_frame = row_of_frame_.data();
  view.uses = uses_.data();
  view.words = words_.data();
  view.frames = frames();
  view.record_bytes = record_bytes_;
  view.by_frequency = options_.by_frequency;
  view.disk_call = disk_ == nullptr ? 0 : disk_->call();
  return view;
}

uint32_t DeviceTiers::BeginCall() { return call_ = (call_ + 1) & kUseCalls; }

int64_t DeviceTiers::bytes() const {
  int64_t bytes =
      addresses_.bytes() + frame_of_row_.bytes() + row_of_frame_.bytes() + uses_.bytes() + words_.bytes();
  for (const DeviceBuffer<char>& slab : slabs_) bytes += slab.bytes();
  return bytes;
}

namespace {

// How many places a clock may pass; none if all records are on the device.
int64_t PlacesOf(const NeededRows& needed, int64_t tables) {
  const int64_t frames = needed.tiers->frames();
  if (frames == needed.tiers->rows()) return 0;
  const int64_t most = std::numeric_limits<int32_t>::max() / tables;  // RankFlags takes fewer than 2^31
  return std::min(
      {(int64_t{kMostUses} + 1) * frames, std::max(kPlacesOfRow * needed.n, kFewestPlaces), most});
}

Status EnqueueExchanges(cudaStream_t stream, DeviceAllocator* scratch, const TierCall& call,
                        int64_t record_bytes) {
  RankedFlags missing;
  RankedFlags victims;
  SOK_ASSIGN_OR_RETURN(const auto lists,
                       DeviceBuffer<int64_t>::Allocate(scratch, stream, 2 * call.rows + call.parts));
  SOK_RETURN_IF_ERROR(RankFlags("FindMissing", stream, scratch, call.rows, IsMissing{call}, &missing));
  SOK_RETURN_IF_ERROR(RankFlags("FindVictims", stream, scratch, call.places, IsVictim{call}, &victims));
  int64_t* const rows = lists.data();
  const Exchanges work = {call, missing.ranks(),  victims.ranks(),
                          rows, rows + call.rows, rows + 2 * call.rows};
  SOK_RETURN_IF_ERROR(
      Launch("ListExchanges", stream, ShapeFor(std::max(call.rows, call.places)), ListExchangesKernel, work));
  const int lanes_log2 = LanesLog2(record_bytes / 4, /*width=*/4);
  const int64_t threads = std::max(call.rows << lanes_log2, call.places);
  return Launch("Exchange", stream, ShapeFor(threads), ExchangeKernel, work, lanes_log2);
}

}  // namespace

Status BringUp(cudaStream_t stream, DeviceAllocator* scratch, StagedUpload* upload,
               Span<const NeededRows> tables) {
  std::vector<TierPart> parts;
  std::vector<const DeviceTiers*> seen;
  std::vector<NeededRows> again;
  std::vector<int64_t> row_begin = {0};
  std::vector<int64_t> places_begin = {0};
  int64_t record_bytes = 0;
  for (const NeededRows& needed : tables) {
    if (needed.n == 0 || needed.tiers->rows() == 0) continue;
    if (std::find(seen.begin(), seen.end(), needed.tiers) != seen.end()) {
      again.push_back(needed);
      continue;
    }
    seen.push_back(needed.tiers);
    parts.push_back({needed.tiers->view(), needed.rows, needed.tiers->BeginCall()});
    row_begin.push_back(row_begin.back() + needed.n);
    places_begin.push_back(places_begin.back() + PlacesOf(needed, tables.size()));
    record_bytes = std::max(record_bytes, needed.tiers->record_bytes());
  }
  if (parts.empty()) return OkStatus();
  TierCall call;
  call.parts = static_cast<int>(parts.size());
  call.rows = row_begin.back();
  call.places = places_begin.back();
  upload->Add(Span<const TierPart>(parts), &call.part);
  upload->Add(Span<const int64_t>(row_begin), &call.row_begin);
  upload->Add(Span<const int64_t>(places_begin), &call.places_begin);
  SOK_ASSIGN_OR_RETURN(const DeviceBuffer<char> uploaded, upload->Send(stream, scratch));
  SOK_RETURN_IF_ERROR(Launch("UseFrames", stream, ShapeFor(call.rows), UseFramesKernel, call));
  if (call.places > 0) SOK_RETURN_IF_ERROR(EnqueueExchanges(stream, scratch, call, record_bytes));
  return BringUp(stream, scratch, upload, again);
}

}  // namespace sok
