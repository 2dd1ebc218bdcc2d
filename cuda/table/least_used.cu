#include <limits>
#include <utility>
#include <vector>

#include "cuda/base/device_buffer.h"
#include "cuda/base/launch.h"
#include "cuda/scan/flag_ranks.h"
#include "cuda/scan/item_sorter.h"
#include "cuda/table/device_row_changes.h"
#include "cuda/table/least_used.h"

namespace sok {
namespace {

constexpr int kDigitBits = 11;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kDigitsOfThread = kDigits / kThreadsPerBlock;

// A digit of a priority: bits of one of its numbers from `shift` on.
struct Digit {
  enum class Number { kNone, kFrequencyLength, kFrequency, kLastUsed, kKey };
  Number number = Number::kNone;
  int shift = 0;
};

// Which rows were chosen by the digits so far, and which are undecided ("open").
struct Marks {
  uint32_t* open = nullptr;    // [words]: a bit for each row
  uint32_t* chosen = nullptr;  // [words]
  int64_t words = 0;
};

// The decision by a digit: open rows with smaller digits are chosen, those with larger ones are not.
struct Cut {
  int32_t digit = 0;
  int32_t takes_equal = 0;  // whether all rows with this digit are chosen; else they stay open
  int32_t left = 0;         // rows to choose from those that stay open
};

// Increases with the number: its length, and the five bits after the first. Frequencies have up to 63 bits,
// of which few are in use; their first digit in the usual sense would be 0 for all rows.
__device__ int LengthAndFirstBits(uint64_t number) {
  if (number < 32) return static_cast<int>(number);
  const int length = 64 - __clzll(static_cast<long long>(number));
  return (length - 5) * 32 + static_cast<int>(number >> (length - 6) & 31);
}

__device__ int DigitOf(const RowPriorities& priorities, Digit digit, int64_t row) {
  uint64_t number = 0;
  switch (digit.number) {
    case Digit::Number::kFrequencyLength:
      return LengthAndFirstBits(priorities.Frequency(row));
    case Digit::Number::kFrequency:
      number = priorities.Frequency(row);
      break;
    case Digit::Number::kLastUsed:
      number = priorities.LastUsed(row);
      break;
    default:
      number = priorities.Key(row);
  }
  return static_cast<int>(number >> digit.shift & (kDigits - 1));
}

// Counts the lanes' digits, adding equal ones together, because most rows of a table may have the same digit.
__device__ void CountDigits(bool counts, int digit, uint32_t* histogram) {
  const unsigned counting = __ballot_sync(kAllLanes, counts);
  if (!counts) return;
  const unsigned equal = __match_any_sync(counting, digit);
  const int first = __ffs(static_cast<int>(equal)) - 1;
  if (static_cast<int>(threadIdx.x % 32) == first) atomicAdd(&histogram[digit], __popc(equal));
}

// Decides open rows by the digit `last`, whose decision is *cut, and counts the next digit of those that stay
// open. Either digit may be absent. One warp per word of marks.
__global__ void __launch_bounds__(kThreadsPerBlock)
    DecideRowsKernel(RowPriorities priorities, Marks marks, Digit last, const Cut* cut, Digit next,
                     uint32_t* histogram) {
  AwaitPreviousKernels();
  __shared__ uint32_t of_block[kDigits];
  for (int digit = static_cast<int>(threadIdx.x); digit < kDigits; digit += kThreadsPerBlock) {
    of_block[digit] = 0;
  }
  __syncthreads();
  const bool decides = last.number != Digit::Number::kNone;
  const bool counts = next.number != Digit::Number::kNone;
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int64_t word = ThreadOfGrid() / 32; word < marks.words; word += ThreadsOfGrid() / 32) {
    const uint32_t open_bits = __shfl_sync(kAllLanes, lane == 0 ? marks.open[word] : 0u, 0);
    if (open_bits == 0) continue;
    const int64_t row = word * 32 + lane;
    bool open = (open_bits >> lane & 1) != 0;
    if (decides) {
      const int digit = open ? DigitOf(priorities, last, row) : kDigits;
      const bool takes_equal = cut->takes_equal != 0;
      const bool chosen = digit < cut->digit || (digit == cut->digit && takes_equal);
      open = digit == cut->digit && !takes_equal;
      const uint32_t chosen_bits = __ballot_sync(kAllLanes, chosen);
      const uint32_t still_open = __ballot_sync(kAllLanes, open);
      if (lane == 0) {
        marks.chosen[word] |= chosen_bits;
        marks.open[word] = still_open;
      }
    }
    if (counts) CountDigits(open, open ? DigitOf(priorities, next, row) : 0, of_block);
  }
  if (!counts) return;
  __syncthreads();
  for (int digit = static_cast<int>(threadIdx.x); digit < kDigits; digit += kThreadsPerBlock) {
    if (of_block[digit] > 0) atomicAdd(&histogram[digit], of_block[digit]);
  }
}

// Finds the digit at which the histogram's counts reach cut->left rows, and clears the histogram. One block.
// If no rows are left to choose, no row stays open.
__global__ void __launch_bounds__(kThreadsPerBlock) CutKernel(uint32_t* histogram, Cut* cut) {
  AwaitPreviousKernels();
  __shared__ int32_t of_warps[kThreadsPerBlock / 32];
  const int thread = static_cast<int>(threadIdx.x);
  uint32_t* const own = histogram + thread * kDigitsOfThread;
  int32_t counts[kDigitsOfThread];
  int32_t sum = 0;
  for (int k = 0; k < kDigitsOfThread; ++k) {
    counts[k] = static_cast<int32_t>(own[k]);
    sum += counts[k];
    own[k] = 0;
  }
  const int32_t through = InclusiveSumInWarp(sum);
  if (thread % 32 == 31) of_warps[thread / 32] = through;
  const int32_t left = cut->left;
  __syncthreads();
  int32_t before = through - sum;
  for (int warp = 0; warp < thread / 32; ++warp) before += of_warps[warp];
  for (int k = 0; k < kDigitsOfThread; ++k) {
    const int32_t here = counts[k];
    if (before < left && left <= before + here) {
      const bool takes_equal = left == before + here;
      *cut = {thread * kDigitsOfThread + k, takes_equal ? 1 : 0, takes_equal ? 0 : left - before};
    }
    before += here;
  }
}

__global__ void StartCutKernel(Cut* cut, int32_t n) {
  AwaitPreviousKernels();
  *cut = {0, 0, n};
}

// The digits of a number of `bits` bits, most significant first.
void AddDigits(Digit::Number number, int bits, std::vector<Digit>* digits) {
  for (int shift = (bits - 1) / kDigitBits * kDigitBits; shift >= 0; shift -= kDigitBits) {
    digits->push_back({number, shift});
  }
}

std::vector<Digit> DigitsOf(const RowPriorities& priorities) {
  std::vector<Digit> digits;
  if (priorities.by_frequency) {
    digits.push_back({Digit::Number::kFrequencyLength, 0});
    AddDigits(Digit::Number::kFrequency, 63, &digits);
  }
  AddDigits(Digit::Number::kLastUsed, BitsOf(priorities.uses), &digits);
  AddDigits(Digit::Number::kKey, 64, &digits);
  return digits;
}

}  // namespace

Status ChooseLeast(cudaStream_t stream, DeviceAllocator* scratch, const RowPriorities& priorities,
                   int64_t rows, int64_t n, uint32_t* candidates) {
  const int64_t words = (rows + 31) / 32;
  // Chosen rows, the histogram, and the cut.
  constexpr int64_t kCutWords = sizeof(Cut) / sizeof(uint32_t);
  SOK_ASSIGN_OR_RETURN(auto memory,
                       DeviceBuffer<uint32_t>::Allocate(scratch, stream, words + kDigits + kCutWords));
  const Marks marks = {candidates, memory.data(), words};
  uint32_t* const histogram = marks.chosen + words;
  auto* const cut = reinterpret_cast<Cut*>(histogram + kDigits);
  SOK_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(marks.chosen, 0, (words + kDigits) * sizeof(uint32_t), stream),
                           "cannot clear ", memory.bytes(), " bytes on the device");
  SOK_RETURN_IF_ERROR(Launch("StartCut", stream, {1, 1, 0}, StartCutKernel, cut, static_cast<int32_t>(n)));
  Digit last;
  const auto decide = [&](Digit next) {
    return Launch("DecideRows", stream, ShapeFor(words, 32), DecideRowsKernel, priorities, marks, last, cut,
                  next, histogram);
  };
  for (const Digit digit : DigitsOf(priorities)) {
    SOK_RETURN_IF_ERROR(decide(digit));
    SOK_RETURN_IF_ERROR(Launch("Cut", stream, {1, kThreadsPerBlock, 0}, CutKernel, histogram, cut));
    last = digit;
  }
  SOK_RETURN_IF_ERROR(decide(Digit()));
  SOK_RETURN_IF_CUDA_ERROR(
      cudaMemcpyAsync(candidates, marks.chosen, words * sizeof(uint32_t), cudaMemcpyDeviceToDevice, stream),
      "cannot copy the marks of rows");
  return OkStatus();
}

namespace {

// Turns the bits of kept rows into those of rows in use that are not kept. One warp per word.
__global__ void __launch_bounds__(kThreadsPerBlock)
    CandidatesKernel(ColumnView<uint32_t> states, int64_t rows, int64_t words, uint32_t* bits) {
  AwaitPreviousKernels();
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int64_t word = ThreadOfGrid() / 32; word < words; word += ThreadsOfGrid() / 32) {
    const int64_t row = word * 32 + lane;
    const uint32_t in_use = __ballot_sync(kAllLanes, row < rows && IsInUse(states[row]));
    if (lane == 0) bits[word] = in_use & ~bits[word];
  }
}

struct IsMarked {
  const uint32_t* bits;
  __device__ bool operator()(int64_t row) const { return (bits[row / 32] >> (row % 32) & 1) != 0; }
};

__global__ void __launch_bounds__(kThreadsPerBlock)
    ListFlaggedKernel(FlagRanks ranks, int64_t n, int32_t* rows) {
  AwaitPreviousKernels();
  for (int64_t row = ThreadOfGrid(); row < n; row += ThreadsOfGrid()) {
    if (ranks.IsFlagged(row)) rows[ranks.Before(row)] = static_cast<int32_t>(row);
  }
}

struct KeysOfRows {
  RowPriorities of;
  __device__ uint64_t operator()(int64_t row) const { return of.Key(row); }
};
struct LastUsesOfRows {
  RowPriorities of;
  __device__ uint64_t operator()(int64_t row) const { return of.LastUsed(row); }
};
struct FrequenciesOfRows {
  RowPriorities of;
  __device__ uint64_t operator()(int64_t row) const { return of.Frequency(row); }
};

__global__ void __launch_bounds__(kThreadsPerBlock)
    WidenKernel(const int32_t* rows, int64_t n, int64_t* wide) {
  AwaitPreviousKernels();
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) wide[i] = rows[i];
}

RowPriorities PrioritiesOf(const DeviceTable& table) {
  RowPriorities priorities;
  priorities.keys = table.directory().view().keys;
  priorities.last_used = table.usage().last_used->view();
  priorities.uses = table.uses();
  priorities.by_frequency = table.options().on_full == OnFull::kEvictLfu;
  if (priorities.by_frequency) priorities.frequency = table.usage().frequency->view();
  return priorities;
}

// Lists the `n` rows with the least priorities that are in use and not kept, in the order of their numbers.
Status ListLeast(cudaStream_t stream, DeviceAllocator* scratch, const DeviceTable& table,
                 const RowPriorities& priorities, const int64_t* kept, int64_t num_kept, int64_t n,
                 int32_t* rows) {
  const int64_t limit = table.row_limit();
  const int64_t words = (limit + 31) / 32;
  SOK_ASSIGN_OR_RETURN(auto memory, DeviceBuffer<uint32_t>::Allocate(scratch, stream, words));
  uint32_t* const bits = memory.data();
  SOK_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(bits, 0, static_cast<size_t>(memory.bytes()), stream),
                           "cannot clear ", memory.bytes(), " bytes on the device");
  SOK_RETURN_IF_ERROR(MarkRows(stream, kept, num_kept, bits));
  SOK_RETURN_IF_ERROR(Launch("Candidates", stream, ShapeFor(words, 32), CandidatesKernel,
                             table.directory().view().states, limit, words, bits));
  SOK_RETURN_IF_ERROR(ChooseLeast(stream, scratch, priorities, limit, n, bits));
  RankedFlags flags;
  SOK_RETURN_IF_ERROR(RankFlags("IsMarked", stream, scratch, limit, IsMarked{bits}, &flags));
  return Launch("ListFlagged", stream, ShapeFor(limit), ListFlaggedKernel, flags.ranks(), limit, rows);
}

}  // namespace

Status ListLeastUsed(cudaStream_t stream, DeviceAllocator* scratch, DeviceTable* table, const int64_t* kept,
                     int64_t num_kept, int64_t n, DeviceBuffer<int64_t>* rows) {
  if (table->row_limit() > std::numeric_limits<int32_t>::max()) {
    return ResourceExhausted("cannot number the rows of a table that has had ", table->row_limit(),
                             " on a device");
  }
  const RowPriorities priorities = PrioritiesOf(*table);
  ItemSorter sorter(stream, scratch, n);
  SOK_RETURN_IF_ERROR(sorter.Reserve());
  SOK_RETURN_IF_ERROR(ListLeast(stream, scratch, *table, priorities, kept, num_kept, n, sorter.items()));
  SOK_RETURN_IF_ERROR(sorter.SortBy(KeysOfRows{priorities}, 64));
  SOK_RETURN_IF_ERROR(sorter.SortBy(LastUsesOfRows{priorities}, BitsOf(priorities.uses)));
  if (priorities.by_frequency) SOK_RETURN_IF_ERROR(sorter.SortBy(FrequenciesOfRows{priorities}, 63));
  SOK_ASSIGN_OR_RETURN(*rows, DeviceBuffer<int64_t>::Allocate(scratch, stream, n));
  return Launch("WidenRows", stream, ShapeFor(n), WidenKernel, sorter.items(), n, rows->data());
}

}  // namespace sok
