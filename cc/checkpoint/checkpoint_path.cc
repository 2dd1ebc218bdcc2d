#include "cc/checkpoint/checkpoint_path.h"

#include <cstdio>
#include <filesystem>
#include <set>

#include "cc/base/printable.h"
#include "cc/checkpoint/saved_checkpoint.h"
#include "cc/checkpoint/tensor_index.h"

namespace sok {
namespace {

namespace fs = std::filesystem;

constexpr size_t kIdDigits = 16;
constexpr char kHex[] = "0123456789abcdef";

std::string OfSave(const std::string& prefix, const std::string& id) { return prefix + ".sok-" + id; }

bool StartsWith(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}
bool IsId(const std::string& text) {
  return text.size() == kIdDigits && text.find_first_not_of(kHex) == std::string::npos;
}

// The number of data files in the name of one of the prefix whose last component is `base`; 0 for other
// names.
int ShardsIn(const std::string& name, const std::string& base) {
  const std::string start = base + ".data-";
  if (!StartsWith(name, start)) return 0;
  int shard = 0;
  int shards = 0;
  if (std::sscanf(name.c_str() + start.size(), "%9d-of-%9d", &shard, &shards) != 2) return 0;
  return shards > 0 && name == DataPath(base, shard, shards) ? shards : 0;
}

// Adds the number of data files of the index at `path` to *kept; returns whether it is known if there is one.
Status AddShards(Files& files, const std::string& path, std::set<int>* kept) {
  std::string bytes;
  const Status read = ReadWholeFile(files, path, kMaxIndexBytes, &bytes);
  if (read.code() == StatusCode::kNotFound) return OkStatus();
  SOK_RETURN_IF_ERROR(read);
  SOK_ASSIGN_OR_RETURN(const auto index, ParseTensorIndex(bytes, path));
  kept->insert(index.shards);
  return OkStatus();
}

// Whether the name is one of a save's files, of which only the id is known.
bool IsOfSave(const std::string& name, const std::string& base) {
  const std::string start = base + ".sok-";
  return StartsWith(name, start) && name.size() > start.size() + kIdDigits &&
         IsId(name.substr(start.size(), kIdDigits)) && name[start.size() + kIdDigits] == '.';
}

// Whether TensorFlow was writing the file, one that is to be named `base`.meta.
bool IsUnfinishedMeta(const std::string& name, const std::string& base) {
  constexpr size_t kDigits = 32;
  const std::string start = base + ".meta.tmp";
  return StartsWith(name, start) && name.size() == start.size() + kDigits &&
         name.find_first_not_of(kHex, start.size()) == std::string::npos;
}

// Removes a file, or a folder of files, which a Saver with `sharded` makes for its parts.
Status RemoveFileOrFolder(Files& files, const std::string& path) {
  const Status removed = files.Remove(path);
  std::vector<std::string> names;
  if (removed.code() != StatusCode::kFailedPrecondition || !files.List(path, &names).ok()) return removed;
  for (const std::string& name : names) SOK_RETURN_IF_ERROR(files.Remove(path + "/" + name));
  return files.Remove(path);
}

}  // namespace

Status CheckSave(const std::string& prefix, const std::string& id) {
  SOK_RETURN_IF_ERROR(CheckPath(prefix));
  if (prefix.empty() || prefix.back() == '/') {
    return InvalidArgument("'", prefix, "' is not a prefix of a checkpoint");
  }
  if (!IsId(id)) return InvalidArgument("'", id, "' is not an id of a checkpoint, which has 16 hex digits");
  return OkStatus();
}

Status NamedSave(const std::string& prefix, const Status& status) {
  const bool is_unnamed =
      status.code() == StatusCode::kResourceExhausted && status.message().find('\'') == std::string::npos;
  return is_unnamed ? ResourceExhausted("Cannot write '", prefix, "': ", status.message()) : status;
}

std::string PlanPath(const std::string& prefix, const std::string& id) {
  return OfSave(prefix, id) + ".plan";
}
std::string NewIndexPath(const std::string& prefix, const std::string& id) {
  return OfSave(prefix, id) + ".new-index";
}
std::string ReplacedIndexPath(const std::string& prefix, const std::string& id) {
  return OfSave(prefix, id) + ".replaced-index";
}
std::string PartPrefix(const std::string& prefix, const std::string& id, int rank) {
  return StrCat(OfSave(prefix, id), ".part-", rank);
}
std::string OthersPrefix(const std::string& prefix, const std::string& id) {
  return OfSave(prefix, id) + ".others";
}

int UnusedShards(const std::vector<std::string>& names, const std::string& prefix, int files) {
  const std::string base = fs::path(prefix).filename().string();
  std::set<int> used;
  for (const std::string& name : names) used.insert(ShardsIn(name, base));
  while (used.count(files) != 0) ++files;
  return files;
}

Status RemoveLeftovers(Files& files, const std::string& prefix) {
  const std::string folder = FolderOf(prefix);
  const std::string base = fs::path(prefix).filename().string();
  std::vector<std::string> names;
  SOK_RETURN_IF_ERROR(files.List(folder, &names));
  std::set<int> kept;
  SOK_RETURN_IF_ERROR(AddShards(files, IndexPath(prefix), &kept));
  const bool has_index = !kept.empty();
  SOK_RETURN_IF_ERROR(AddShards(files, RetiredIndexPath(prefix), &kept));
  Status first_error;
  for (const std::string& name : names) {
    const int shards = ShardsIn(name, base);
    const bool is_left = (shards > 0 && kept.count(shards) == 0) || IsOfSave(name, base) ||
                         IsUnfinishedMeta(name, base) || (!has_index && name == base + ".meta");
    if (!is_left) continue;
    const Status removed = RemoveFileOrFolder(files, folder + "/" + name);
    if (first_error.ok() && removed.code() != StatusCode::kNotFound) first_error = removed;
  }
  return first_error;
}

Status RemoveRetired(Files& files, const std::string& prefix) {
  const Status removed = files.Remove(RetiredIndexPath(prefix));
  if (removed.code() != StatusCode::kNotFound) SOK_RETURN_IF_ERROR(removed);
  return RemoveLeftovers(files, prefix);
}

Status RemoveCheckpoint(Files& files, const std::string& prefix, bool needed) {
  if (!needed) {
    const Status removed = files.Remove(IndexPath(prefix));
    if (removed.code() != StatusCode::kNotFound) SOK_RETURN_IF_ERROR(removed);
    return RemoveRetired(files, prefix);
  }
  SOK_ASSIGN_OR_RETURN(const auto checkpoint, SavedCheckpoint::Open(files, prefix));
  SOK_ASSIGN_OR_RETURN(const auto used, checkpoint->ShardsOfTables());
  SOK_RETURN_IF_ERROR(files.Rename(IndexPath(prefix), RetiredIndexPath(prefix)));
  SOK_RETURN_IF_ERROR(files.SyncFolder(FolderOf(prefix)));
  Status first_error;
  for (int shard = 0; shard < checkpoint->index().shards; ++shard) {
    if (used.count(shard) != 0) continue;
    const Status removed = files.Remove(checkpoint->DataFile(shard));
    if (first_error.ok() && removed.code() != StatusCode::kNotFound) first_error = removed;
  }
  SOK_RETURN_IF_ERROR(first_error);
  return RemoveLeftovers(files, prefix);
}

Status KeepCheckpoint(Files& files, const std::string& prefix) {
  SOK_ASSIGN_OR_RETURN(const auto checkpoint, SavedCheckpoint::Open(files, prefix));
  TensorIndex index = checkpoint->index();
  if (index.entries.erase(kCountedByEntry) == 0) return OkStatus();
  SOK_ASSIGN_OR_RETURN(const auto facts, checkpoint->ReadFacts());
  SOK_RETURN_IF_ERROR(CheckSave(prefix, facts.id));
  const std::string new_index = NewIndexPath(prefix, facts.id);
  Status status = WriteWholeFile(files, new_index, EncodeTensorIndex(index));
  if (status.ok()) status = files.Rename(new_index, IndexPath(prefix));
  if (!status.ok()) {
    static_cast<void>(files.Remove(new_index).ok());
    return status;
  }
  return files.SyncFolder(FolderOf(prefix));
}

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(fs::path(path.empty() ? "." : path), error);
  return (error ? fs::path(path) : absolute).lexically_normal().string();
}

}  // namespace sok
