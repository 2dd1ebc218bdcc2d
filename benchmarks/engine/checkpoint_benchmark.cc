// The speed and memory of saving and restoring tables, compared with plain files of the same size on the same
// disk.
//
// Usage: checkpoint_benchmark [FOLDER [MIB]]
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cc/base/executor.h"
#include "cc/checkpoint/table_checkpoint.h"
#include "cc/engine/registry.h"

namespace sok {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kDim = 64;
constexpr int64_t kBlock = 1 << 20;

// Memory of this process without cached files.
int64_t AnonymousBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("RssAnon:", 0) == 0) return std::strtoll(line.c_str() + 8, nullptr, 10) * 1024;
  }
  return 0;
}

// Runs `work` and prints its speed, and its peak of memory above the larger of those before and after.
void Measure(const char* name, int64_t bytes, const std::function<void()>& work) {
  std::atomic<bool> done{false};
  const int64_t before = AnonymousBytes();
  int64_t peak = before;
  std::thread watch([&] {
    while (!done) {
      peak = std::max(peak, AnonymousBytes());
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  const auto begin = std::chrono::steady_clock::now();
  const std::clock_t cpu_begin = std::clock();
  work();
  const double cpu = static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  done = true;
  watch.join();
  const int64_t resident = std::max(before, AnonymousBytes());
  std::printf("  %-36s %8.2f s, %6.2f s of a core %8.0f MiB/s   %6.1f MiB above the table\n", name,
              took.count(), cpu, static_cast<double>(bytes) / took.count() / (1 << 20),
              static_cast<double>(peak - resident) / (1 << 20));
}

void Must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

// As `dd bs=1M conv=fsync`.
void WritePlain(const std::string& path, int64_t bytes) {
  const std::vector<char> block(kBlock, 'x');
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  for (int64_t at = 0; at < bytes; at += kBlock) {
    if (write(file, block.data(), kBlock) != kBlock) Must(Internal("cannot write ", path));
  }
  fsync(file);
  close(file);
}

void ReadPlain(const std::string& path) {
  std::vector<char> block(kBlock);
  const int file = open(path.c_str(), O_RDONLY);
  while (read(file, block.data(), kBlock) > 0) {
  }
  close(file);
}

// Drops the page cache, so that the next read comes from the disk, if the system allows it.
void DropCache(const std::string& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const int file = open(entry.path().c_str(), O_RDONLY);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
  }
}

std::shared_ptr<EngineTable> MakeTable(const EngineContext& context, int64_t rows) {
  TableOptions options;
  options.name = "items";
  options.dim = kDim;
  auto table = FindEngine("cpu").value()->MakeTable(context, options);
  Must(table.status());
  std::vector<int64_t> keys(1 << 16);
  const std::vector<float> values(keys.size() * kDim, 0.5f);
  for (int64_t first = 0; first < rows; first += static_cast<int64_t>(keys.size())) {
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = first + static_cast<int64_t>(i);
    Must(table.value()->Assign(context, keys, values.data()));
  }
  return std::move(table.value());
}

void Run(const std::string& folder, int64_t mib) {
  InlineExecutor executor;
  const EngineContext context{executor};
  const int64_t bytes = mib << 20;
  auto table = MakeTable(context, bytes / (kDim * static_cast<int64_t>(sizeof(float)) + 8));
  SaveRequest request;
  request.prefix = folder + "/model.ckpt-1";
  request.id = "00c0ffee00c0ffee";
  std::string reference;
  std::printf("%lld MiB of rows of %lld floats, in %s\n", static_cast<long long>(mib),
              static_cast<long long>(kDim), folder.c_str());
  Measure("plain write and fsync", bytes, [&] { WritePlain(folder + "/plain", bytes); });
  Measure("save", bytes, [&] {
    Must(BeginTableCheckpoint(context, table.get(), request));
    Must(WriteTableShard(context, table.get(), request));
    reference = PublishTableCheckpoint(table->options(), request).value();
    Must(EndTableCheckpoint(context, table.get(), request, true));
  });
  table.reset();
  DropCache(folder);
  Measure("plain read", bytes, [&] { ReadPlain(folder + "/plain"); });
  TableOptions options;
  options.name = "items";
  options.dim = kDim;
  auto restore = TableRestore::Open(request.prefix, reference, options, RestoreParts());
  Must(restore.status());
  Measure("check", bytes, [&] { Must(restore.value()->Check()); });
  DropCache(folder);
  Measure("load", bytes, [&] {
    auto loaded = restore.value()->Load(context, FindEngine("cpu").value());
    Must(loaded.status());
    table = std::move(loaded.value());
  });
}

}  // namespace
}  // namespace sok

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  const std::string parent = argc > 1 ? argv[1] : fs::temp_directory_path().string();
  const std::string folder = parent + "/sok_checkpoint_benchmark";
  fs::create_directories(folder);
  sok::Run(folder, argc > 2 ? std::strtoll(argv[2], nullptr, 10) : 1024);
  fs::remove_all(folder);
}
