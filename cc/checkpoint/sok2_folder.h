// The folders that SOK 2.x's `dump` writes: `meta_info` describes tables, and each table has a file of keys,
// one of values, and one for each slot of its optimizer. Each file begins with a head. All numbers of
// descriptions and heads are big-endian, names are justified to the right with spaces, and values are
// little-endian, in one order of rows. Newer versions write no `meta_info` and no names into heads.
#ifndef SOK_CC_CHECKPOINT_SOK2_FOLDER_H_
#define SOK_CC_CHECKPOINT_SOK2_FOLDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/checkpoint/files.h"
#include "cc/checkpoint/tensor_index.h"

namespace sok {

constexpr char kSok2Description[] = "meta_info";

// Whether a path is that of such a description, which stands for its folder as prefixes do for checkpoints.
bool IsSok2Description(const std::string& path);

// The name of a table in such a folder: without punctuation.
std::string Sok2Name(const std::string& table);

// A folder as a checkpoint without checksums: "items-key", "items-weight" and "items-Adam-m" are its tensors,
// each in a data file of its own.
struct Sok2Folder {
  TensorIndex index;
  std::vector<std::string> files;  // the data files' paths, by their numbers
};

// `description` is the path of `meta_info`, which need not be there. NotFound if there is no table; DataLoss,
// which names the file, if one is damaged, or does not fit the description, or lacks bytes.
StatusOr<Sok2Folder> ReadSok2Folder(Files& files, const std::string& description);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_SOK2_FOLDER_H_
