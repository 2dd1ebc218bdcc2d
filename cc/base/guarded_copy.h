#ifndef SOK_CC_BASE_GUARDED_COPY_H_
#define SOK_CC_BASE_GUARDED_COPY_H_

#include <csignal>
#include <cstddef>

namespace sok {

// Copies from a mapped file. If the system cannot supply a page of it, because of an I/O error or because the
// file became shorter, a thread that reads the page gets a SIGBUS, which ends the process. While an object
// lives, the copies of its thread fail instead.
//
// The handler knows a copy by the address of its instructions: the copy is a function in assembler, and the
// handler lets it return false. So nothing is prepared for a copy, no C++ code is left midway, and a SIGBUS
// anywhere else goes on to the handler that was there before, as if this one were not. Handlers that come
// later, as those of Python's faulthandler, are found and put behind it by the next object.
class GuardedCopies {
 public:
  // Whether the program is built for a processor that has them; otherwise there is nothing to use.
  static bool Exist();

  GuardedCopies();
  ~GuardedCopies();
  GuardedCopies(const GuardedCopies&) = delete;
  GuardedCopies& operator=(const GuardedCopies&) = delete;

  // As memcpy. False if a page cannot be read; what was written to `to` is undefined then.
  bool Copy(const void* from, size_t bytes, void* to) const;

 private:
  bool was_blocked_ = false;  // SIGBUS, in this thread
};

}  // namespace sok

#endif  // SOK_CC_BASE_GUARDED_COPY_H_
