// What KeyIndex launches besides its public launchers.
#ifndef SOK_CUDA_INDEX_KEY_INDEX_KERNELS_H_
#define SOK_CUDA_INDEX_KEY_INDEX_KERNELS_H_

#include <cuda_runtime.h>

#include "cc/base/status.h"
#include "cuda/index/key_index_view.h"

namespace sok {

// Inserts all keys of `from` into `to`, which contains none of them and has room for them.
Status CopyKeys(cudaStream_t stream, const KeyIndexView& from, const KeyIndexView& to);

}  // namespace sok

#endif  // SOK_CUDA_INDEX_KEY_INDEX_KERNELS_H_
