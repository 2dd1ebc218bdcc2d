// Prints the predictions of cuda/programs/prediction.h: Markdown tables for docs/performance-gpu.md, or JSON.
//
//   predict          the tables
//   predict --json   {"predictions": [{"operation", "dim", "device", "bytes_per_id", ...}, ...],
//                     "kernels": {"FILE: NAME": resident warps, ...}}, as cuda/resources/kernels.txt names
//                     them
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "cuda/programs/prediction.h"

namespace sok {
namespace {

constexpr DeviceModel kDevices[] = {kA100, kH100};

constexpr int64_t kDims[] = {8, 16, 32, 64, 128, 256};

// A line for each kernel: bytes for each id, and of these the sectors at random places, by dim.
void PrintKernels() {
  std::printf("| kernels |");
  for (const int64_t dim : kDims) std::printf(" %d |", static_cast<int>(dim));
  std::printf("\n|---|---|---|---|---|---|---|\n");
  std::vector<std::vector<NamedWork>> by_dim;
  for (const int64_t dim : kDims) by_dim.push_back(KernelsOf(kDevices[0], dim));
  for (size_t i = 0; i < by_dim[0].size(); ++i) {
    std::printf("| %s |", by_dim[0][i].name.c_str());
    for (const std::vector<NamedWork>& kernels : by_dim) {
      const KernelWork& work = kernels[i].work;
      std::printf(" %.0f (%.1f) |", work.traffic.total(), work.random / kSectorBytes);
    }
    std::printf("\n");
  }
}

// A line for each operation and dim.
void PrintOperations() {
  std::printf("| operation | dim | bytes per id |");
  for (const DeviceModel& device : kDevices) std::printf(" %s: G ids/s | share |", device.name);
  std::printf(" bound |\n|---|---|---|---|---|---|---|---|\n");
  const std::vector<Operation> operations[] = {OperationsOf(kDevices[0]), OperationsOf(kDevices[1])};
  std::map<std::string, std::vector<size_t>> by_name;
  std::vector<std::string> names;
  for (size_t i = 0; i < operations[0].size(); ++i) {
    std::vector<size_t>& numbers = by_name[operations[0][i].name];
    if (numbers.empty()) names.push_back(operations[0][i].name);
    numbers.push_back(i);
  }
  for (const std::string& name : names) {
    for (const size_t i : by_name[name]) {
      const Operation& operation = operations[0][i];
      std::printf("| %s | %s | %.0f |", name.c_str(),
                  operation.dim == 0 ? "any" : std::to_string(operation.dim).c_str(), operation.bytes());
      double waiting = 0;
      for (size_t d = 0; d < 2; ++d) {
        const Prediction prediction = Predict(operations[d][i], kDevices[d]);
        waiting = std::max(waiting, prediction.waiting_share);
        std::printf(" %.2f | %.0f %% |", prediction.ids_per_second / 1e9, 100 * prediction.share);
      }
      std::printf(" %s |\n", waiting > 0.5 ? "waiting" : "memory");
    }
  }
}

void PrintJson() {
  std::printf("{\"predictions\": [");
  std::map<std::string, double> kernels;
  const char* separator = "\n";
  for (const DeviceModel& device : kDevices) {
    for (const Operation& operation : OperationsOf(device)) {
      const Prediction prediction = Predict(operation, device);
      std::printf(
          "%s{\"operation\": \"%s\", \"dim\": %d, \"device\": \"%s\", \"bytes_per_id\": %.1f, "
          "\"ids_per_second\": %.4g, \"share\": %.4f, \"waiting_share\": %.4f}",
          separator, operation.name.c_str(), static_cast<int>(operation.dim), device.name, operation.bytes(),
          prediction.ids_per_second, prediction.share, prediction.waiting_share);
      separator = ",\n";
      for (const KernelWork& work : operation.kernels) {
        if (work.kernel != nullptr) kernels[work.kernel] = work.warps;
      }
    }
  }
  std::printf("],\n\"kernels\": {");
  separator = "\n";
  for (const auto& [kernel, warps] : kernels) {
    std::printf("%s\"%s\": %.0f", separator, kernel.c_str(), warps);
    separator = ",\n";
  }
  std::printf("}}\n");
}

}  // namespace
}  // namespace sok

int main(int argc, char** argv) {
  if (argc == 1) {
    sok::PrintKernels();
    std::printf("\n");
    sok::PrintOperations();
    return 0;
  }
  if (argc == 2 && std::strcmp(argv[1], "--json") == 0) {
    sok::PrintJson();
    return 0;
  }
  std::fprintf(stderr, "usage: %s [--json]\n", argv[0]);
  return 2;
}
