#ifndef SOK_CC_BASE_WITHIN_MEMORY_H_
#define SOK_CC_BASE_WITHIN_MEMORY_H_

#include <new>

#include "cc/base/status.h"

namespace sok {

// Runs work(), which returns Status, and turns std::bad_alloc into ResourceExhausted.
template <typename Work>
Status WithinMemory(const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("not enough memory");
  }
}

}  // namespace sok

#endif  // SOK_CC_BASE_WITHIN_MEMORY_H_
