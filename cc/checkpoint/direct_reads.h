#ifndef SOK_CC_CHECKPOINT_DIRECT_READS_H_
#define SOK_CC_CHECKPOINT_DIRECT_READS_H_

#include <linux/aio_abi.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cc/base/mutex.h"

namespace sok {

// Reads of a file that the disk does while the caller works, into memory of their own: with O_DIRECT and the
// kernel's asynchronous I/O (io_submit), which needs no thread.
//
// Reading ahead through the page cache takes the processor four times as long: the kernel has to find pages
// for what is read once, and to free them. On virtual machines these pages may have to come from the host.
//
// Thread-safe.
class DirectReads {
 public:
  static constexpr int64_t kMostBytes = int64_t{1} << 20;  // of a read
  static constexpr int64_t kMostReads = 32;                // under way, or done and not taken

  // Reads of the file that `descriptor` has open. Null if the system or the file system has no such reads.
  static std::unique_ptr<DirectReads> Create(int descriptor);
  // Waits for the reads that are under way.
  ~DirectReads();
  DirectReads(const DirectReads&) = delete;
  DirectReads& operator=(const DirectReads&) = delete;

  // Starts to read these bytes, which may begin and end anywhere. False if that cannot be done now.
  bool Start(int64_t offset, int64_t bytes);
  // Waits for what Start(offset, bytes) reads, copies it, and forgets it. False if there is no such read, or
  // it failed: then an ordinary read says why.
  bool Take(int64_t offset, int64_t bytes, void* data);

 private:
  struct FreeMemory {
    void operator()(char* memory) const { std::free(memory); }
  };
  using Buffer = std::unique_ptr<char, FreeMemory>;
  struct Read {
    Buffer buffer;
    bool is_done = false;
    int64_t result = 0;  // bytes, or a negative number of an error
    iocb request = {};
  };

  explicit DirectReads(int descriptor) : descriptor_(descriptor) {}
  // Waits until at least one read is done, and notes all that are. False if that cannot be found out.
  bool NoteDone() SOK_REQUIRES(mutex_);
  Buffer TakeBuffer() SOK_REQUIRES(mutex_);

  const int descriptor_;
  aio_context_t context_ = 0;
  Mutex mutex_;
  bool is_refused_ SOK_GUARDED_BY(mutex_) = false;  // by the file system, after a read was tried
  // By what Start was called with.
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<Read>> reads_ SOK_GUARDED_BY(mutex_);
  std::vector<Buffer> spare_ SOK_GUARDED_BY(mutex_);
};

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_DIRECT_READS_H_
