#ifndef SOK_CC_CHECKPOINT_FILES_H_
#define SOK_CC_CHECKPOINT_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/status.h"

namespace sok {

// A file being written. Its data are guaranteed to be on the disk only after Sync() has returned.
class FileWriter {
 public:
  virtual ~FileWriter() = default;
  // Appends all bytes. After a failure some of them may be in the file.
  virtual Status Write(const void* data, int64_t bytes) = 0;
  virtual Status Sync() = 0;
};

// A file being read. size() is its size when it was opened.
class FileReader {
 public:
  virtual ~FileReader() = default;
  virtual int64_t size() const = 0;
  // Reads the next `bytes` bytes. DataLoss if the file ends before.
  virtual Status Read(void* data, int64_t bytes) = 0;
};

// The file operations of checkpoints. Tests implement their own, in which any operation can fail or be the
// last one before a power failure. Errors: InvalidArgument for an invalid path (CheckPath), DataLoss from
// Open for something that is not a file, otherwise those of FileError. The message names operation, path and
// reason. Thread-safe.
//
// A checkpoint owns its files, and in earlier versions the folder `<prefix>.sok` and its contents. There, no
// symbolic link is followed: in a path, from the last component whose name ends with ".sok" on, Remove and
// Rename act on a link itself, and other operations refuse it with FailedPrecondition. Links before that
// component are the user's, and are followed. Wherever the path is, a link as its last component is never
// followed to open a file or list a folder.
class Files {
 public:
  virtual ~Files() = default;

  // Makes one folder, if it does not exist yet.
  virtual Status MakeFolder(const std::string& path) = 0;
  // Creates an empty file. Fails if the name exists.
  virtual StatusOr<std::unique_ptr<FileWriter>> Create(const std::string& path) = 0;
  virtual StatusOr<std::unique_ptr<FileReader>> Open(const std::string& path) = 0;
  // Syncs a folder, so that its files' creations, renames and removals survive a power failure.
  virtual Status SyncFolder(const std::string& path) = 0;
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // Removes a file, a link, or an empty folder.
  virtual Status Remove(const std::string& path) = 0;
  // The names in a folder, in order.
  virtual Status List(const std::string& path, std::vector<std::string>* names) = 0;
  // False for a link that is not followed, and if the path cannot be examined.
  virtual bool IsFolder(const std::string& path) = 0;
};

// The file operations of the operating system.
Files& PosixFiles();

// Makes the folder and its missing parents, and syncs them.
Status MakeFolders(Files& files, const std::string& path);
// Removes a folder with its contents; links are removed and not followed. Ignores errors.
void RemoveTree(Files& files, const std::string& path);
// The contents of a small file. DataLoss for one of more than `limit` bytes.
Status ReadWholeFile(Files& files, const std::string& path, int64_t limit, std::string* bytes);
// Writes and syncs a new file. Its name is guaranteed to be on the disk only after the folder is synced too.
Status WriteWholeFile(Files& files, const std::string& path, const std::string& bytes);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_FILES_H_
