// The inputs that the kernels of a group have in common.
#ifndef SOK_SOK_OPS_KERNELS_GROUP_INPUTS_H_
#define SOK_SOK_OPS_KERNELS_GROUP_INPUTS_H_

#include <cstdint>
#include <vector>

#include "cc/group/group_lookup.h"
#include "sok_ops/kernels/lookup_inputs.h"
#include "sok_ops/kernels/output_layout.h"
#include "sok_ops/kernels/resources.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {

// What SokGroupLookup leaves for its gradient.
struct GroupLookup {
  LookupPlan plan;
  OutputLayout layout;
};

// Working memory of a group's step.
struct LookupScratch {
  GroupIds ids;
  GroupScratch group;
};

// The tables behind the first inputs, one for each of `dims`: distinct, and with rows of those lengths.
tensorflow::Status LookupTables(tensorflow::OpKernelContext* context, const std::vector<int64_t>& dims,
                                std::vector<TableRef>* refs, std::vector<Table*>* tables);

// FailedPrecondition where `table` is one rank's part of several: such lookups have other ops.
tensorflow::Status CheckOneRank(const TableRef& table);

// The last input of a lookup, a scalar bool. `table` is any of the group's, for the error.
tensorflow::Status ReadTraining(tensorflow::OpKernelContext* context, const TableRef& table,
                                bool* is_training);

// The inputs of a lookup after its handles, by lookup: ids of all, then bags, then weights.
std::vector<LookupTensors> InputTensors(tensorflow::OpKernelContext* context,
                                        const std::vector<LookupSpec>& specs, int64_t num_tables);

// The shapes of a group's outputs. Checks the shapes of all inputs.
tensorflow::Status GroupOutputShapes(const OutputLayout& layout, const std::vector<LookupSpec>& specs,
                                     const std::vector<LookupTensors>& tensors,
                                     const std::vector<TableRef>& tables,
                                     std::vector<tensorflow::TensorShape>* shapes);

// The gradients of a group's outputs, which are `num_gradients` inputs from `first_input` on, by lookup.
// InvalidArgument where they and the plan do not belong together.
tensorflow::Status ReadOutputGradients(tensorflow::OpKernelContext* context, int first_input,
                                       int num_gradients, const LookupPlan& plan, const OutputLayout& layout,
                                       const std::vector<int64_t>& dims, const std::vector<bool>& weighted,
                                       std::vector<GradientRows>* gradients);

// Allocates the gradient of table `t` of `num_tables`: output t, which is set to the references of the rows
// that `part` trains, and output num_tables + t, their gradients of `dim` floats, to which *values then
// points. Where nothing in this run reads either, neither is made, and *values is null.
tensorflow::Status AllocateRowGradients(tensorflow::OpKernelContext* context, int t, int num_tables,
                                        const TablePart& part, int64_t dim, float** values);

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_GROUP_INPUTS_H_
