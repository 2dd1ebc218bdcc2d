#include "cc/checkpoint/files.h"

#include "cc/checkpoint/file_error.h"

namespace sok {
namespace {

// The parent folder of a path.
std::string ParentOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Deeper than the folder of any checkpoint.
constexpr int kDeepestTree = 100;

void RemoveTree(Files& files, const std::string& path, int depth) {
  // Removes anything except a folder that is not empty. A link is removed, not followed.
  if (files.Remove(path).ok() || depth == 0) return;
  std::vector<std::string> names;
  if (!files.List(path, &names).ok()) return;
  for (const std::string& name : names) RemoveTree(files, path + "/" + name, depth - 1);
  const Status ignored = files.Remove(path);
  static_cast<void>(ignored);
}

}  // namespace

Status MakeFolders(Files& files, const std::string& path) {
  SOK_RETURN_IF_ERROR(CheckPath(path));
  std::vector<std::string> missing;
  for (std::string folder = path; !files.IsFolder(folder); folder = ParentOf(folder)) {
    missing.push_back(folder);
    if (ParentOf(folder) == folder) break;
  }
  for (; !missing.empty(); missing.pop_back()) {
    SOK_RETURN_IF_ERROR(files.MakeFolder(missing.back()));
    SOK_RETURN_IF_ERROR(files.SyncFolder(ParentOf(missing.back())));
  }
  return OkStatus();
}

void RemoveTree(Files& files, const std::string& path) { RemoveTree(files, path, kDeepestTree); }

Status ReadWholeFile(Files& files, const std::string& path, int64_t limit, std::string* bytes) {
  auto file = files.Open(path);
  SOK_RETURN_IF_ERROR(file.status());
  const int64_t size = file.value()->size();
  if (size > limit) return DataLoss("'", path, "' has ", size, " bytes, more than such a file can have");
  bytes->resize(static_cast<size_t>(size));
  return file.value()->Read(bytes->data(), size);
}

Status WriteWholeFile(Files& files, const std::string& path, const std::string& bytes) {
  auto file = files.Create(path);
  SOK_RETURN_IF_ERROR(file.status());
  SOK_RETURN_IF_ERROR(file.value()->Write(bytes.data(), static_cast<int64_t>(bytes.size())));
  return file.value()->Sync();
}

}  // namespace sok
