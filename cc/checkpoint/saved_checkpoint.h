#ifndef SOK_CC_CHECKPOINT_SAVED_CHECKPOINT_H_
#define SOK_CC_CHECKPOINT_SAVED_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/checkpoint/array_file.h"
#include "cc/checkpoint/files.h"
#include "cc/checkpoint/manifest.h"
#include "cc/checkpoint/tensor_index.h"

namespace sok {

// The entry with facts about a whole checkpoint, and the one that says which kind of Saver counts it for its
// max_to_keep: "full" or "incremental". The second is absent if none does.
constexpr char kCheckpointEntry[] = "#sok";
constexpr char kCountedByEntry[] = "#sok/counted_by";

// The facts about a checkpoint with tables.
struct CheckpointFacts {
  std::string id;                   // of the save; 16 hex digits
  int parts = 0;                    // ranks that wrote it
  std::vector<std::string> chains;  // prefixes that tables build on, relative to the checkpoint's folder
};
std::string EncodeFacts(const CheckpointFacts& facts);

// Whether an entry belongs to one of the tables with these names, which are in order, or to all of them.
bool IsOfTables(const std::string& entry, const std::vector<std::string>& tables);

// Where the index of a checkpoint lies that TensorFlow has removed or replaced, but on which others build.
std::string RetiredIndexPath(const std::string& prefix);

// One checkpoint of TensorFlow, with or without tables, of which the index has been read. Or a folder of SOK
// 2.x: see foreign_tables.h. Thread-safe.
class SavedCheckpoint {
 public:
  // The checkpoint with this prefix, or if `retired` the one that it was before TensorFlow removed or
  // replaced it: see RetiredIndexPath. NotFound if there is none; DataLoss if its index is damaged. A prefix
  // for which IsSok2Description holds is that of a folder of SOK 2.x.
  static StatusOr<std::shared_ptr<SavedCheckpoint>> Open(Files& files, const std::string& prefix,
                                                         bool retired = false);

  const std::string& prefix() const { return prefix_; }
  const std::string& index_path() const { return path_; }
  const TensorIndex& index() const { return index_; }
  bool Has(const std::string& entry) const { return index_.entries.count(entry) != 0; }

  // NotFound if the checkpoint has no such tensor.
  StatusOr<TensorPlace> Find(const std::string& name) const;
  // The same for one that must be there: DataLoss.
  StatusOr<TensorPlace> FindNeeded(const std::string& name) const;
  // A data file, which stays open.
  StatusOr<std::shared_ptr<FileReader>> Data(int shard);
  std::string DataFile(int shard) const {
    return is_sok2() ? files_of_sok2_[static_cast<size_t>(shard)] : DataPath(prefix_, shard, index_.shards);
  }
  // Whether it is a folder of SOK 2.x, whose tensors have no checksums.
  bool is_sok2() const { return !files_of_sok2_.empty(); }
  // DataLoss, which names the file, if the index or one of these data files is a symbolic link.
  Status RefuseLinks(const std::set<int>& shards) const;
  // A scalar string of at most `limit` bytes. DataLoss if it is damaged, or not one.
  StatusOr<std::string> ReadString(const std::string& name, int64_t limit = kMaxEntryBytes);
  // The bytes of a tensor of numbers. DataLoss if it is damaged, or of another type.
  StatusOr<std::string> ReadNumbers(const std::string& name, const ArrayType& type);

  // The facts; NotFound if no table was saved in it.
  StatusOr<CheckpointFacts> ReadFacts();
  // The names of all tables, in order.
  StatusOr<std::vector<std::string>> Tables();
  // The numbers of the data files with entries of tables.
  StatusOr<std::set<int>> ShardsOfTables();
  // A table with the places of its arrays, of this library or another system. NotFound if there is none of
  // this name; InvalidArgument if there are several.
  StatusOr<Manifest> ReadTable(const std::string& name);

 private:
  SavedCheckpoint(Files& files, std::string prefix, std::string path, TensorIndex index,
                  std::vector<std::string> files_of_sok2)
      : files_(files),
        prefix_(std::move(prefix)),
        path_(std::move(path)),
        index_(std::move(index)),
        files_of_sok2_(std::move(files_of_sok2)) {}
  // The bytes of a tensor, with a checksum that is not verified.
  StatusOr<std::string> ReadBytes(const std::string& name, const TensorPlace& place);
  Status PlaceArrays(const std::string& table, Manifest* manifest) const;

  Files& files_;
  const std::string prefix_;
  const std::string path_;  // of the index
  const TensorIndex index_;
  const std::vector<std::string> files_of_sok2_;
  Mutex mutex_;
  std::map<int, std::shared_ptr<FileReader>> data_ SOK_GUARDED_BY(mutex_);
};

// Checkpoints that were opened, so that the tables of one restore share them. Not thread-safe.
class OpenedCheckpoints {
 public:
  explicit OpenedCheckpoints(Files& files) : files_(files) {}

  Files& files() const { return files_; }
  // See SavedCheckpoint::Open.
  StatusOr<std::shared_ptr<SavedCheckpoint>> Get(const std::string& prefix, bool retired = false);
  // The checkpoint of the save with this id, on which another one builds. NotFound if there is none at the
  // prefix, or DataLoss if there is only one of another save.
  StatusOr<std::shared_ptr<SavedCheckpoint>> GetBase(const std::string& prefix, const std::string& id);

 private:
  Files& files_;
  std::map<std::pair<std::string, bool>, std::shared_ptr<SavedCheckpoint>> opened_;
};

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_SAVED_CHECKPOINT_H_
