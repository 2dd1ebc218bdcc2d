#ifndef SOK_CUDA_GROUP_TABLES_AT_WORK_H_
#define SOK_CUDA_GROUP_TABLES_AT_WORK_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cuda/table/device_table.h"

namespace sok {

// Several tables for one call: holds their mutexes, each once, locked in order of address, so that holders of
// overlapping sets cannot deadlock; and orders the stream's work on them after that of earlier calls.
class TablesAtWork {
 public:
  // The analysis cannot follow a set of mutexes whose size is known only at run time.
  TablesAtWork(cudaStream_t stream, Span<DeviceTable* const> tables) SOK_NO_THREAD_SAFETY_ANALYSIS
      : stream_(stream),
        tables_(tables.begin(), tables.end()) {
    std::sort(tables_.begin(), tables_.end());
    tables_.erase(std::unique(tables_.begin(), tables_.end()), tables_.end());
    for (DeviceTable* table : tables_) table->mutex().lock();
  }
  TablesAtWork(const TablesAtWork&) = delete;
  TablesAtWork& operator=(const TablesAtWork&) = delete;
  ~TablesAtWork() SOK_NO_THREAD_SAFETY_ANALYSIS {
    for (DeviceTable* table : tables_) {
      table->Leave(stream_);
      table->mutex().unlock();
    }
  }

  // Call it before any work.
  Status Enter() {
    for (DeviceTable* table : tables_) SOK_RETURN_IF_ERROR(table->Enter(stream_));
    return OkStatus();
  }

 private:
  cudaStream_t stream_;
  std::vector<DeviceTable*> tables_;
};

}  // namespace sok

#endif  // SOK_CUDA_GROUP_TABLES_AT_WORK_H_
