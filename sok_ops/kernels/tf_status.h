#ifndef SOK_SOK_OPS_KERNELS_TF_STATUS_H_
#define SOK_SOK_OPS_KERNELS_TF_STATUS_H_

#include "cc/base/status.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/status.h"

namespace sok {

// The engine's status as TensorFlow's, with the same code and message.
inline tensorflow::Status ToTf(const Status& status) {
  namespace errors = tensorflow::errors;
  switch (status.code()) {
    case StatusCode::kOk:
      return tensorflow::Status();
    case StatusCode::kInvalidArgument:
      return errors::InvalidArgument(status.message());
    case StatusCode::kFailedPrecondition:
      return errors::FailedPrecondition(status.message());
    case StatusCode::kResourceExhausted:
      return errors::ResourceExhausted(status.message());
    case StatusCode::kNotFound:
      return errors::NotFound(status.message());
    case StatusCode::kDataLoss:
      return errors::DataLoss(status.message());
    case StatusCode::kUnimplemented:
      return errors::Unimplemented(status.message());
    case StatusCode::kInternal:
      break;
  }
  return errors::Internal(status.message());
}

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_TF_STATUS_H_
