// The common part of the kernels that sum gradients and train several tables.
#ifndef SOK_SOK_OPS_KERNELS_TABLE_STEPS_H_
#define SOK_SOK_OPS_KERNELS_TABLE_STEPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/engine/engine.h"
#include "sok_ops/kernels/group_inputs.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// The attributes `trained` and `optimizer` of such an op, and its last inputs, `hyper`.
class TableSteps {
 public:
  // Reads the attributes. InvalidArgument if they do not fit `num_tables` or each other.
  tensorflow::Status Read(tensorflow::OpKernelConstruction* construction, int64_t num_tables);

  const std::string& optimizer() const { return optimizer_; }

  // Appends the steps of the trained tables, whose hyper-parameters are valid as long as the inputs.
  // InvalidArgument if the hyper-parameters of a table are not a vector.
  tensorflow::Status Steps(tensorflow::OpKernelContext* context, const GroupTables& tables,
                           std::vector<EngineStep>* steps) const;

 private:
  std::vector<int32_t> trained_;
  std::string optimizer_;
};

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_TABLE_STEPS_H_
