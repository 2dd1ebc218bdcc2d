// The paths of tables' checkpoints, and the references to them in TensorFlow's checkpoint.
#ifndef SOK_CC_CHECKPOINT_CHECKPOINT_PATH_H_
#define SOK_CC_CHECKPOINT_CHECKPOINT_PATH_H_

#include <cstdint>
#include <string>

#include "cc/base/status.h"
#include "cc/checkpoint/files.h"

namespace sok {

// A name as a component of a path, in the form of Python's urllib.parse.quote(name, safe=""). A result of
// more than 150 bytes is cut, and ends with a hash of the whole name.
std::string QuotedName(const std::string& name);

// The paths of a table's checkpoint beside the TensorFlow checkpoint with the given prefix.
struct SavePaths {
  // InvalidArgument unless `id` is 16 lower-case hex digits and the prefix is a valid path (CheckPath) with a
  // file name.
  static StatusOr<SavePaths> Of(const std::string& prefix, const std::string& table, const std::string& id);

  std::string parent;      // "/ckpt/model.ckpt-100.sok"
  std::string leaf;        // "items-00c0ffee00c0ffee"
  std::string folder;      // parent + "/" + leaf
  std::string unfinished;  // folder + ".unfinished"
  std::string relative;    // "model.ckpt-100.sok/items-00c0ffee00c0ffee"
};

constexpr char kUnfinishedSuffix[] = ".unfinished";

// The reference to a table's checkpoint in TensorFlow's checkpoint.
struct Reference {
  std::string folder;  // relative to the folder of the prefix
  uint32_t manifest_crc32 = 0;
  int64_t steps = 0;
};
std::string EncodeReference(const Reference& reference);
StatusOr<Reference> ParseReference(const std::string& text, const std::string& prefix);

// The absolute path of the checkpoint in the folder `reference`. Looks next to `prefix`, which may have been
// renamed, and then at `reference`, relative to the prefix's folder. NotFound if it is in neither place;
// FailedPrecondition if a symbolic link is there; InvalidArgument if an argument is an invalid path
// (CheckPath).
StatusOr<std::string> FindCheckpoint(Files& files, const std::string& prefix, const std::string& reference);

// The absolute path, without "." and "..".
std::string AbsolutePath(const std::string& path);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_CHECKPOINT_PATH_H_
