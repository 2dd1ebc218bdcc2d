// Many small copies on the device in one launch, to assemble and split messages between ranks.
#ifndef SOK_CUDA_SHARDED_COPY_PIECES_H_
#define SOK_CUDA_SHARDED_COPY_PIECES_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cuda/base/device_buffer.h"
#include "cuda/base/transfers.h"

namespace sok {

// to[0 .. count) = from[0 .. count), and to[count .. padded) = 0. On the device. `from` may be null if
// `count` is 0.
template <typename T>
struct CopiedPiece {
  const T* from = nullptr;
  T* to = nullptr;
  int64_t count = 0;
  int64_t padded = 0;
};
using CopiedWords = CopiedPiece<int64_t>;
using CopiedNumbers = CopiedPiece<int32_t>;

// Enqueues the copies on the stream. Pieces do not overlap; they need not outlive the call. ResourceExhausted
// if memory runs out; takes about 40 bytes per piece. One call at a time for each `upload`.
Status CopyPieces(cudaStream_t stream, DeviceAllocator* scratch, StagedUpload* upload,
                  Span<const CopiedWords> pieces);
Status CopyPieces(cudaStream_t stream, DeviceAllocator* scratch, StagedUpload* upload,
                  Span<const CopiedNumbers> pieces);

}  // namespace sok

#endif  // SOK_CUDA_SHARDED_COPY_PIECES_H_
