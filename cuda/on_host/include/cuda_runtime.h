// Stands in for CUDA's header where .cu files are compiled by g++: see cuda/README.md.
#ifndef SOK_CUDA_ON_HOST_INCLUDE_CUDA_RUNTIME_H_
#define SOK_CUDA_ON_HOST_INCLUDE_CUDA_RUNTIME_H_

#include "cuda_on_host/atomics.h"
#include "cuda_on_host/engine.h"
#include "cuda_on_host/launch.h"
#include "cuda_on_host/math.h"
#include "cuda_on_host/runtime_api.h"
#include "cuda_on_host/types.h"
#include "cuda_on_host/warp.h"

#endif  // SOK_CUDA_ON_HOST_INCLUDE_CUDA_RUNTIME_H_
