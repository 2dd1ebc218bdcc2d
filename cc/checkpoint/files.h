#ifndef SOK_CC_CHECKPOINT_FILES_H_
#define SOK_CC_CHECKPOINT_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/status.h"

namespace sok {

// A new file. Its data are guaranteed to be on the disk only after Sync() has returned. Thread-safe.
class FileWriter {
 public:
  virtual ~FileWriter() = default;
  // Writes all bytes at an offset. Bytes between those that were written are zero. After a failure some of
  // the bytes may be in the file.
  virtual Status WriteAt(int64_t offset, const void* data, int64_t bytes) = 0;
  virtual Status Sync() = 0;
};

// A file being read. size() is its size when it was opened. Thread-safe.
class FileReader {
 public:
  virtual ~FileReader() = default;
  virtual int64_t size() const = 0;
  // DataLoss if the file ends before the bytes do.
  virtual Status ReadAt(int64_t offset, void* data, int64_t bytes) = 0;
  // ReadAt into private memory of mmap, whole pages of which may become the file's: memory that processes
  // share until they write to it, and writing does not reach the file. The file may be removed after that,
  // but must not change: if it becomes shorter, reading the memory kills the process.
  virtual Status MapAt(int64_t offset, void* data, int64_t bytes) { return ReadAt(offset, data, bytes); }
  // What ReadAt reads from now on stays in the page cache, for MapAt.
  virtual void KeepCached() {}
  // ReadAt will want these bytes: the disk may begin to read them. Takes no time worth mentioning, and no
  // error; the bytes may be outside of the file.
  virtual void ReadAhead(int64_t /*offset*/, int64_t /*bytes*/) {}
};

// The file operations of checkpoints: the only place that asks the operating system. Tests implement their
// own, in which any operation can fail or be the last one before a power failure. Errors: InvalidArgument for
// an invalid path (CheckPath), DataLoss from Open for something that is not a file, otherwise those of
// FileError. The message names operation, path and reason. Thread-safe.
//
// Links are followed by Open, and in the folders of a path, as TensorFlow follows them. Create, Rename,
// Remove and RefuseLink act on a link itself.
class Files {
 public:
  virtual ~Files() = default;

  // Makes one folder, if it does not exist yet; *made says whether.
  virtual Status MakeFolder(const std::string& path, bool* made) = 0;
  // Creates an empty file. Fails if the name exists.
  virtual StatusOr<std::unique_ptr<FileWriter>> Create(const std::string& path) = 0;
  virtual StatusOr<std::unique_ptr<FileReader>> Open(const std::string& path) = 0;
  // DataLoss if the path, whose file need not be there, is that of a symbolic link.
  virtual Status RefuseLink(const std::string& /*path*/) { return OkStatus(); }
  // Syncs the data of a file that TensorFlow has written.
  virtual Status SyncFile(const std::string& path) = 0;
  // Syncs a folder, so that its files' creations, renames and removals survive a power failure.
  virtual Status SyncFolder(const std::string& path) = 0;
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // Removes a file, a link, or an empty folder.
  virtual Status Remove(const std::string& path) = 0;
  // The names in a folder, in order.
  virtual Status List(const std::string& path, std::vector<std::string>* names) = 0;
};

// The file operations of the operating system.
Files& PosixFiles();

// Makes the folder and its missing parents, and syncs them.
Status MakeFolders(Files& files, const std::string& path);
// The folder of a path.
std::string FolderOf(const std::string& path);
// The contents of a small file. DataLoss for one of more than `limit` bytes.
Status ReadWholeFile(Files& files, const std::string& path, int64_t limit, std::string* bytes);
// Writes and syncs a new file. Its name is guaranteed to be on the disk only after the folder is synced too.
Status WriteWholeFile(Files& files, const std::string& path, const std::string& bytes);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_FILES_H_
