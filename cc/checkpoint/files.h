#ifndef SOK_CC_CHECKPOINT_FILES_H_
#define SOK_CC_CHECKPOINT_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/status.h"

namespace sok {

// A file under construction. Nothing is certain to be on the disk before Sync() returned.
class FileWriter {
 public:
  virtual ~FileWriter() = default;
  // Appends all bytes, or fails; after a failure some of them may be in the file.
  virtual Status Write(const void* data, int64_t bytes) = 0;
  virtual Status Sync() = 0;
};

// A file that is read. Its size is that at the time when it was opened.
class FileReader {
 public:
  virtual ~FileReader() = default;
  virtual int64_t size() const = 0;
  // The next `bytes` bytes. DataLoss where the file ends before.
  virtual Status Read(void* data, int64_t bytes) = 0;
};

// The file operations that checkpoints are made of, each of which can fail or be the last one before the
// power is cut. Tests bring their own. Errors: InvalidArgument for what is no path (CheckPath), NotFound for
// what is not there, FailedPrecondition for something else in the way, ResourceExhausted for a full disk,
// else Internal; the message names operation, path and reason. Thread-safe.
//
// A checkpoint owns the folder `<prefix>.sok` and its contents, where no symbolic link is followed: from the
// last component of a path that ends with ".sok", a link is removed or renamed itself, and otherwise refused
// with FailedPrecondition. Links before that component are the user's, and are followed. A file is never
// opened, and a folder never listed, through a link of its own name, wherever it is.
class Files {
 public:
  virtual ~Files() = default;

  // Makes one folder; one that is there already is fine.
  virtual Status MakeFolder(const std::string& path) = 0;
  // A new, empty file. Fails where there is something of that name.
  virtual StatusOr<std::unique_ptr<FileWriter>> Create(const std::string& path) = 0;
  virtual StatusOr<std::unique_ptr<FileReader>> Open(const std::string& path) = 0;
  // Makes the names in a folder last: those of files that were made, renamed or removed.
  virtual Status SyncFolder(const std::string& path) = 0;
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // Removes a file, a link, or an empty folder.
  virtual Status Remove(const std::string& path) = 0;
  // The names in a folder, in order.
  virtual Status List(const std::string& path, std::vector<std::string>* names) = 0;
  virtual bool IsFolder(const std::string& path) = 0;
};

// Those of the operating system.
Files& PosixFiles();

// Makes the folder and those that it lies in, as far as they are missing, and has all of them last.
Status MakeFolders(Files& files, const std::string& path);
// Removes what lies in the folder, and the folder; of links, the links. What cannot be removed stays.
void RemoveTree(Files& files, const std::string& path);
// The whole of a small file. DataLoss for one of more than `limit` bytes.
Status ReadWholeFile(Files& files, const std::string& path, int64_t limit, std::string* bytes);
// A new file with these bytes, synced; its name lasts only once the folder is synced too.
Status WriteWholeFile(Files& files, const std::string& path, const std::string& bytes);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_FILES_H_
