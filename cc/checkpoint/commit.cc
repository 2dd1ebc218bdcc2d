// CommitCheckpoint of table_checkpoint.h.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/checkpoint/checkpoint_path.h"
#include "cc/checkpoint/json_reader.h"
#include "cc/checkpoint/manifest_json.h"
#include "cc/checkpoint/table_checkpoint.h"

namespace sok {
namespace {

// Makes one checkpoint of others, by their indexes and the names of their data files.
class Merge {
 public:
  Merge(Files& files, const SaveRequest& request) : files_(files), request_(request) {}

  // Adds all data files and tensors of a checkpoint. If `sync`, its data are not synced yet.
  Status Add(SavedCheckpoint& one, bool sync) {
    for (const auto& [name, entry] : one.index().entries) {
      SOK_ASSIGN_OR_RETURN(const auto place, one.Find(name));
      const int shard = static_cast<int>(data_files_.size()) + place.shard;
      if (!entries_.emplace(name, MovedTensorPlace(entry, shard, place.offset)).second) {
        return FailedPrecondition("the checkpoint '", request_.prefix, "' would have two tensors '", name,
                                  "'");
      }
    }
    for (int shard = 0; shard < one.index().shards; ++shard) {
      data_files_.push_back(one.DataFile(shard));
      if (sync) SOK_RETURN_IF_ERROR(files_.SyncFile(data_files_.back()));
    }
    left_.push_back(one.index_path());
    return OkStatus();
  }

  // Gives the data files their names, and then the index its own, which replaces an earlier checkpoint.
  Status Commit() {
    const std::string folder = FolderOf(request_.prefix);
    std::vector<std::string> names;
    SOK_RETURN_IF_ERROR(files_.List(folder, &names));
    TensorIndex index;
    index.shards = UnusedShards(names, request_.prefix, static_cast<int>(data_files_.size()));
    index.entries = std::move(entries_);
    for (size_t shard = 0; shard < data_files_.size(); ++shard) {
      SOK_RETURN_IF_ERROR(files_.Rename(data_files_[shard],
                                        DataPath(request_.prefix, static_cast<int>(shard), index.shards)));
    }
    const std::string new_index = NewIndexPath(request_.prefix, request_.id);
    SOK_RETURN_IF_ERROR(WriteWholeFile(files_, new_index, EncodeTensorIndex(index)));
    SOK_RETURN_IF_ERROR(KeepReplaced());
    SOK_RETURN_IF_ERROR(files_.SyncFolder(folder));
    SOK_RETURN_IF_ERROR(files_.Rename(new_index, IndexPath(request_.prefix)));
    return files_.SyncFolder(folder);
  }

  // Removes the indexes of what was merged. What cannot be removed is left for RemoveLeftovers.
  void RemoveParts() {
    left_.push_back(PlanPath(request_.prefix, request_.id));
    for (const std::string& path : left_) static_cast<void>(files_.Remove(path).ok());
  }

 private:
  // Others may build on the checkpoint that is replaced: keeps its index under the name at which they look
  // for it.
  Status KeepReplaced() {
    std::string bytes;
    const Status read = ReadWholeFile(files_, IndexPath(request_.prefix), kMaxIndexBytes, &bytes);
    if (read.code() == StatusCode::kNotFound) return OkStatus();
    SOK_RETURN_IF_ERROR(read);
    const std::string copy = ReplacedIndexPath(request_.prefix, request_.id);
    SOK_RETURN_IF_ERROR(WriteWholeFile(files_, copy, bytes));
    return files_.Rename(copy, RetiredIndexPath(request_.prefix));
  }

  Files& files_;
  const SaveRequest& request_;
  std::map<std::string, std::string> entries_;
  std::vector<std::string> data_files_;
  std::vector<std::string> left_;
};

// The steps of each shard in a part, by the shard's table.
StatusOr<std::map<std::string, int64_t>> StepsOf(SavedCheckpoint& part, int rank) {
  std::map<std::string, int64_t> steps;
  const std::string end = ShardEntry("", rank);
  for (const auto& [name, entry] : part.index().entries) {
    bool of_shard = name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
    // On rank 0, a table's own entry may end in the same way.
    if (of_shard && rank == 0) of_shard = part.Has(name.substr(0, name.size() - end.size()));
    if (!of_shard) continue;
    SOK_ASSIGN_OR_RETURN(const auto text, part.ReadString(name));
    JsonReader reader(part.index_path());
    const SavedShard shard = ReadShard(&reader, reader.Parse(text));
    if (!reader.ok()) return reader.status();
    steps[name.substr(0, name.size() - end.size())] = shard.steps;
  }
  return steps;
}

Status CommitParts(const SaveRequest& request, int ranks, bool with_others) {
  Files& files = *request.files;
  Merge merge(files, request);
  if (with_others) {
    SOK_ASSIGN_OR_RETURN(auto others, SavedCheckpoint::Open(files, PrefixOfOthers(request)));
    SOK_RETURN_IF_ERROR(merge.Add(*others, /*sync=*/true));
  }
  std::map<std::string, int64_t> steps_of_first;
  for (int rank = 0; rank < ranks; ++rank) {
    SOK_ASSIGN_OR_RETURN(auto part,
                         SavedCheckpoint::Open(files, PartPrefix(request.prefix, request.id, rank)));
    if (ranks > 1) {
      SOK_ASSIGN_OR_RETURN(auto steps, StepsOf(*part, rank));
      if (rank == 0) steps_of_first = steps;
      for (const auto& [table, step] : steps_of_first) {
        const auto own = steps.find(table);
        if (own == steps.end()) {
          return FailedPrecondition("rank ", rank, " has not saved the table '", table, "'");
        }
        if (own->second != step && !request.apart) {
          return FailedPrecondition("Embedding variable '", table, "': rank ", rank, " has taken ",
                                    own->second, " steps, rank 0 ", step);
        }
      }
    }
    SOK_RETURN_IF_ERROR(merge.Add(*part, /*sync=*/false));
  }
  SOK_RETURN_IF_ERROR(merge.Commit());
  merge.RemoveParts();
  return OkStatus();
}

}  // namespace

Status CommitCheckpoint(const SaveRequest& request, int ranks, bool with_others) {
  SOK_RETURN_IF_ERROR(CheckSave(request.prefix, request.id));
  return NamedSave(request.prefix, WithinMemory([&] { return CommitParts(request, ranks, with_others); }));
}

}  // namespace sok
