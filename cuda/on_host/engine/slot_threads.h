// The host threads on which resident blocks run, reused from launch to launch.
#ifndef SOK_CUDA_ON_HOST_ENGINE_SLOT_THREADS_H_
#define SOK_CUDA_ON_HOST_ENGINE_SLOT_THREADS_H_

#include <functional>

namespace sok::on_host {

// Runs `work` on an idle thread, or on a new one. Thread-safe.
void RunOnSlotThread(std::function<void()> work);

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_SLOT_THREADS_H_
