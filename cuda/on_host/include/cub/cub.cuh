// Stands in for CUB: the parts that this project uses, with their contract.
#ifndef SOK_CUDA_ON_HOST_INCLUDE_CUB_CUB_CUH_
#define SOK_CUDA_ON_HOST_INCLUDE_CUB_CUB_CUH_

#include "cub_on_host/collectives.h"
#include "cub_on_host/device_algorithms.h"
#include "cub_on_host/device_radix_sort.h"

#endif  // SOK_CUDA_ON_HOST_INCLUDE_CUB_CUB_CUH_
