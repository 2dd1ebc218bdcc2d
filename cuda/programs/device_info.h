#ifndef SOK_CUDA_PROGRAMS_DEVICE_INFO_H_
#define SOK_CUDA_PROGRAMS_DEVICE_INFO_H_

#include <cstdint>
#include <string>

#include "cc/base/status.h"

namespace sok {

// The device that a program runs on, as the driver describes it.
struct DeviceInfo {
  std::string name;
  bool is_host = false;  // kernels run on the host: times mean nothing
  int major = 0, minor = 0;
  int multiprocessors = 0;
  int64_t clock_khz = 0;
  int64_t memory_clock_khz = 0;
  int memory_bus_bits = 0;
  int64_t cache_bytes = 0;  // the last cache
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
  int driver = 0, runtime = 0;  // versions of CUDA: 1000 * major + 10 * minor

  // "NVIDIA H100 (sm_90, 132 multiprocessors, 79.1 GiB free of 79.6), driver of CUDA 13.0, runtime 13.0".
  std::string ToString() const;
};

// The current device. FailedPrecondition without a device or without a driver that can run this program; the
// message has the runtime's reason.
StatusOr<DeviceInfo> CurrentDevice();

}  // namespace sok

#endif  // SOK_CUDA_PROGRAMS_DEVICE_INFO_H_
