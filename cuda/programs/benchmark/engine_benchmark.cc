// engine_benchmark: measures the speed of the engine's kernels, together with memory copies in the same
// rounds. Needs only a driver. Prints a table, and writes all numbers with --json=FILE, which
// benchmarks/measure.py draws.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>

#include "cuda/base/device_buffer.h"
#include "cuda/programs/benchmark/cases.h"
#include "cuda/programs/benchmark/options.h"
#include "cuda/programs/benchmark/report.h"

namespace sok {
namespace {

std::string Processor() {
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "";
}

// Measures one table after another while there is time.
class Run {
 public:
  Run(BenchmarkDevice* device, BenchmarkReport* report) : device_(device), report_(report) {}

  Status All() {
    const BenchmarkOptions& options = report_->options;
    if (options.Measures("index")) {
      for (const double load : {0.5, 0.75, 0.9}) {
        SOK_RETURN_IF_ERROR(Measure("index at load " + std::to_string(load), [&](std::vector<Case>* cases) {
          return MeasureIndex(device_, options, load, cases);
        }));
      }
    }
    // The dims for which there are aims come first.
    for (const int64_t dim : InOrder(options.dims)) SOK_RETURN_IF_ERROR(OfDim(dim));
    if (options.Measures("group")) {
      for (const int64_t dim : options.group_dims) {
        for (const std::string& optimizer : {std::string("lazy_adam"), SecondAdam()}) {
          SOK_RETURN_IF_ERROR(
              Measure(StrCat("group of dim ", dim, ", ", optimizer), [&](std::vector<Case>* cases) {
                return MeasureGroup(device_, options, dim, optimizer, cases);
              }));
        }
      }
    }
    if (options.Measures("tiers")) {
      for (const int64_t dim : options.group_dims) {
        SOK_RETURN_IF_ERROR(Measure(StrCat("tiers of dim ", dim), [&](std::vector<Case>* cases) {
          return MeasureTiers(device_, options, dim, cases);
        }));
      }
    }
    return OkStatus();
  }

 private:
  // Exact Adam, or in 16 bits, which it does not take, the one with a second moment for each row.
  std::string SecondAdam() const { return report_->options.record.is_float32() ? "adam" : "rowwise_adam"; }
  static std::vector<int64_t> InOrder(std::vector<int64_t> dims) {
    std::stable_partition(dims.begin(), dims.end(), [](int64_t dim) { return dim == 64; });
    return dims;
  }

  Status OfDim(int64_t dim) {
    const BenchmarkOptions& options = report_->options;
    if (options.Measures("rows")) {
      std::vector<int64_t> sizes = {options.ids};
      if (dim == 64) sizes.insert(sizes.end(), options.more_ids.begin(), options.more_ids.end());
      for (const int64_t ids : sizes) {
        SOK_RETURN_IF_ERROR(Measure(
            StrCat("rows of dim ", dim, ", ", ids, " ids"),
            [&](std::vector<Case>* cases) { return MeasureRows(device_, options, dim, ids, cases); }));
      }
    }
    if (!options.Measures("training")) return OkStatus();
    for (const std::string& optimizer :
         {std::string("lazy_adam"), SecondAdam(), std::string("adagrad"), std::string("sgd")}) {
      SOK_RETURN_IF_ERROR(
          Measure(StrCat("training of dim ", dim, ", ", optimizer), [&](std::vector<Case>* cases) {
            return MeasureTraining(device_, options, dim, optimizer, cases);
          }));
    }
    return OkStatus();
  }

  // Skips parts for which there is no time or memory.
  Status Measure(const std::string& what, const std::function<Status(std::vector<Case>*)>& measure) {
    const std::chrono::duration<double> so_far = std::chrono::steady_clock::now() - begin_;
    if (so_far.count() > report_->options.seconds) {
      report_->left_out.push_back(what + ": no time left");
      return OkStatus();
    }
    std::fprintf(stderr, "%6.1f s: %s\n", so_far.count(), what.c_str());
    const Status status = measure(&report_->cases);
    if (status.code() != StatusCode::kResourceExhausted) return status;
    report_->left_out.push_back(what + ": " + status.message());
    return OkStatus();
  }

  BenchmarkDevice* device_;
  BenchmarkReport* report_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

Status RunBenchmark(BenchmarkReport* report) {
  SOK_ASSIGN_OR_RETURN(const DeviceInfo info, CurrentDevice());
  report->device = info;
  report->machine = Processor();
  std::printf("%s\n", info.ToString().c_str());
  BenchmarkDevice device;
  device.cache_bytes = info.cache_bytes;
  device.record = report->options.record;
  SOK_RETURN_IF_CUDA_ERROR(cudaStreamCreateWithFlags(&device.stream, cudaStreamNonBlocking),
                           "cannot make a stream");
  const Status status = Run(&device, report).All();
  SOK_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(device.stream), "cannot wait for the device");
  SOK_RETURN_IF_CUDA_ERROR(cudaStreamDestroy(device.stream), "cannot destroy a stream");
  return status;
}

int Main(int argc, char** argv) {
  StatusOr<BenchmarkOptions> options = ParseBenchmarkOptions(argc, argv);
  if (!options.ok()) {
    std::fprintf(stderr, "%s\n", options.status().message().c_str());
    return 2;
  }
  BenchmarkReport report;
  report.options = options.value();
  const Status status = RunBenchmark(&report);
  std::printf("%s", report.Table().c_str());
  if (!report.options.json.empty()) {
    std::ofstream file(report.options.json);
    file << report.Json();
    if (!file.flush()) {
      std::fprintf(stderr, "cannot write %s\n", report.options.json.c_str());
      return 1;
    }
  }
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace sok

int main(int argc, char** argv) { return sok::Main(argc, argv); }
