// Stands in for CUB's header of this name: all of CUB takes a compiler several times as long.
#ifndef SOK_CUDA_ON_HOST_INCLUDE_CUB_DEVICE_DEVICE_RADIX_SORT_CUH_
#define SOK_CUDA_ON_HOST_INCLUDE_CUB_DEVICE_DEVICE_RADIX_SORT_CUH_

#include "cub_on_host/device_radix_sort.h"

#endif  // SOK_CUDA_ON_HOST_INCLUDE_CUB_DEVICE_DEVICE_RADIX_SORT_CUH_
