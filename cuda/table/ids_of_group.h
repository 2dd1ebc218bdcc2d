#ifndef SOK_CUDA_TABLE_IDS_OF_GROUP_H_
#define SOK_CUDA_TABLE_IDS_OF_GROUP_H_

#include <cstdint>

namespace sok {

// The distinct ids of a group of tables, numbered as in cuda/dedup/dedup.h: ordered by table. All arrays are
// on the device.
struct IdsOfGroup {
  int tables = 0;
  // [tables + 1]: table t has the ids [begin[t], begin[t + 1]). begin[0] is 0.
  const int64_t* begin = nullptr;
  const int64_t* keys = nullptr;  // [max]
  int64_t max = 0;                // an upper bound of begin[tables] that the host knows; below 2^31
};

// Some of these ids, in order.
struct SomeIds {
  int64_t* begin = nullptr;  // [tables + 1]: those of table t are [begin[t], begin[t + 1])
  // [max], of which begin[tables] are written: their numbers among the group's ids.
  int32_t* which = nullptr;
};

}  // namespace sok

#endif  // SOK_CUDA_TABLE_IDS_OF_GROUP_H_
