// Test support: a stream of its own.
#ifndef SOK_CUDA_DEVICE_STREAM_H_
#define SOK_CUDA_DEVICE_STREAM_H_

#include <cuda_runtime.h>

#include "gtest/gtest.h"

namespace sok {

// A stream that other streams' work waits for only if something says so. On the host, its work runs when
// something waits for it (cuda/on_host/engine/streams.h); so a test shows what is missing between two streams
// by the one that it waits for first.
class DeviceStream {
 public:
  DeviceStream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  ~DeviceStream() { EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess); }
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  cudaStream_t get() const { return stream_; }
  void Wait() const { EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace sok

#endif  // SOK_CUDA_DEVICE_STREAM_H_
