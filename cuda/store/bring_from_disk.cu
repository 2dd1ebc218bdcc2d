#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "cuda/base/launch.h"
#include "cuda/base/parts.h"
#include "cuda/scan/flag_ranks.h"
#include "cuda/store/device_tiers.h"

namespace sok {
namespace {

// The rows of a table in a call of BringFromDisk.
struct DiskPart {
  TiersView tiers;
  RowList rows;
};

// All rows of a call, numbered over its tables.
struct DiskCall {
  int parts = 0;
  const DiskPart* part = nullptr;  // [parts]
  const int64_t* begin = nullptr;  // [parts + 1]
  int64_t rows = 0;
  DiskUse use = DiskUse::kStep;
};

// A row of the call, or a negative number.
__device__ __forceinline__ int64_t RowOfDiskCall(const DiskCall& call, int t, int64_t i) {
  const RowList& list = call.part[t].rows;
  const int64_t k = i - call.begin[t];
  return list.rows == nullptr ? list.first + k : list.rows[k];
}

// Rows in host memory stay there until the next call.
__global__ void __launch_bounds__(kThreadsPerBlock) UseHostFramesKernel(DiskCall call) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < call.rows; i += ThreadsOfGrid()) {
    const int t = PartOf(call.begin, call.parts, i);
    const TiersView& tiers = call.part[t].tiers;
    const int64_t row = RowOfDiskCall(call, t, i);
    if (row < 0 || tiers.frame_of_row[row] >= 0 || tiers.addresses[row] == nullptr) continue;
    HostFrame* const frame = FrameOf(tiers.addresses[row]);
    frame->has_content = 1;
    if (frame->use >> kUseBits == tiers.disk_call) continue;
    uint32_t uses = frame->use & kMostUses;
    if (call.use != DiskUse::kStep) {
      uses = !tiers.by_frequency ? 1 : uses < kMostUses ? uses + 1 : kMostUses;
    }
    frame->use = tiers.disk_call << kUseBits | uses;
  }
}

struct IsOnDisk {
  DiskCall call;
  __device__ bool operator()(int64_t i) const {
    const int t = PartOf(call.begin, call.parts, i);
    const int64_t row = RowOfDiskCall(call, t, i);
    return row >= 0 && call.part[t].tiers.addresses[row] == nullptr;
  }
};

// words[parts + total]: how many rows of each part are on disk, and these rows.
__global__ void __launch_bounds__(kThreadsPerBlock)
    ListOnDiskKernel(DiskCall call, FlagRanks on_disk, int64_t* words) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < call.rows; i += ThreadsOfGrid()) {
    if (!on_disk.IsFlagged(i)) continue;
    words[call.parts + on_disk.Before(i)] = RowOfDiskCall(call, PartOf(call.begin, call.parts, i), i);
  }
  for (int64_t t = ThreadOfGrid(); t < call.parts; t += ThreadsOfGrid()) {
    words[t] = on_disk.Before(call.begin[t + 1]) - on_disk.Before(call.begin[t]);
  }
}

__global__ void __launch_bounds__(kThreadsPerBlock)
    PlaceRecordsKernel(const PlacedRecord* placed, int64_t n) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    *placed[i].address = placed[i].record;
    *placed[i].frame = -1;
  }
}

// Marks the rows of each part as needed and, if `waits`, fetches which ones are on disk.
Status FetchRowsOnDisk(cudaStream_t stream, DeviceAllocator* scratch, TierDisk::Transfers* transfers,
                       Span<const DiskPart> parts, Span<const int64_t> begin, DiskUse use, bool waits,
                       std::vector<std::vector<int64_t>>* rows) {
  DiskCall call;
  call.parts = static_cast<int>(parts.size());
  call.rows = begin[parts.size()];
  call.use = use;
  transfers->upload.Add(parts, &call.part);
  transfers->upload.Add(begin, &call.begin);
  SOK_ASSIGN_OR_RETURN(const DeviceBuffer<char> uploaded, transfers->upload.Send(stream, scratch));
  if (use != DiskUse::kAhead) {
    SOK_RETURN_IF_ERROR(Launch("UseHostFrames", stream, ShapeFor(call.rows), UseHostFramesKernel, call));
  }
  if (!waits) return OkStatus();
  SOK_ASSIGN_OR_RETURN(const auto words,
                       DeviceBuffer<int64_t>::Allocate(scratch, stream, call.parts + call.rows));
  RankedFlags on_disk;
  SOK_RETURN_IF_ERROR(RankFlags("FindOnDisk", stream, scratch, call.rows, IsOnDisk{call}, &on_disk));
  SOK_RETURN_IF_ERROR(Launch("ListOnDisk", stream, ShapeFor(std::max<int64_t>(call.rows, call.parts)),
                             ListOnDiskKernel, call, on_disk.ranks(), words.data()));
  SOK_ASSIGN_OR_RETURN(const int64_t* const counts,
                       transfers->round_trip.Fetch(stream, words.data(), call.parts));
  const int64_t total = std::accumulate(counts, counts + call.parts, int64_t{0});
  if (total == 0) return OkStatus();
  SOK_ASSIGN_OR_RETURN(const int64_t* const fetched,
                       transfers->round_trip.Fetch(stream, words.data(), call.parts + total));
  const int64_t* next = fetched + call.parts;
  for (int t = 0; t < call.parts; ++t) {
    (*rows)[t].assign(next, next + fetched[t]);
    next += fetched[t];
  }
  return OkStatus();
}

}  // namespace

Status BringFromDisk(cudaStream_t stream, DeviceAllocator* scratch, Span<const RowsOnDisk> tables,
                     DiskUse use, int64_t* failed) {
  std::vector<DiskPart> parts;
  std::vector<int64_t> begin = {0};
  std::vector<int64_t> of_table;
  int64_t spare = 0;
  for (int64_t i = 0; i < tables.size(); ++i) {
    const RowsOnDisk& needed = tables[i];
    if (needed.tiers == nullptr || needed.tiers->disk() == nullptr || needed.tiers->rows() == 0) continue;
    if (needed.rows.n == 0 && needed.spare == 0) continue;
    parts.push_back({needed.tiers->view(), needed.rows});
    begin.push_back(begin.back() + needed.rows.n);
    of_table.push_back(i);
    spare += needed.spare;
  }
  if (parts.empty()) return OkStatus();
  *failed = of_table[0];
  TierDisk::Transfers& transfers = tables[of_table[0]].tiers->disk()->transfers();
  std::vector<std::vector<int64_t>> rows(parts.size());
  const bool waits = use != DiskUse::kNew || spare > 0;
  if (begin.back() > 0) {
    SOK_RETURN_IF_ERROR(FetchRowsOnDisk(stream, scratch, &transfers, parts, begin, use, waits, &rows));
  } else if (waits) {
    SOK_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream), "cannot wait for the device");
  }

  if (use == DiskUse::kAhead) {
    for (size_t p = 0; p < parts.size(); ++p) tables[of_table[p]].tiers->disk()->AskAhead(rows[p]);
    return OkStatus();
  }

  // For each record that comes up another may go down. Memory for this comes first.
  if (use == DiskUse::kNew) spare = 0;
  int64_t most = 2 * spare;
  for (const std::vector<int64_t>& missing : rows) most += 2 * static_cast<int64_t>(missing.size());
  if (most == 0) return OkStatus();
  if (transfers.placed.size() < most) {
    SOK_ASSIGN_OR_RETURN(transfers.placed, PinnedBuffer<PlacedRecord>::Allocate(most + most / 4));
  }
  int64_t n = 0;
  const auto bring_up = [&]() -> Status {
    for (size_t p = 0; p < parts.size(); ++p) {
      *failed = of_table[p];
      DeviceTiers* const tiers = tables[of_table[p]].tiers;
      std::vector<TierDisk::Moved> moved;
      const Status status = tiers->disk()->BringUp(
          std::move(rows[p]), use, use == DiskUse::kNew ? 0 : tables[of_table[p]].spare,
          [&](int64_t frames) { return tiers->AddFrames(stream, frames); }, &moved);
      for (const TierDisk::Moved& one : moved) {
        const TiersView& view = parts[p].tiers;
        transfers.placed.data()[n++] = {view.addresses + one.row, view.frame_of_row + one.row, one.record};
      }
      SOK_RETURN_IF_ERROR(status);
    }
    return OkStatus();
  };
  const Status status = bring_up();
  SOK_RETURN_IF_ERROR(
      Launch("PlaceRecords", stream, ShapeFor(n), PlaceRecordsKernel, transfers.placed.data(), n));
  return status;
}

}  // namespace sok
