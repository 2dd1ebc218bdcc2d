// Ends the process when a mistake is found.
#ifndef SOK_CUDA_ON_HOST_ENGINE_REPORT_H_
#define SOK_CUDA_ON_HOST_ENGINE_REPORT_H_

#include "cuda_on_host/engine.h"

namespace sok::on_host {

// Like Report, but names the code at `code`, for mistakes whose source line is not known.
[[noreturn]] void ReportAt(const void* code, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_REPORT_H_
