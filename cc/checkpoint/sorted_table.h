#ifndef SOK_CC_CHECKPOINT_SORTED_TABLE_H_
#define SOK_CC_CHECKPOINT_SORTED_TABLE_H_

#include <map>
#include <string>
#include <string_view>

#include "cc/base/status.h"

namespace sok {

// The file of strings by key that TensorFlow's checkpoints have as their index. It is LevelDB's table file:
// blocks of entries in the order of their keys, an index of the blocks, and a footer.
std::string EncodeSortedTable(const std::map<std::string, std::string>& entries);

// Reads such a file. DataLoss, which names `path`, if it is not one, a checksum does not match, keys do not
// increase, or a block is compressed, which TensorFlow's writers have not done since 2017.
StatusOr<std::map<std::string, std::string>> ParseSortedTable(std::string_view bytes,
                                                              const std::string& path);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_SORTED_TABLE_H_
