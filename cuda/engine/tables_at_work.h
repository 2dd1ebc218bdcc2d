#ifndef SOK_CUDA_ENGINE_TABLES_AT_WORK_H_
#define SOK_CUDA_ENGINE_TABLES_AT_WORK_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cuda/table/device_table.h"

namespace sok {

// Several tables for one call: holds their mutexes, each once, locked in order of address, so that holders of
// overlapping sets cannot deadlock; and orders the stream's work on them behind that of the calls before.
class TablesAtWork {
 public:
  TablesAtWork(cudaStream_t stream, Span<DeviceTable* const> tables)
      : stream_(stream), tables_(tables.begin(), tables.end()) {
    std::sort(tables_.begin(), tables_.end());
    tables_.erase(std::unique(tables_.begin(), tables_.end()), tables_.end());
    locks_.reserve(tables_.size());
    for (DeviceTable* table : tables_) locks_.emplace_back(table->mutex());
  }
  TablesAtWork(const TablesAtWork&) = delete;
  TablesAtWork& operator=(const TablesAtWork&) = delete;
  ~TablesAtWork() {
    // It fails only on a device that is lost, which the next call reports.
    for (DeviceTable* table : tables_) (void)table->Leave(stream_).ok();
  }

  // Before any work.
  Status Enter() {
    for (DeviceTable* table : tables_) SOK_RETURN_IF_ERROR(table->Enter(stream_));
    return OkStatus();
  }

 private:
  cudaStream_t stream_;
  std::vector<DeviceTable*> tables_;
  std::vector<std::unique_lock<std::mutex>> locks_;
};

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_TABLES_AT_WORK_H_
