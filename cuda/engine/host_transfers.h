#ifndef SOK_CUDA_ENGINE_HOST_TRANSFERS_H_
#define SOK_CUDA_ENGINE_HOST_TRANSFERS_H_

#include "cc/base/mutex.h"
#include "cuda/base/round_trip.h"
#include "cuda/base/staged_upload.h"

namespace sok {

// What a call needs to exchange small arrays with the device.
struct HostTransfers {
  Mutex mutex;  // held while a call uses the rest
  StagedUpload upload;
  RoundTrip round_trip;
};

}  // namespace sok

#endif  // SOK_CUDA_ENGINE_HOST_TRANSFERS_H_
