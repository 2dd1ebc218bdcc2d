// Stands in for CUDA's header: cooperative_groups.h has all.
#ifndef SOK_CUDA_ON_HOST_INCLUDE_COOPERATIVE_GROUPS_REDUCE_H_
#define SOK_CUDA_ON_HOST_INCLUDE_COOPERATIVE_GROUPS_REDUCE_H_

#include "cooperative_groups.h"

#endif  // SOK_CUDA_ON_HOST_INCLUDE_COOPERATIVE_GROUPS_REDUCE_H_
