#ifndef SOK_CC_CHECKPOINT_DIRECT_READS_H_
#define SOK_CC_CHECKPOINT_DIRECT_READS_H_

#include <linux/aio_abi.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cc/base/huge_pages.h"
#include "cc/base/mutex.h"

namespace sok {

// Reads of a file that the disk does while the caller works, into memory of their own: with O_DIRECT and the
// kernel's asynchronous I/O (io_submit), which needs no thread.
//
// Reading ahead through the page cache takes the processor four times as long: the kernel has to find pages
// for what is read once, and to free them. On virtual machines these pages may have to come from the host.
// The memory is huge pages, so that a read is a request for one or two pieces of memory and not for 256: a
// virtual disk then reads more than twice as fast.
//
// Thread-safe.
class DirectReads {
 public:
  static constexpr int64_t kMostBytes = int64_t{1} << 20;  // of a read
  static constexpr int64_t kMostReads = 32;                // under way, or done and not taken

  // Reads of the file that `descriptor` has open. Null if the system or the file system has no such reads.
  // Needs no lock, as no other thread has the object yet.
  static std::unique_ptr<DirectReads> Create(int descriptor) SOK_NO_THREAD_SAFETY_ANALYSIS;
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
  struct Read {
    int buffer = 0;  // its number
    bool is_done = false;
    int64_t result = 0;  // bytes, or a negative number of an error
    iocb request = {};
  };

  DirectReads(int descriptor, PageBuffer memory) : descriptor_(descriptor), memory_(std::move(memory)) {}
  // Waits until at least one read is done, and notes all that are. False if that cannot be found out.
  bool NoteDone() SOK_REQUIRES(mutex_);
  char* Buffer(int number) const;

  const int descriptor_;
  const PageBuffer memory_;  // of the buffers; those that were never used take none
  aio_context_t context_ = 0;
  Mutex mutex_;
  bool is_refused_ SOK_GUARDED_BY(mutex_) = false;  // by the file system, after a read was tried
  // By what Start was called with.
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<Read>> reads_ SOK_GUARDED_BY(mutex_);
  std::vector<int> spare_ SOK_GUARDED_BY(mutex_);  // buffers
};

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_DIRECT_READS_H_
