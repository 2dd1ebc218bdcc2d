#include "cc/checkpoint/files.h"

namespace sok {

std::string FolderOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Status MakeFolders(Files& files, const std::string& path) {
  bool made = false;
  const Status status = files.MakeFolder(path, &made);
  const std::string parent = FolderOf(path);
  if (status.code() == StatusCode::kNotFound && parent != path) {
    SOK_RETURN_IF_ERROR(MakeFolders(files, parent));
    SOK_RETURN_IF_ERROR(files.MakeFolder(path, &made));
  } else if (!status.ok()) {
    return status;
  }
  return made ? files.SyncFolder(parent) : OkStatus();
}

Status ReadWholeFile(Files& files, const std::string& path, int64_t limit, std::string* bytes) {
  auto file = files.Open(path);
  SOK_RETURN_IF_ERROR(file.status());
  const int64_t size = file.value()->size();
  if (size > limit) return DataLoss("'", path, "' has ", size, " bytes, more than such a file can have");
  bytes->resize(static_cast<size_t>(size));
  return file.value()->ReadAt(0, bytes->data(), size);
}

Status WriteWholeFile(Files& files, const std::string& path, const std::string& bytes) {
  auto file = files.Create(path);
  SOK_RETURN_IF_ERROR(file.status());
  SOK_RETURN_IF_ERROR(file.value()->WriteAt(0, bytes.data(), static_cast<int64_t>(bytes.size())));
  return file.value()->Sync();
}

}  // namespace sok
