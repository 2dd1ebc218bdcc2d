// The paths of tables' checkpoints, and the references to them in TensorFlow's checkpoint.
//
// A table's checkpoint has a path of the form "/ckpt/model.ckpt-100.sok/items-00c0ffee00c0ffee", and files
// with names such as "shard-00000/keys.npy". The path only stands for the files, which are beside
// TensorFlow's: "/ckpt/model.ckpt-100.sok-items-00c0ffee00c0ffee.shard-00000.keys.npy". It is not made as a
// folder, because programs take a folder in this place for something else, for example for an exported model.
// In the checkpoints of earlier versions it is a folder, and the files are in it.
#ifndef SOK_CC_CHECKPOINT_CHECKPOINT_PATH_H_
#define SOK_CC_CHECKPOINT_CHECKPOINT_PATH_H_

#include <cstdint>
#include <string>

#include "cc/base/status.h"
#include "cc/checkpoint/files.h"

namespace sok {

// A name as a component of a path, in the form of Python's urllib.parse.quote(name, safe=""), except that
// ".sok-" becomes "%2Esok-". A result of more than `limit` bytes is cut, and ends with a hash of the whole
// name.
std::string QuotedName(const std::string& name, size_t limit = 150);

// The paths of a table's checkpoint beside the TensorFlow checkpoint with the given prefix.
struct SavePaths {
  // InvalidArgument unless `id` is 16 lower-case hex digits and the prefix is a valid path (CheckPath) with a
  // file name.
  static StatusOr<SavePaths> Of(const std::string& prefix, const std::string& table, const std::string& id);

  std::string directory;  // "/ckpt"
  std::string relative;   // "model.ckpt-100.sok/items-00c0ffee00c0ffee"
  std::string table;      // directory + "/" + relative, the table's path
};

// The path of one of a table's files: in the folder `table` if there is one, otherwise beside TensorFlow's
// files. If something other than a folder is at `table`, also the path in it: opening it gives an error.
std::string TableFile(Files& files, const std::string& table, const std::string& file);

// The manifest's name while it is written. All other files of a table have their final names from the start:
// without a manifest nothing reads them.
constexpr char kUnfinishedManifest[] = "manifest.json.unfinished";

// Whether a table's checkpoint is at this path.
bool IsTable(Files& files, const std::string& table);

// Removes the files of a table that are beside TensorFlow's, the manifest first. Ignores errors.
void RemoveTableFiles(Files& files, const std::string& table);

// The reference to a table's checkpoint in TensorFlow's checkpoint.
struct Reference {
  std::string folder;  // the table's path, relative to the folder of the prefix
  uint32_t manifest_crc32 = 0;
  int64_t steps = 0;
};
// The reference as JSON.
std::string EncodeReference(const Reference& reference);
// Reads what EncodeReference writes. DataLoss, which names the TensorFlow checkpoint `prefix`, for anything
// else.
StatusOr<Reference> ParseReference(const std::string& text, const std::string& prefix);

// The absolute path of the table's checkpoint that was stored as `folder` (Reference::folder). Looks next to
// `prefix`, which may have been renamed, and then at `folder`, relative to the prefix's folder. NotFound if
// it is in neither place; FailedPrecondition if a symbolic link is there; InvalidArgument if an argument is
// an invalid path (CheckPath).
StatusOr<std::string> FindCheckpoint(Files& files, const std::string& prefix, const std::string& folder);

// The absolute path, without "." and "..".
std::string AbsolutePath(const std::string& path);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_CHECKPOINT_PATH_H_
