// Where the checkpoints of tables lie, and how TensorFlow's checkpoint refers to them.
#ifndef SOK_CC_CHECKPOINT_CHECKPOINT_PATH_H_
#define SOK_CC_CHECKPOINT_CHECKPOINT_PATH_H_

#include <cstdint>
#include <string>

#include "cc/base/status.h"
#include "cc/checkpoint/files.h"

namespace sok {

// A name as a part of a path: as Python's urllib.parse.quote(name, safe="") writes it. One of more than 150
// bytes is cut, and ends with a hash of the whole.
std::string QuotedName(const std::string& name);

// Where a save of a table with the prefix of a TensorFlow checkpoint puts things.
struct SavePaths {
  // InvalidArgument unless `id` is 16 lower-case hex digits and the prefix a path (CheckPath) that is not
  // empty.
  static StatusOr<SavePaths> Of(const std::string& prefix, const std::string& table, const std::string& id);

  std::string parent;      // "/ckpt/model.ckpt-100.sok"
  std::string leaf;        // "items-00c0ffee00c0ffee"
  std::string folder;      // parent + "/" + leaf
  std::string unfinished;  // folder + ".unfinished"
  std::string relative;    // "model.ckpt-100.sok/items-00c0ffee00c0ffee"
};

constexpr char kUnfinishedSuffix[] = ".unfinished";

// What TensorFlow's checkpoint keeps of a table's.
struct Reference {
  std::string folder;  // relative to the folder of the prefix
  uint32_t manifest_crc32 = 0;
  int64_t steps = 0;
};
std::string EncodeReference(const Reference& reference);
StatusOr<Reference> ParseReference(const std::string& text, const std::string& prefix);

// The absolute path of the checkpoint that `reference` names: next to `prefix`, which may have been renamed,
// or as it says. NotFound where it is in neither place, FailedPrecondition where a symbolic link is,
// InvalidArgument where one of them is no path (CheckPath).
StatusOr<std::string> FindCheckpoint(Files& files, const std::string& prefix, const std::string& reference);

// The path without "." and "..", absolute.
std::string AbsolutePath(const std::string& path);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_CHECKPOINT_PATH_H_
