// Prints the table of bytes in docs/performance-gpu.md: what the formulas of traffic.h give for each kernel,
// by the length of rows. The batch has 2^20 ids in bags of ten, all distinct, one of 20 new, on a device
// whose cache holds a batch's scratch.
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "cuda/programs/traffic.h"

namespace sok {
namespace {

constexpr int64_t kDims[] = {8, 16, 32, 64, 128, 256};

// Kernels, or a few that belong together, with their bytes for each id.
std::vector<std::pair<std::string, double>> BytesPerId(int64_t dim) {
  BatchShape batch;
  batch.dim = dim;
  batch.hotness = 10;
  batch.absent = 0.05;
  batch.cache_bytes = 40e6;
  std::vector<std::pair<std::string, double>> kernels = {
      {"distinct ids: `ClaimKernel`, `FlagTileKernel`, `NumberKernel`", DedupTraffic(batch).total()},
      {"rows of keys: `FindRowsKernel`", FindTraffic(batch.load, batch.absent).total()},
      {"new rows, 5 %: `ListKernel`, `MakeRowsKernel`", NewRowsTraffic(batch).total()},
      {"rows copied: `WriteOutputs`", GatherTraffic(batch).total()},
      {"rows pooled: `WriteOutputs`", PoolTraffic(batch).total()},
      {"segments: radix sort, `BeginsKernel`", SegmentsTraffic(batch).total()},
      {"gradients of ids: `FindGradients`", OccurrenceGradientsTraffic(batch).total()}};
  const std::pair<const char*, int64_t> slots[] = {{"SGD", 0}, {"Adagrad", 1}, {"LazyAdam", 2}, {"Adam", 2}};
  for (const auto& [rule, count] : slots) {
    batch.slots = count;
    batch.catches_up = std::string(rule) == "Adam";
    kernels.emplace_back("step, " + std::string(rule) + ": `UpdateRows`", UpdateTraffic(batch).total());
  }
  return kernels;
}

void Print() {
  std::printf("| kernels |");
  for (const int64_t dim : kDims) std::printf(" %d |", static_cast<int>(dim));
  std::printf("\n|---|---|---|---|---|---|---|\n");
  for (size_t i = 0; i < BytesPerId(kDims[0]).size(); ++i) {
    std::printf("| %s |", BytesPerId(kDims[0])[i].first.c_str());
    for (const int64_t dim : kDims) std::printf(" %.0f |", BytesPerId(dim)[i].second);
    std::printf("\n");
  }
}

}  // namespace
}  // namespace sok

int main() {
  sok::Print();
  return 0;
}
