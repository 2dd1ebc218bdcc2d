// The rows and sums that the owners answered with.
#ifndef SOK_CUDA_SHARDED_RECEIVED_ROWS_H_
#define SOK_CUDA_SHARDED_RECEIVED_ROWS_H_

#include <cstdint>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/sharded/message.h"
#include "cuda/base/device_buffer.h"
#include "cuda/engine/gpu_call.h"
#include "cuda/pooling/lookup_view.h"
#include "cuda/sharded/gpu_routed_group.h"
#include "cuda/table/device_table.h"

namespace sok {

class ReceivedRows {
 public:
  // Reads the answers of all owners. Returns the error if any rank had one; `tables` may then be empty.
  // FailedPrecondition unless the group has routed this number of lookups. Waits for the device once; an
  // error costs one more wait. The caller holds the lock of routed.transfers.
  Status Read(GpuCall* call, Span<DeviceTable* const> tables, const GpuRoutedGroup& routed,
              const Inbox& replies, int64_t lookups);

  // For kernels: the rows of table `t`, which are those of routed.received(t); `inverse` is not set. Valid as
  // long as this object and the messages.
  OccurrenceRows of(int t) const;

 private:
  Status CheckErrors(GpuCall* call, Span<DeviceTable* const> tables, const Inbox& replies) const;
  Status CheckSizes(const Inbox& replies) const;
  Status UploadStarts(GpuCall* call, const Inbox& replies);

  const GpuRoutedGroup* routed_ = nullptr;
  DeviceBuffer<char> memory_;
  char* const* starts_ = nullptr;    // [tables * ranks], on the device: where each part's rows start
  std::vector<uint8_t> is_aligned_;  // by table: whether its rows are aligned to 16 bytes
};

}  // namespace sok

#endif  // SOK_CUDA_SHARDED_RECEIVED_ROWS_H_
